package health

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/internal/mono"
)

func at(d time.Duration) mono.Time { return mono.Time(d) }

func fail(b *Breaker, c Config, now mono.Time, probe bool) Verdict {
	v, _ := b.Fail(c.Rules(nil), now, probe)
	return v
}

func TestBreaker_OpensAfterConsecutiveFailures(t *testing.T) {
	c := Default()
	var b Breaker
	for i := range 2 {
		if fail(&b, c, 0, false) != Stays {
			t.Fatalf("failure %d of 3 took the endpoint out", i+1)
		}
	}
	b.Succeed(c.Rules(nil), 0, true)
	for range 2 {
		fail(&b, c, 0, false)
	}
	if fail(&b, c, 0, false) != Leaves {
		t.Fatal("three failures in a row did not take the endpoint out")
	}
	b.Eject(100, Unreachable, c.Term())
	if b.Permits(100) || b.Permits(at(c.Ejection)+99) {
		t.Error("an ejected endpoint is permitted before its time")
	}
	if !b.Permits(at(c.Ejection) + 100) {
		t.Error("an ejected endpoint is not probed after its time")
	}
}

func TestBreaker_OpensWhereMostOfTheRecentCallsFail(t *testing.T) {
	c := Config{Failures: 100, Ratio: 0.5, Window: 10 * time.Second, Volume: 10}
	var b Breaker
	now := at(time.Hour)
	book := func(ok bool) Verdict {
		if ok {
			b.Succeed(c.Rules(nil), now, false)
			return Stays
		}
		return fail(&b, c, now, false)
	}
	for i := range 9 {
		if book(i%2 == 0) != Stays {
			t.Fatalf("out after %d calls, fewer than volume", i+1)
		}
	}
	if book(false) != LeavesIfOthersStay {
		t.Error("five of ten calls failed, and the endpoint stays")
	}
	now = now.Add(11 * time.Second)
	if book(false) != Stays {
		t.Error("calls from before the window count")
	}
	c.Ratio = 0
	for range 30 {
		if book(false) == LeavesIfOthersStay {
			t.Fatal("ratio 0 does not turn the rule off")
		}
	}
}

// What the window says must be what counting the calls of the last window's cells says.
func TestWindow_IsACountOfTheLastTenCells(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := Rule{Ratio: 0.5, Interval: 10 * time.Second, Volume: rapid.IntRange(1, 8).Draw(t, "volume")}
		type call struct {
			cell   int64
			failed bool
		}
		var w tally
		var all []call
		now := mono.Time(0)
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(4*time.Second)).Draw(t, "gap")))
			x := call{int64(now.Duration() / time.Second), rapid.Bool().Draw(t, "failed")}
			all = append(all, x)
			trips := w.add(&rule, now, x.failed)
			n, failed := 0, 0
			for _, y := range all {
				if x.cell-y.cell < cells {
					n++
					if y.failed {
						failed++
					}
				}
			}
			if want := x.failed && n >= rule.Volume && float64(failed) >= 0.5*float64(n); trips != want {
				t.Fatalf("it trips: %v, with %d of %d failed", trips, failed, n)
			}
		}
	})
}

