package flow

import (
	"math"
	"testing"
	"time"

	"kvasir/gateway/admission"
	"kvasir/gateway/attempt"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// asked returns what is asked of the model's pools a second after the instant.
func asked(m *Machine, at mono.Time) (all []DemandState) {
	for _, p := range m.Snapshot(at.Add(time.Second)).Pools {
		all = append(all, p.Demand)
	}
	return all
}

// within a minute's first seconds rates are over five of them.
func calls(d DemandState) int { return int(math.Round(d.Calls * 5)) }

func TestDemand_EveryCallIsCountedOnce(t *testing.T) {
	pool := newTestPool("p", lightest{}, "a")
	pool.Queue = admission.Default()
	pool.Queue.Tokens, pool.Queue.Length = 1, 1
	c := newConfig(pool)
	c.Calls = 3
	m := New(c)
	first := only(t, m.Step(1, Arrive(request(1)))) // sent
	m.Step(2, Arrive(request(2)))                   // held
	if a := only(t, m.Step(3, Arrive(request(3)))); a.Reason != QueueFull {
		t.Fatalf("%+v", a)
	}
	q := request(4)
	q.Priority = -1
	if a := only(t, m.Step(4, Arrive(q))); a.Kind != Refuse {
		t.Fatalf("%+v", a)
	}
	if d := asked(m, 5)[0]; calls(d) != 4 || math.Abs(d.Tokens*5-400) > 1e-6 || d.Held != 1 || d.HeldTokens != 100 || d.Unstarted != 100 {
		t.Errorf("of four calls of 100 tokens %d are counted: %+v", calls(d), d)
	}
	// A failure, a second attempt and a wait are the same call still.
	m.Step(mono.Time(time.Second+6), Done(first.Ticket, 0, attempt.ConnectFailed, Usage{}))
	settle(m, mono.Time(time.Second+10))
	if d := asked(m, mono.Time(time.Second+20))[0]; calls(d) != 4 {
		t.Errorf("after another attempt %d calls came", calls(d))
	}
}

func TestDemand_CallsBeyondTheModelsBoundCount(t *testing.T) {
	c := newConfig(newTestPool("p", lightest{}, "a"))
	c.Calls = 1
	m := New(c)
	m.Step(1, Arrive(request(1)))
	if a := only(t, m.Step(2, Arrive(request(2)))); a.Reason != TooManyCalls {
		t.Fatalf("%+v", a)
	}
	if d := asked(m, 3)[0]; calls(d) != 2 || math.Abs(d.Tokens*5-200) > 1e-6 {
		t.Errorf("%d calls came: %+v", calls(d), d)
	}
}

// The first pool is asked for what another one answers: with more replicas it would have.
func TestDemand_TheFirstPoolIsAskedForEverything(t *testing.T) {
	c := newConfig(newTestPool("first", lightest{}, "a"), newTestPool("second", lightest{}, "b"))
	m := New(c)
	if a := only(t, m.Step(1, Arrive(request(1)))); a.Pool != 0 {
		t.Fatalf("%+v", a)
	}
	c.Pools[0].Endpoints[0].Draining = true
	m.Reconfigure(2, c)
	if a := only(t, m.Step(3, Arrive(request(2)))); a.Pool != 1 {
		t.Fatalf("%+v", a)
	}
	d := asked(m, 4)
	if calls(d[0]) != 2 || calls(d[1]) != 1 || d[0].InRotation != 0 || d[1].InRotation != 1 {
		t.Errorf("first %d, second %d: %+v", calls(d[0]), calls(d[1]), d)
	}
}

// What caches hold is not brought, whether the call is sent or refused.
func TestDemand_CountsWhatNoCacheHolds(t *testing.T) {
	m := New(newConfig(newTestPool("p", &overlapping{}, "a", "b")))
	q := prompt(1, 8)
	a := only(t, m.Step(1, Arrive(q)))
	m.Step(2, FirstToken(a.Ticket, 0))
	m.Step(3, Done(a.Ticket, 0, attempt.Success, Usage{}))
	before := asked(m, 4)[0]
	m.bound = 1
	at := mono.Time(time.Second + 10)
	again := prompt(2, 8)
	m.Step(at, Arrive(again)) // sent: it is all there but for the last token
	refused := prompt(3, 8)
	if a := only(t, m.Step(at+1, Arrive(refused))); a.Reason != TooManyCalls {
		t.Fatalf("%+v", a)
	}
	d := asked(m, at+2)[0]
	if calls(d) != 3 || math.Round((d.Tokens-before.Tokens)*5) > 2 {
		t.Errorf("two calls of which all is cached bring %v tokens: %+v", (d.Tokens-before.Tokens)*5, d)
	}
}

// prompt is a request of so many blocks, the same for all.
func prompt(id, blocks int) *selection.Request {
	q := request(id)
	q.BlockTokens, q.InputTokens = 64, 64*blocks
	for i := range blocks {
		q.Blocks = append(q.Blocks, kvblock.Hash(i+1))
	}
	return q
}

// TestDemand_WhatIsMeasuredOfReplicas: speed and residence from answers, places from reports.
func TestDemand_WhatIsMeasuredOfReplicas(t *testing.T) {
	c := newConfig(newTestPool("p", lightest{}, "a", "b"))
	c.SLO = selection.SLO{TTFT: time.Second}
	m := New(c)
	if d := asked(m, 0)[0]; d.Replicas != 1 || d.WaitKnown || d.Replica.Speed != 0 || d.InRotation != 2 {
		t.Errorf("before any call: %+v", d)
	}
	a := only(t, m.Step(mono.Time(time.Second), Arrive(request(1))))
	if d := asked(m, mono.Time(time.Second))[0]; d.Replicas != 0 || d.WaitKnown {
		t.Errorf("calls come, and no endpoint's speed is known: %+v", d)
	}
	m.Step(mono.Time(3*time.Second), FirstToken(a.Ticket, 0))
	m.Step(mono.Time(7*time.Second), Done(a.Ticket, 0, attempt.Success, Usage{}))
	// 100 tokens in 2 s, then 4 s of answer; half of the KV cache full with four calls.
	l := signal.Load{Running: signal.Known(4, 0), Waiting: signal.Known(3, 0), KVUsage: signal.Known(0.5, 0)}
	m.Step(mono.Time(8*time.Second), Signal(a.Slot, a.Generation, l, 0))
	d := asked(m, mono.Time(8*time.Second))[0]
	if d.Replica.Speed != 50 || d.Replica.Residence != 6*time.Second || d.Replica.Places != 8 || d.Engines.Known != 1 || d.Engines.Sum != 3 || !d.WaitKnown || d.Wait != 0 {
		t.Errorf("%+v", d)
	}
	// A prefill of 2 s can't be had within 1 s by any number of replicas.
	if d.Replicas != 0 || d.Prefill != 0 {
		t.Errorf("%+v", d.Need)
	}
	c.SLO.TTFT = 5 * time.Second
	m.Reconfigure(mono.Time(9*time.Second), c)
	if d := asked(m, mono.Time(9*time.Second))[0]; d.Replicas != 1 || !(d.Knee > 0.5) {
		t.Errorf("%+v", d)
	}
	c.SLO.TTFT = 0
	m.Reconfigure(mono.Time(11*time.Second), c)
	if d := asked(m, mono.Time(11*time.Second))[0]; d.Replicas != 0 || d.Knee != 0 {
		t.Errorf("without an SLO: %+v", d)
	}
}

// A KV cache that is full makes first tokens late, and prefill no slower.
func TestDemand_AFullCacheIsNoSlowPrefill(t *testing.T) {
	m := New(newConfig(newTestPool("p", lightest{}, "a")))
	call := func(id int, at, takes time.Duration) {
		a := only(t, m.Step(mono.Time(at), Arrive(request(id))))
		m.Step(mono.Time(at+takes), FirstToken(a.Ticket, 0))
		m.Step(mono.Time(at+takes+1), Done(a.Ticket, 0, attempt.Success, Usage{}))
	}
	e := m.Placement(newConfig(newTestPool("p", lightest{}, "a")))[0]
	call(1, time.Second, time.Second)
	m.Step(mono.Time(3*time.Second), Signal(e.Slot, e.Generation, signal.Load{KVUsage: signal.Known(0.95, 0), Running: signal.Known(10, 0)}, 0))
	call(2, 4*time.Second, 50*time.Second)
	if d := asked(m, mono.Time(55*time.Second))[0]; d.Replica.Speed != 100 {
		t.Errorf("100 tokens in a second, while there was room, are %v a second", d.Replica.Speed)
	}
	m.Step(mono.Time(57*time.Second), Signal(e.Slot, e.Generation, signal.Load{KVUsage: signal.Known(0.5, 0), Running: signal.Known(10, 0)}, 0))
	call(3, 58*time.Second, 4*time.Second)
	if d := asked(m, mono.Time(63*time.Second))[0]; !(d.Replica.Speed < 60) {
		t.Errorf("with room again it is %v a second", d.Replica.Speed)
	}
}

// The worst endpoint is shown beside the mean.
func TestDemand_TheWorstEndpoint(t *testing.T) {
	m := New(newConfig(newTestPool("p", lightest{}, "a", "b", "c")))
	for i := range 7 {
		m.Step(mono.Time(i+1), Arrive(request(i+1)))
	}
	d := asked(m, 10)[0]
	if d.Outstanding.Worst != 3 || d.Outstanding.At != 0 || math.Abs(d.Outstanding.Mean-7.0/3) > 1e-12 || d.Outstanding.Sum != 7 || d.Begin.Known != 0 {
		t.Errorf("%+v", d)
	}
}

func BenchmarkDemand_Snapshot(b *testing.B) {
	m := New(newConfig(newTestPool("p", lightest{}, names(64)...)))
	for i := range 200 {
		m.Step(mono.Time(i+1), Arrive(request(i+1)))
	}
	b.ReportAllocs()
	for b.Loop() {
		m.demands(m.last, m.pools[0])
	}
}

// A model that is gone has no pool: whoever still comes is refused, and asked of nobody.
func TestDemand_OfAModelThatIsGone(t *testing.T) {
	m := New(newConfig(newTestPool("p", lightest{}, "a")))
	c := newConfig()
	c.Calls = 1
	m.Reconfigure(1, c)
	if a := only(t, m.Step(2, Arrive(request(1)))); a.Reason != NoEndpoint {
		t.Errorf("%+v", a)
	}
	m.inFlight = 1
	if a := only(t, m.Step(3, Arrive(request(2)))); a.Reason != TooManyCalls {
		t.Errorf("%+v", a)
	}
}
