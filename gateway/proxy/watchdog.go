package proxy

import (
	"context"
	"sync"
	"time"

	"kvasir/gateway/attempt"
	"kvasir/selection"
)

// Timeouts bounds how long an upstream may take, each apart from the others. 0 is no
// bound. Those before the first content and between contents hold for streams alone: an
// answer that is not streamed comes when it is whole.
type Timeouts struct {
	Header     time.Duration // from an attempt's start to its response header
	FirstToken time.Duration // from an attempt's start to its first content
	Progress   time.Duration // between two contents; pings and comments are none
	Idle       time.Duration // between two bytes, once content or an unstreamed body has begun
	Total      time.Duration // from the call's arrival to its end, over all attempts
}

// watchdog ends attempts that take too long, and sees to it that a client that waits
// hears something. It is one timer a call. It costs the call's goroutine two stores a
// read; when the timer fires it looks at what was stored and sleeps on.
type watchdog struct {
	mu     sync.Mutex
	timer  *time.Timer
	armed  bool
	id     selection.CallID // of the call: the record, and this with it, serves many
	limits Timeouts
	out    *outlet
	beat   time.Duration // 0: none
	onBeat func()
	began  time.Time

	// Of the running attempt.
	running bool
	number  int // of the attempt in its call
	stream  bool
	header  bool
	content bool
	since   time.Duration // since began, as the next two
	byteAt  time.Duration
	partAt  time.Duration
	beatAt  time.Duration
	cancel  context.CancelFunc
	cause   attempt.Outcome // why it was cancelled; Success: it was not
}

// arm begins the watch over a call.
func (d *watchdog) arm(id selection.CallID, limits Timeouts, began time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.id = id
	d.armed, d.limits, d.began, d.running, d.beat = true, limits, began, false, 0
	d.wind(time.Since(began))
}

// company makes the watchdog send heartbeats through out.
func (d *watchdog) company(every time.Duration, out *outlet, onBeat func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.beat, d.out, d.onBeat = every, out, onBeat
	now := time.Since(d.began)
	d.beatAt = now + every
	d.wind(now)
}

// disarm ends the watch.
func (d *watchdog) disarm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.armed, d.running, d.cancel, d.out = false, false, nil, nil
	if d.timer != nil {
		d.timer.Stop()
	}
}

// begin begins the watch over an attempt.
func (d *watchdog) begin(number int, stream bool, cancel context.CancelFunc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Since(d.began)
	d.number = number
	d.running, d.stream, d.header, d.content = true, stream, false, false
	d.since, d.byteAt, d.partAt, d.cancel, d.cause = now, now, now, cancel, attempt.Success
	d.wind(now)
}

// over ends the watch over an attempt.
func (d *watchdog) over() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running, d.cancel = false, nil
}

// headerCame notes the response header.
func (d *watchdog) headerCame() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.header, d.byteAt = true, time.Since(d.began)
	d.wind(d.byteAt)
}

// read notes that bytes came, and whether there was content among them. It reports false
// where the attempt had been given up before: the content came too late.
func (d *watchdog) read(now time.Time, content bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cause != attempt.Success {
		return false
	}
	d.byteAt = now.Sub(d.began)
	if !content {
		return true
	}
	d.partAt = d.byteAt
	if !d.content {
		d.content = true
		d.wind(d.byteAt)
	}
	return true
}

// abort gives the call's attempt of that number up, unless its content has begun.
func (d *watchdog) abort(id selection.CallID, number int, why attempt.Outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running && d.id == id && d.number == number && !d.content {
		d.giveUp(why)
	}
}

// why returns why the watchdog gave the attempt up; Success where it did not.
func (d *watchdog) why() attempt.Outcome {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cause
}

func (d *watchdog) giveUp(why attempt.Outcome) {
	if d.cause == attempt.Success {
		d.cause = why
		d.cancel()
	}
}

// run is what the timer does.
func (d *watchdog) run() {
	d.mu.Lock()
	if !d.armed {
		d.mu.Unlock()
		return
	}
	now := time.Since(d.began)
	if due, why := d.due(); d.running && due <= now {
		d.giveUp(why)
	}
	beat := d.beat > 0 && d.beatAt <= now
	out, every, onBeat := d.out, d.beat, d.onBeat
	if !beat {
		d.wind(now)
	}
	d.mu.Unlock()
	if !beat {
		return
	}
	// A client that does not read must not hold up who looks after the endpoint.
	next, beaten := out.beat(every, openStream)
	if beaten {
		onBeat()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.armed {
		d.beatAt = next.Sub(d.began)
		d.wind(time.Since(d.began))
	}
}

const never = time.Duration(1<<63 - 1)

// due returns when the running attempt is to be given up, and why.
func (d *watchdog) due() (at time.Duration, why attempt.Outcome) {
	at = never
	if !d.running || d.cause != attempt.Success {
		return at, attempt.Success
	}
	bound := func(from, limit time.Duration, o attempt.Outcome) {
		if limit > 0 && from+limit < at {
			at, why = from+limit, o
		}
	}
	l := &d.limits
	bound(0, l.Total, attempt.Overdue)
	switch {
	case d.stream && !d.content:
		if !d.header {
			bound(d.since, l.Header, attempt.HeaderTimeout)
		}
		bound(d.since, l.FirstToken, attempt.FirstTokenTimeout)
	case d.stream:
		bound(d.partAt, l.Progress, attempt.Stalled)
		bound(d.byteAt, l.Idle, attempt.Stalled)
	case d.header:
		bound(d.byteAt, l.Idle, attempt.Stalled)
	}
	return at, why
}

// wind sets the timer to what is due next.
func (d *watchdog) wind(now time.Duration) {
	at, _ := d.due()
	if d.beat > 0 {
		at = min(at, d.beatAt)
	}
	switch {
	case at == never:
		if d.timer != nil {
			d.timer.Stop()
		}
	case d.timer == nil:
		d.timer = time.AfterFunc(max(at-now, 0), d.run)
	default:
		d.timer.Reset(max(at-now, 0))
	}
}
