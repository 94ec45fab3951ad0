package load

import (
	"context"
	"sync"
	"time"

	"kvasir/client/load/report"
)

// progress is where a call of a session stands.
type progress uint8

const (
	waiting progress = iota // for those that it follows
	sent
	answered
	lost // it failed, or follows one that did
)

// playing is a session in flight.
type playing struct {
	*planned
	calls  []progress
	ends   []time.Duration // when those that were answered ended
	result report.SessionSample
}

// outcome is the end of a call.
type outcome struct {
	call    int
	at      time.Duration
	failure report.Failure
}

// play sends the calls of a session and returns when all have ended.
func (r *run) play(ctx context.Context, p *planned) {
	n := len(p.session.Calls)
	s := &playing{planned: p, calls: make([]progress, n), ends: make([]time.Duration, n)}
	s.result = report.SessionSample{Class: p.session.Class, Intended: p.at, End: p.at}
	switch {
	case n == 1:
		at, failure := r.measure(ctx, p, 0, p.at+s.first(r.Recorded))
		s.end(outcome{0, at, failure})
	case r.Recorded:
		r.replay(ctx, s)
	default:
		r.converse(ctx, s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.collector.AddSession(s.result)
}

// first returns how long after the session's start its first call is due.
func (s *playing) first(recorded bool) time.Duration {
	if c := &s.session.Calls[0]; recorded {
		return c.Offset
	} else {
		return c.Gap
	}
}

// converse sends each call when those that it follows have ended and its gap has passed.
func (r *run) converse(ctx context.Context, s *playing) {
	ends := make(chan outcome)
	inFlight := 0
	for {
		for i := range s.calls {
			if s.calls[i] != waiting {
				continue
			}
			at, due := s.due(i)
			if !due {
				continue
			}
			s.calls[i] = sent
			inFlight++
			go func() {
				end, failure := r.measure(ctx, s.planned, i, at)
				ends <- outcome{i, end, failure}
			}()
		}
		if inFlight == 0 {
			return
		}
		s.end(<-ends)
		inFlight--
	}
}

// due returns when a call is to be sent; false where that is not known yet. A call that
// follows one that is lost is lost, too.
func (s *playing) due(call int) (time.Duration, bool) {
	c := &s.session.Calls[call]
	at := s.at
	for _, before := range c.After {
		switch s.calls[before] {
		case lost:
			s.calls[call] = lost
			s.result.Skipped++
			return 0, false
		case answered:
			at = max(at, s.ends[before])
		default:
			return 0, false
		}
	}
	return at + c.Gap, true
}

// end notes the end of a call.
func (s *playing) end(o outcome) {
	if o.failure != report.Unsent {
		s.result.Calls++
		s.result.End = max(s.result.End, o.at)
	}
	if o.failure != "" {
		s.calls[o.call], s.result.Failed = lost, true
		return
	}
	s.calls[o.call], s.ends[o.call] = answered, o.at
}

// replay sends each call when the workload's clock has it sent.
func (r *run) replay(ctx context.Context, s *playing) {
	var mu sync.Mutex
	var calls sync.WaitGroup
	for i := range s.session.Calls {
		at := s.at + s.session.Calls[i].Offset
		r.wait(ctx, at) // after the run's end measure counts what is unsent
		calls.Go(func() {
			end, failure := r.measure(ctx, s.planned, i, at)
			mu.Lock()
			defer mu.Unlock()
			s.end(outcome{i, end, failure})
		})
	}
	calls.Wait()
}
