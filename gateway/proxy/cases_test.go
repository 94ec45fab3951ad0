package proxy_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
	"kvasir/upstream"
)

// marked answers calls whose body has MARKER with one script, others with another.
func marked(bad, other scripted.Script) scripted.Script {
	return func(c *scripted.Call) {
		if strings.Contains(string(c.Record().Body), "MARKER") {
			bad(c)
			return
		}
		other(c)
	}
}

// attemptsOf is how many attempts an answer says were made.
func attemptsOf(t *testing.T, a answer) int {
	t.Helper()
	n, err := strconv.Atoi(a.header.Get("X-Kvasir-Attempts"))
	if err != nil {
		t.Fatalf("status %d: %v", a.status, err)
	}
	return n
}

var markedRequest = strings.Replace(unstreamed, "Hello", "MARKER", 1)

// eternal turns off all that leaves an endpoint alone, and all budgets.
func eternal(c *proxy.Config) {
	m := &c.Models[0].Machine
	m.Health.Failures, m.Health.Ratio, m.Health.Busy, m.Health.MaxBusy = 1000, 0, 0, 0
	m.Retry.Ratio, m.Retry.Floor = 1, 1e5
	m.Retry.Attempts = 1 << 20 // whatever a configuration may say
}

// Field case F21 as it was met: nothing ever cools down, each endpoint says 404, 400 or 500 to
// everything, and the client leaves. The attempts of the call are few, none follows its client,
// and the log has its one line.
func TestF21_NothingCoolsDownAndTheClientLeaves(t *testing.T) {
	for _, code := range []int{404, 400, 500} {
		inBubble(t, func() setup {
			var scripts []scripted.Script
			for range 12 {
				scripts = append(scripts, func(c *scripted.Call) {
					c.Pause(300 * time.Millisecond)
					c.Reply(code, "application/json", `{"error":{"message":"no endpoint for tools"}}`)
				})
			}
			s := pooled(scripts...)
			s.config = func(c *proxy.Config) { eternal(c) }
			return s
		}(), func(t *testing.T, r *rig) {
			r.attempts = 6
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, _ = r.do(ctx, "POST", chatPath, strings.NewReader(unstreamed)) // it leaves, or is answered before
			r.settle()
			n := r.upstreamCalls()
			time.Sleep(time.Hour)
			if later := r.upstreamCalls(); later != n || n > 6 {
				t.Errorf("%d: %d attempts, and %d after the client had gone", code, n, later-n)
			}
			for i, up := range r.upstreams {
				if n := len(up.Calls()); n > 1 {
					t.Errorf("%d: endpoint %d was tried %d times", code, i, n)
				}
			}
			if lines := len(r.records.all()) + len(r.records.said()); lines != 1 {
				t.Errorf("%d: %d lines in the log for one call", code, lines)
			}
		})
	}
}

