package engine

import (
	"slices"
	"testing"

	"kvasir/internal/mono"
)

// What arrives at the end of a step is not in the step that starts there.
func TestRule_ArrivalAtAStepsEndWaitsForTheNext(t *testing.T) {
	const end = 1 + 1000*microsecond // of the step that starts at 1 with one token
	for _, c := range []struct {
		name string
		at   mono.Time
		want int // steps that end before b's first token
	}{
		{"a nanosecond before the end", end - 1, 1},
		{"at the end", end, 2},
		{"a nanosecond after the end", end + 1, 2},
	} {
		for _, when := range []string{"before", "after"} {
			t.Run(c.name+", submitted "+when+" the step's end is handled", func(t *testing.T) {
				e := mustNew(t, small())
				mustSubmit(t, e, 0, plain('a', 1, 5))
				var out []Output
				if when == "after" && c.at >= end {
					out = append(out, e.Advance(end)...)
				}
				mustSubmit(t, e, c.at, plain('b', 1, 1))
				out = append(out, drain(e)...)
				i := slices.IndexFunc(out, func(o Output) bool { return o.ID == 'b' })
				if i != c.want+1 {
					// In b's step the older a comes first.
					t.Errorf("b's token is output %d, want %d: %v", i, c.want+1, out)
				}
			})
		}
	}
}

func TestRule_IdleEngineWakesANanosecondAfterTheCommand(t *testing.T) {
	e := mustNew(t, small())
	if at, ok := e.Next(); ok || at != mono.Never {
		t.Errorf("idle: Next is %d, %v", at, ok)
	}
	mustSubmit(t, e, 700, plain('b', 1, 1))
	mustSubmit(t, e, 500, plain('a', 1, 1))
	if at, ok := e.Next(); !ok || at != 501 {
		t.Errorf("Next is %d, %v, want 501", at, ok)
	}
	if out := e.Advance(500); len(out) != 0 || e.busy {
		t.Errorf("at the command's own instant: %v, busy %v", out, e.busy)
	}
	// Advance comes late; the step starts at 501 all the same, without b.
	e.Advance(900)
	if at, _ := e.Next(); at != 501+1000*microsecond || e.batch.Tokens != 1 {
		t.Errorf("step of %d tokens ends at %d", e.batch.Tokens, at)
	}
}

func TestRule_OrderOfCallsOfOneInstantDoesNotMatter(t *testing.T) {
	play := func(ids ...ID) []Output {
		c := small()
		c.MaxSeqs = 1
		e := mustNew(t, c)
		for _, id := range ids {
			mustSubmit(t, e, 10, plain(id, int(id), 2))
		}
		return drain(e)
	}
	want := play(1, 2, 3)
	for _, ids := range [][]ID{{3, 2, 1}, {2, 3, 1}, {1, 3, 2}} {
		if got := play(ids...); !slices.Equal(got, want) {
			t.Errorf("%v: %v, want %v", ids, got, want)
		}
	}
}

// The gauges are those of the last step's end: what has arrived since is not in them.
func TestRule_GaugesAreOfTheLastStepsEnd(t *testing.T) {
	c := small()
	c.MaxSeqs = 1
	e := mustNew(t, c)
	gauges := func(running, waiting, free int) {
		t.Helper()
		s := e.Stats()
		if s.Running != running || s.Waiting != waiting || s.FreeBlocks != free ||
			s.TotalBlocks != 64 || s.KVUsage != float64(64-free)/64 {
			t.Errorf("%+v, want running %d, waiting %d, free %d", s, running, waiting, free)
		}
	}
	mustSubmit(t, e, 0, plain('a', 9, 3))
	mustSubmit(t, e, 0, plain('b', 4, 1))
	gauges(0, 0, 64)
	step(t, e) // starts a's prefill
	gauges(0, 0, 64)
	step(t, e) // ends it
	gauges(1, 1, 61)
	mustSubmit(t, e, e.span.end(1).at-1, plain('c', 4, 1))
	gauges(1, 1, 61)
	step(t, e)
	gauges(1, 1, 61) // c arrived before the end, but takes effect after it
	step(t, e)       // a ends
	gauges(0, 2, 64)
	drain(e)
	gauges(0, 0, 64)
}

func TestAbort_FreesAtTheEndOfTheRunningStep(t *testing.T) {
	e := mustNew(t, small())
	mustSubmit(t, e, 0, plain('a', 9, 100))
	mustSubmit(t, e, 0, plain('b', 9, 3))
	step(t, e)
	step(t, e)
	end, _ := e.Next()
	e.Abort(end-5, 'a')
	e.Abort(end-4, 'a') // once is enough
	out := step(t, e)
	if len(out) != 2 {
		t.Errorf("the step that was running gives %v", out)
	}
	if e.running.n != 1 || e.kv.free != 64-3 {
		t.Errorf("%d run, %d blocks free", e.running.n, e.kv.free)
	}
	audit(t, e)
	out = drain(e)
	if len(out) != 1 || out[0].ID != 'b' {
		t.Errorf("afterwards: %v", out)
	}
	if s := e.Stats(); s.Finished != [reasons]int64{Stop: 1, Abort: 1} {
		t.Errorf("finished %v", s.Finished)
	}
}

func TestAbort_WhenNothingIsLeft_RefreshesTheGauges(t *testing.T) {
	e := mustNew(t, small())
	mustSubmit(t, e, 0, plain('a', 9, 100))
	step(t, e)
	step(t, e)
	end, _ := e.Next()
	e.Abort(end-1, 'a')
	step(t, e)
	if at, ok := e.Next(); ok {
		t.Errorf("something to do at %d", at)
	}
	if s := e.Stats(); s.Running != 0 || s.KVUsage != 0 || s.Finished[Abort] != 1 || s.Steps != 2 {
		t.Errorf("%+v", s)
	}
}

func TestAbort_OfWaitingUnknownAndEnded(t *testing.T) {
	c := small()
	c.MaxSeqs = 1
	e := mustNew(t, c)
	mustSubmit(t, e, 0, plain('a', 1, 2))
	mustSubmit(t, e, 0, plain('b', 1, 2))
	mustSubmit(t, e, 0, plain('c', 1, 2))
	mustSubmit(t, e, 0, plain(never, 1, 2))
	e.Abort(0, never) // at the instant of its submit
	e.Abort(0, nobody)
	step(t, e)
	e.Abort(1, 'b')
	step(t, e)
	audit(t, e)
	// a ends at the next step's end, and its abort comes at that very instant.
	end, _ := e.Next()
	e.Abort(end, 'a')
	out := append(step(t, e), drain(e)...)
	if s := e.Stats(); s.Finished != [reasons]int64{Stop: 2, Abort: 2} || s.GenerationTokens != 4 {
		t.Errorf("%+v, %v", s, out)
	}
	audit(t, e)
	mustSubmit(t, e, end*10, plain('a', 1, 1)) // the id is free again
	if out := drain(e); len(out) != 1 || out[0].ID != 'a' {
		t.Errorf("%v", out)
	}
}

func TestAdvance_WhenEarlierThanBefore_DoesNothing(t *testing.T) {
	e := mustNew(t, small())
	e.Advance(1000)
	mustSubmit(t, e, 1000, plain('a', 1, 1))
	if out := e.Advance(10); len(out) != 0 || e.busy {
		t.Errorf("%v", out)
	}
	e.Abort(5, 'a') // counts as at 1000
	if out := drain(e); len(out) != 0 || e.Stats().Finished[Abort] != 1 {
		t.Errorf("%v, %+v", out, e.Stats())
	}
}
