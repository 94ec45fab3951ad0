package openaisdk

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"kvasir/test/program"
)

func TestChat(t *testing.T) {
	r := withEngines(t)
	c := r.client()

	t.Run("whole", func(t *testing.T) {
		got, err := c.Chat.Completions.New(t.Context(), question("tiny", "Who made the mead?", 20))
		if err != nil {
			t.Fatal(err)
		}
		u := got.Usage
		if got.Choices[0].Message.Content == "" || u.CompletionTokens == 0 || u.CompletionTokens > 20 || u.TotalTokens != u.PromptTokens+u.CompletionTokens {
			t.Errorf("got %s", got.RawJSON())
		}
	})

	t.Run("streamed", func(t *testing.T) {
		q := question("default", "Who made the mead of poetry?", 30)
		q.StreamOptions.IncludeUsage = openai.Bool(true)
		acc, chunks := accumulate(t, c, q)
		if acc.Choices[0].Message.Content == "" || acc.Choices[0].FinishReason == "" {
			t.Errorf("answer is %+v", acc.Choices[0])
		}
		if acc.Usage.CompletionTokens == 0 || acc.Usage.CompletionTokens > 30 {
			t.Errorf("usage is %+v", acc.Usage)
		}
		if int64(chunks) < acc.Usage.CompletionTokens {
			t.Errorf("%d tokens came in %d chunks: the stream was gathered", acc.Usage.CompletionTokens, chunks)
		}
	})

	t.Run("two choices", func(t *testing.T) {
		q := question("tiny", "Who made the mead?", 20)
		q.N = openai.Int(2)
		whole, err := c.Chat.Completions.New(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(whole.Choices) != 2 || whole.Choices[0].Message.Content == "" || whole.Choices[1].Message.Content == "" {
			t.Errorf("got %s", whole.RawJSON())
		}
		q.StreamOptions.IncludeUsage = openai.Bool(true)
		acc, _ := accumulate(t, c, q)
		if len(acc.Choices) != 2 {
			t.Fatalf("got %d choices", len(acc.Choices))
		}
		for i, choice := range acc.Choices {
			if choice.Message.Content == "" || choice.FinishReason == "" {
				t.Errorf("choice %d is %+v", i, choice)
			}
		}
		if acc.Usage.CompletionTokens < 2 {
			t.Errorf("usage of both is %+v", acc.Usage)
		}
	})

	t.Run("tools", func(t *testing.T) {
		q := question("tiny", "What is the weather in Hnitbjorg?", 40)
		q.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: "weather", Description: openai.String("The weather at a place"),
			Parameters: shared.FunctionParameters{"type": "object", "properties": map[string]any{"text": map[string]any{"type": "string"}}},
		})}
		q.ToolChoice.OfAuto = openai.String("required")
		whole, err := c.Chat.Completions.New(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		checkTool(t, whole)
		acc, _ := accumulate(t, c, q)
		checkTool(t, &acc.ChatCompletion)
	})

	t.Run("second turn finds its prefix", func(t *testing.T) {
		long := strings.Repeat("The dwarves Fjalar and Galar mixed honey with the blood. ", 60)
		first, err := c.Chat.Completions.New(t.Context(), question("tiny", long, 20))
		if err != nil {
			t.Fatal(err)
		}
		q := question("tiny", long, 20)
		q.Messages = append(q.Messages, openai.AssistantMessage(first.Choices[0].Message.Content), openai.UserMessage("Go on."))
		second, err := c.Chat.Completions.New(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if cached, prompt := second.Usage.PromptTokensDetails.CachedTokens, second.Usage.PromptTokens; cached < prompt*8/10 {
			t.Errorf("second turn found %d of %d prompt tokens cached: it went elsewhere", cached, prompt)
		}
	})
}

