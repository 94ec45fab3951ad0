package proxy_test

import (
	"sync"
	"testing"
	"time"

	"kvasir/gateway/limit"
	"kvasir/gateway/proxy"
	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
	"kvasir/internal/testkit/scripted"
	"kvasir/selection"
)

// witness is a policy that keeps what it was asked about.
type witness struct {
	selection.Policy
	mu   sync.Mutex
	seen []selection.Request
}

func (w *witness) Pick(v *selection.View, q *selection.Request, r *seed.Rand) selection.Choice {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, *q)
	return w.Policy.Pick(v, q, r)
}

func (w *witness) last() selection.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[len(w.seen)-1]
}

// TestUrgent_TheMachineHearsOfIt: who pays, its share, its priority and its deadline, less
// what the call has waited for its siblings.
func TestUrgent_TheMachineHearsOfIt(t *testing.T) {
	w := &witness{}
	r := newRig(t, limited(ordered(func(c *scripted.Call) { c.Pause(150 * time.Millisecond); good(c) }), limit.Caps{}, func(c *proxy.Config) {
		c.Tenancy.Tenants["acme"] = proxy.Tenant{Class: "batch", Share: 2.5}
		c.Tenancy.Classes = map[string]proxy.Class{"batch": {Priority: -3, Deadline: 5 * time.Second}, "slow": {Priority: -4}}
		c.Models[0].Deadline = time.Minute
		c.FanOut = proxy.FanOut{Concurrency: 1, Waiting: 9, MaxWait: 10 * time.Second}
		w.Policy, c.Models[0].Machine.Pools[0].Policy = c.Models[0].Machine.Pools[0].Policy, w
	}))
	defer r.close()
	within := func(q selection.Request, least, most time.Duration) {
		t.Helper()
		if !q.Firm || q.Deadline > most || q.Deadline < least {
			t.Errorf("deadline %v, firm: %v; want %v to %v", q.Deadline, q.Firm, least, most)
		}
	}
	r.post(chatPath, unstreamed, acmeKey)
	q := w.last()
	if q.Tenant != kvblock.Seed("tenant", "acme") || q.Share != 2.5 || q.Priority != -3 {
		t.Errorf("%+v", q)
	}
	within(q, 4*time.Second, 5*time.Second)
	r.post(chatPath, unstreamed, acmeKey, "X-Kvasir-Class: slow") // which has no deadline: the model's
	within(w.last(), 59*time.Second, time.Minute)
	r.post(chatPath, unstreamed, acmeKey, "X-Kvasir-Deadline: 2s")
	within(w.last(), time.Second, 2*time.Second)

	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() { r.post(chatPath, unstreamed, acmeKey, "X-Kvasir-Deadline: 9s", "X-Session-Id: swarm") })
	}
	calls.Wait()
	within(w.last(), 7*time.Second, 9*time.Second-100*time.Millisecond)
}
