package trace

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"kvasir/client/workload"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
)

// Transform changes which sessions of a source come, and when; what happens within a
// session stays. The fields apply in their order. The zero value changes nothing.
type Transform struct {
	// Sample keeps each session with this probability, decided by Seed and the session's
	// place in the source alone. 0: all.
	Sample float64
	Seed   uint64

	// From and For keep the sessions that come within For from From on, and count the time
	// from there. For 0: to the end.
	From, For time.Duration

	// Sessions keeps the first so many. 0: all.
	Sessions int

	// Loops plays what is left so many times, one behind the other, each as far behind the
	// one before it as two sessions lie apart on average. 0: once. Each loop finds the
	// prefixes of those before it again, unless Fresh gives it prefixes of its own, which are
	// shared within the loop as they were.
	Loops int
	Fresh bool

	// Rate is how many times as many sessions come in a second: 2 halves all times between
	// them. 0: 1.
	Rate float64
}

// Validate returns every mistake, each an *OptionError, or nil.
func (t *Transform) Validate() error {
	var errs []error
	bad := func(field string, value any, allowed string) {
		errs = append(errs, &OptionError{Field: field, Value: value, Allowed: allowed})
	}
	if !(t.Sample >= 0 && t.Sample <= 1) {
		bad("Sample", t.Sample, "above 0, at most 1, or 0 for all")
	}
	if t.From < 0 {
		bad("From", t.From, "0 or more")
	}
	if t.For < 0 {
		bad("For", t.For, "above 0, or 0 for all")
	}
	if t.Sessions < 0 {
		bad("Sessions", t.Sessions, "1 or more, or 0 for all")
	}
	if t.Loops < 0 || t.Loops > 1e6 {
		bad("Loops", t.Loops, "1 to 1000000, or 0 for once")
	}
	if t.Fresh && t.Loops < 2 {
		bad("Fresh", t.Fresh, "false where Loops is below 2")
	}
	if !(t.Rate == 0 || t.Rate >= 1e-6 && t.Rate <= 1e6) {
		bad("Rate", t.Rate, "0.000001 to 1000000, or 0 for 1")
	}
	return errors.Join(errs...)
}

// Apply returns the source with the changes made. t must be valid.
func (t Transform) Apply(s workload.Source) workload.Source {
	if t.Sample > 0 && t.Sample < 1 {
		s.Sessions = t.sample(s.Sessions)
	}
	if t.From > 0 || t.For > 0 {
		s.Sessions = t.during(s.Sessions)
	}
	if t.Sessions > 0 {
		s.Sessions = t.count(s.Sessions)
	}
	if t.Loops > 1 {
		s.Sessions = t.loop(s.Sessions)
	}
	if t.Rate > 0 && t.Rate != 1 {
		s.Sessions = t.scale(s.Sessions)
	}
	return s
}

// Change makes the changes to a trace, also in what it says of its times. t must be valid.
func (t Transform) Change(tr *Trace) {
	tr.Source = t.Apply(tr.Source)
	if t.Sample > 0 {
		tr.SessionRate *= t.Sample // what is kept of a Poisson process is one
	}
	if t.Rate > 0 {
		tr.SessionRate *= t.Rate
		for _, d := range []*time.Duration{&tr.Bin, &tr.Spread} {
			*d = time.Duration(min(float64(*d)/t.Rate, float64(forever)))
		}
	}
}

// sessions is what Source.Sessions is.
type sessions = func(yield func(workload.Session, error) bool)

func (t Transform) sample(all sessions) sessions {
	return func(yield func(workload.Session, error) bool) {
		n := uint64(0)
		for s, err := range all {
			draw := seed.New(t.Seed, seed.Workload, n, sampleDraws)
			if n++; (err != nil || draw.Float64() < t.Sample) && !yield(s, err) {
				return
			}
		}
	}
}

func (t Transform) during(all sessions) sessions {
	return func(yield func(workload.Session, error) bool) {
		for s, err := range all {
			if err == nil && s.At < t.From {
				continue
			}
			if err == nil && t.For > 0 && s.At-t.From >= t.For {
				return
			}
			if s.At -= t.From; !yield(s, err) {
				return
			}
		}
	}
}

func (t Transform) count(all sessions) sessions {
	return func(yield func(workload.Session, error) bool) {
		n := 0
		for s, err := range all {
			if n++; !yield(s, err) || n == t.Sessions {
				return
			}
		}
	}
}

func (t Transform) loop(all sessions) sessions {
	return func(yield func(workload.Session, error) bool) {
		begins := time.Duration(0)
		for k := range t.Loops {
			var first, last time.Duration
			n := 0
			for s, err := range all {
				if n++; n == 1 {
					first = s.At
				}
				last = s.At
				s.At = plus(begins, s.At)
				if t.Fresh && k > 0 {
					s.Calls = renew(s.Calls, kvblock.Hash(k))
				}
				if !yield(s, err) || err != nil {
					return
				}
			}
			if n == 0 {
				return
			}
			begins = plus(begins, max(last+(last-first)/time.Duration(max(n-1, 1)), 1))
		}
	}
}

// renew returns the calls with other hashes, which are equal where the old ones were. Calls
// that share memory share it again.
func renew(calls []workload.Call, as kvblock.Hash) []workload.Call {
	calls = slices.Clone(calls)
	var from, to []kvblock.Hash
	for i := range calls {
		c := &calls[i]
		known := 0
		if len(from) > 0 && len(c.Blocks) > 0 && &from[0] == &c.Blocks[0] {
			known = min(len(from), len(c.Blocks))
		}
		if known < len(to) {
			to = to[:known:known] // what is behind is in use
		}
		for _, h := range c.Blocks[known:] {
			to = append(to, workload.Extend(as, uint64(h)))
		}
		from, c.Blocks = c.Blocks, slices.Clip(to)
		answer := make([]kvblock.Hash, len(c.AnswerBlocks))
		for k, h := range c.AnswerBlocks {
			answer[k] = workload.Extend(as, uint64(h))
		}
		c.AnswerBlocks = answer
	}
	return calls
}

func (t Transform) scale(all sessions) sessions {
	return func(yield func(workload.Session, error) bool) {
		for s, err := range all {
			at := s.At.Seconds() / t.Rate
			if err == nil && at > forever.Seconds() {
				err = fmt.Errorf("at rate %v session %s comes after %.0f seconds; allowed: at most %.0f", t.Rate, s.ID, at, forever.Seconds())
			}
			s.At = mono.FromSeconds(min(at, forever.Seconds()))
			if !yield(s, err) || err != nil {
				return
			}
		}
	}
}
