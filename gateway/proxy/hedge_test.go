package proxy_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kvasir/gateway/attempt"
	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
	"kvasir/selection"
)

// hedgeAfter is when the calls of these tests are hedged.
const hedgeAfter = 50 * time.Millisecond

// hedged is a pool of n endpoints whose calls are hedged; the script is told how many requests
// came before, whichever endpoint has them.
func hedged(n int, script func(c *scripted.Call, before int)) setup {
	var came atomic.Int64
	var scripts []scripted.Script
	for range n {
		scripts = append(scripts, func(c *scripted.Call) { script(c, int(came.Add(1)-1)) })
	}
	s := pooled(scripts...)
	s.config = func(c *proxy.Config) {
		c.Models[0].Machine.Hedge = attempt.HedgeConfig{Ratio: 1, After: hedgeAfter, Whole: hedgeAfter}
	}
	return s
}

// replies answers whole, as the request was: its text is the name. Both report usage.
func replies(c *scripted.Call, name string) {
	r := c.Record()
	if strings.Contains(string(r.Body), `"stream":true`) {
		c.Stream(roleEvent, textEvent(name), finishEvent, usageEvent, doneEvent)
		return
	}
	c.Reply(200, "application/json", strings.Replace(jsonAnswer, "Hi there", name, 1))
}

// await waits for what happens elsewhere, unless the gateway leaves.
func await(c *scripted.Call, what <-chan struct{}) {
	select {
	case <-what:
	case <-c.Gone():
	}
}

// one checks that a client got one answer, of one endpoint.
func one(t *testing.T, a answer, name, other string) {
	t.Helper()
	if a.err != nil || a.status != 200 || !strings.Contains(a.body, name) || strings.Contains(a.body, other) ||
		strings.Count(a.body, `"role":"assistant"`) != 1 || strings.Count(a.body, "[DONE]") > 1 {
		t.Errorf("status %d, %v: %q, want %s's answer alone", a.status, a.err, a.body, name)
	}
}

// both returns what the upstreams saw, in the order of coming.
func (r *rig) both() (first, second scripted.Record) {
	r.t.Helper()
	r.settle()
	var all []scripted.Record
	for _, up := range r.upstreams {
		all = append(all, up.Calls()...)
	}
	if len(all) != 2 {
		r.t.Fatalf("%d requests upstream, want 2", len(all))
	}
	if all[1].Arrived.Before(all[0].Arrived) {
		return all[1], all[0]
	}
	return all[0], all[1]
}