// accumulate reads a stream of a chat with the SDK's accumulator.
func accumulate(t *testing.T, c *openai.Client, q openai.ChatCompletionNewParams) (acc openai.ChatCompletionAccumulator, chunks int) {
	t.Helper()
	stream := c.Chat.Completions.NewStreaming(t.Context(), q)
	for stream.Next() {
		chunks++
		if !acc.AddChunk(stream.Current()) {
			t.Fatalf("chunk %d does not continue the answer", chunks)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	return acc, chunks
}

func checkTool(t *testing.T, got *openai.ChatCompletion) {
	t.Helper()
	calls := got.Choices[0].Message.ToolCalls
	if len(calls) != 1 || calls[0].Function.Name != "weather" || !json.Valid([]byte(calls[0].Function.Arguments)) {
		t.Errorf("tool calls are %+v", calls)
	}
}

func TestCompletions(t *testing.T) {
	r := withEngines(t)
	c := r.client()
	for name, prompt := range map[string]openai.CompletionNewParamsPromptUnion{
		"text":      {OfString: openai.String("Once upon a time")},
		"token ids": {OfArrayOfTokens: []int64{5, 6, 7, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			q := openai.CompletionNewParams{Model: "tiny", MaxTokens: openai.Int(8), Prompt: prompt}
			got, err := c.Completions.New(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if got.Choices[0].Text == "" || got.Usage.CompletionTokens == 0 {
				t.Errorf("got %s", got.RawJSON())
			}
			var text strings.Builder
			stream := c.Completions.NewStreaming(t.Context(), q)
			for stream.Next() {
				for _, choice := range stream.Current().Choices {
					text.WriteString(choice.Text)
				}
			}
			if err := stream.Err(); err != nil || text.String() == "" {
				t.Errorf("streamed %q, %v", text.String(), err)
			}
		})
	}
}

func TestEmbeddings_Base64IsTheFloats(t *testing.T) {
	r := withEngines(t)
	c := r.client()
	q := openai.EmbeddingNewParams{Model: "default", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"mead", "honey"}}}
	var got [3]*openai.CreateEmbeddingResponse
	for i, format := range []openai.EmbeddingNewParamsEncodingFormat{"", openai.EmbeddingNewParamsEncodingFormatFloat, openai.EmbeddingNewParamsEncodingFormatBase64} {
		q.EncodingFormat = format
		var err error
		if got[i], err = c.Embeddings.New(t.Context(), q); err != nil {
			t.Fatalf("%q: %v", format, err)
		}
		if len(got[i].Data) != 2 || got[i].Data[1].Index != 1 || got[i].Usage.PromptTokens == 0 {
			t.Fatalf("%q: got %s", format, got[i].RawJSON())
		}
	}
	if raw := got[2].Data[0].JSON.Embedding.Raw(); !strings.HasPrefix(raw, `"`) {
		t.Errorf("base64 is %.20s", raw)
	}
	for i := range got {
		if !slices.EqualFunc(got[0].Data[0].Embedding, got[i].Data[0].Embedding, func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }) {
			t.Errorf("the embeddings of calls 0 and %d differ", i)
		}
	}
}

