package engine

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"kvasir/internal/mono"
)

// The instants of a request: it is queued at the start of the step after its submit,
// scheduled when there is room, and keeps both through a preemption.
func TestOutput_TellsWhenTheRequestWasQueuedAndScheduled(t *testing.T) {
	c := small()
	c.MaxSeqs = 1
	e := mustNew(t, c)
	mustSubmit(t, e, 0, plain('a', 3, 2))
	mustSubmit(t, e, 700, plain('b', 2, 1))
	out := drain(e)
	prefill, decode := 1002*microsecond, 1000*microsecond
	if a := out[0]; a.Queued != 1 || a.Scheduled != 1 || a.At != 1+prefill {
		t.Errorf("a: %+v", a)
	}
	// b takes effect at the end of a's prefill and is scheduled when a has ended.
	if b := out[2]; b.ID != 'b' || b.Queued != 1+prefill || b.Scheduled != 1+prefill+decode {
		t.Errorf("b: %+v", b)
	}

	c = small()
	c.NumBlocks, c.PrefixCaching = 4, false
	e = mustNew(t, c)
	mustSubmit(t, e, 0, plain('a', 8, 4))
	mustSubmit(t, e, 0, plain('b', 7, 6))
	for _, o := range drain(e) {
		if o.Queued != 1 || o.Scheduled != 1 {
			t.Errorf("with %d preemptions: %+v", e.Stats().Preemptions, o)
		}
	}
	if e.Stats().Preemptions == 0 {
		t.Error("nothing was preempted")
	}
}

// A preempted request is computed again whole: its prompt and the answer so far.
func TestPreempt_RecomputesPromptAndAnswer(t *testing.T) {
	c := small()
	c.NumBlocks, c.PrefixCaching = 4, false
	e := mustNew(t, c)
	mustSubmit(t, e, 0, plain('a', 8, 4))
	mustSubmit(t, e, 0, plain('b', 7, 6))
	for e.counters.Preemptions == 0 {
		step(t, e)
	}
	known := e.waiting.head.known()
	if known <= 7 {
		t.Fatalf("b was preempted with %d tokens, before it had an answer", known)
	}
	for len(e.batch.Prefills) == 0 {
		step(t, e)
	}
	if got := e.batch.Prefills[0]; got.Chunk != known || got.Context != 0 {
		t.Errorf("computed again: %+v, want all %d tokens", got, known)
	}
}

// Of all that run the oldest gets a token in every step and is never preempted, so the
// steps are no more than the tokens: there is no livelock, however few the blocks.
func TestLaw_TheOldestGoesOn(t *testing.T) {
	forStreams(t, func(t testing.TB, _ *rapid.T, s stream) {
		most := int64(0)
		for _, o := range s.orders {
			if !o.abort {
				most += int64(o.req.PromptTokens + o.req.OutputTokens)
			}
		}
		e := mustNew(t, s.cfg)
		for _, o := range s.orders {
			give(t, e, o)
		}
		for {
			at, ok := e.Next()
			if !ok {
				break
			}
			if e.Advance(at); e.counters.Steps > most {
				t.Fatalf("%d steps for %d tokens, %d preemptions", e.counters.Steps, most, e.counters.Preemptions)
			}
		}
		if len(e.live) != 0 {
			t.Fatalf("%d requests never ended", len(e.live))
		}
	})
}

func TestThrottle_StretchesTheStepsThatStartLater(t *testing.T) {
	for _, both := range [][2]float64{{3, 2}, {2, 3}} { // at one instant the greater counts
		e := mustNew(t, small())
		mustSubmit(t, e, 0, plain('a', 1, 4))
		step(t, e) // starts the first step, at 1
		for _, pace := range both {
			e.Throttle(5, pace) // in its middle
		}
		e.Throttle(2_500_000, 1) // in the middle of the second
		var at []mono.Time
		for _, o := range drain(e) {
			at = append(at, o.At)
		}
		ms := 1000 * microsecond
		if want := []mono.Time{1 + ms, 1 + 4*ms, 1 + 5*ms, 1 + 6*ms}; !slices.Equal(at, want) {
			t.Errorf("tokens at %v, want %v", at, want)
		}
	}
	e := mustNew(t, small())
	for _, pace := range []float64{0, -1, MaxPace * 2} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a pace of %v is taken", pace)
				}
			}()
			e.Throttle(0, pace)
		}()
	}
}

func TestSleep_StopsUntilWakeAndForgetsWhatIsCached(t *testing.T) {
	e := mustNew(t, small())
	x := text{family: 1, shared: 1000}
	mustSubmit(t, e, 0, x.request('a', 16, 1, 4))
	drain(e)
	const later = 10_000_000
	mustSubmit(t, e, later, plain('b', 4, 3))
	step(t, e)
	e.Sleep(later + 5) // b's prefill runs: it ends, nothing starts after it
	mustSubmit(t, e, later+6, x.request('c', 16, 1, 4))
	out := drain(e)
	if len(out) != 1 || out[0].ID != 'b' {
		t.Errorf("asleep: %v", out)
	}
	audit(t, e)
	if s := e.Stats(); s.Running != 1 || s.Waiting != 1 {
		t.Errorf("asleep: %+v", s)
	}
	e.Abort(2*later, 'b')
	if out := drain(e); len(out) != 0 || e.Stats().Running != 0 || e.kv.free != 64 {
		t.Errorf("an abort asleep: %v, %+v", out, e.Stats())
	}
	e.Wake(3 * later)
	out = drain(e)
	if len(out) != 1 || out[0].ID != 'c' || out[0].Cached != 0 || out[0].Scheduled != 3*later+1 {
		t.Errorf("awake: %+v", out)
	}
	audit(t, e)
}

func TestSleep_AndWakeAtOneInstant_Wakes(t *testing.T) {
	e := mustNew(t, small())
	mustSubmit(t, e, 0, plain('a', 1, 1))
	e.Wake(0)
	e.Sleep(0)
	if out := drain(e); len(out) != 1 {
		t.Errorf("%v", out)
	}
}