// Field case F27: the first endpoint is slow, the second answers. There is one response, the slow
// one is aborted at once, what it cost is counted apart and the client is charged once.
func TestF27_TheHedgeAnswersAndTheSlowOneIsAborted(t *testing.T) {
	for name, slow := range map[string]func(c *scripted.Call){
		"before its header":  func(c *scripted.Call) { c.Hold() },
		"after its preamble": func(c *scripted.Call) { events(c, roleEvent); c.Hold() },
	} {
		for _, request := range []string{streamed, unstreamed} {
			if request == unstreamed && name == "after its preamble" {
				slow = func(c *scripted.Call) { c.Head(200, "Content-Type: application/json", "Content-Length: 100"); c.Hold() }
			}
			t.Run(name+request[1:20], func(t *testing.T) {
				var answered time.Time
				r := newRig(t, hedged(2, func(c *scripted.Call, before int) {
					if before == 0 {
						slow(c)
						return
					}
					answered = time.Now()
					replies(c, "second")
				}))
				defer r.close()
				a := r.post(chatPath, request)
				one(t, a, "second", "first")
				if h := a.header.Get("X-Kvasir-Hedged"); h != "won" {
					t.Errorf("x-kvasir-hedged: %q", h)
				}
				c := r.record()
				first, second := r.both()
				if d := second.Arrived.Sub(first.Arrived); d < hedgeAfter-5*time.Millisecond {
					t.Errorf("hedged after %v, configured: %v", d, hedgeAfter)
				}
				eventually(t, time.Second, func() bool { f, _ := r.both(); return !f.Aborted.IsZero() }, func() string { return "the slow endpoint saw no abort" })
				first, _ = r.both()
				took := first.Aborted.Sub(answered)
				t.Logf("aborted %v after the other one's answer began", took)
				if took > abortWithin {
					t.Errorf("aborted after %v", took)
				}
				if c.int("attempts") != 2 || !c.has("hedged") || c.string("outcome") != "success" || c.int("prompt_tokens") != 9 {
					t.Errorf("record %v", c)
				}
				if h := r.gateway.Pools()[0].Pools[0].Hedge; h == nil || h.Sent != 1 || h.Won != 1 || *h.After != hedgeAfter.Seconds() {
					t.Errorf("the operator sees %+v", h)
				}
				if string(first.Body) != string(second.Body) {
					t.Errorf("the two were sent %q and %q", first.Body, second.Body)
				}
				for series, want := range map[[2]string]float64{
					{"kvasir_tokens_total", "kind=input"}:                  0 + 9,
					{"kvasir_hedges_total", "outcome=won"}:                 1,
					{"kvasir_hedges_total", "outcome=lost"}:                0,
					{"kvasir_attempts_total", "outcome=beaten"}:            1,
					{"kvasir_attempts_total", "outcome=success"}:           1,
					{"kvasir_attempts_total", "outcome=client_gone"}:       0,
					{"kvasir_retries_total", "model=m"}:                    0,
					{"kvasir_calls_total", "outcome=success"}:              1,
					{"kvasir_endpoint_in_rotation", "model=m"}:             2,
					{"kvasir_attempt_failures_total", "kind=beaten"}:       1,
					{"kvasir_tokens_total", "kind=output"}:                 map[bool]float64{true: 3, false: 2}[request == streamed],
					{"kvasir_time_to_first_token_seconds", "model=m"}:      map[bool]float64{true: 1, false: 0}[request == streamed],
					{"kvasir_hedge_after_seconds", "model=m"}:              hedgeAfter.Seconds(),
					{"kvasir_hedge_wasted_prompt_tokens_total", "pool=p1"}: float64(c.int("input_tokens_estimated")),
				} {
					if got := r.metric(series[0], series[1]); got != want {
						t.Errorf("%v is %v, want %v", series, got, want)
					}
				}
			})
		}
	}
}

// Field case F27, the other order: the hedge is in vain, and aborted.
func TestF27_TheFirstAnswersAndTheHedgeIsAborted(t *testing.T) {
	for _, request := range []string{streamed, unstreamed} {
		var answered time.Time
		came := make(chan struct{}) // the hedge
		r := newRig(t, hedged(2, func(c *scripted.Call, before int) {
			if before == 0 {
				await(c, came)
				answered = time.Now()
				replies(c, "first")
				return
			}
			close(came)
			c.Hold()
		}))
		a := r.post(chatPath, request)
		one(t, a, "first", "second")
		if h := a.header.Get("X-Kvasir-Hedged"); h != "lost" {
			t.Errorf("x-kvasir-hedged: %q", h)
		}
		eventually(t, time.Second, func() bool { _, s := r.both(); return !s.Aborted.IsZero() }, func() string { return "the hedge saw no abort" })
		if _, second := r.both(); second.Aborted.Sub(answered) > abortWithin {
			t.Errorf("aborted after %v", second.Aborted.Sub(answered))
		}
		if c := r.record(); c.int("attempts") != 2 || !c.has("hedged") || c.string("outcome") != "success" {
			t.Errorf("record %v", c)
		}
		if won, lost := r.metric("kvasir_hedges_total", "outcome=won"), r.metric("kvasir_hedges_total", "outcome=lost"); won != 0 || lost != 1 {
			t.Errorf("%v hedges have won and %v lost", won, lost)
		}
		r.close()
	}
}

