package load

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"kvasir/client/load/report"
	"kvasir/client/workload"
)

// Bench is a load run that measures. It is open-loop unless ClosedLoop is set: a session
// begins when it is to, however slow the answers are; within a session a call waits for
// those that it follows.
//
// Every call has an instant at which it should be sent, and whatever holds it back after
// that, the generator's own slowness or a bound on concurrency, counts: nothing that a slow
// answer causes can hide in calls that were sent later (coordinated omission).
type Bench struct {
	Target *Target // prepared
	Client *http.Client
	Source workload.Source
	Text   workload.Text // of Source's blocks

	// Arrivals are when sessions begin, ascending, since the start; nil: at their At.
	Arrivals iter.Seq[time.Duration]
	// ClosedLoop begins a session when another one has ended, Concurrency at once. There is
	// no instant then at which it should have begun other than that.
	ClosedLoop bool

	Concurrency int           // most calls in flight; 0: no bound
	Calls       int           // sent in all: the last session may be cut short; 0: the whole workload
	Until       time.Duration // no session begins later; 0: no bound
	Recorded    bool          // within a session calls are sent at their Offset, not after others

	Timeout  time.Duration // of a call; 0: none
	SLO      report.SLO
	Detailed bool      // keep each call; memory then grows with the run
	Progress *Progress // unless nil, kept up to date

	// Ended, where set, hears of each call once it is over, one at a time. The sample is valid
	// during the call only.
	Ended func(*report.Sample)
}

// Progress is how far a run is. Safe for concurrent use.
type Progress struct{ Sent, Ended, Failed atomic.Int64 }

const (
	// mostSessions bounds the sessions in flight, and with them memory: about 100 KiB each.
	mostSessions = 1 << 14
	// ahead is how many sessions are made ready before they begin.
	ahead = 64
)

// errOverrun ends a run whose sessions pile up.
var errOverrun = fmt.Errorf("%d sessions were in flight, which is the bound: the endpoint does not keep up", mostSessions)

// Run sends until the workload's end, or until ctx ends, which cuts off the calls in flight.
// It returns what was measured in any case, and why the run ended early.
func (b *Bench) Run(ctx context.Context) (*report.Collector, error) {
	r := &run{
		Bench:     b,
		caller:    caller{target: b.Target, client: b.Client, timeout: b.Timeout, detailed: b.Detailed, started: time.Now()},
		collector: report.NewCollector(b.SLO, b.Detailed),
	}
	if r.Progress == nil {
		r.Progress = &Progress{}
	}
	if b.Concurrency > 0 {
		r.slots = make(chan struct{}, b.Concurrency)
	}
	err := r.dispatch(ctx)
	r.sessions.Wait()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return r.collector, err
}

// run is a Bench at work.
type run struct {
	*Bench
	caller
	slots    chan struct{} // one for each call in flight; nil: no bound
	sessions sync.WaitGroup
	open     atomic.Int64 // sessions in flight

	mu        sync.Mutex
	collector *report.Collector
}

// planned is a session that is ready to begin.
type planned struct {
	session workload.Session
	number  int           // in the workload, from 0
	at      time.Duration // when it begins
	body    []byte        // of its first call
	err     error         // in place of a session
}

// dispatch begins the sessions. What they say first is made ready before they begin, so that
// making it holds none back.
func (r *run) dispatch(ctx context.Context) error {
	planning, cancel := context.WithCancel(ctx)
	ready := make(chan planned, ahead)
	var making sync.WaitGroup
	making.Go(func() { r.plan(planning, ready) })
	err := r.begin(ctx, ready)
	cancel()
	making.Wait()
	return err
}

