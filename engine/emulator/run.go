package emulator

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

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
	defer s.failAll(errDead)
	if s.clock.epoch.IsZero() {
		s.clock.epoch = time.Now()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var wake <-chan time.Time
		if at, ok := s.next(); ok {
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

// next returns the instant at which a rank has something to do.
func (s *Server) next() (first mono.Time, any bool) {
	first = mono.Never
	for _, k := range s.ranks {
		if at, ok := k.engine.Next(); ok {
			first, any = min(first, at), true
		}
	}
	return first, any
}

// advance ends the steps that end at or before now and hands out what they gave. Whoever
// gets an output finds it in Stats.
func (s *Server) advance(now mono.Time) {
	for _, k := range s.ranks {
		if at, ok := k.engine.Next(); ok && at <= now {
			s.lag.Add(int64(now.Sub(at)))
		}
		k.outputs = k.engine.Advance(now)
	}
	s.publish()
	for i, k := range s.ranks {
		s.loras.look(s.cfg.Adapters, i, k.engine)
		k.handOut()
	}
}

// submit hands the engine all requests of a call, or none of them.
func (s *Server) submit(ctx context.Context, c *call) error {
	refused := make(chan error, 1)
	if s.do(ctx, func(now mono.Time) { refused <- s.admit(now, c) }) {
		return <-refused
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errDead
}

func (s *Server) admit(now mono.Time, c *call) error {
	held := 0
	for _, k := range s.ranks {
		held += len(k.requests)
	}
	switch {
	case c.life != s.life.Load():
		return errGone
	case s.cfg.MaxQueued > 0 && held+len(c.Items) > s.cfg.MaxQueued:
		return errQueueFull
	case c.pin != anyRank && (c.pin < 0 || c.pin >= len(s.ranks)):
		return rankOutOfRange(c.pin, len(s.ranks))
	}
	for i := range c.Items {
		q, k := c.Items[i].Request, s.choose(c.pin)
		if err := k.engine.Submit(now, q); err != nil {
			s.abandon(now, c)
			return err
		}
		k.requests[q.ID] = &request{call: c, item: i, times: times{arrival: now}}
	}
	return nil
}

// choose returns the rank that a client chose, or the one with the least to do, the first
// of several.
func (s *Server) choose(pin int) *rank {
	if pin != anyRank {
		return s.ranks[pin]
	}
	least := s.ranks[0]
	for _, k := range s.ranks[1:] {
		if k.weight() < least.weight() {
			least = k
		}
	}
	return least
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
		for _, k := range s.ranks {
			if r := k.requests[id]; r != nil && r.call == c {
				k.engine.Abort(now, id)
				delete(k.requests, id)
			}
		}
	}
}

// failAll ends the calls in flight.
func (s *Server) failAll(err error) {
	for _, k := range s.ranks {
		for id, r := range k.requests {
			r.call.fail(err)
			delete(k.requests, id)
		}
	}
}

// observe returns what is to be seen of each rank at the instant of the call.
func (s *Server) observe(ctx context.Context) ([]view, bool) {
	seen := make(chan []view, 1)
	look := func(mono.Time) {
		views, loras := make([]view, len(s.ranks)), slices.Clone(s.loras.series)
		for i, k := range s.ranks {
			views[i] = view{k.engine.Stats(), k.metrics, s.asleep, loras}
		}
		seen <- views
	}
	if !s.do(ctx, look) {
		return nil, false
	}
	return <-seen, true
}