// Field case F27: both answer in the same millisecond. One wins, whole, and the machine counts it as
// the client saw it.
func TestF27_BothAnswerInTheSameMillisecond(t *testing.T) {
	for _, request := range []string{streamed, unstreamed} {
		var waiting atomic.Pointer[chan struct{}] // closed once the second has come
		var scripts []scripted.Script
		for i := range 2 {
			scripts = append(scripts, func(c *scripted.Call) {
				both := make(chan struct{})
				if !waiting.CompareAndSwap(nil, &both) {
					both = *waiting.Swap(nil)
					close(both)
				}
				await(c, both)
				replies(c, "from "+endpointName(i))
			})
		}
		s := pooled(scripts...)
		s.config = hedged(0, nil).config
		r := newRig(t, s)
		r.attempts = 2
		words := map[string]int{}
		for range 20 {
			a := r.post(chatPath, request)
			by := a.header.Get("X-Kvasir-Endpoint")
			one(t, a, "from "+by, "from "+map[string]string{"e1": "e2", "e2": "e1"}[by])
			words[a.header.Get("X-Kvasir-Hedged")]++
			r.settle()
		}
		t.Logf("hedges: %v", words)
		for _, outcome := range []string{"won", "lost"} {
			if got := r.metric("kvasir_hedges_total", "outcome="+outcome); got != float64(words[outcome]) {
				t.Errorf("the machine says that %v hedges %s; clients saw %v", got, outcome, words)
			}
		}
		r.close()
	}
}

// Field case F27: one fails and the other goes on; both fail, and the call is retried as ever, or
// the client hears of it.
func TestF27_OneFailsOrBoth(t *testing.T) {
	fails := status
	breaks := func(c *scripted.Call) { c.RST() }
	answers := func(c *scripted.Call) { replies(c, "answer") }
	errs := func(c *scripted.Call) {
		c.Stream(roleEvent, `data: {"error":{"message":"bad prompt","code":400}}`+"\n\n", doneEvent)
	}
	for name, x := range map[string]struct {
		first, second scripted.Script
		status        int
		body          string
		attempts      int
	}{
		"the first fails":                      {fails(500), answers, 200, "answer", 2},
		"the first breaks":                     {breaks, answers, 200, "answer", 2},
		"the first finds fault":                {fails(400), answers, 200, "answer", 2},
		"the hedge fails":                      {answers, fails(503), 200, "answer", 2},
		"the hedge breaks":                     {answers, breaks, 200, "answer", 2},
		"the hedge finds fault":                {answers, fails(400), 200, "answer", 2},
		"the hedge finds fault in its stream":  {answers, errs, 200, "answer", 2},
		"both fail, a third answers":           {fails(503), fails(503), 200, "third", 3},
		"both break":                           {breaks, breaks, 502, "fails_elsewhere", 2}, // F30
		"both find fault":                      {fails(400), fails(400), 400, "status 400", 2},
		"the first finds fault, the other 503": {fails(422), fails(503), 422, "status 422", 2},
		"the first 503, the other finds fault": {fails(503), fails(422), 422, "status 422", 2},
	} {
		for _, request := range []string{streamed, unstreamed} {
			if request == unstreamed && strings.Contains(name, "in its stream") {
				continue
			}
			for earlier := range 2 { // which one ends first; both begin before that
				t.Run(name, func(t *testing.T) {
					came, ended := make(chan struct{}), make(chan struct{})
					r := newRig(t, hedged(3, func(c *scripted.Call, before int) {
						if before > 1 {
							replies(c, "third")
							return
						}
						if before == 1 {
							close(came)
						}
						await(c, came)
						if before == earlier {
							defer close(ended)
						} else {
							await(c, ended)
							c.Pause(30 * time.Millisecond) // the gateway knows
						}
						[2]scripted.Script{x.first, x.second}[before](c)
					}))
					defer r.close()
					a := r.post(chatPath, request)
					if a.err != nil || a.status != x.status || !strings.Contains(a.body, x.body) {
						t.Errorf("status %d, %v: %q", a.status, a.err, a.body)
					}
					if c := r.record(); c.int("attempts") != x.attempts {
						t.Errorf("record %v", c)
					}
				})
			}
		}
	}
}

