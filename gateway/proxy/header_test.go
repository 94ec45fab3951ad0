package proxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
)

const secretKey = "sk-endpoint-secret/+="

// withKey gives the endpoints a key of the gateway's own.
func withKey(c *proxy.Config) {
	for p := range c.Models[0].Pools {
		for e := range c.Models[0].Pools[p].Endpoints {
			c.Models[0].Pools[p].Endpoints[e].Key = secretKey
		}
	}
}

// Field case F63: no credential of the client reaches an endpoint, with a key of ours and
// without, on the first attempt and on the next one.
func TestClientCredentialsStayHere(t *testing.T) {
	canaries := []string{
		"Authorization: Bearer CANARY", "X-Api-Key: CANARY", "X-Goog-Api-Key: CANARY", "Api-Key: CANARY", "Cookie: session=CANARY",
		"Proxy-Authorization: Basic CANARY", "X-Auth-Token: CANARY", "X-Amz-Security-Token: CANARY", "X-Access-Token: CANARY",
		"Openai-Organization: CANARY", "Openai-Project: CANARY", "X-Csrf-Token: CANARY", "X-Forwarded-For: CANARY", "X-Some-New-Secret: CANARY",
		"Referer: https://x/?key=CANARY", "Idempotency-Key: CANARY",
	}
	for _, key := range []bool{true, false} {
		s := ordered(status(503), good)
		if key {
			s.config = withKey
		}
		r := newRig(t, s)
		a := r.post(chatPath+"?api_key=CANARY", unstreamed, append(canaries, "Accept: application/json", "Traceparent: 00-1-2-01", "X-Session-Id: s1")...)
		if a.status != 200 {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
		for i, up := range r.upstreams {
			call := up.Calls()[0]
			if text := call.Target + "\n" + strings.Join(call.Header, "\n"); strings.Contains(text, "CANARY") {
				t.Errorf("endpoint %d got %s", i, text)
			}
			auth, ok := call.Get("authorization")
			if key && auth != "Bearer "+secretKey || !key && ok {
				t.Errorf("endpoint %d: authorization %q, with a key of ours: %v", i, auth, key)
			}
			for name, want := range map[string]string{"accept": "application/json", "traceparent": "00-1-2-01", "x-session-id": "s1", "content-type": "application/json"} {
				if got, _ := call.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			for _, name := range []string{"accept-encoding", "via", "x-kvasir-explain"} {
				if v, ok := call.Get(name); ok {
					t.Errorf("%s: %s was added", name, v)
				}
			}
			if id, _ := call.Get("x-request-id"); id != a.header.Get("X-Request-Id") {
				t.Errorf("request id %q upstream, %q to the client", id, a.header.Get("X-Request-Id"))
			}
		}
		r.close()
	}
}

// Field case F64: the endpoint's key never comes back: not in headers, not in our own
// errors, not in logs or metrics, and not in an endpoint's error that quotes it.
func TestEndpointKeyNeverComesBack(t *testing.T) {
	echo := func(c *scripted.Call) []string {
		lines := []string{"Set-Cookie: a=b", "Location: /?key=" + secretKey, "Www-Authenticate: Bearer", "X-Fine: yes"}
		rec := c.Record()
		for _, h := range rec.Header {
			name, value, _ := strings.Cut(h, ": ")
			lines = append(lines, "X-Echo-"+name+": "+value)
		}
		return lines
	}
	quoting := fmt.Sprintf(`{"error":{"message":"Incorrect API key provided: %s"}}`, secretKey)
	for name, x := range map[string]struct {
		request string
		script  scripted.Script
		status  int
	}{
		"answer":                  {unstreamed, func(c *scripted.Call) { c.Reply(200, "application/json", jsonAnswer, echo(c)...) }, 200},
		"unauthorized":            {unstreamed, func(c *scripted.Call) { c.Reply(401, "application/json", quoting, echo(c)...) }, 502},
		"unavailable":             {unstreamed, func(c *scripted.Call) { c.Reply(503, "application/json", quoting, echo(c)...) }, 503},
		"error in event":          {streamed, func(c *scripted.Call) { c.Stream(roleEvent, "data: "+quoting+"\n\n", doneEvent) }, 502},
		"redirect":                {unstreamed, func(c *scripted.Call) { c.Head(302, append(echo(c), "Content-Length: 0")...) }, 502},
		"error in a plain answer": {unstreamed, func(c *scripted.Call) { c.Reply(200, "application/json", quoting) }, 502},
		"long error":              {unstreamed, func(c *scripted.Call) { c.Reply(400, "text/plain", strings.Repeat("e", 100<<10)+quoting) }, 0},
		"content type":            {unstreamed, func(c *scripted.Call) { c.Reply(200, "text/event-stream; k="+secretKey, "x") }, 502},
		"caller's fault in event": {streamed, func(c *scripted.Call) {
			c.Stream(roleEvent, fmt.Sprintf("data: {\"error\":{\"code\":400,\"message\":\"%s\"}}\n\n", secretKey), doneEvent)
		}, 502},
		"error after content": {streamed, func(c *scripted.Call) {
			events(c, roleEvent, textEvent("a"))
			c.Pause(30 * time.Millisecond)
			events(c, "data: "+quoting+"\n\n", doneEvent)
			c.LastChunk()
		}, 0},
		"in two pieces": {streamed, func(c *scripted.Call) {
			half := len(secretKey) / 2
			events(c, roleEvent, textEvent("a"), ": "+secretKey[:half])
			c.Pause(30 * time.Millisecond)
			events(c, secretKey[half:]+"\n\n", doneEvent)
			c.LastChunk()
		}, 0},
		"cut": {streamed, func(c *scripted.Call) {
			c.Head(200, append(echo(c), "Content-Type: text/event-stream")...)
			_ = c.Write(textEvent("a"))
			c.RST()
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := ordered(x.script)
			s.config = withKey
			r := newRig(t, s)
			defer r.close()
			a := r.post(chatPath, x.request)
			if x.status != 0 && a.status != x.status {
				t.Errorf("status %d: %s", a.status, a.body)
			}
			all := fmt.Sprint(a.header, a.body, r.records.all(), r.serverLog.String(), r.gather())
			if strings.Contains(all, secretKey) {
				t.Errorf("the key is in %s", all)
			}
			for _, h := range []string{"Set-Cookie", "Location", "Www-Authenticate", "X-Echo-Authorization"} {
				if v := a.header.Get(h); v != "" {
					t.Errorf("%s: %s", h, v)
				}
			}
			if x.status == 200 && (a.header.Get("X-Fine") != "yes" || a.body != jsonAnswer) {
				t.Errorf("what is fine was not passed on: %v %q", a.header, a.body)
			}
		})
	}
}

// An error of an endpoint that has a key passes whole when it does not quote it.
func TestErrorOfAnEndpointWithAKeyPassesWhole(t *testing.T) {
	for _, size := range []int{10, 64<<10 - 1, 64 << 10, 64<<10 + 1, 500 << 10} {
		body := strings.Repeat("e", size)
		s := ordered(func(c *scripted.Call) { c.Reply(422, "text/plain", body, "X-Fine: yes") })
		s.config = withKey
		r := newRig(t, s)
		if a := r.post(chatPath, unstreamed); a.status != 422 || a.body != body || a.err != nil {
			t.Errorf("%d bytes: status %d, %d bytes, %v", size, a.status, len(a.body), a.err)
		}
		r.close()
	}
}

// A client's request id is kept when it is sane; an unusable one is replaced.
func TestRequestIDIsKeptWhenSane(t *testing.T) {
	r := newRig(t, ordered(good))
	defer r.close()
	made := regexp.MustCompile(`^kv-[0-9a-f]{8}-[0-9]+$`)
	seen := map[string]bool{}
	for id, kept := range map[string]bool{
		"abc-123_X.y:z": true, strings.Repeat("a", 128): true, strings.Repeat("a", 129): false, "": false,
		"with space": false, "semi;colon": false, "é": false, `quote"`: false, "<script>": false,
	} {
		for _, path := range []string{chatPath, "/nowhere"} {
			a := r.post(path, unstreamed, "X-Request-Id: "+id)
			got := a.header.Values("X-Request-Id")
			if len(got) != 1 || kept && got[0] != id || !kept && !made.MatchString(got[0]) {
				t.Errorf("%s: %q became %q", path, id, got)
			}
			if !kept && seen[got[0]] {
				t.Errorf("id %q was given twice", got[0])
			}
			seen[got[0]] = true
			if path != chatPath && envelope(t, a.body).RequestID != got[0] {
				t.Errorf("the error names another id: %s", a.body)
			}
		}
	}
	for _, c := range r.records.all() {
		if !seen[c.string("id")] {
			t.Errorf("record with id %q", c.string("id"))
		}
	}
}

// The endpoint's own idea of the gateway's headers does not reach the client.
func TestGatewayHeadersAreTheGatewaysOwn(t *testing.T) {
	r := newRig(t, ordered(func(c *scripted.Call) {
		c.Reply(200, "application/json", jsonAnswer, "X-Request-Id: theirs", "X-Kvasir-Endpoint: theirs", "X-Kvasir-Explain: theirs",
			"Connection: X-Hop", "X-Hop: theirs", "Keep-Alive: timeout=5", "X-Other: theirs")
	}))
	defer r.close()
	a := r.post(chatPath, unstreamed, "X-Request-Id: ours")
	for name, want := range map[string]string{"X-Request-Id": "ours", "X-Kvasir-Endpoint": "e1", "X-Kvasir-Explain": "", "X-Hop": "", "Keep-Alive": "", "X-Other": "theirs"} {
		if got := strings.Join(a.header.Values(name), ","); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// x-kvasir-explain: 1 returns the decision with its candidates; otherwise nothing does.
func TestExplainReturnsTheDecision(t *testing.T) {
	scripts := slices.Repeat([]scripted.Script{good}, 40)
	scripts[0] = refuse
	s := pooled(scripts...)
	s.policy = "least-outstanding"
	r := newRig(t, s)
	defer r.close()
	if a := r.post(chatPath, unstreamed); a.header.Get("X-Kvasir-Explain") != "" {
		t.Error("explained unasked")
	}
	for range 5 {
		a := r.post(chatPath, unstreamed, "X-Kvasir-Explain: 1")
		var d struct {
			Pool, Policy, Reason, Chosen string
			Attempt                      int
			Candidates                   []struct {
				Endpoint    string
				Score       *float64
				Outstanding *int
				SignalAge   *float64 `json:"signal_age_seconds"`
			}
			Omitted int `json:"candidates_omitted"`
		}
		if err := json.Unmarshal([]byte(a.header.Get("X-Kvasir-Explain")), &d); err != nil {
			t.Fatal(err)
		}
		if d.Pool != "p1" || d.Policy != "least-outstanding" || d.Chosen != a.header.Get("X-Kvasir-Endpoint") || d.Reason == "" {
			t.Errorf("decision %+v", d)
		}
		found := false
		for _, k := range d.Candidates {
			found = found || k.Endpoint == d.Chosen && k.Score != nil && k.SignalAge == nil
		}
		if !found || len(d.Candidates) > 32 || len(d.Candidates)+d.Omitted < 39 || len(a.header.Get("X-Kvasir-Explain")) > 8<<10 {
			t.Errorf("candidates %+v, omitted %d", d.Candidates, d.Omitted)
		}
	}
}

// A huge number of headers is refused by the server, passed by a sane number, and costs
// the gateway nothing.
func TestManyHeaders(t *testing.T) {
	r := newRig(t, ordered(good))
	defer r.close()
	many := make([]string, 2000)
	for i := range many {
		many[i] = fmt.Sprintf("X-Header-%d: %s", i, strings.Repeat("v", 50))
	}
	c := r.open()
	go func() { _, _ = io.WriteString(c, rawPost(chatPath, unstreamed, many...)) }() // refused on the way
	if a := readAnswer(t, c); a.status != 431 {
		t.Errorf("status %d", a.status)
	}
	closeAll(t, c)
	if a := r.post(chatPath, unstreamed, many[:500]...); a.status != 200 {
		t.Errorf("500 headers: status %d", a.status)
	}
	r.upstreams[0].SetScript(func(c *scripted.Call) { c.Reply(200, "application/json", jsonAnswer, many[:1000]...) })
	if a := r.post(chatPath, unstreamed); a.status != 200 || a.header.Get("X-Header-999") == "" {
		t.Errorf("1000 headers back: status %d", a.status)
	}
	r.upstreams[0].SetScript(func(c *scripted.Call) {
		c.Reply(200, "application/json", jsonAnswer, "X-Big: "+strings.Repeat("v", 300<<10))
	})
	if a := r.post(chatPath, unstreamed); a.status != 502 {
		t.Errorf("300 KiB of header back: status %d", a.status)
	}
}
