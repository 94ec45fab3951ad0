package curl

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
)

func TestRefused(t *testing.T) {
	s := withEngines(t, "")
	for _, test := range []struct{ name, line, code, after string }{
		{"unknown route", `curl -sS -d @chat.json -w ' %{http_code}' $KVASIR/v1/nonsense`, "unknown_route", " 404"},
		{"root", `curl -sS -w ' %{http_code}' $KVASIR`, "unknown_route", " 404"},
		{"a slash too many", `curl -sS -d @chat.json -w ' %{http_code}' $KVASIR/v1/chat/completions/`, "unknown_route", " 404"},
		{"GET of a call", `curl -sS -w ' %{http_code}' $KVASIR/v1/chat/completions`, "method_not_allowed", " 405"},
		{"DELETE of a model", `curl -sS -X DELETE -w ' %{http_code}' $KVASIR/v1/models/tiny`, "method_not_allowed", " 405"},
		{"unknown model", `curl -sS -d '{"model":"nobody","messages":[]}' -H 'Content-Type: application/json' -w ' %{http_code}' $KVASIR/v1/chat/completions`, "model_not_found", " 404"},
	} {
		t.Run(test.name, func(t *testing.T) { s.run(t, test.line).refused(t, test.code, test.after) })
	}
	if r := s.ok(t, `curl -sS -i -X PUT $KVASIR/v1/chat/completions`); !strings.Contains(r.out, "\r\nAllow: POST\r\n") {
		t.Errorf("405 without Allow:\n%s", r.out)
	}
	if r := s.ok(t, `curl -sS -I $KVASIR/v1/models`); !strings.Contains(r.out, " 200 OK\r\n") || !strings.HasSuffix(r.out, "\r\n\r\n") {
		t.Errorf("HEAD of the models:\n%s", r.out)
	}
	if r := s.ok(t, `curl -sS -d '{"model":' -H 'Content-Type: application/json' -w ' %{http_code}' $KVASIR/v1/chat/completions`); !strings.HasSuffix(r.out, " 400") || !strings.Contains(r.out, `"invalid_request_error"`) {
		t.Errorf("half a body:\n%s", r.out)
	}
	// Without -H curl says that JSON is a form; what an engine answers to that passes on.
	if r := s.ok(t, `curl -sS -d @chat.json -w ' %{http_code}' $KVASIR/v1/chat/completions`); !strings.HasSuffix(r.out, " 400") || !strings.Contains(r.out, "application/json") {
		t.Errorf("a form:\n%s", r.out)
	}
}

func TestRefused_HeaderTooLarge(t *testing.T) {
	s := withEngines(t, "limits: {headers: 16KiB}\n")
	s.write(t, "header.txt", []byte("X-Big: "+strings.Repeat("x", 60<<10)+"\n"))
	for _, line := range []string{
		`curl -sS -H @header.txt -w ' %{http_code}' $KVASIR/v1/models`,
		`curl -sS -H @header.txt -d @chat.json -w ' %{http_code}' $KVASIR/v1/chat/completions`,
	} {
		if r := s.run(t, line); r.code != 0 || !strings.HasSuffix(r.out, " 431") {
			t.Errorf("curl ended with %d: %s\n%s", r.code, r.out, r.talk)
		}
	}
	s.ok(t, `curl -sS -d @chat.json -H 'Content-Type: application/json' $KVASIR/v1/chat/completions`).answered(t, "")
}

func TestKeys(t *testing.T) {
	s := withEngines(t, fmt.Sprintf("clients:\n  keys: [{name: team-a, sha256: \"%x\"}]\n", sha256.Sum256([]byte("kv_right"))))
	s.write(t, "big.json", bigChat(4<<20))
	for _, line := range []string{
		`curl -sS -w ' %{http_code}' $KVASIR/v1/models`,
		`curl -sS -w ' %{http_code}' $KVASIR/v1/nonsense`,
		`curl -sS -d @chat.json -H 'Content-Type: application/json' -w ' %{http_code}' $KVASIR/v1/chat/completions`,
		`curl -sS -d @chat.json -H 'Content-Type: application/json' -H 'Authorization: Bearer kv_wrong' -w ' %{http_code}' $KVASIR/v1/chat/completions`,
		`curl -sS -d @chat.json -H 'Content-Type: application/json' -H 'Authorization: Basic a3ZfcmlnaHQ=' -w ' %{http_code}' $KVASIR/v1/chat/completions`,
		`curl -sS --data-binary @big.json -H 'Content-Type: application/json' -H 'Expect:' -w ' %{http_code}' $KVASIR/v1/chat/completions`,
	} {
		s.run(t, line).refused(t, "invalid_api_key", " 401")
	}
	if r := s.run(t, `curl -sS -v -T big.json -X POST -H 'Content-Type: application/json' -w ' %{http_code} %{size_upload}' $KVASIR/v1/chat/completions`); !strings.HasSuffix(r.out, " 401 0") || !strings.Contains(strings.ToLower(r.talk), "www-authenticate: bearer") {
		t.Errorf("got %s\n%s", r.out, r.talk)
	}
	s.ok(t, `curl -sS -d @chat.json -H 'Content-Type: application/json' -H 'Authorization: Bearer kv_right' $KVASIR/v1/chat/completions`).answered(t, "")
	s.ok(t, `curl -sS -d @chat.json -H 'Content-Type: application/json' -H 'x-api-key: kv_right' $KVASIR/v1/chat/completions`).answered(t, "")
	if r := s.ok(t, `curl -sS $KVASIR/v1/messages -H 'x-api-key: kv_right' -H 'anthropic-version: 2023-06-01' -H 'Content-Type: application/json' -d @chat.json`); !strings.Contains(r.out, `"type":"message"`) {
		t.Errorf("got %s", r.out)
	}
	if r := s.run(t, `curl -sS $KVASIR/v1/messages -H 'anthropic-version: 2023-06-01' -H 'Content-Type: application/json' -d @chat.json`); !strings.HasPrefix(r.out, `{"type":"error","error":{"type":"authentication_error"`) {
		t.Errorf("got %s", r.out)
	}
}