// plan makes sessions ready until the workload's end or its bound.
func (r *run) plan(ctx context.Context, ready chan<- planned) {
	defer close(ready)
	arrivals := r.Arrivals
	if arrivals == nil {
		arrivals = func(func(time.Duration) bool) {}
	}
	next, stop := iter.Pull(arrivals)
	defer stop()
	calls, number := 0, 0
	for s, err := range r.Source.Sessions {
		p := planned{session: s, number: number, at: s.At, err: err}
		number++
		if r.Arrivals != nil {
			at, ok := next()
			if !ok {
				return
			}
			p.at = at
		}
		if r.Until > 0 && p.at > r.Until {
			return
		}
		if err == nil && len(s.Calls) == 0 {
			p.err = fmt.Errorf("session %d (%s) of %s has no calls", number, s.ID, r.Source.Name)
		}
		if p.err == nil {
			if left := r.Calls - calls; r.Calls > 0 && len(s.Calls) > left {
				p.session.Calls = s.Calls[:left]
			}
			calls += len(p.session.Calls)
			p.body = r.body(&p, 0)
		}
		select {
		case ready <- p:
		case <-ctx.Done():
			return
		}
		if p.err != nil || r.Calls > 0 && calls >= r.Calls {
			return
		}
	}
}

// body returns what a call of a session sends.
func (r *run) body(p *planned, call int) []byte {
	c := &p.session.Calls[call]
	return r.Target.body(c.Adapter, r.Text.Messages(nil, &p.session, call), c.OutputTokens)
}

// begin begins each session when it is to.
func (r *run) begin(ctx context.Context, ready <-chan planned) error {
	var users chan struct{} // one for each session in flight in a closed loop
	if r.ClosedLoop {
		users = make(chan struct{}, r.Concurrency)
	}
	for {
		var p planned
		var ok bool
		select {
		case p, ok = <-ready:
		case <-ctx.Done():
			return nil
		}
		if !ok {
			return nil
		}
		if p.err != nil {
			return p.err
		}
		if r.ClosedLoop {
			select {
			case users <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
			p.at = r.now()
			if r.Until > 0 && p.at > r.Until {
				return nil
			}
		} else if !r.wait(ctx, p.at) {
			return nil
		}
		if r.open.Add(1) > mostSessions {
			r.open.Add(-1)
			return errOverrun
		}
		r.sessions.Go(func() {
			r.play(ctx, &p)
			r.open.Add(-1)
			if users != nil {
				<-users
			}
		})
	}
}

// wait waits for an instant since the start. It reports whether ctx goes on.
func (r *run) wait(ctx context.Context, at time.Duration) bool {
	d := at - r.now()
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// errUnsent is a call for which the run's end came first.
var errUnsent = errors.New("the run ended before")

// measure sends a call at an instant, or as soon after it as it can, and counts it. It
// returns when the answer ended, and why it failed.
func (r *run) measure(ctx context.Context, p *planned, call int, intended time.Duration) (time.Duration, report.Failure) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.begin(report.Sample{
		Session: p.number, Call: call, Class: p.session.Class,
		Intended: intended, Prompt: p.session.Calls[call].PromptTokens,
	}, r.Detailed)
	sample := &s.sample
	body := p.body
	if call > 0 {
		body = r.body(p, call)
	}
	if err := r.admit(ctx, sample); err != nil {
		sample.Failure, sample.End = report.Unsent, r.now()
		r.count(sample)
		return sample.End, sample.Failure
	}
	r.call(ctx, body, s, func() {
		r.Progress.Sent.Add(1)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.collector.Begin(sample)
	})
	r.count(sample) // before another call takes the slot, so that no more are counted than there were
	if r.slots != nil {
		<-r.slots
	}
	r.Progress.Ended.Add(1)
	if sample.Failure != "" {
		r.Progress.Failed.Add(1)
	}
	return sample.End, sample.Failure
}

// admit waits until a call is due and has a slot.
func (r *run) admit(ctx context.Context, sample *report.Sample) error {
	if !r.wait(ctx, sample.Intended) {
		return errUnsent
	}
	sample.Ready = r.now()
	if r.slots == nil {
		return nil
	}
	select {
	case r.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errUnsent
	}
}

func (r *run) count(sample *report.Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Ended != nil {
		r.Ended(sample)
	}
	r.collector.Add(sample)
}
