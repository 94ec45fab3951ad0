// Package openaisdk drives the built program with OpenAI's official Go SDK, over real
// sockets: kvasir serve in front of kvasir engine processes, and of servers that misbehave
// by script. It is a module of its own, so that what the SDK needs stays out of the
// product's go.sum.
package openaisdk

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"

	"kvasir/internal/testkit/scripted"
	"kvasir/test/program"
)

func TestMain(m *testing.M) { os.Exit(program.Main(m)) }

// rig is a gateway and what stands behind it.
type rig struct {
	*program.Gateway
	engines []string           // their URLs
	servers []*scripted.Server // or these
}

// withEngines runs a gateway whose model tiny, or default, is served by two emulated
// engines that know it as served.
func withEngines(t *testing.T) *rig {
	t.Helper()
	r := &rig{}
	for range 2 {
		r.engines = append(r.engines, program.Engine(t, "--model", "served", "--speed", "5"))
	}
	r.Gateway = program.Serve(t, fmt.Sprintf("models:\n  tiny: {aliases: [default], served_as: served, endpoints: [%s]}\n", strings.Join(r.engines, ", ")))
	return r
}

// withScript runs a gateway whose model tiny is served by one server for each script. keys
// are further keys of the configuration.
func withScript(t *testing.T, keys string, scripts ...scripted.Script) *rig {
	t.Helper()
	r := &rig{}
	var urls []string
	for _, script := range scripts {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := scripted.Start(l, scripted.Options{}, script)
		t.Cleanup(s.Close)
		r.servers = append(r.servers, s)
		urls = append(urls, "http://"+s.Addr())
	}
	r.Gateway = program.Serve(t, fmt.Sprintf("drain: 1s\n%smodels:\n  tiny: {served_as: served, endpoints: [%s], policy: round-robin, signals: {scrape: 0s, max_age: 0s}, probe: {interval: 0s}}\n",
		keys, strings.Join(urls, ", ")))
	return r
}

// upstreamCalls returns how many calls reached the servers.
func (r *rig) upstreamCalls() (n int) {
	for _, s := range r.servers {
		n += len(s.Calls())
	}
	return n
}

// idle waits until nothing is in flight: every call is accounted for and every charge was
// given back.
func (r *rig) idle(t *testing.T) {
	t.Helper()
	program.Eventually(t, "nothing is in flight", func() bool {
		return r.Metric(t, "kvasir_calls_in_flight") == 0 && r.Metric(t, "kvasir_in_flight") == 0
	})
}

// client returns the SDK's client, without retries of its own.
func (r *rig) client(options ...option.RequestOption) *openai.Client {
	c := openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(r.Base + "/v1"), option.WithAPIKey("sk-client"), option.WithMaxRetries(0),
	}, options...)...)
	return &c
}

func question(model, text string, tokens int64) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: model, MaxTokens: openai.Int(tokens),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)},
	}
}

// streams calls a model on each route that streams text, and returns the text and the
// error that the SDK gives its user.
var streams = []struct {
	route string
	read  func(t *testing.T, c *openai.Client, model string) (text string, err error)
}{
	{"/v1/chat/completions", func(t *testing.T, c *openai.Client, model string) (text string, err error) {
		s := c.Chat.Completions.NewStreaming(t.Context(), question(model, "Who made the mead?", 20))
		for s.Next() {
			for _, choice := range s.Current().Choices {
				text += choice.Delta.Content
			}
		}
		return text, s.Err()
	}},
	{"/v1/completions", func(t *testing.T, c *openai.Client, model string) (text string, err error) {
		s := c.Completions.NewStreaming(t.Context(), openai.CompletionNewParams{
			Model: openai.CompletionNewParamsModel(model), Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("Who made the mead?")},
		})
		for s.Next() {
			for _, choice := range s.Current().Choices {
				text += choice.Text
			}
		}
		return text, s.Err()
	}},
	{"/v1/responses", func(t *testing.T, c *openai.Client, model string) (text string, err error) {
		s := c.Responses.NewStreaming(t.Context(), responses.ResponseNewParams{
			Model: model, Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Who made the mead?")},
		})
		for s.Next() {
			if e := s.Current(); e.Type == "response.output_text.delta" {
				text += e.Delta
			}
		}
		return text, s.Err()
	}},
}

