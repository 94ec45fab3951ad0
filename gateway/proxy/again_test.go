package proxy_test

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"kvasir/gateway/attempt"
	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
)

// An incoming retry shows by the SDK's count, or by an idempotency key of the same client.
func TestIncomingRetriesAreRecognised(t *testing.T) {
	r := newRig(t, pooled(good))
	defer r.close()
	for _, x := range []struct {
		header []string
		want   string // the sign; "": it is a first call
	}{
		{nil, ""},
		{[]string{"X-Stainless-Retry-Count: 0", "Idempotency-Key: one"}, ""},
		{[]string{"X-Stainless-Retry-Count: 1", "Idempotency-Key: one"}, "retry_count"},
		{[]string{"X-Stainless-Retry-Count: 2"}, "retry_count"},
		{[]string{"X-Stainless-Retry-Count: soon"}, ""},
		{[]string{"X-Stainless-Retry-Count: -1"}, ""},
		{[]string{"Idempotency-Key: one"}, "idempotency_key"},
		{[]string{"Idempotency-Key: two"}, ""},
		{[]string{"Idempotency-Key: two"}, "idempotency_key"},
	} {
		before := map[string]float64{}
		for _, sign := range []string{"retry_count", "idempotency_key"} {
			before[sign] = r.metric("kvasir_incoming_retries_total", "sign="+sign)
		}
		if a := r.post(chatPath, unstreamed, x.header...); a.status != 200 {
			t.Fatalf("status %d", a.status)
		}
		r.settle()
		for sign, n := range before {
			want := n
			if sign == x.want {
				want++
			}
			if got := r.metric("kvasir_incoming_retries_total", "sign="+sign); got != want {
				t.Errorf("%q: %s counted %v times, want %v", x.header, sign, got-n, want-n)
			}
		}
	}
}

// A key is one client's own.
func TestIncomingRetries_KeysOfClientsAreApart(t *testing.T) {
	s := pooled(good)
	s.config = func(c *proxy.Config) {
		c.Access = proxy.Access{Keys: map[[sha256.Size]byte]string{sha256.Sum256([]byte("key-a")): "a", sha256.Sum256([]byte("key-b")): "b"}}
	}
	r := newRig(t, s)
	defer r.close()
	for _, key := range []string{"key-a", "key-b"} {
		if a := r.post(chatPath, unstreamed, "Authorization: Bearer "+key, "Idempotency-Key: one"); a.status != 200 {
			t.Fatalf("status %d", a.status)
		}
	}
	r.settle()
	if n := r.metric("kvasir_incoming_retries_total"); n != 0 {
		t.Errorf("two clients that use one key count as one that tries again (%v)", n)
	}
}

// Field case F22: the layers do not multiply. A client's SDK that tries three times makes, where
// everything fails, not three times the gateway's three attempts: what it sends again gets no
// further attempt of the gateway's, and is told that another try is of no use.
func TestF22_LayersDoNotMultiply(t *testing.T) {
	s := pooled(status(429), status(429), status(429))
	s.config = func(c *proxy.Config) { c.Models[0].Machine.Health.Busy = 0 } // nobody is left alone
	r := newRig(t, s)
	defer r.close()
	for n := range 3 {
		a := r.post(chatPath, unstreamed, fmt.Sprintf("X-Stainless-Retry-Count: %d", n), "Idempotency-Key: one")
		want := [...]string{"3", "1", "1"}[n]
		if got := a.header.Get("X-Kvasir-Attempts"); got != want || a.header.Get("X-Kvasir-Retries-Remaining") != "0" {
			t.Errorf("try %d: %s attempts (want %s), %s remain", n, got, want, a.header.Get("X-Kvasir-Retries-Remaining"))
		}
		if got := a.header.Get("X-Should-Retry"); got != "false" && n > 0 && a.header.Get("Retry-After") == "" {
			t.Errorf("try %d: X-Should-Retry %q", n, got)
		}
	}
	if n := r.upstreamCalls(); n != 5 {
		t.Errorf("%d upstream calls for one of a client with 3 tries, want 3 + 1 + 1", n)
	}
}

