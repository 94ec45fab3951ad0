package health

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/internal/mono"
)

// limited is the rule of article section 14.4: a 429 trips for as long as it says.
var limited = Rule{Failures: 1, Statuses: []Statuses{{429, 429}}, Trip: 10 * time.Second, MaxTrip: time.Minute, RetryAfter: true, MaxAfter: 24 * time.Hour}

func TestRules_OwnOnesStandBesideTheDefaultsUnlessTheyReplaceThem(t *testing.T) {
	c := Default()
	if got := c.Rules(nil); len(got) != 2 || got[0].Failures != c.Failures || got[1].Ratio != c.Ratio || got[1].Interval != c.Window || got[1].Volume != c.Volume {
		t.Errorf("without own rules: %+v", got)
	}
	if got := c.Rules([]Rule{limited}); len(got) != 3 || !got[2].Equal(&limited) {
		t.Errorf("a rule for statuses stands beside the others: %+v", got)
	}
	own := []Rule{limited, {Failures: 7, Trip: time.Second, MaxTrip: time.Second}}
	if got := c.Rules(own); len(got) != 2 || got[1].Failures != 7 {
		t.Errorf("a rule without statuses takes the defaults' place: %+v", got)
	}
	c.Ratio = 0
	if got := c.Rules(nil); len(got) != 1 {
		t.Errorf("ratio 0: %+v", got)
	}
}

// A rule's number counts in a row, or within its interval, and starts anew with the endpoint's
// return.
func TestRule_CountsInARowOrWithinItsInterval(t *testing.T) {
	row := []Rule{{Failures: 3, Trip: time.Second}}
	within := []Rule{{Failures: 3, Interval: 10 * time.Second, Trip: time.Second}}
	for name, x := range map[string]struct {
		rules []Rule
		want  Verdict
	}{"in a row": {row, Stays}, "within": {within, Leaves}} {
		var b Breaker
		b.Fail(x.rules, 1, false)
		b.Fail(x.rules, 2, false)
		b.Succeed(x.rules, 3, false)
		if v, _ := b.Fail(x.rules, 4, false); v != x.want {
			t.Errorf("%s: two failures, a success, a failure: %v, want %v", name, v, x.want)
		}
	}
	var b Breaker
	b.Fail(within, 1, false)
	b.Fail(within, 2, false)
	if v, _ := b.Fail(within, at(11*time.Second), false); v != Stays {
		t.Error("failures from before the interval count")
	}
}

// Only the statuses that a rule names count, and only failures that were judged count for one
// that names none.
func TestRule_CountsWhatItNames(t *testing.T) {
	rules := []Rule{{Failures: 2, Trip: time.Second}, {Failures: 2, Statuses: []Statuses{{429, 429}, {500, 599}}, Trip: 3 * time.Second}}
	for status, counts := range map[int]bool{400: false, 404: false, 428: false, 429: true, 430: false, 499: false, 500: true, 503: true, 599: true} {
		var b Breaker
		b.Answered(rules, 1, status, -1, false)
		v, term := b.Answered(rules, 2, status, -1, false)
		if want := (Verdict(0)); counts != (v == LeavesIfOthersStay) || !counts && v != want {
			t.Errorf("status %d twice: %v", status, v)
		}
		if counts && (term.For != 3*time.Second || term.Named >= 0) {
			t.Errorf("status %d: out for %+v", status, term)
		}
		if v, _ := b.Fail(rules, 3, false); v != Stays {
			t.Errorf("status %d counts for the rule that names none", status)
		}
	}
	var b Breaker
	b.Answered(rules, 1, 429, -1, false)
	b.Answered(rules, 2, 400, -1, false)
	if v, _ := b.Answered(rules, 3, 429, -1, false); v != Stays {
		t.Error("with another answer between them two are in a row")
	}
	b.Fail(rules, 4, false)
	if v, _ := b.Fail(rules, 5, false); v != Leaves {
		t.Error("two failures that were judged do not trip their rule")
	}
}

