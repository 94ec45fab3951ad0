package proxy_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"kvasir/gateway/flow"
	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
)

// overheard is a gateway's way to its peers that notes what it has told of loads.
type overheard struct {
	proxy.Peers
	mu          sync.Mutex
	outstanding map[string]int32 // by endpoint
}

func (o *overheard) Tell(told []proxy.Told) {
	o.Peers.Tell(told)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range told {
		if t.Word.Kind == flow.WordLoad {
			o.outstanding[t.Endpoint] = t.Word.Share.Outstanding
		}
	}
}

// told returns how many calls its peers must believe it to have.
func (o *overheard) told() (n int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, k := range o.outstanding {
		n += k
	}
	return n
}

// TestPeers_TwoGatewaysSpreadAsOne: of two gateways before the same four endpoints, the
// second one leaves alone those to which the first has sent.
func TestPeers_TwoGatewaysSpreadAsOne(t *testing.T) {
	release := make(chan bool)
	script := func(c *scripted.Call) { <-release; good(c) }
	var all proxy.LocalPeers
	peers := make([]*overheard, 2)
	var rigs []*rig
	for i := range peers {
		peers[i] = &overheard{Peers: all.Join(), outstanding: map[string]int32{}}
		s := pooled(slices.Repeat([]scripted.Script{script}, 4)...)
		s.policy = "least-outstanding"
		s.config = func(c *proxy.Config) {
			c.Peers = peers[i]
			if i > 0 { // the endpoints are the first one's
				copy(c.Models[0].Pools[0].Endpoints, rigs[0].endpoints())
			}
		}
		rigs = append(rigs, newRig(t, s))
	}
	defer rigs[0].close()
	defer rigs[1].close()
	var clients sync.WaitGroup
	send := func(r *rig, calls int) {
		for range calls {
			clients.Go(func() {
				if a := r.post(chatPath, unstreamed); a.status != 200 {
					t.Errorf("status %d", a.status)
				}
			})
		}
	}
	wait := func(i int, calls int32) {
		t.Helper()
		eventually(t, 5*time.Second, func() bool { return peers[i].told() == calls }, func() string { return "what gateways send is not told" })
	}
	for round := range 3 {
		send(rigs[0], 2)
		wait(0, int32(2*(round+1)))
		send(rigs[1], 2)
		wait(1, int32(2*(round+1)))
		a, b := rigs[0].inFlight(), rigs[1].inFlight()
		for k := range a {
			if a[k]+b[k] != round+1 {
				t.Fatalf("in round %d the gateways have %v and %v, want %d in sum everywhere", round, a, b, round+1)
			}
		}
	}
	close(release)
	clients.Wait()
	wait(0, 0)
	wait(1, 0)
}

// endpoints returns the live halves of the rig's endpoints.
func (r *rig) endpoints() []proxy.Endpoint {
	var out []proxy.Endpoint
	for _, up := range r.upstreams {
		out = append(out, proxy.Endpoint{URL: "http://" + up.Addr()})
	}
	return out
}