// Field case F27: hedges are bounded by their budget.
// TestHedge_AnAnswerThatQuotesTheKeyEndsTheCall, of the second attempt, which is withheld: the first,
// which has an answer too by then, or hangs, does not keep the client waiting.
func TestHedge_AnAnswerThatQuotesTheKeyEndsTheCall(t *testing.T) {
	for name, hangs := range map[string]bool{"the first answers": false, "the first hangs": true} {
		for _, request := range []string{streamed, unstreamed} {
			t.Run(name, func(t *testing.T) {
				s := hedged(2, func(c *scripted.Call, before int) {
					switch {
					case before == 1:
						replies(c, secretKey)
					case hangs:
						<-c.Gone()
					default:
						time.Sleep(4 * hedgeAfter)
						replies(c, "first")
					}
				})
				config := s.config
				s.config = func(c *proxy.Config) {
					config(c)
					for p := range c.Models[0].Pools {
						for e := range c.Models[0].Pools[p].Endpoints {
							c.Models[0].Pools[p].Endpoints[e].Key = secretKey
						}
					}
				}
				r := newRig(t, s)
				defer r.close()
				began := time.Now()
				a := r.post(chatPath, request)
				if took := time.Since(began); took > time.Second || strings.Contains(a.body, secretKey) || strings.Contains(a.body, "first") {
					t.Errorf("after %v: status %d, %v: %q", took, a.status, a.err, a.body)
				}
				if c := r.record(); c.int("attempts") != 2 || !c.has("hedged") || c.string("outcome") != "endpoint_failure" {
					t.Errorf("record %v", c)
				}
				r.settle()
			})
		}
	}
}

func TestF27_HedgesAreBoundedByTheirBudget(t *testing.T) {
	s := hedged(2, func(c *scripted.Call, _ int) { c.Pause(3 * hedgeAfter); replies(c, "answer") })
	on := s.config
	s.config = func(c *proxy.Config) { on(c); c.Models[0].Machine.Hedge.Ratio = 0.05 }
	r := newRig(t, s)
	defer r.close()
	var calls sync.WaitGroup
	for range 60 {
		calls.Go(func() {
			if a := r.post(chatPath, streamed); a.status != 200 || a.err != nil {
				t.Errorf("status %d, %v", a.status, a.err)
			}
		})
	}
	calls.Wait()
	if n := r.metric("kvasir_hedges_total"); n != 3 {
		t.Errorf("%v hedges for 60 calls that are all late, want 5 %%", n)
	}
	if n := r.upstreamCalls(); n > 63 {
		t.Errorf("%d requests upstream", n)
	}
}

// Field case F27: once more has come than may be held back, there is no hedge any more, nor where
// the request says that it may have effects.
func TestF27_NoHedgeBesideWhatPassesOnOrHasEffects(t *testing.T) {
	big := strings.Repeat(": "+strings.Repeat("x", 1000)+"\n\n", 100)
	for name, x := range map[string]struct {
		script  func(c *scripted.Call)
		request string
		headers []string
	}{
		"more than limits.preamble": {func(c *scripted.Call) {
			c.EventStream()
			_ = c.Chunk(big)
			c.Pause(15 * hedgeAfter)
			_ = c.Chunk(roleEvent + textEvent("first") + finishEvent + doneEvent)
			c.LastChunk()
		}, streamed, nil},
		"x-kvasir-once": {func(c *scripted.Call) { c.Pause(3 * hedgeAfter); replies(c, "first") }, streamed, []string{"X-Kvasir-Once: 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := hedged(2, func(c *scripted.Call, _ int) { x.script(c) })
			if on := s.config; x.headers == nil {
				s.config = func(c *proxy.Config) { on(c); c.Models[0].Machine.Hedge.After = 10 * hedgeAfter }
			}
			r := newRig(t, s)
			defer r.close()
			a := r.post(chatPath, x.request, x.headers...)
			if a.status != 200 || !strings.Contains(a.body, "first") || a.header.Get("X-Kvasir-Hedged") != "" {
				t.Errorf("status %d: %v %.200q", a.status, a.header, a.body)
			}
			if n := r.upstreamCalls(); n != 1 {
				t.Errorf("%d requests upstream", n)
			}
		})
	}
}

// Both of a race's upstreams are aborted when the client leaves.
func TestHedge_ClientThatLeavesEndsBoth(t *testing.T) {
	for name, script := range map[string]func(c *scripted.Call, before int){
		"both silent": func(c *scripted.Call, _ int) { c.Hold() },
		"the first has failed": func(c *scripted.Call, n int) {
			c.Pause(time.Duration(1-n) * 2 * hedgeAfter)
			map[bool]scripted.Script{true: status(503), false: (*scripted.Call).Hold}[n == 0](c)
		},
		"the hedge is streamed": func(c *scripted.Call, n int) {
			map[bool]scripted.Script{true: func(c *scripted.Call) { events(c, roleEvent, textEvent("one")); c.Hold() }, false: (*scripted.Call).Hold}[n == 1](c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, hedged(2, script))
			defer r.close()
			ctx, leave := context.WithTimeout(t.Context(), 5*hedgeAfter)
			defer leave()
			if a, err := r.do(ctx, http.MethodPost, chatPath, strings.NewReader(streamed)); err == nil && a.err == nil {
				t.Errorf("status %d: %q", a.status, a.body)
			}
			left := time.Now()
			r.settle()
			for _, up := range r.upstreams {
				for _, c := range up.Calls() {
					eventually(t, time.Second, func() bool { return up.Alive() == 0 }, func() string { return "an upstream still answers" })
					if !c.Aborted.IsZero() && c.Aborted.Sub(left) > abortWithin {
						t.Errorf("aborted after %v", c.Aborted.Sub(left))
					}
				}
			}
		})
	}
}

