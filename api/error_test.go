package api

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestAppendError(t *testing.T) {
	full := Error{Status: 404, Code: "model_not_found", Param: "model", Message: "no \"x\"\n\x00\x7f\xff é\u2028", RequestID: "r1"}
	got := string(AppendError([]byte("before "), Chat, full))
	want := `before {"error":{"message":"no \"x\"\n\u0000\u007f\ufffd é` + "\u2028" + `","type":"not_found_error","param":"model","code":"model_not_found","request_id":"r1"}}`
	if got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	got = string(AppendErrorEvent(nil, Chat, Error{Status: 502, Message: "gone"}, 0))
	if want := "data: {\"error\":{\"message\":\"gone\",\"type\":\"server_error\",\"param\":null,\"code\":null}}\n\n"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// TestErrorType: every status that the gateway answers with has a type, and what it
// writes is recognised as a failure by its own reader.
func TestErrorType(t *testing.T) {
	for status, want := range map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
		405: "invalid_request_error", 408: "timeout_error", 413: "invalid_request_error", 415: "invalid_request_error",
		429: "rate_limit_error", 500: "server_error", 502: "server_error", 503: "server_error", 504: "timeout_error",
	} {
		if got := openaiType(status); got != want {
			t.Errorf("%d: %s, want %s", status, got, want)
		}
		c := ReadChunk(Chat, nil, AppendError(nil, Chat, Error{Status: status, Code: "c", Message: "m"}))
		if c.Kind != Failure || string(c.Fault.Type) != want || string(c.Fault.Code) != "c" {
			t.Errorf("%d: %s", status, describe(c))
		}
	}
	if got := string(AppendError(nil, Chat, Error{Status: 500, Type: "own"})); !strings.Contains(got, `"type":"own"`) {
		t.Error(got)
	}
}

func TestBadRequest(t *testing.T) {
	var r Reader
	_, err := r.Read(Chat, []byte(`{"model":"m","stream":"false"}`))
	got := string(AppendError(nil, Chat, BadRequest(err, "r")))
	if want := `{"error":{"message":"\"stream\" must be true or false, got \"false\" (a string)","type":"invalid_request_error","param":"stream","code":null,"request_id":"r"}}`; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if e := BadRequest(errors.New("x"), ""); e.Status != 400 || e.Param != "" {
		t.Errorf("%+v", e)
	}
}

func TestAppendModels(t *testing.T) {
	got := string(AppendModels(nil, []Model{{"a\"b", 5, "kvasir", ""}, {"c", 6, "x", "m"}}))
	if want := `{"object":"list","data":[{"id":"a\"b","object":"model","created":5,"owned_by":"kvasir"},{"id":"c","object":"model","created":6,"owned_by":"x","parent":"m"}]}`; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if got := string(AppendModels(nil, nil)); got != `{"object":"list","data":[]}` {
		t.Error(got)
	}
}

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "a\"\\\n", "\x00\x1f\x7f", "é\xff😀\xed\xa0\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := AppendString(nil, s)
		var back string
		if err := json.Unmarshal(got, &back); err != nil || back != strings.ToValidUTF8(s, "\ufffd") && utf8.ValidString(s) {
			t.Fatalf("%q: %s, back %q %v", s, got, back, err)
		}
		if !utf8.Valid(got) || strings.ContainsAny(string(got), "\n\r") {
			t.Fatalf("%q: %q", s, got)
		}
	})
}
