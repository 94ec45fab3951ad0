package real

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kvasir/test/program"
)

// race is clients that call again just when their server closes connections that were idle.
type race struct {
	gateway  *program.Gateway
	gap      time.Duration // after which the server closes a connection
	clients  int
	rounds   int
	size     int  // of a body, in bytes
	confirms bool // the server tells the hash of what it read

	before func(at time.Time) // is called when it is known at which instant a round will call
}

// window is how far from the closing of a connection the next call may be.
const window = 5 * time.Millisecond

// run makes all calls and returns what went wrong. The clients of a round call together, so
// that each finds a connection that has been idle since the round before.
func (r race) run(t testing.TB) (wrong []string) {
	client := newClient(t)
	random := rand.New(rand.NewPCG(1, 1))
	var mu sync.Mutex
	for n := range r.rounds {
		var round sync.WaitGroup
		at := time.Now().Add(r.gap)
		if r.before != nil {
			r.before(at)
		}
		for i := range r.clients {
			u := 2*random.Float64() - 1
			offset := time.Duration(u * u * u * float64(window)) // most are near the instant itself
			body := fmt.Sprintf(`{"model":"tiny","max_tokens":1,"messages":[{"role":"user","content":"%d %d"}],"padding":"%s"}`, n, i, strings.Repeat("x", r.size))
			round.Go(func() {
				time.Sleep(time.Until(at.Add(offset)))
				if why := r.call(t, client, body); why != "" {
					mu.Lock()
					defer mu.Unlock()
					wrong = append(wrong, why)
				}
			})
		}
		round.Wait()
	}
	return wrong
}

func (r race) call(t testing.TB, client *http.Client, text string) (wrong string) {
	resp, err := send(t.Context(), client, r.gateway.Base+"/v1/chat/completions", text)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	var answer struct {
		Hash  string          `json:"system_fingerprint"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err.Error()
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Sprintf("status %d: %s", resp.StatusCode, answer.Error)
	}
	if want := fmt.Sprintf("%x", sha256.Sum256([]byte(text))); r.confirms && answer.Hash != want {
		return "the server read another body"
	}
	return ""
}

// report fails the test for what went wrong, and for an endpoint that left rotation: its
// connections were to blame. It tells how often the race was lost without a client's seeing it.
func (r race) report(t testing.TB, wrong []string) {
	t.Helper()
	calls := r.clients * r.rounds
	t.Logf("%d calls, %d errors, %v further attempts (%v after a stale connection)", calls, len(wrong), r.retries(t),
		r.gateway.Metric(t, "kvasir_attempt_failures_total", `kind="stale_connection"`))
	if len(wrong) > 0 {
		t.Errorf("%d of %d calls failed, the first with: %s", len(wrong), calls, wrong[0])
	}
	if n := r.gateway.Metric(t, "kvasir_ejections_total"); n > 0 {
		t.Errorf("%v times a server that lives left rotation", n)
	}
}

// retries counts the attempts that were not their call's first.
func (r race) retries(t testing.TB) float64 {
	t.Helper()
	return r.gateway.Metric(t, "kvasir_attempts_total") - r.gateway.Metric(t, "kvasir_calls_total")
}

// TestIdle_UvicornClosesFirst calls through connections that uvicorn closes after a second,
// with gateways that would keep them longer and with gateways that give them up a moment
// before, with bodies that fit into one packet's burst and with bodies that do not.
func TestIdle_UvicornClosesFirst(t *testing.T) {
	servers := addresses(t, 2)
	app(t, servers[0], "httptools", 1)
	app(t, servers[1], "h11", 1)
	for _, idle := range []string{"1200ms", "995ms"} {
		for _, r := range []race{{size: 4 << 10, clients: 8, rounds: 25}, {size: 1 << 20, clients: 4, rounds: 15}} {
			t.Run(fmt.Sprintf("idle_timeout=%s/%dKiB", idle, r.size>>10), func(t *testing.T) {
				t.Parallel()
				r.gateway = program.Serve(t, configuration("upstream: {idle_timeout: "+idle+"}\n", "    policy: round-robin\n"+unread, servers...))
				r.gap, r.confirms = time.Second, true
				r.report(t, r.run(t))
			})
		}
	}
}

// TestIdle_WhenUvicornClosesWithoutLooking stops the servers before they would close their
// idle connections and lets them go on after it: what was sent meanwhile meets a connection
// whose end has come first. A server that is busy with something else does the same.
func TestIdle_WhenUvicornClosesWithoutLooking(t *testing.T) {
	for _, test := range []struct {
		name             string
		pause            time.Duration // from the call until the server goes on
		servers, clients int
		size             int
	}{
		{"small bodies", 60 * time.Millisecond, 2, 4, 4 << 10},
		{"large bodies", 60 * time.Millisecond, 2, 4, 1 << 20},
		{"later", 400 * time.Millisecond, 2, 4, 4 << 10},
		{"many connections at once", 60 * time.Millisecond, 2, 32, 4 << 10},
		{"one server", 60 * time.Millisecond, 1, 4, 4 << 10},
		{"one server, later", 400 * time.Millisecond, 1, 4, 4 << 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			servers := addresses(t, test.servers)
			var processes []*program.Process
			for i, s := range servers {
				processes = append(processes, app(t, s, []string{"httptools", "h11"}[i], 1))
			}
			gateway := program.Serve(t, configuration("", "    policy: round-robin\n"+unread, servers...))
			r := race{gateway: gateway, gap: 970 * time.Millisecond, clients: test.clients, rounds: 5, size: test.size, confirms: true}
			r.before = func(at time.Time) {
				for _, p := range processes {
					time.AfterFunc(time.Until(at.Add(-100*time.Millisecond)), func() { p.Signal(t, syscall.SIGSTOP) })
					time.AfterFunc(time.Until(at.Add(test.pause)), func() { p.Signal(t, syscall.SIGCONT) })
				}
			}
			r.report(t, r.run(t))
			if r.retries(t) == 0 {
				t.Error("no call met a connection that was closed without looking")
			}
		})
	}
}

// TestIdle_LlamaClosesFirst is the same with llama.cpp's server, which closes a connection
// after 5 s.
func TestIdle_LlamaClosesFirst(t *testing.T) {
	t.Parallel()
	servers := addresses(t, 2)
	for _, s := range servers {
		llama(t, s)
	}
	gateway := program.Serve(t, configuration("upstream: {idle_timeout: 6s}\n", "    policy: round-robin\n"+unread, servers...))
	r := race{gateway: gateway, gap: 5 * time.Second, clients: 16, rounds: 4, size: 4 << 10}
	r.report(t, r.run(t))
}

// TestIdle_LlamaClosesAfterAHundredCalls makes more calls, one after the other, than
// llama.cpp's server answers on one connection.
func TestIdle_LlamaClosesAfterAHundredCalls(t *testing.T) {
	t.Parallel()
	server := program.FreeAddress(t)
	llama(t, server)
	gateway := program.Serve(t, configuration("", unread, server))
	r := race{gateway: gateway, clients: 1, rounds: 350}
	r.report(t, r.run(t))
}