func TestResponses(t *testing.T) {
	r := withEngines(t)
	c := r.client()
	q := responses.ResponseNewParams{
		Model: "default", MaxOutputTokens: openai.Int(20), Instructions: openai.String("Answer in verse."),
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Who made the mead?")},
	}
	whole, err := c.Responses.New(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if whole.OutputText() == "" || whole.Usage.OutputTokens == 0 || whole.Usage.OutputTokens > 20 {
		t.Errorf("got %s", whole.RawJSON())
	}

	var kinds []string
	var text strings.Builder
	var last responses.ResponseStreamEventUnion
	stream := c.Responses.NewStreaming(t.Context(), q)
	for stream.Next() {
		last = stream.Current()
		kinds = append(kinds, last.Type)
		if last.Type == "response.output_text.delta" {
			text.WriteString(last.Delta)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if kinds[0] != "response.created" || last.Type != "response.completed" {
		t.Errorf("events are %v", kinds)
	}
	if text.String() == "" || last.Response.OutputText() != text.String() {
		t.Errorf("deltas say %q, the end says %q", text.String(), last.Response.OutputText())
	}
	if u := last.Response.Usage; u.InputTokens == 0 || u.OutputTokens == 0 || int64(len(kinds)) < u.OutputTokens {
		t.Errorf("usage is %+v after %d events", u, len(kinds))
	}
	r.idle(t)
	if got := r.Metric(t, "kvasir_tokens_total", `kind="output"`); got != float64(whole.Usage.OutputTokens+last.Response.Usage.OutputTokens) {
		t.Errorf("the gateway counted %v output tokens of both", got)
	}
}

// TestRoutesBesidesOpenAIs calls what vLLM has beside OpenAI's API, with the SDK's generic
// call.
func TestRoutesBesidesOpenAIs(t *testing.T) {
	r := withEngines(t)
	c := r.client()
	pairs := map[string]any{"model": "tiny", "query": "mead", "documents": []string{"honey", "blood"}}
	scores := map[string]any{"model": "tiny", "text_1": "mead", "text_2": []string{"honey", "blood"}}
	text := map[string]any{"model": "tiny", "prompt": "mead of poetry"}
	for _, test := range []struct {
		path, holds string
		body        any
	}{
		{"rerank", `"relevance_score"`, pairs},
		{"../v2/rerank", `"relevance_score"`, pairs},
		{"../rerank", `"relevance_score"`, pairs},
		{"score", `"score"`, scores},
		{"../score", `"score"`, scores},
		{"../tokenize", `"tokens"`, text},
		{"../detokenize", `"prompt"`, map[string]any{"model": "tiny", "tokens": []int{5, 6, 7}}},
	} {
		t.Run(test.path, func(t *testing.T) {
			var got []byte
			if err := c.Post(t.Context(), test.path, test.body, &got); err != nil {
				t.Fatal(err)
			}
			if !json.Valid(got) || !strings.Contains(string(got), test.holds) {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestModels(t *testing.T) {
	r := withEngines(t)
	c := r.client()
	page, err := c.Models.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range page.Data {
		names = append(names, m.ID)
	}
	if strings.Join(names, " ") != "tiny default" {
		t.Errorf("models are %v", names)
	}
	if m, err := c.Models.Get(t.Context(), "default"); err != nil || m.ID != "default" {
		t.Errorf("got %+v, %v", m, err)
	}
	if _, err := c.Models.Get(t.Context(), "nobody"); apiError(t, err).StatusCode != 404 {
		t.Errorf("got %v", err)
	}
}

// TestCancellation_ReachesTheEngine leaves a long call, streamed and not, and waits for the
// engine to have nothing to do.
func TestCancellation_ReachesTheEngine(t *testing.T) {
	r := withEngines(t)
	c := r.client()
	q := question("tiny", "Tell me everything.", 100_000)
	endless := option.WithJSONSet("ignore_eos", true)
	running := func() (sum float64) {
		for _, e := range r.engines {
			sum += program.Metric(t, e+"/metrics", "vllm:num_requests_running")
		}
		return sum
	}
	leave := func(cancel context.CancelFunc) {
		program.Eventually(t, "an engine runs the call", func() bool { return running() == 1 })
		cancel()
		program.Eventually(t, "the engine has nothing to do", func() bool { return running() == 0 })
		r.idle(t)
	}

	ctx, cancel := context.WithCancel(t.Context())
	stream := c.Chat.Completions.NewStreaming(ctx, q, endless)
	for range 5 {
		if !stream.Next() {
			t.Fatal(stream.Err())
		}
	}
	leave(cancel)
	_ = stream.Close()

	ctx, cancel = context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := c.Chat.Completions.New(ctx, q, endless)
		ended <- err
	}()
	leave(cancel)
	if err := <-ended; err == nil {
		t.Error("a call that was left has an answer")
	}
	if n := r.Metric(t, "kvasir_calls_total", `outcome="client_gone"`); n != 2 {
		t.Errorf("%v calls were counted as client_gone, want 2", n)
	}
}