func TestBreaker_ProbesWithOneCall(t *testing.T) {
	c := Config{Failures: 1, Ejection: time.Second, MaxEjection: time.Minute}
	open := func() Breaker {
		var b Breaker
		fail(&b, c, 0, false)
		b.Eject(0, Unreachable, c.Term())
		return b
	}
	due := at(time.Second)

	b := open()
	if !b.Dispatch(c, due) || b.State() != Probing || b.Permits(due+1) {
		t.Fatal("a second call may go out beside the probe")
	}
	if fail(&b, c, due, false) != Stays {
		t.Error("a call from before the ejection counted as the probe")
	}
	if fail(&b, c, due, true) != Leaves {
		t.Error("a failed probe does not take the endpoint out")
	}
	b.Eject(due, Unreachable, c.Term())
	if b.Permits(due+at(2*c.Ejection)-1) || !b.Permits(due+at(2*c.Ejection)) {
		t.Error("the second ejection in a row does not last twice as long")
	}

	b = open()
	b.Dispatch(c, due)
	if !b.Succeed(c.Rules(nil), due, true) || !b.Permits(due) || b.State() != InRotation || b.Cause() != NoCause {
		t.Error("a good probe does not bring the endpoint back")
	}
	fail(&b, c, due, false)
	b.Eject(due, Unreachable, c.Term())
	if !b.Permits(due + at(c.Ejection)) {
		t.Error("after a return an ejection lasts longer than the first one did")
	}

	b = open()
	b.Dispatch(c, due)
	for n, span := range []time.Duration{2 * c.Ejection, 4 * c.Ejection, 8 * c.Ejection} {
		if b.Permits(due+at(span)-1) || !b.Permits(due+at(span)) {
			t.Fatalf("probe %d without a verdict does not make room for the next one in its time", n+1)
		}
		due += at(span)
		b.Dispatch(c, due)
	}
	due = at(time.Second)

	b = open()
	b.Dispatch(c, due)
	b.ProbeLost(due + 5)
	if !b.Permits(due+5) || b.State() == InRotation {
		t.Error("a probe without a verdict does not leave the next call to probe")
	}
}

func TestBreaker_EjectionsAreBounded(t *testing.T) {
	c := Default()
	var b Breaker
	for range 100 {
		b.Eject(0, Failing, c.Term())
	}
	if due, _ := b.ProbeDue(); due != at(c.MaxEjection) {
		t.Errorf("after many ejections in a row one lasts %v, want %v", due.Duration(), c.MaxEjection)
	}
}

func TestBreaker_HealthPath(t *testing.T) {
	c := Default()
	var b Breaker
	if b.Asked(1, false, 3) || b.Asked(2, false, 3) {
		t.Fatal("fewer misses than it takes")
	}
	b.Asked(3, true, 3)
	b.Asked(4, false, 3)
	b.Asked(5, false, 3)
	if !b.Asked(6, false, 3) {
		t.Fatal("three misses in a row do not take the endpoint out")
	}
	b.Eject(6, Unhealthy, c.Term())
	if b.Permits(at(time.Hour)) {
		t.Error("while the health path fails a call probes the endpoint")
	}
	b.Asked(100, true, 3)
	if !b.Permits(100) || b.State() == InRotation {
		t.Error("a healthy answer must allow a probe at once, and only that")
	}

	for _, cause := range []Cause{Failing, Silent} {
		var b Breaker
		b.Eject(0, cause, c.Term())
		b.Asked(1, true, 3)
		if b.Permits(1) {
			t.Errorf("%v: a healthy answer shortens the ejection of an endpoint that was there all the time", cause)
		}
	}
}

func TestBusyFor(t *testing.T) {
	c := Default()
	for _, x := range []struct {
		named time.Duration
		nth   int
		want  time.Duration
	}{
		{-1, 1, c.Busy}, {0, 1, 0}, {time.Second / 2, 1, time.Second / 2}, {time.Hour, 1, c.MaxBusy},
		{0, 2, c.Busy / 8}, {0, 3, c.Busy / 4}, {0, 5, c.Busy}, {0, 1000, c.Busy}, {2 * time.Second, 9, 2 * time.Second}, {-1, 9, c.Busy},
	} {
		if got := c.BusyFor(x.named, x.nth); got != x.want {
			t.Errorf("named %v, number %d: %v, want %v", x.named, x.nth, got, x.want)
		}
	}
}

func TestWarmth_RisesFromTheFloorToOne(t *testing.T) {
	c := Default()
	last := 0.0
	for ms := 0; ms <= 31000; ms += 500 {
		w := c.Warmth(0, at(time.Duration(ms)*time.Millisecond))
		want := min(max(float64(ms)/30000, 0.1), 1)
		if math.Abs(w-want) > 1e-12 || w < last {
			t.Fatalf("after %d ms %v, want %v", ms, w, want)
		}
		last = w
	}
}