// script is a route's stream with the text "mead, more mead", an event an element: the
// preamble, two contents, the end.
var script = map[string][4]string{
	"/v1/chat/completions": {
		chatChunk(`{"role":"assistant","content":""}`, "null"),
		chatChunk(`{"content":"mead, "}`, "null"),
		chatChunk(`{"content":"more mead"}`, "null"),
		chatChunk(`{}`, `"stop"`) + "data: [DONE]\n\n",
	},
	"/v1/completions": {
		": hello\n\n",
		textChunk("mead, ", "null"),
		textChunk("more mead", "null"),
		textChunk("", `"stop"`) + "data: [DONE]\n\n",
	},
	"/v1/responses": {
		named("response.created", `"sequence_number":0,"response":`+response("in_progress", "")) +
			named("response.output_item.added", `"sequence_number":1,"output_index":0,"item":{"id":"i","type":"message","role":"assistant","status":"in_progress","content":[]}`) +
			named("response.content_part.added", `"sequence_number":2,"output_index":0,"content_index":0,"item_id":"i","part":{"type":"output_text","text":"","annotations":[]}`),
		named("response.output_text.delta", `"sequence_number":3,"output_index":0,"content_index":0,"item_id":"i","delta":"mead, ","logprobs":[]`),
		named("response.output_text.delta", `"sequence_number":4,"output_index":0,"content_index":0,"item_id":"i","delta":"more mead","logprobs":[]`),
		named("response.completed", `"sequence_number":5,"response":`+
			response("completed", `{"id":"i","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"mead, more mead","annotations":[]}]}`)),
	},
}

func chatChunk(delta, finish string) string {
	return fmt.Sprintf("data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"served\",\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":%s}]}\n\n", delta, finish)
}

func textChunk(text, finish string) string {
	return fmt.Sprintf("data: {\"id\":\"c\",\"object\":\"text_completion\",\"created\":1,\"model\":\"served\",\"choices\":[{\"index\":0,\"text\":%q,\"finish_reason\":%s}]}\n\n", text, finish)
}

func named(event, fields string) string {
	return fmt.Sprintf("event: %s\ndata: {\"type\":%q,%s}\n\n", event, event, fields)
}

func response(status, output string) string {
	return fmt.Sprintf(`{"id":"r","object":"response","created_at":1,"status":%q,"model":"served","output":[%s],"usage":{"input_tokens":5,"output_tokens":4,"total_tokens":9}}`, status, output)
}

const wholeText = "mead, more mead"

// answers is the script of a server that is well.
func answers(c *scripted.Call) {
	s := script[c.Record().Target]
	c.Stream(s[:]...)
}

// refuses is the script of a server that answers with a status.
func refuses(status int, lines ...string) scripted.Script {
	return func(c *scripted.Call) {
		c.Reply(status, "application/json", fmt.Sprintf(`{"error":{"message":"no room here","type":"its_type","param":null,"code":%d}}`, status), lines...)
	}
}

// apiError returns the SDK's reading of a call that failed with a status.
func apiError(t *testing.T, err error) *openai.Error {
	t.Helper()
	var e *openai.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an API error", err)
	}
	return e
}

// said is what an error event says.
type said struct {
	Message, Type string
	Code          any // a string, or a number of those who do as vLLM does
}

// streamError returns the SDK's reading of an error event.
func streamError(t *testing.T, err error) said {
	t.Helper()
	var e *ssestream.StreamError
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a stream's error", err)
	}
	var got struct{ Error said }
	if err := json.Unmarshal(e.Event.Data, &got); err != nil {
		t.Fatalf("%s: %v", e.Event.Data, err)
	}
	return got.Error
}
