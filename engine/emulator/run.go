package emulator

import (
	"context"
	"errors"
	"math"
	"time"

	"kvasir/engine"
	"kvasir/internal/mono"
)

// clock tells engine time.
type clock struct {
	epoch time.Time
	speed float64
}

func (c clock) now() mono.Time {
	elapsed := time.Since(c.epoch)
	if c.speed == 1 { // exact, however long it has run
		return mono.Time(elapsed)
	}
	return mono.Time(float64(elapsed) * c.speed)
}

// until returns how long to sleep so that now is not before t.
func (c clock) until(t mono.Time) time.Duration {
	if c.speed == 1 {
		return time.Until(c.epoch.Add(t.Duration()))
	}
	return time.Until(c.epoch.Add(time.Duration(math.Ceil(float64(t) / c.speed))))
}

// Run drives the engine until ctx ends; then calls in flight are failed and it returns
// nil. It can be called once.
func (s *Server) Run(ctx context.Context) error {
	if !s.started.CompareAndSwap(false, true) {
		return errors.New("emulator: Run was called before")
	}
	defer close(s.done)
	defer s.failAll()
	if s.clock.epoch.IsZero() {
		s.clock.epoch = time.Now()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var wake <-chan time.Time
		if at, ok := s.engine.Next(); ok {
			timer.Reset(s.clock.until(at))
			wake = timer.C
		}
		select {
		case <-ctx.Done():
			return nil
		case apply := <-s.commands:
			s.take(apply)
		case <-wake:
			s.advance(s.clock.now())
		}
	}
}

// take applies a command at the instant at which it is taken.
func (s *Server) take(apply func(now mono.Time)) {
	now := s.clock.now()
	s.advance(now)
	apply(now)
}

// do has Run apply a command, stamped with the instant at which Run takes it and after
// the steps that end by then. It waits until Run has taken it. It reports false when the
// engine has ended, or ctx has.
func (s *Server) do(ctx context.Context, apply func(now mono.Time)) bool {
	select {
	case s.commands <- apply:
		return true
	case <-ctx.Done():
	case <-s.done:
	}
	return false
}

// request is one request in the engine.
type request struct {
	call  *call
	item  int // of the call
	times times
}

// advance ends the steps that end at or before now and hands out what they gave. Whoever
// gets an output finds it in Stats.
func (s *Server) advance(now mono.Time) {
	outputs := s.engine.Advance(now)
	s.mu.Lock()
	s.stats = s.engine.Stats()
	s.mu.Unlock()
	for _, out := range outputs {
		if out.First {
			s.metrics.cachedTokens += int64(out.Cached)
		}
		r := s.requests[out.ID]
		if r == nil {
			continue // taken back while the step ran
		}
		s.metrics.output(&r.times, out)
		if out.Finished {
			s.metrics.finish(&r.times, r.item, r.call)
			delete(s.requests, out.ID)
		}
		r.call.deliver(r.item, out)
	}
}

// submit hands the engine all requests of a call, or none of them.
func (s *Server) submit(ctx context.Context, c *call) error {
	refused := make(chan error, 1)
	submit := func(now mono.Time) {
		for i := range c.Items {
			q := c.Items[i].Request
			if err := s.engine.Submit(now, q); err != nil {
				s.abandon(now, c)
				refused <- err
				return
			}
			s.requests[q.ID] = &request{call: c, item: i, times: times{arrival: now}}
		}
		refused <- nil
	}
	if s.do(ctx, submit) {
		return <-refused
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errDead
}

// abort takes back what the engine has not finished of a call. The context of the call has
// often ended by then, so it waits for Run alone, which never takes long.
func (s *Server) abort(c *call) {
	if c.over() {
		return
	}
	s.do(context.Background(), func(now mono.Time) { s.abandon(now, c) })
}

func (s *Server) abandon(now mono.Time, c *call) {
	for i := range c.Items {
		id := c.Items[i].Request.ID
		if r := s.requests[id]; r != nil && r.call == c {
			s.engine.Abort(now, id)
			delete(s.requests, id)
		}
	}
}

// failAll ends the calls in flight after Run.
func (s *Server) failAll() {
	for id, r := range s.requests {
		r.call.fail(errDead)
		delete(s.requests, id)
	}
}

// observe returns the engine's stats and metrics at the instant of the call.
func (s *Server) observe(ctx context.Context) (engine.Stats, metrics, bool) {
	type view struct {
		stats   engine.Stats
		metrics metrics
	}
	seen := make(chan view, 1)
	if !s.do(ctx, func(mono.Time) { seen <- view{s.engine.Stats(), s.metrics} }) {
		return engine.Stats{}, metrics{}, false
	}
	v := <-seen
	return v.stats, v.metrics, true
}
