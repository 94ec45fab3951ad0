package anthropicsdk

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"kvasir/internal/testkit/scripted"
)

// TestThinking_Passes sends everything that an agent sends, and gets all kinds of blocks
// back: the endpoint sees the SDK's own bytes but for the model's name, the SDK sees the
// endpoint's.
func TestThinking_Passes(t *testing.T) {
	r := withScript(t, "", func(c *scripted.Call) {
		c.Stream(
			named("message_start", `"message":{"id":"m","type":"message","role":"assistant","content":[],"model":"served","stop_reason":null,"stop_sequence":null,`+
				`"usage":{"input_tokens":5,"cache_creation_input_tokens":3,"cache_read_input_tokens":7,"output_tokens":1}}`),
			named("content_block_start", `"index":0,"content_block":{"type":"thinking","thinking":"","signature":""}`),
			named("content_block_delta", `"index":0,"delta":{"type":"thinking_delta","thinking":"Who had "}`),
			named("content_block_delta", `"index":0,"delta":{"type":"thinking_delta","thinking":"the honey?"}`),
			named("content_block_delta", `"index":0,"delta":{"type":"signature_delta","signature":"c2lnbmVk"}`),
			named("content_block_stop", `"index":0`),
			named("content_block_start", `"index":1,"content_block":{"type":"redacted_thinking","data":"aGlkZGVu"}`),
			named("content_block_stop", `"index":1`),
			named("ping", ""),
			named("content_block_start", `"index":2,"content_block":{"type":"text","text":""}`),
			named("content_block_delta", `"index":2,"delta":{"type":"text_delta","text":"The dwarves."}`),
			named("content_block_stop", `"index":2`),
			named("content_block_start", `"index":3,"content_block":{"type":"tool_use","id":"t1","name":"weather","input":{}}`),
			named("content_block_delta", `"index":3,"delta":{"type":"input_json_delta","partial_json":"{\"place\":"}`),
			named("content_block_delta", `"index":3,"delta":{"type":"input_json_delta","partial_json":"\"Hnitbjörg\"}"}`),
			named("content_block_stop", `"index":3`),
			named("message_delta", `"delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":42}`),
			named("message_stop", ""),
		)
	})
	q := question("tiny", "Who made the mead \U0001f36f of poetry?", 4000)
	q.Thinking = anthropic.ThinkingConfigParamOfEnabled(2048)
	q.System = []anthropic.TextBlockParam{{Text: "You are a skald.", CacheControl: anthropic.NewCacheControlEphemeralParam()}}
	q.Messages = append(q.Messages,
		anthropic.NewAssistantMessage(anthropic.NewThinkingBlock("c2ln", "Hm."), anthropic.NewToolUseBlock("t0", map[string]any{"place": "Asgard"}, "weather")),
		anthropic.NewUserMessage(anthropic.NewToolResultBlock("t0", "fair", false)))
	q.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: "weather", InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{}}}}}

	var sent []byte
	spy := option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		if sent, err = io.ReadAll(body); err != nil {
			return nil, err
		}
		return next(r)
	})
	text, m, err := read(t, r.client(), q, spy, option.WithHeader("anthropic-beta", "interleaved-thinking-2025-05-14"))
	if err != nil {
		t.Fatal(err)
	}

	if text != "The dwarves." || len(m.Content) != 4 || m.StopReason != "tool_use" || m.Usage.OutputTokens != 42 || m.Usage.CacheReadInputTokens != 7 {
		t.Fatalf("got %q, %+v", text, m)
	}
	if b := m.Content[0]; b.Thinking != "Who had the honey?" || b.Signature != "c2lnbmVk" {
		t.Errorf("thinking is %q, signed %q", b.Thinking, b.Signature)
	}
	if b := m.Content[1]; b.Type != "redacted_thinking" || b.Data != "aGlkZGVu" {
		t.Errorf("redacted thinking is %+v", b)
	}
	if b := m.Content[3]; b.ID != "t1" || string(b.Input) != `{"place":"Hnitbjörg"}` {
		t.Errorf("tool use is %s with %s", b.ID, b.Input)
	}

	call := r.servers[0].Calls()[0]
	if want := bytes.Replace(sent, []byte(`"model":"tiny"`), []byte(`"model":"served"`), 1); call.Target != "/v1/messages" || !bytes.Equal(call.Body, want) {
		t.Errorf("the endpoint got %s\nwant %s", call.Body, want)
	}
	for name, want := range map[string]string{"anthropic-version": "2023-06-01", "anthropic-beta": "interleaved-thinking-2025-05-14"} {
		if got, _ := call.Get(name); got != want {
			t.Errorf("the endpoint got %s %q", name, got)
		}
	}
	for _, name := range []string{"x-api-key", "authorization"} {
		if got, came := call.Get(name); came {
			t.Errorf("the endpoint was shown %s %q", name, got)
		}
	}
	r.idle(t)
	for kind, want := range map[string]float64{"output": 42, "cached": 7, "input": 15} {
		if got := r.Metric(t, "kvasir_tokens_total", `kind="`+kind+`"`); got != want {
			t.Errorf("the gateway counted %v tokens of kind %s, want %v", got, kind, want)
		}
	}
}
