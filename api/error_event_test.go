package api

import (
	"encoding/json"
	"fmt"
	"testing"

	"kvasir/api/sse"
)

func TestAppendError_Anthropic(t *testing.T) {
	e := Error{Status: 404, Code: "model_not_found", Param: "model", Message: `no "x"`, RequestID: "r1"}
	const want = `{"type":"error","error":{"type":"not_found_error","message":"no \"x\""},"request_id":"r1"}`
	for _, g := range []Grammar{Messages, CountTokens} {
		if got := string(AppendError(nil, g, e)); got != want {
			t.Errorf("%v\n got %s\nwant %s", g, got, want)
		}
	}
	for status, want := range map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
		404: "not_found_error", 405: "invalid_request_error", 408: "timeout_error", 413: "request_too_large",
		415: "invalid_request_error", 429: "rate_limit_error", 500: "api_error", 502: "api_error",
		503: "overloaded_error", 504: "timeout_error", 529: "overloaded_error",
	} {
		c := ReadChunk(Messages, nil, AppendError(nil, Messages, Error{Status: status, Message: "m"}))
		if c.Kind != Failure || string(c.Fault.Type) != want {
			t.Errorf("%d: %s, want %s", status, describe(c), want)
		}
		if status != 503 && anthropicStatus([]byte(want)) == status && c.Fault.Status != status {
			t.Errorf("%d: read back as %d", status, c.Fault.Status)
		}
	}
}

func TestAppendErrorEvent(t *testing.T) {
	e := Error{Status: 502, Code: "upstream_broke_off", Message: "gone", RequestID: "r"}
	for g, want := range map[Grammar]string{
		Chat:     "data: " + `{"error":{"message":"gone","type":"server_error","param":null,"code":"upstream_broke_off","request_id":"r"}}` + "\n\n",
		Messages: "event: error\ndata: " + `{"type":"error","error":{"type":"api_error","message":"gone"},"request_id":"r"}` + "\n\n",
		Responses: "event: error\ndata: " + `{"type":"error","code":"upstream_broke_off","message":"gone","param":null,"sequence_number":7,` +
			`"error":{"message":"gone","type":"server_error","param":null,"code":"upstream_broke_off","request_id":"r"}}` + "\n\n",
	} {
		if got := string(AppendErrorEvent(nil, g, e, 7)); got != want {
			t.Errorf("%v\n got %s\nwant %s", g, got, want)
		}
	}
}

// readEvent reads the one event that b holds.
func readEvent(t *testing.T, b []byte) sse.Event {
	t.Helper()
	var r sse.Reader
	r.Reset(0)
	r.Feed(b)
	ev, ok := r.Next()
	if _, more := r.Next(); !ok || more || r.MidEvent() || !json.Valid(ev.Data) {
		t.Fatalf("not one event: %q", b)
	}
	return ev
}

// TestErrorEvents_AreRecognised: in every grammar an error event is one event, and read
// back as a failure.
func TestErrorEvents_AreRecognised(t *testing.T) {
	for g := range grammarCount {
		ev := readEvent(t, AppendErrorEvent(nil, g, Error{Status: 502, Code: "c", Message: "a\nb\r\n\ndata: [DONE]"}, 3))
		if c := ReadChunk(g, ev.Type, ev.Data); c.Kind != Failure || g == Responses && c.NextSequence != 4 {
			t.Errorf("%v: %s", g, describe(c))
		}
	}
}

func TestErrorEventFromBody(t *testing.T) {
	own := Error{Status: 400, Code: "own", Message: "own words", RequestID: "r"}
	for _, c := range []struct{ name, body, want string }{
		{"vllm", `{"error":{"message":"too long","type":"BadRequestError","param":"input_tokens","code":400}}`, "too long|BadRequestError|input_tokens|400"},
		{"openai", `{"error":{"message":"no \"x\"\u00e9","type":"invalid_request_error","param":null,"code":null}}`, `no "x"é|invalid_request_error||`},
		{"sglang", `{"object":"error","message":"full","type":"503","param":null,"code":503}`, "full|503||503"},
		{"anthropic", `{"type":"error","error":{"type":"overloaded_error","message":"busy"},"request_id":"req_1"}`, "busy|overloaded_error||"},
		{"tgi", `{"error":"Model is overloaded","error_type":"overloaded"}`, "Model is overloaded|overloaded||"},
		{"gemini", `[{"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED"}}]`, "quota|invalid_request_error||429"},
		{"fastapi", `{"detail":"Not Found"}`, "Not Found|invalid_request_error||"},
		{"type beside the error", `{"code":"a","error":{"message":"b"}}`, "b|invalid_request_error||"},
		{"no words", `{"error":{"code":5}}`, "own words|invalid_request_error||own"},
		{"no strings", `{"error":{"message":{"a":1},"type":[]}}`, "own words|invalid_request_error||own"},
		{"detail that is a list", `{"detail":[{"msg":"x"}]}`, "own words|invalid_request_error||own"},
		{"html", `<html>Bad Gateway</html>`, "own words|invalid_request_error||own"},
		{"nothing", ``, "own words|invalid_request_error||own"},
		{"cut", `{"error":{"message":"a","ty`, "a|invalid_request_error||"},
		{"nested", `{"error":{"error":{"error":"x"},"message":"a"}}`, "a|invalid_request_error||"},
	} {
		ev := readEvent(t, ErrorEventFromBody(nil, Chat, []byte(c.body), own))
		var read struct {
			Error struct {
				Message, Type, Param, Code string
				RequestID                  string `json:"request_id"`
			}
		}
		if err := json.Unmarshal(ev.Data, &read); err != nil {
			t.Fatal(err)
		}
		e := read.Error
		if got := fmt.Sprintf("%s|%s|%s|%s", e.Message, e.Type, e.Param, e.Code); got != c.want || e.RequestID != "r" {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	got := string(ErrorEventFromBody(nil, Messages, []byte(`{"error":{"message":"busy","type":"overloaded_error"}}`), own))
	if want := "event: error\ndata: " + `{"type":"error","error":{"type":"overloaded_error","message":"busy"},"request_id":"r"}` + "\n\n"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// FuzzErrorEventFromBody: whatever an endpoint said, in every grammar it becomes one event
// that is read as a failure.
func FuzzErrorEventFromBody(f *testing.F) {
	for _, s := range []string{vllmError, `{"error":"x"}`, `{"detail":"a\u000ab"}`, `[{"error":{"code":1e5}}]`, "{\"message\":\"\xff\n\"}", ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for g := range grammarCount {
			ev := readEvent(t, ErrorEventFromBody(nil, g, body, Error{Status: 500, Message: "own"}))
			if c := ReadChunk(g, ev.Type, ev.Data); c.Kind != Failure {
				t.Fatalf("%v: %s\n%q", g, describe(c), body)
			}
		}
	})
}