// Field case F04 with a hedge: whoever waits hears something, whichever attempt runs.
func TestHedge_HeartbeatsGoOn(t *testing.T) {
	s := hedged(2, func(c *scripted.Call, before int) {
		if before == 0 {
			c.Hold()
			return
		}
		c.Pause(4 * hedgeAfter)
		replies(c, "second")
	})
	on := s.config
	s.config = func(c *proxy.Config) { on(c); c.Heartbeat = hedgeAfter / 2 }
	r := newRig(t, s)
	defer r.close()
	a := r.post(chatPath, streamed)
	one(t, a, "second", "first")
	if n := strings.Count(a.body, ": waiting"); n < 2 {
		t.Errorf("%d heartbeats in %q", n, a.body)
	}
}

// Field case F64 with a hedge: an attempt that quotes its endpoint's key ends the call, and the
// other one with it, whether that one has an answer by then or not.
func TestF64_QuotedBesideAnotherAttempt(t *testing.T) {
	quotes := func(c *scripted.Call) { events(c, roleEvent, textEvent(secretKey)); c.Hold() }
	for name, other := range map[string]scripted.Script{
		"silent":          (*scripted.Call).Hold,
		"in its preamble": func(c *scripted.Call) { events(c, roleEvent); c.Hold() },
		"soon answering":  func(c *scripted.Call) { c.Pause(2 * hedgeAfter); events(c, roleEvent, textEvent("one")); c.Hold() },
	} {
		for quoting := range 2 {
			t.Run(fmt.Sprintf("%s beside attempt %d", name, quoting), func(t *testing.T) {
				s := hedged(2, func(c *scripted.Call, before int) {
					if before != quoting {
						other(c)
						return
					}
					if before == 0 {
						c.Pause(hedgeAfter + hedgeAfter/2)
					}
					quotes(c)
				})
				on := s.config
				s.config = func(c *proxy.Config) { on(c); withKey(c) }
				r := newRig(t, s)
				defer r.close()
				ctx, leave := context.WithTimeout(t.Context(), 3*time.Second)
				defer leave()
				a, err := r.do(ctx, http.MethodPost, chatPath, strings.NewReader(streamed))
				if err != nil || a.err != nil || a.status != 502 || strings.Contains(a.body, secretKey) {
					t.Fatalf("%v, %v: status %d: %q", err, a.err, a.status, a.body)
				}
				for _, up := range r.upstreams {
					eventually(t, 2*time.Second, func() bool { return up.Alive() == 0 }, func() string { return "an upstream still answers" })
				}
			})
		}
	}
}

// Field case F37 with a hedge that answers: where its stream stands is what counts when the call is
// cut, and not where the attempt that it has beaten did.
func TestCut_TellsByTheStreamThatIsPassedOn(t *testing.T) {
	for _, within := range []bool{false, true} {
		r := newRig(t, hedged(2, func(c *scripted.Call, before int) {
			switch {
			case before == 1 && within:
				events(c, roleEvent, textEvent("one")+"data: {")
			case before == 1:
				events(c, roleEvent, textEvent("one"))
			case within:
				events(c, roleEvent)
			default:
				events(c, "data: {")
			}
			c.Hold()
		}))
		got := make(chan answer)
		go func() { got <- r.post(chatPath, streamed) }()
		eventually(t, 5*time.Second, func() bool {
			return slices.ContainsFunc(r.upstreams, func(up *scripted.Server) bool { return len(up.Calls()) > 0 && !up.Calls()[0].Aborted.IsZero() })
		}, func() string { return "the hedge did not win" })
		time.Sleep(50 * time.Millisecond) // what the script sends arrives
		r.gateway.Drain()
		r.gateway.Cut()
		a := <-got
		if passed := roleEvent + textEvent("one") + "data: {"; within && (a.err == nil || a.body != passed) ||
			!within && (a.err != nil || !strings.HasPrefix(a.body, passed) || !strings.Contains(a.body, "draining")) {
			t.Errorf("within an event %v: %v after %q", within, a.err, a.body)
		}
		r.close()
	}
}

