package attempt

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/internal/mono"
	"kvasir/internal/seed"
)

func TestOutcome_EveryOneHasAClassAndAName(t *testing.T) {
	for o := range outcomes {
		if o.String() == "" {
			t.Errorf("outcome %d has no name", o)
		}
		if c := o.Class(); (c == ClassSuccess) != (o == Success) {
			t.Errorf("%v has class %v", o, c)
		}
		if o.Evidence() != NoEvidence && o.Class() != ClassEndpointFailure && o != Missing {
			t.Errorf("%v is evidence against an endpoint and is %v", o, o.Class())
		}
		if o.Evidence() != NoEvidence && !o.Retryable() {
			t.Errorf("%v is evidence against an endpoint, and no other may show its worth", o)
		}
	}
	for _, o := range []Outcome{Success, Overdue, Forfeited, CallerFault, ClientGone} {
		if o.Retryable() {
			t.Errorf("%v is retryable", o)
		}
	}
}

func TestFromStatus(t *testing.T) {
	for status, want := range map[int]Outcome{
		200: Success, 204: Success, 307: Unusable, 400: CallerFault, 401: Denied, 403: Denied, 404: Missing,
		405: Missing, 413: CallerFault, 422: CallerFault, 429: Limited, 500: Failed, 501: Failed,
		502: BadGateway, 503: Busy, 504: BadGateway, 529: Busy,
	} {
		if got := FromStatus(status); got != want {
			t.Errorf("status %d is %v, want %v", status, got, want)
		}
	}
}

func TestDelay_DoublesWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{
			Backoff:    time.Duration(rapid.IntRange(0, int(time.Second)).Draw(t, "backoff")),
			MaxBackoff: time.Duration(rapid.IntRange(0, int(10*time.Second)).Draw(t, "max")),
		}
		n := rapid.IntRange(1, MaxAttempts).Draw(t, "n")
		r := seed.New(rapid.Uint64().Draw(t, "seed"), seed.Backoff, 1, uint64(n))
		full := min(c.Backoff<<(n-1), c.MaxBackoff)
		if d := c.Delay(n, &r); d < 0 || d > full {
			t.Fatalf("retry %d waits %v, want 0 to %v", n, d, full)
		}
	})
}

// Full jitter: of many calls that failed together, each tenth of the backoff sees a tenth.
func TestDelay_IsSpreadEvenly(t *testing.T) {
	c := Config{Backoff: 100 * time.Millisecond, MaxBackoff: time.Second}
	const calls = 20_000
	var tenths [10]int
	for call := range uint64(calls) {
		r := seed.New(1, seed.Backoff, call, 2)
		tenths[min(int(c.Delay(2, &r)/(20*time.Millisecond)), 9)]++ // up to 200 ms
	}
	for i, n := range tenths {
		if n < calls/10*9/10 || n > calls/10*11/10 {
			t.Errorf("tenth %d of the backoff has %d of %d calls", i, n, calls)
		}
	}
}

func TestCeiling_NoConfigurationPassesIt(t *testing.T) {
	for attempts, want := range map[int]int{-1: 0, 0: 0, 2: 2, 5: 5, 6: 5, 1 << 30: 5} {
		if got := (Config{Attempts: attempts}).Ceiling(); got != want {
			t.Errorf("%d further attempts: %d, want %d", attempts, got, want)
		}
	}
}

func TestTotal_IsTheSameShareWithAFloorOfItsOwn(t *testing.T) {
	c := Default()
	if got, want := c.Total(), (Config{Ratio: c.Ratio, Floor: c.TotalFloor}); got != want || c.TotalFloor <= c.Floor {
		t.Errorf("%+v, want %+v, above the floor of a pool (%v)", got, want, c.Floor)
	}
}

// What Has and Ample say is what Spend then does.
func TestBudget_SaysWhatThereIs(t *testing.T) {
	b := NewBudget(Config{Ratio: 0.5, Floor: 2})
	if !b.Has(0) || b.Ample(0) {
		t.Error("the floor is not there, or taken for something earned")
	}
	b.Earn(0)
	b.Earn(0)
	if !b.Ample(0) {
		t.Error("two successes have earned nothing")
	}
	b.Spend(0)
	b.Spend(0)
	if !b.Has(0) || !b.Ample(0) {
		t.Error("the floor did not go first")
	}
	b.Spend(0)
	if b.Has(0) || b.Ample(0) || b.Spend(0) {
		t.Error("more than there was")
	}
	b.Earn(0)
	b.Earn(0)
	if now := mono.Time(10 * time.Second); b.Ample(now) || !b.Has(now) {
		t.Error("what successes earned lasts longer than the window, or the floor did not come back")
	}
}

func TestBudget_FloorThenRatio(t *testing.T) {
	b := NewBudget(Config{Ratio: 0.1, Floor: 10})
	grant := func(now mono.Time, wanted int) (got int) {
		for range wanted {
			if b.Spend(now) {
				got++
			}
		}
		return got
	}
	if got := grant(0, 50); got != 10 {
		t.Errorf("a quiet router may retry %d times at once, want its floor of 10", got)
	}
	for range 200 {
		b.Earn(1)
	}
	if got := grant(2, 50); got != 20 {
		t.Errorf("200 successes granted %d retries, want 20", got)
	}
	if got := grant(mono.Time(time.Second)+2, 50); got != 10 {
		t.Errorf("a second later %d, want 10", got)
	}
	for range 100 {
		b.Earn(mono.Time(2 * time.Second))
	}
	grant(mono.Time(2*time.Second), 10) // the floor
	if got := grant(mono.Time(13*time.Second), 50); got != 10 {
		t.Errorf("what successes earned lasted over 10 s: %d granted, want the floor of 10", got)
	}
}

// A budget that is looked at all the time expires and saves like one that is not.
func TestBudget_InSmallSteps(t *testing.T) {
	b := NewBudget(Config{Ratio: 0.1, Floor: 10})
	for range 500 {
		b.Earn(1)
	}
	now := mono.Time(1)
	for ; now < mono.Time(12*time.Second); now = now.Add(100 * time.Millisecond) {
		b.advance(now)
	}
	got := 0
	for b.Spend(now) {
		got++
	}
	if got != 10 {
		t.Errorf("12 s after the last call %d retries are granted, want one second's floor of 10", got)
	}
}

// TestLaw_RetriesStayWithinTheBudget floods a budget with random calls and failures.
func TestLaw_RetriesStayWithinTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{
			Ratio: rapid.Float64Range(0, 0.5).Draw(t, "ratio"),
			Floor: float64(rapid.IntRange(0, 20).Draw(t, "floor")),
		}
		b := NewBudget(c)
		now, calls, granted := mono.Time(0), 0, 0
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += mono.Time(rapid.IntRange(0, int(3*time.Second)).Draw(t, "dt"))
			for range rapid.IntRange(0, 30).Draw(t, "calls") {
				b.Earn(now)
				calls++
			}
			for range rapid.IntRange(0, 60).Draw(t, "failures") {
				if b.Spend(now) {
					granted++
				}
			}
			most := c.Ratio*float64(calls) + c.Floor*(1+now.Duration().Seconds())
			if float64(granted) > most+1e-6 {
				t.Fatalf("%d retries granted after %d calls in %v, allowed %.2f", granted, calls, now.Duration(), most)
			}
		}
	})
}