// Every answer to a call that was sent says how often, and how often it could have been yet.
func TestAttemptsAreTold(t *testing.T) {
	theirs := func(c *scripted.Call) {
		c.Reply(200, "application/json", jsonAnswer, "X-Kvasir-Attempts: 99", "X-Kvasir-Retries-Remaining: 99")
	}
	for _, x := range []struct {
		name                string
		s                   setup
		request             string
		attempts, remaining string
	}{
		{"answered at once", pooled(theirs), unstreamed, "1", "2"},
		{"answered by the second", ordered(status(500), good), unstreamed, "2", "1"},
		{"caller's fault", pooled(status(400)), unstreamed, "1", "2"},
		{"gave up", ordered(status(503), status(503), status(503), good), unstreamed, "3", "0"},
		{"nobody else", pooled(status(503)), unstreamed, "1", "0"},
		{"own words", pooled(refuse), unstreamed, "1", "0"},
		{"refused", pooled(good), `{"model":"unknown","messages":[]}`, "", ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := newRig(t, x.s)
			defer r.close()
			a := r.post(chatPath, x.request)
			if got, left := a.header.Get("X-Kvasir-Attempts"), a.header.Get("X-Kvasir-Retries-Remaining"); got != x.attempts || left != x.remaining {
				t.Errorf("status %d: %q attempts, %q remain; want %q and %q", a.status, got, left, x.attempts, x.remaining)
			}
		})
	}
}

// The budget of all models is one: what one model has taken another one misses.
func TestAllModelsShareABudget(t *testing.T) {
	s := pooled(status(500), status(500))
	s.config = func(c *proxy.Config) {
		c.Retry = attempt.Config{TotalFloor: 1}
		other := c.Models[0]
		other.Name, other.Aliases = "other", nil
		other.Machine.Pools = append(other.Machine.Pools[:0:0], other.Machine.Pools...)
		c.Models = append(c.Models, other)
	}
	r := newRig(t, s)
	defer r.close()
	began := time.Now()
	attempts := 0
	for i := range 20 {
		model := [...]string{testModel, "other"}[i%2]
		a := r.post(chatPath, fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"Hello"}]}`, model))
		attempts += len(a.header.Get("X-Kvasir-Attempts"))
		if a.status != 500 {
			t.Errorf("status %d", a.status)
		}
	}
	if n, most := r.upstreamCalls(), 20+2+int(time.Since(began).Seconds()); n < 21 || n > most {
		t.Errorf("%d upstream calls for 20, allowed 21 to %d: 1 retry a second for both models", n, most)
	}
	if attempts != 20 {
		t.Errorf("%d of 20 answers tell of their attempts", attempts)
	}
}

// Field case F15, where the client's second try has the first one's idempotency key: both run,
// each is answered by an attempt of its own, and the one whose client has left is aborted.
func TestF15_ASecondTryBesideTheFirstIsNotCoalesced(t *testing.T) {
	inBubble(t, pooled(func(c *scripted.Call) {
		c.Pause(2 * time.Second)
		good(c)
	}), func(t *testing.T, r *rig) {
		first := r.send(rawPost(chatPath, unstreamed, "Idempotency-Key: one"))
		time.Sleep(time.Second)
		answered := make(chan answer)
		go func() { answered <- r.post(chatPath, unstreamed, "Idempotency-Key: one") }()
		time.Sleep(100 * time.Millisecond)
		if n := r.upstreams[0].Alive(); n != 2 {
			t.Errorf("%d calls upstream for two of one key", n)
		}
		closeAll(t, first)
		time.Sleep(100 * time.Millisecond)
		if n := r.upstreams[0].Alive(); n != 1 {
			t.Errorf("%d calls upstream after the first one's client has left", n)
		}
		if a := <-answered; a.status != 200 {
			t.Errorf("the second try got %d", a.status)
		}
		r.settle()
		if n := r.metric("kvasir_incoming_retries_total", "sign=idempotency_key"); n != 1 {
			t.Errorf("counted %v times", n)
		}
	})
}
