package proxy_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"strings"
	"testing"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
	"kvasir/upstream"
)

// salting is a gateway with two clients, one of which has two keys, before an engine that
// answers anything.
func salting(key string, d upstream.Dialect) setup {
	s := pooled(func(c *scripted.Call) {
		c.Reply(200, "application/json", `{"id":"x","choices":[{"message":{"content":"a"}}]}`)
	})
	s.servedAs = "org/model"
	s.config = func(c *proxy.Config) {
		c.SaltKey = []byte(key)
		c.Models[0].Pools[0].Dialect = d
		c.Access = proxy.Access{Anonymous: true, Keys: map[[sha256.Size]byte]string{
			sha256.Sum256([]byte("key-of-a")): "a", sha256.Sum256([]byte("second-key-of-a")): "a", sha256.Sum256([]byte("key-of-b")): "b",
		}}
	}
	return s
}

// sent posts a body and returns what the engine got.
func (r *rig) sent(path, body string, headers ...string) string {
	r.t.Helper()
	if a := r.post(path, body, headers...); a.status != 200 {
		r.t.Fatalf("%s: %d %s", body, a.status, a.body)
	}
	r.settle()
	records := r.upstreams[0].Calls()
	got := records[len(records)-1]
	if int64(len(got.Body)) != got.BodyBytes {
		r.t.Fatalf("%d bytes of a body of %d", len(got.Body), got.BodyBytes)
	}
	return string(got.Body)
}

// TestSalt_ChangesNothingElse has bodies of all routes whose prompts engines cache: the
// engine reads a salt of 43 characters, and every other byte is as it came.
func TestSalt_ChangesNothingElse(t *testing.T) {
	r := newRig(t, salting("a secret of the gateways'", upstream.VLLM()))
	defer r.close()
	for path, prompt := range map[string]string{
		chatPath: `"messages":[{"role":"user","content":"hi"}]`, "/v1/completions": `"prompt":"hi"`, "/v1/responses": `"input":"hi"`,
		"/v1/messages": `"max_tokens":5,"messages":[{"role":"user","content":"hi"}]`, "/v1/embeddings": `"input":"hi"`,
	} {
		for _, c := range []struct{ body, want string }{
			{`{ "model":"m", PROMPT, "x":1.50}`, `{SALT, "model":"org/model", PROMPT, "x":1.50}`},
			{`{"model" : "alias","cache_salt":"own",PROMPT}`, `{"model" : "org/model",SALT,PROMPT}`},
			{`{"cache_salt":null,PROMPT,"model":"m"}`, `{SALT,PROMPT,"model":"org/model"}`},
			{`{PROMPT,"cache_salt":"","model":"m"}`, `{PROMPT,SALT,"model":"org/model"}`},
		} {
			body := strings.Replace(c.body, "PROMPT", prompt, 1)
			got := r.sent(path, body)
			var said struct {
				Salt string `json:"cache_salt"`
			}
			if err := json.Unmarshal([]byte(got), &said); err != nil || len(said.Salt) != 43 {
				t.Fatalf("%s: %v, %q", got, err, said.Salt)
			}
			want := strings.Replace(strings.Replace(c.want, "PROMPT", prompt, 1), "SALT", `"cache_salt":"`+said.Salt+`"`, 1)
			if got != want {
				t.Errorf("%s: the engine gets %s, want %s", path, got, want)
			}
		}
	}
	const tokenize = `{"model":"m","prompt":"hi"}`
	if got := r.sent("/tokenize", tokenize); got != strings.Replace(tokenize, `"m"`, `"org/model"`, 1) {
		t.Errorf("what is not cached gets a salt: %s", got)
	}
}

// TestSalt_IsEachClientsOwn compares the salts that engines get.
func TestSalt_IsEachClientsOwn(t *testing.T) {
	with := func(key string) func(own, client string) string {
		r := newRig(t, salting(key, upstream.SGLang()))
		t.Cleanup(r.close)
		return func(own, client string) string {
			body := `{"model":"m","messages":[]}`
			if own != "" {
				body = `{"model":"m","cache_salt":` + own + `,"messages":[]}`
			}
			var headers []string
			if client != "" {
				headers = []string{"X-Api-Key: " + client}
			}
			got := r.sent(chatPath, body, headers...)
			var said struct {
				Salt string `json:"cache_salt"`
			}
			if err := json.Unmarshal([]byte(got), &said); err != nil || len(said.Salt) != 43 {
				t.Fatalf("%s: %v", got, err)
			}
			return said.Salt
		}
	}
	one, same, other := with("the gateways' own secret"), with("the gateways' own secret"), with("another secret altogether")
	of := one("", "key-of-a")
	for name, again := range map[string]string{
		"another key of the client": one("", "second-key-of-a"), "null for a salt": one("null", "key-of-a"),
		"another gateway": same("", "key-of-a"), "the same call": one("", "key-of-a"),
	} {
		if again != of {
			t.Errorf("%s: another salt", name)
		}
	}
	seen := map[string]string{of: "a"}
	for name, salt := range map[string]string{
		"b": one("", "key-of-b"), "anonymous": one("", ""), "another secret": other("", "key-of-a"),
		"a's own x": one(`"x"`, "key-of-a"), "a's own y": one(`"y"`, "key-of-a"), "a's empty one": one(`""`, "key-of-a"),
		"b's own x": one(`"x"`, "key-of-b"), "b with a's salt": one(`"`+of+`"`, "key-of-b"), "anonymous as a": one(`"a"`, ""),
	} {
		if before, twice := seen[salt]; twice {
			t.Errorf("%s has the salt of %s", name, before)
		}
		seen[salt] = name
	}
}

// TestSalt_WhereNothingIsToBeSalted_LeavesTheBody has no secret, and an engine that takes
// no salt.
func TestSalt_WhereNothingIsToBeSalted_LeavesTheBody(t *testing.T) {
	const body = `{"model":"m","cache_salt":"own","messages":[]}`
	for name, s := range map[string]setup{"no secret": salting("", upstream.VLLM()), "no field": salting("a secret of the gateways'", upstream.LlamaCPP())} {
		s.servedAs = ""
		r := newRig(t, s)
		if got := r.sent(chatPath, body, "X-Api-Key: key-of-a"); got != body {
			t.Errorf("%s: %s", name, got)
		}
		r.close()
	}
}

// TestSalt_WhenTheFirstEndpointFails_IsThereAgain has a second attempt elsewhere.
func TestSalt_WhenTheFirstEndpointFails_IsThereAgain(t *testing.T) {
	fail := func(c *scripted.Call) { c.Reply(503, "application/json", `{}`) }
	s := salting("a secret of the gateways'", upstream.VLLM())
	s.pools = [][]scripted.Script{{fail}, s.pools[0]}
	config := s.config
	s.config = func(c *proxy.Config) {
		config(c)
		c.Models[0].Pools[1].Dialect = upstream.LlamaCPP()
	}
	r := newRig(t, s)
	defer r.close()
	const body = `{"model":"m","messages":[]}`
	if a := r.post(chatPath, body); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	r.settle()
	first, second := r.upstreams[0].Calls()[0].Body, r.upstreams[1].Calls()[0].Body
	if !bytes.Contains(first, []byte(`{"cache_salt":"`)) || bytes.Contains(second, []byte("cache_salt")) {
		t.Errorf("the engine that takes a salt gets %s, the other one %s", first, second)
	}
}
