package proxy_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"kvasir/gateway/admission"
	"kvasir/gateway/proxy"
)

// Who asks for little goes before the many calls of somebody else that came before.
func TestQueueIsFairBetweenConversations(t *testing.T) {
	gate := make(chan bool)
	r := newRig(t, oneAtATime(pooled(gated(gate)), func(q *admission.Config, _ *proxy.Config) {
		q.Order, q.Fairness.By = admission.Fair, admission.ByConversation
	}))
	defer r.close()
	var mu sync.Mutex
	var order []string
	var calls sync.WaitGroup
	ask := func(who string) {
		calls.Go(func() {
			if a := r.post(chatPath, streamed, "X-Session-Id: "+who); a.status != 200 {
				t.Errorf("status %d: %s", a.status, a.body)
			}
			mu.Lock()
			defer mu.Unlock()
			order = append(order, who)
		})
	}
	ask("many")
	waitForCall(t, r.upstreams[0])
	for i := range 4 {
		ask("many")
		r.held(1 + i)
	}
	ask("few")
	r.held(5)
	for i := range 6 {
		gate <- true
		eventually(t, 2*time.Second, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(order) == i+1
		}, func() string { return "no call has ended" })
	}
	calls.Wait()
	if at := slices.Index(order, "few"); at > 2 {
		t.Errorf("the calls end in the order %v", order)
	}
}