// Field case F24 through the whole gateway: a wait that is named in any form, and is short, is
// waited for where nobody else can answer; what is longer is passed on with its header.
func TestF24_ANamedWaitIsWaitedForOrPassedOn(t *testing.T) {
	for _, x := range []struct {
		headers []string
		waits   time.Duration // least and, but for a tenth, most; below 0: it is passed on
	}{
		{[]string{"Retry-After: 0"}, 0},
		{[]string{"Retry-After: 1"}, time.Second},
		{[]string{"Retry-After: 1.5"}, 1500 * time.Millisecond},
		{[]string{"Retry-After: -5"}, -1},
		{[]string{"Retry-After: abc"}, -1},
		{[]string{"Retry-After: NaN"}, -1},
		{[]string{"Retry-After: 99999999999"}, -1},
		{[]string{"Retry-After: Mon, 30 Nov 1998 12:00:00 GMT"}, 0},
		{[]string{"Retry-After: " + "{in 2 s}"}, 2 * time.Second},
		{[]string{"Retry-After: " + "{in a day}"}, -1},
		{[]string{"Retry-After-Ms: 150", "Retry-After: 2"}, 150 * time.Millisecond},
	} {
		t.Run(strings.Join(x.headers, ", "), func(t *testing.T) {
			inBubble(t, pooled(nil), func(t *testing.T, r *rig) {
				date := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
				for i, h := range x.headers {
					x.headers[i] = strings.NewReplacer("{in 2 s}", date(2*time.Second), "{in a day}", date(24*time.Hour)).Replace(h)
				}
				r.upstreams[0].SetScript(limitedFor(x.headers...))
				go func() {
					time.Sleep(50 * time.Millisecond)
					r.upstreams[0].SetScript(good)
				}()
				began := time.Now()
				a := r.post(chatPath, unstreamed)
				took := time.Since(began)
				least := x.waits
				if strings.HasSuffix(x.headers[0], "GMT") {
					least -= time.Second // dates have whole seconds
				}
				switch {
				case x.waits < 0:
					if a.status != 429 || took > 100*time.Millisecond {
						t.Errorf("status %d after %v", a.status, took)
					}
					if got, theirs := a.header.Get("Retry-After"), strings.TrimPrefix(x.headers[0], "Retry-After: "); got != theirs && got != "1" {
						t.Errorf("retry-after %q, the endpoint said %q", got, theirs)
					}
				case x.waits == 0:
					if took > 100*time.Millisecond {
						t.Errorf("at once took %v", took)
					}
				case a.status != 200 || took < least || took > x.waits*11/10:
					t.Errorf("status %d after %v, want %v", a.status, took, x.waits)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// Field case F28 with all of its statuses: 200 calls of one tenant that are wrong, mixed with
// another's good ones. None of those fails, nobody leaves rotation, and what is wrong gets the
// endpoint's own words. A 401 or 404 may be the endpoint's doing, so one other is asked, and a
// third where one of the two had nothing but such calls lately.
func TestF28_MistakesOfOneTenantLeaveTheOtherAlone(t *testing.T) {
	for code, attempts := range map[int]int{400: 1, 401: 3, 404: 3, 422: 1} {
		script := marked(status(code), good)
		s := pooled(script, script, script)
		s.policy = "random"
		r := newRig(t, s)
		sent := 0
		for i := range 200 {
			a := r.post(chatPath, markedRequest)
			if code != 401 && (a.status != code || !strings.Contains(a.body, fmt.Sprintf("status %d", code))) {
				t.Fatalf("%d: call %d got %d %s", code, i, a.status, a.body)
			}
			n := attemptsOf(t, a)
			if sent += n; n > attempts {
				t.Fatalf("%d: %d attempts, want %d at most", code, n, attempts)
			}
			for range 3 {
				if a := r.post(chatPath, unstreamed); a.status != 200 || attemptsOf(t, a) != 1 {
					t.Fatalf("%d: a good call got %d after %d attempts", code, a.status, attemptsOf(t, a))
				}
			}
		}
		if attempts > 1 && sent > 2*200+40 {
			t.Errorf("%d: %d attempts for 200 calls that are wrong, want about two each", code, sent)
		}
		if n := r.metric("kvasir_endpoint_in_rotation"); n != 3 || len(r.records.said()) != 0 {
			t.Errorf("%d: %v of 3 in rotation; %v", code, n, r.records.said())
		}
		r.close()
	}
}

// Field case F30: what engines say 500 to, in whatever form, is blamed on the call once two have
// said so, and takes nobody out.
func TestF30_APoisonedCallTakesNobodyOut(t *testing.T) {
	// A connection that breaks at once may have been idle too long: the first such of a call is
	// replaced for nothing.
	for name, bad := range map[string]scripted.Script{
		"json": func(c *scripted.Call) {
			c.Reply(500, "application/json", `{"error":{"type":"ValueError","message":"prompt too long"}}`)
		},
		"text":      func(c *scripted.Call) { c.Reply(500, "text/plain", "Traceback (most recent call last)") },
		"5 MB":      func(c *scripted.Call) { c.Reply(500, "text/plain", strings.Repeat("x", 5<<20)) },
		"no words":  func(c *scripted.Call) { c.Reply(500, "text/plain", "") },
		"it breaks": func(c *scripted.Call) { c.RST() },
	} {
		t.Run(name, func(t *testing.T) {
			script := marked(bad, good)
			s := pooled(script, script, script)
			s.policy = "random"
			r := newRig(t, s)
			defer r.close()
			sent := 0
			for range 60 {
				a := r.post(chatPath, markedRequest)
				if a.status/100 != 5 || a.header.Get("X-Should-Retry") != "false" {
					t.Fatalf("status %d, x-should-retry %q", a.status, a.header.Get("X-Should-Retry"))
				}
				sent += attemptsOf(t, a)
				for range 3 {
					if a := r.post(chatPath, unstreamed); a.status != 200 {
						t.Fatalf("a good call got %d: %s", a.status, a.body)
					}
				}
			}
			if most := 2*60 + 12; sent > most && name != "it breaks" || sent > 3*60 {
				t.Errorf("%d attempts for 60 calls that break engines, want about two each", sent)
			}
			if n := r.metric("kvasir_endpoint_in_rotation"); n != 3 || len(r.records.said()) != 0 {
				t.Errorf("%v of 3 in rotation; %v", n, r.records.said())
			}
		})
	}
}

// Field case F31: one "at capacity", and then all is well; at a call a second the mark is gone
// by itself, with one worker and with several, and the one that is marked is asked where there is
// nobody else.
func TestF31_TheMarkOfOverloadEndsByItself(t *testing.T) {
	for _, workers := range []int{1, 3} {
		var scripts []scripted.Script
		for range workers {
			once := sync.OnceValue(func() scripted.Script { return status(503) })
			first := true
			scripts = append(scripts, func(c *scripted.Call) {
				if first {
					first = false
					once()(c)
					return
				}
				good(c)
			})
		}
		inBubble(t, pooled(scripts...), func(t *testing.T, r *rig) {
			failed := 0
			for range 120 {
				if a := r.post(chatPath, unstreamed); a.status != 200 {
					failed++
				}
				time.Sleep(time.Second)
			}
			if failed > 1 {
				t.Errorf("%d workers: %d of 120 calls failed for one 503 of each", workers, failed)
			}
			for i, up := range r.upstreams {
				if n := len(up.Calls()); n < 90/workers {
					t.Errorf("%d workers: number %d got %d calls in two minutes after its 503", workers, i, n)
				}
			}
			if said := r.records.said(); len(said) != 0 {
				t.Errorf("%v", said)
			}
		})
	}
}

// Field case F34 whole: one of three engines hangs behind a server that answers /health,
// /v1/models and metrics that stand still, with running 2 or 0. At five calls a second it is out
// within seconds of the first timeout, all callers are answered, and it returns by a real call
// once it works.
func TestF34_AHungEngineWhoseServerIsWell(t *testing.T) {
	for _, running := range []int{2, 0} {
		for _, way := range []string{"timeout", "silence"} {
			t.Run(fmt.Sprintf("running %d, %s", running, way), func(t *testing.T) {
				frozen := fmt.Sprintf("vllm:num_requests_running{engine=\"0\"} %d\nvllm:num_requests_waiting{engine=\"0\"} 0\nvllm:kv_cache_usage_perc{engine=\"0\"} 0\n", running)
				server := func(completions scripted.Script) scripted.Script {
					return func(c *scripted.Call) {
						switch c.Record().Target {
						case "/health":
							c.Reply(200, "text/plain", "")
						case "/metrics":
							c.Reply(200, "text/plain; version=0.0.4", frozen)
						case "/v1/models":
							c.Reply(200, "application/json", `{"object":"list","data":[]}`)
						default:
							completions(c)
						}
					}
				}
				works := server(streams(wholeStream("x")...))
				s := pooled(server(func(c *scripted.Call) { c.Hold() }), works, works)
				s.policy = "round-robin" // by load, one call that hangs would keep further ones away
				s.config = func(c *proxy.Config) {
					c.Models[0].Pools[0].Scrape, c.Models[0].Pools[0].Dialect = time.Second, upstream.VLLM()
					c.Models[0].Pools[0].Probe = proxy.Probe{Path: "/health", Interval: time.Second, Timeout: time.Second}
					c.Models[0].Machine.Health.SlowStart = 0
					if way == "timeout" {
						c.Timeouts.FirstToken = 2 * time.Second
					} else {
						c.Models[0].Machine.Health.Stall, c.Models[0].Machine.Health.StallCalls = 3*time.Second, 2
					}
				}
				inBubble(t, s, func(t *testing.T, r *rig) {
					stop := r.watching()
					defer stop()
					completions := func() (n int) {
						for _, c := range r.upstreams[0].Calls() {
							if c.Target == chatPath {
								n++
							}
						}
						return n
					}
					var clients sync.WaitGroup
					var failed atomic.Int32
					load := func(d time.Duration) {
						for range int(d / (200 * time.Millisecond)) {
							clients.Go(func() {
								a, err := r.do(context.Background(), "POST", chatPath, strings.NewReader(streamed))
								if err != nil || a.status != 200 {
									failed.Add(1)
								}
							})
							time.Sleep(200 * time.Millisecond)
						}
					}
					load(8 * time.Second)
					state := func() string { return r.gateway.Pools()[0].Pools[0].Endpoints[0].State }
					if s := state(); s == "in_rotation" {
						t.Error("after 8 s it is in rotation")
					}
					load(30 * time.Second)
					clients.Wait()
					if n := completions(); n > 25 {
						t.Errorf("%d calls of 190 went to the endpoint that hangs", n)
					}
					r.upstreams[0].SetScript(works)
					before := completions()
					load(2 * time.Minute)
					clients.Wait()
					if s := state(); s != "in_rotation" || completions() < before+50 {
						t.Errorf("it works again: %s, %d calls", s, completions()-before)
					}
					if n := failed.Load(); n > 0 {
						t.Errorf("%d calls were not answered", n)
					}
				})
			})
		}
	}
}