func TestRule_TripsForTheTimeThatIsNamed(t *testing.T) {
	for named, want := range map[time.Duration]time.Duration{
		-1: 10 * time.Second, 0: 0, 2 * time.Second: 2 * time.Second, time.Hour: time.Hour, 48 * time.Hour: 24 * time.Hour,
	} {
		var b Breaker
		v, term := b.Answered([]Rule{limited}, 5, 429, named, false)
		if v != LeavesIfOthersStay {
			t.Fatalf("%v: %v", named, v)
		}
		b.Eject(5, Tripped, term)
		if due, _ := b.ProbeDue(); due.Sub(5) != want {
			t.Errorf("retry-after %v: out for %v, want %v", named, due.Sub(5), want)
		}
	}
	deaf := limited
	deaf.RetryAfter = false
	var b Breaker
	if _, term := b.Answered([]Rule{deaf}, 5, 429, time.Hour, false); term.Named >= 0 || term.For != 10*time.Second {
		t.Errorf("a rule that does not accept the time: %+v", term)
	}
}

// TestLaw_ALongerTimeIsNeverShortened: whatever comes after an endpoint has named a time, no
// call may be sent there earlier.
func TestLaw_ALongerTimeIsNeverShortened(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := Default().Rules([]Rule{limited})
		var b Breaker
		now, promised := mono.Time(1), mono.Time(0)
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(t, "gap")))
			if b.Permits(now) && b.State() != InRotation && now < promised {
				t.Fatalf("permitted at %v, and out until %v", now.Duration(), promised.Duration())
			}
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0, 1:
				named := time.Duration(rapid.Int64Range(-1, int64(time.Minute)).Draw(t, "named"))
				v, term := b.Answered(rules, now, 429, named, false)
				if v == Stays {
					continue
				}
				b.Eject(now, Tripped, term)
				if until := now.Add(max(named, 0)); named >= 0 {
					promised = max(promised, until)
				}
			case 2:
				if v, term := b.Fail(rules, now, false); v != Stays {
					b.Eject(now, Failing, term)
				}
			case 3:
				b.Succeed(rules, now, false) // of a call from before
			case 4:
				b.Asked(now, rapid.Bool().Draw(t, "healthy"), 1)
			case 5:
				b.Answered(rules, now, 500, -1, false)
			}
		}
	})
}

// What goes on after a rule has tripped brings nobody back; a call that was sent there does.
func TestTripped_OnlyACallThatWasSentThereBringsBack(t *testing.T) {
	rules := []Rule{limited}
	var b Breaker
	_, term := b.Answered(rules, 0, 429, time.Hour, false)
	b.Eject(0, Tripped, term)
	if b.Succeed(rules, 1, false) || b.State() != Ejected {
		t.Error("content of a call from before the 429 brought the endpoint back")
	}
	due := at(time.Hour)
	if b.Permits(due-1) || !b.Permits(due) || !b.Dispatch(Config{Probes: 1}, due) {
		t.Error("it is not probed when its time is over")
	}
	v, term := b.Answered(rules, due+1, 429, time.Minute, true)
	if v != LeavesIfOthersStay {
		t.Fatal("a probe that gets a 429 does not send it out again")
	}
	b.Eject(due+1, Tripped, term)
	due = due.Add(time.Minute) + 1
	b.Dispatch(Config{Probes: 1}, due)
	if !b.Succeed(rules, due+1, true) || b.State() != InRotation {
		t.Error("a probe's content does not bring it back")
	}
}

// Half open, as many calls as Probes says go at once, and no more.
func TestBreaker_ProbesAreBounded(t *testing.T) {
	for _, probes := range []int{0, 1, 3} {
		c := Config{Ejection: time.Second, MaxEjection: time.Minute, Probes: probes}
		var b Breaker
		b.Eject(0, Failing, c.Term())
		due, sent := at(time.Second), 0
		for b.Permits(due) && sent < 100 {
			if !b.Dispatch(c, due) {
				t.Fatal("a call to an endpoint that is out is no probe")
			}
			if _, out := b.ProbeDue(); !out {
				t.Fatal("it is back by a dispatch alone")
			}
			sent++
		}
		if sent != max(probes, 1) {
			t.Errorf("%d probes at once, want %d", sent, probes)
		}
		if probes < 3 {
			continue
		}
		rules := c.Rules(nil)
		if v, term := b.Fail(rules, due+1, true); v != Leaves {
			t.Error("a failed probe does not send it out")
		} else {
			b.Eject(due+1, Failing, term)
		}
		if v, _ := b.Fail(rules, due+2, true); v != Stays || b.Permits(due+2) {
			t.Error("the second failed probe counts as another ejection, or others may follow")
		}
		if !b.Succeed(rules, due+3, true) {
			t.Error("the third one's content does not bring it back")
		}
	}
}
