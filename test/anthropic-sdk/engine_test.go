package anthropicsdk

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"

	"kvasir/test/program"
)

func TestMessages(t *testing.T) {
	r := withEngines(t)
	c := r.client()

	t.Run("whole", func(t *testing.T) {
		got, err := c.Messages.New(t.Context(), question("tiny", "Who made the mead?", 20))
		if err != nil {
			t.Fatal(err)
		}
		if got.Content[0].Text == "" || got.StopReason == "" || got.Usage.InputTokens == 0 || got.Usage.OutputTokens == 0 || got.Usage.OutputTokens > 20 {
			t.Errorf("got %s", got.RawJSON())
		}
	})

	t.Run("streamed", func(t *testing.T) {
		text, m, err := read(t, c, question("default", "Who made the mead of poetry?", 30))
		if err != nil {
			t.Fatal(err)
		}
		if text == "" || m.Content[0].Text != text || m.StopReason == "" || m.Usage.OutputTokens == 0 || m.Usage.OutputTokens > 30 {
			t.Errorf("deltas say %q, the message is %+v", text, m)
		}
	})

	t.Run("tools", func(t *testing.T) {
		q := question("tiny", "What is the weather in Hnitbjorg?", 400)
		q.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{
			Name: "weather", Description: anthropic.String("The weather at a place"),
			InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{"text": map[string]any{"type": "string"}}},
		}}}
		q.ToolChoice.OfAny = &anthropic.ToolChoiceAnyParam{}
		whole, err := c.Messages.New(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		_, streamed, err := read(t, c, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []*anthropic.Message{whole, &streamed} {
			b := m.Content[0]
			if b.Type != "tool_use" || b.Name != "weather" || b.ID == "" || !json.Valid(b.Input) || m.StopReason != "tool_use" {
				t.Errorf("got %s %s with %s, stopped by %s", b.Type, b.Name, b.Input, m.StopReason)
			}
		}
	})

	t.Run("second turn finds its prefix", func(t *testing.T) {
		long := strings.Repeat("The dwarves Fjalar and Galar mixed honey with the blood. ", 60)
		first, err := c.Messages.New(t.Context(), question("tiny", long, 20))
		if err != nil {
			t.Fatal(err)
		}
		q := question("tiny", long, 20)
		q.Messages = append(q.Messages, first.ToParam(), anthropic.NewUserMessage(anthropic.NewTextBlock("Go on.")))
		second, err := c.Messages.New(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if cached, more := second.Usage.CacheReadInputTokens, second.Usage.InputTokens; cached < (cached+more)*8/10 {
			t.Errorf("second turn found %d tokens cached and %d not: it went elsewhere", cached, more)
		}
	})
}

func TestCountTokens(t *testing.T) {
	r := withEngines(t)
	c := r.client()
	count := func(text string) int64 {
		got, err := c.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{
			Model: "default", Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(text))},
		})
		if err != nil {
			t.Fatal(err)
		}
		return got.InputTokens
	}
	if short, long := count("mead"), count(strings.Repeat("mead ", 100)); short == 0 || long <= short {
		t.Errorf("a word has %d tokens, a hundred have %d", short, long)
	}
}

func TestModels(t *testing.T) {
	r := withEngines(t)
	c := r.client()
	page, err := c.Models.List(t.Context(), anthropic.ModelListParams{})
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
	if m, err := c.Models.Get(t.Context(), "default", anthropic.ModelGetParams{}); err != nil || m.ID != "default" {
		t.Errorf("got %+v, %v", m, err)
	}
	_, err = c.Models.Get(t.Context(), "nobody", anthropic.ModelGetParams{})
	failure{status: 404, kind: anthropic.ErrorTypeNotFoundError, message: "nobody"}.check(t, err)
}

// TestCancellation_ReachesTheEngine leaves a long call, streamed and not, and waits for the
// engine to have nothing to do.
func TestCancellation_ReachesTheEngine(t *testing.T) {
	r := withEngines(t, "--speed", "0.02") // Anthropic's API can't tell an engine to go on for ever
	c := r.client()
	q := question("tiny", "Tell me everything.", 4000)
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
	s := c.Messages.NewStreaming(ctx, q)
	for range 3 {
		if !s.Next() {
			t.Fatal(s.Err())
		}
	}
	leave(cancel)
	_ = s.Close()

	ctx, cancel = context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := c.Messages.New(ctx, q)
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