// A panic of either attempt ends the call as any does, and leaves nothing behind.
func TestHedge_PanicGivesEverythingBack(t *testing.T) {
	for attempt := range 2 {
		s := hedged(2, func(c *scripted.Call, before int) {
			if before == 0 && attempt == 1 {
				c.Pause(3 * hedgeAfter)
			}
			replies(c, "answer")
		})
		on := s.config
		s.config = func(c *proxy.Config) {
			on(c)
			c.Models[0].Machine.Explain = true
			c.OnDecision = func(_ string, d *selection.Decision) {
				if d.Attempt == attempt {
					panic("boom")
				}
			}
		}
		r := newRig(t, s)
		if a, err := r.do(t.Context(), "POST", chatPath, strings.NewReader(streamed)); err == nil && a.err == nil {
			t.Errorf("a panic became status %d", a.status)
		}
		r.settle()
		if !strings.Contains(r.serverLog.String(), "boom") {
			t.Error("the server's log does not tell")
		}
		r.close()
	}
}

// Whatever two attempts and a client do at once, a client gets one whole answer or an error, and
// nothing is left (rig.close).
func TestHedge_Chaos(t *testing.T) {
	s := hedged(3, func(c *scripted.Call, _ int) {
		c.Pause(time.Duration(rand.IntN(20)) * time.Millisecond)
		switch rand.IntN(10) {
		case 0:
			status([]int{400, 422, 500}[rand.IntN(3)])(c)
		case 1:
			c.RST()
		case 2:
			c.EventStream()
			_ = c.Chunk(roleEvent)
			c.Pause(time.Duration(rand.IntN(20)) * time.Millisecond)
			c.FIN()
		case 3:
			c.Hold()
		default:
			c.EventStream()
			_ = c.Chunk(roleEvent)
			c.Pause(time.Duration(rand.IntN(20)) * time.Millisecond)
			_ = c.Chunk(textEvent("one"))
			c.Pause(time.Duration(rand.IntN(5)) * time.Millisecond)
			_ = c.Chunk(textEvent("two") + finishEvent + usageEvent + doneEvent)
			c.LastChunk()
		}
	})
	on := s.config
	s.config = func(c *proxy.Config) {
		on(c)
		c.Models[0].Machine.Hedge.After = 10 * time.Millisecond
		c.Models[0].Machine.Health.Failures = 1e6
		c.Timeouts = proxy.Timeouts{FirstToken: 60 * time.Millisecond, Total: 300 * time.Millisecond}
		c.Heartbeat = 15 * time.Millisecond
	}
	r := newRig(t, s)
	defer r.close()
	r.attempts = 4
	want := roleEvent + textEvent("one") + textEvent("two") + finishEvent + usageEvent + doneEvent
	var whole atomic.Int64
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for range 25 {
				ctx, leave := context.WithTimeout(t.Context(), time.Duration(10+rand.IntN(200))*time.Millisecond)
				a, err := r.do(ctx, http.MethodPost, chatPath, strings.NewReader(streamed))
				leave()
				body := strings.ReplaceAll(a.body, ": waiting\n", "")
				switch {
				case err != nil || a.err != nil: // it left, or the answer was cut
				case strings.Contains(body, "error"):
				case a.status == 200 && body == want:
					whole.Add(1)
				default:
					t.Errorf("status %d: %q", a.status, body)
				}
			}
		})
	}
	clients.Wait()
	t.Logf("%d whole answers; hedges: %v won, %v lost, %v failed", whole.Load(), r.metric("kvasir_hedges_total", "outcome=won"),
		r.metric("kvasir_hedges_total", "outcome=lost"), r.metric("kvasir_hedges_total", "outcome=failed"))
	if whole.Load() == 0 {
		t.Errorf("no call of %d was answered", 16*25)
	}
}
