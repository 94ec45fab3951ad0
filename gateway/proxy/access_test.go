package proxy_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"kvasir/gateway/proxy"
)

const clientKey, adminToken = "kv_client-canary-4711", "admin-canary-0815"

func withKeys(s setup) setup {
	s.config = func(c *proxy.Config) {
		c.Access = proxy.Access{Keys: map[[sha256.Size]byte]string{sha256.Sum256([]byte(clientKey)): "team-a"}}
	}
	return s
}

func TestAccess_KeysLetInAndNothingElseDoes(t *testing.T) {
	r := newRig(t, withKeys(ordered(good)))
	defer r.close()
	for name, x := range map[string]struct {
		headers []string
		status  int
	}{
		"bearer":         {[]string{"Authorization: Bearer " + clientKey}, 200},
		"small bearer":   {[]string{"Authorization: bearer " + clientKey}, 200},
		"x-api-key":      {[]string{"X-Api-Key: " + clientKey}, 200},
		"none":           {nil, 401},
		"wrong":          {[]string{"Authorization: Bearer " + clientKey + "x"}, 401},
		"a part":         {[]string{"Authorization: Bearer " + clientKey[:10]}, 401},
		"its hash":       {[]string{fmt.Sprintf("X-Api-Key: %x", sha256.Sum256([]byte(clientKey)))}, 401},
		"basic":          {[]string{"Authorization: Basic " + clientKey}, 401},
		"empty":          {[]string{"Authorization: Bearer "}, 401},
		"two, one wrong": {[]string{"Authorization: Bearer wrong", "X-Api-Key: " + clientKey}, 401},
	} {
		t.Run(name, func(t *testing.T) {
			if a := r.post(chatPath, unstreamed, x.headers...); a.status != x.status {
				t.Errorf("a call: status %d, %s", a.status, a.body)
			} else if a.status == 401 {
				if e := envelope(t, a.body); e.Code != "invalid_api_key" || a.header.Get("Www-Authenticate") != "Bearer" {
					t.Errorf("%+v, %v", e, a.header)
				}
			}
			if a := r.get("/v1/models", x.headers...); a.status != x.status {
				t.Errorf("the models: status %d, %s", a.status, a.body)
			}
			if a := r.post("/v1/nothing", "{}", x.headers...); x.status == 401 && a.status != 401 {
				t.Errorf("an unknown route: status %d: who has no key learns which routes there are", a.status)
			}
		})
	}
	for _, up := range r.upstreams {
		for _, c := range up.Calls() {
			if all := strings.Join(c.Header, "\n"); strings.Contains(all, "canary") {
				t.Errorf("a client's key went upstream: %s", all)
			}
		}
	}
	seen := fmt.Sprint(r.records.all(), r.serverLog.String(), r.gather())
	if strings.Contains(seen, "canary") {
		t.Error("a client's key is in logs or metrics")
	}
	named := 0
	for _, c := range r.records.all() {
		if c.string("outcome") == "success" && c.string("client") == "team-a" {
			named++
		}
	}
	if named != 3 {
		t.Errorf("%d records name the client, want 3", named)
	}
	if n := r.metric("kvasir_refusals_total", "reason=unauthorized"); n == 0 {
		t.Error("refusals are not counted")
	}
}

// Who has no key can't make the gateway read its body.
func TestAccess_RefusalDoesNotWaitForTheBody(t *testing.T) {
	r := newRig(t, withKeys(ordered(good)))
	defer r.close()
	c := r.send("POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Length: 1000000\r\n\r\n{")
	defer closeAll(t, c)
	if a := readAnswer(t, c); a.status != 401 || !a.closes {
		t.Errorf("status %d, %v", a.status, a.header)
	}
}

// Who has no key takes no room from who has.
func TestAccess_StrangersTakeNoRoom(t *testing.T) {
	s := withKeys(ordered(good))
	keys := s.config
	s.config = func(c *proxy.Config) { keys(c); c.Limits.Calls = 5 }
	r := newRig(t, s)
	defer r.close()
	for range 10 {
		c := r.send("POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Length: 100\r\n\r\n{")
		defer closeAll(t, c)
		if a := readAnswer(t, c); a.status != 401 {
			t.Fatalf("status %d", a.status)
		}
	}
	if a := r.post(chatPath, unstreamed, "X-Api-Key: "+clientKey); a.status != 200 {
		t.Errorf("status %d, %s", a.status, a.body)
	}
}

// TestAccess_ExplanationsAreForWhoMayAsk has clients that show who they are: an explanation tells
// of others, so that one needs a right for it.
func TestAccess_ExplanationsAreForWhoMayAsk(t *testing.T) {
	hash := func(key string) [sha256.Size]byte { return sha256.Sum256([]byte(key)) }
	keys := map[[sha256.Size]byte]string{hash("of-ops"): "ops", hash("of-team"): "team"}
	for _, x := range []struct {
		name   string
		access proxy.Access
		key    string
		may    bool
	}{
		{"nobody shows who he is", proxy.Access{Anonymous: true}, "", true},
		{"a key with the right", proxy.Access{Keys: keys, Explain: map[string]bool{"ops": true}}, "of-ops", true},
		{"a key without it", proxy.Access{Keys: keys, Explain: map[string]bool{"ops": true}}, "of-team", false},
		{"no key where others have one", proxy.Access{Anonymous: true, Keys: keys, Explain: map[string]bool{"ops": true}}, "", false},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := ordered(good)
			s.config = func(c *proxy.Config) { c.Access = x.access }
			r := newRig(t, s)
			defer r.close()
			headers := []string{"X-Kvasir-Explain: 1"}
			if x.key != "" {
				headers = append(headers, "X-Api-Key: "+x.key)
			}
			a := r.post(chatPath, unstreamed, headers...)
			if got := a.header.Get("X-Kvasir-Explain"); a.status != 200 || (got == "denied") == x.may || x.may && !strings.HasPrefix(got, "{") {
				t.Errorf("status %d, %q", a.status, got)
			}
			if got := r.post(chatPath, unstreamed, headers[1:]...).header.Get("X-Kvasir-Explain"); got != "" {
				t.Errorf("unasked: %q", got)
			}
		})
	}
}
