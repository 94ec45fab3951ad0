package proxy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// What clients send.
const (
	chatPath       = "/v1/chat/completions"
	completionPath = "/v1/completions"
	embedPath      = "/v1/embeddings"

	streamed   = `{"model":"m","stream":true,"messages":[{"role":"user","content":"Hello"}]}`
	unstreamed = `{"model":"m","messages":[{"role":"user","content":"Hello"}]}`
	embedding  = `{"model":"m","input":"Hello"}`
)

// What endpoints send: the events of a chat stream.
const (
	roleEvent   = `data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"
	finishEvent = `data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	usageEvent  = `data: {"id":"c1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":4}}}` + "\n\n"
	doneEvent   = "data: [DONE]\n\n"
	errorEvent  = `data: {"error":{"message":"the engine died","type":"server_error","param":null,"code":500}}` + "\n\n"
	quotaEvent  = `data: {"error":{"message":"too long","type":"invalid_request_error","param":null,"code":400}}` + "\n\n"
)

const jsonAnswer = `{"id":"c1","object":"chat.completion","model":"inner","choices":[{"index":0,"message":{"role":"assistant","content":"Hi there"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}`

// textEvent is an event with content.
func textEvent(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":%s},"finish_reason":null}]}`+"\n\n", quoted)
}

// wholeStream is a complete answer in events.
func wholeStream(texts ...string) []string {
	events := []string{roleEvent}
	for _, t := range texts {
		events = append(events, textEvent(t))
	}
	return append(events, finishEvent, usageEvent, doneEvent)
}

func joined(events []string) string { return strings.Join(events, "") }

// envelope reads an error in OpenAI's shape.
func envelope(t testing.TB, body string) (e struct {
	Message, Type, Code, Param string
	RequestID                  string `json:"request_id"`
}) {
	t.Helper()
	var outer struct {
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal([]byte(body), &outer); err != nil || outer.Error == nil {
		t.Fatalf("not an error in OpenAI's shape: %q (%v)", body, err)
	}
	if err := json.Unmarshal(outer.Error, &e); err != nil {
		t.Fatalf("%v in %q", err, body)
	}
	return e
}
