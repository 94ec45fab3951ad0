package proxy_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
)

// talking returns what makes a call and returns the conversation that the log line and the
// explanation have it belong to.
func talking(t *testing.T) func(path, body string, headers ...string) string {
	s := pooled(func(c *scripted.Call) {
		c.Reply(200, "application/json", `{"id":"x","choices":[{"message":{"content":"a"}}]}`)
	})
	s.config = func(c *proxy.Config) {
		c.SharePrefixes = true // conversations are each client's own all the same
		c.Access = proxy.Access{Anonymous: true, Explain: map[string]bool{"": true, "a": true, "b": true}, Keys: map[[sha256.Size]byte]string{
			sha256.Sum256([]byte("key-of-a")): "a", sha256.Sum256([]byte("second-key-of-a")): "a", sha256.Sum256([]byte("key-of-b")): "b",
		}}
	}
	r := newRig(t, s)
	t.Cleanup(r.close)
	return func(path, body string, headers ...string) string {
		t.Helper()
		a := r.post(path, body, append(headers, "X-Kvasir-Explain: 1")...)
		if a.status != http.StatusOK {
			t.Fatalf("%s: %d %s", body, a.status, a.body)
		}
		r.settle()
		var d struct{ Conversation string }
		if err := json.Unmarshal([]byte(a.header.Get("X-Kvasir-Explain")), &d); err != nil {
			t.Fatal(err)
		}
		records := r.records.all()
		logged := ""
		if line := records[len(records)-1]; line.has("conversation") {
			logged = line.string("conversation")
		}
		if logged != d.Conversation || logged != "" && !regexp.MustCompile("^[0-9a-f]{8}$").MatchString(logged) {
			t.Fatalf("the log says %q, the explanation %q", logged, d.Conversation)
		}
		return logged
	}
}

// TestConversation_IsTheFirstThatIsNamed goes through all that can name one, from the weakest
// on: each overrules those before it, and is the same whatever else the call says.
func TestConversation_IsTheFirstThatIsNamed(t *testing.T) {
	of := talking(t)
	const id = "0d7e7c52-9fd5-4f0c-9a43-a-name-that-is-long"
	var headers []string
	fields := ""
	seen := map[string]string{}
	add := func(name string) {
		t.Helper()
		c := of(chatPath, `{"model":"m",`+fields+`"messages":[{"role":"user","content":"hi"}]}`, headers...)
		if before, twice := seen[c]; twice || c == "" {
			t.Errorf("%s does not overrule %s: %q", name, before, c)
		}
		seen[c] = name
		if other := of(chatPath, `{"model":"m",`+fields+`"messages":[{"role":"user","content":"something else"}]}`, headers...); (other == c) != (len(seen) > 1) {
			t.Errorf("%s with other messages: %q and %q", name, c, other)
		}
	}
	add("the messages")
	for i, name := range []string{"x-session-affinity", "Session-Id", "session_id", "X-Claude-Code-Session-Id"} {
		headers = append(headers, fmt.Sprintf("%s: %s%d", name, id, i))
		add(name)
	}
	for i, name := range []string{"prompt_cache_key", "session_id"} {
		fields = fmt.Sprintf(`"%s":"%s%d",`, name, id, 10+i) + fields
		add(name)
	}
	headers = append(headers, "X-Session-Id: "+id)
	add("x-session-id")
}

// TestConversation_IsEachClientsOwn has two clients say the same.
func TestConversation_IsEachClientsOwn(t *testing.T) {
	of := talking(t)
	const body = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	for _, id := range []string{"", "X-Session-Id: one"} {
		var headers []string
		if id != "" {
			headers = append(headers, id)
		}
		a, again := of(chatPath, body, append(headers, "X-Api-Key: key-of-a")...), of(chatPath, body, append(headers, "X-Api-Key: second-key-of-a")...)
		b, nobody := of(chatPath, body, append(headers, "X-Api-Key: key-of-b")...), of(chatPath, body, headers...)
		if a != again || a == b || a == nobody || b == nobody {
			t.Errorf("%q: %q, %q; %q, %q", id, a, again, b, nobody)
		}
	}
	// By header or by field, a name is a name; whatever follows it.
	named := of(chatPath, body, "X-Session-Id: one")
	if got := of(chatPath, `{"model":"m","session_id":"o\u006ee","messages":[]}`, "session_id: two"); got != named {
		t.Errorf("%q and %q", got, named)
	}
}

// TestConversation_WhenNothingNamesIt has calls that are nobody's turn, and names that are
// none or beyond measure.
func TestConversation_WhenNothingNamesIt(t *testing.T) {
	of := talking(t)
	for _, c := range []struct {
		path, body string
		headers    []string
	}{
		{"/v1/completions", `{"model":"m","prompt":"hi"}`, nil},
		{"/v1/embeddings", `{"model":"m","input":["hi"]}`, nil},
		{"/v1/responses", `{"model":"m","previous_response_id":"r1","input":"hi"}`, nil},
		{chatPath, `{"model":"m","session_id":"","prompt_cache_key":null,"messages":[]}`, []string{"X-Session-Id: ", "session_id:   "}},
	} {
		if got := of(c.path, c.body, c.headers...); got != "" {
			t.Errorf("%s: %q", c.body, got)
		}
	}
	long := strings.Repeat("x", 8000)
	if got := of(chatPath, `{"model":"m","messages":[]}`, "X-Session-Id: "+long); got == "" || got == of(chatPath, `{"model":"m","messages":[]}`, "X-Session-Id: "+long+"y") {
		t.Errorf("a long name gives %q", got)
	}
}
