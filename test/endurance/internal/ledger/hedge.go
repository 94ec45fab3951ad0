package ledger

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// hedged reports whether the record says that two attempts of the call ran at a time.
func (c *Call) hedged() bool { return len(c.records) > 0 && c.records[0].Hedged }

// end returns when an attempt was over, as its upstream saw it; zero: it runs.
func (a *Attempt) end() time.Time {
	if !a.Aborted.IsZero() {
		return a.Aborted
	}
	return a.Ended
}

// uncertain reports whether it is the endpoint's own death that says when the attempt ended.
func (a *Attempt) uncertain() bool { return a.Killed || a.Late }

// judgeHedge holds the call against what is said of two attempts at a time: only where the
// model hedges, of calls that may be made twice, two at the most.
func (b *Book) judgeHedge(c *Call, check checkFunc) {
	if len(c.records) != 1 {
		return
	}
	r := c.records[0]
	if r.Hedged {
		check(b.limits.Hedges[r.Model] && !c.Once && !c.Low, "6", "two attempts at a time only where the model hedges, and of a call that may be made twice",
			"hedged: model %s, once %v, of negative priority %v", r.Model, c.Once, c.Low)
	}
	beside := 0
	for i, a := range c.attempts {
		for _, other := range c.attempts[:i] {
			// How much later than the gateway the upstream sees an abort is the machine's.
			end := other.end()
			if other.uncertain() || a.uncertain() || !end.IsZero() && !end.After(a.Arrived.Add(b.limits.AbortBound)) {
				continue
			}
			beside++
			check(r.Hedged, "6", "one attempt at a time of a call that is not hedged", "at %s while that at %s ran, which ended %v later", a.Endpoint, other.Endpoint, end.Sub(a.Arrived))
		}
	}
	check(beside <= 1, "6", "two attempts at a time at the most", "%d pairs", beside)
	word := c.result.Header["X-Kvasir-Hedged"]
	check(len(word) == 0 || r.Hedged && len(word) == 1 && slices.Contains([]string{"won", "lost"}, word[0]), "join",
		"x-kvasir-hedged on answers of hedged calls alone", "%q, recorded %v", word, r.Hedged)
}

// judgeBeaten looks at the attempts beside the one that answered: none starts once that has
// content, and what runs then is aborted.
func (b *Book) judgeBeaten(c *Call, winner *Attempt, check checkFunc) {
	first := winner.Content
	// An error is told once both have failed.
	if first.IsZero() || winner.Status >= 300 || strings.HasPrefix(winner.Fault, "in-band") {
		return
	}
	for _, a := range c.attempts {
		if a == winner || a.uncertain() {
			continue
		}
		check(a.Arrived.Before(first.Add(b.limits.AbortBound)), "5", "no attempt starts after the first content", "one at %s %v later", a.Endpoint, a.Arrived.Sub(first))
		end := a.end()
		if end.IsZero() {
			check(false, "5", "the other attempt is aborted", "that at %s (%s) still runs", a.Endpoint, a.Fault)
			continue
		}
		took := end.Sub(first)
		check(took <= b.limits.AbortBound, "5", fmt.Sprintf("the other attempt is aborted within %v of the first content", b.limits.AbortBound),
			"that at %s (%s) ended %v after it", a.Endpoint, a.Fault, took)
		if took > 0 && !a.Aborted.IsZero() {
			b.mu.Lock()
			b.beaten = append(b.beaten, took)
			b.mu.Unlock()
		}
	}
}

// anyGood returns an attempt that ran to the end of a whole answer; nil: there is none.
func (c *Call) anyGood() *Attempt {
	for _, a := range c.attempts {
		coded := a.Coded && c.result.Ahead // it can't follow a heartbeat
		if !coded && a.Whole && a.Status < 300 && !a.Ended.IsZero() && a.Aborted.IsZero() && !a.uncertain() && !a.Unfit {
			return a
		}
	}
	return nil
}
