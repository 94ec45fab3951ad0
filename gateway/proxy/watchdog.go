package proxy

import (
	"context"
	"sync"
	"sync/atomic"
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
// hears something. It is one timer a call record. It costs the call's goroutine two stores
// a read: the timer is only ever wound to an earlier instant, and when it fires it looks
// at what was stored and sleeps on.
type watchdog struct {
	mu     sync.Mutex
	timer  *time.Timer
	fires  time.Time // when the timer does; zero: it is not wound
	armed  bool
	id     selection.CallID // of the call: the record, and this with it, serves many
	limits Timeouts
	out    *outlet
	beat   time.Duration // 0: none
	onBeat func()
	began  time.Time

	// Of the running attempt. Instants are durations since began.
	running bool
	number  int // of the attempt in its call
	stream  bool
	header  bool
	since   time.Duration
	beatAt  time.Duration
	cancel  context.CancelFunc

	held    atomic.Bool   // the client is being written to: what it takes is not the endpoint's
	content atomic.Bool   // it has begun; set under mu
	cause   atomic.Uint32 // attempt.Outcome: why it was cancelled; Success: it was not; set under mu
	byteAt  atomic.Int64  // of the newest byte
	partAt  atomic.Int64  // of the newest content
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

// disarm ends the watch. The timer is left to fire in vain: to stop it would cost each call
// what that costs once in a while.
func (d *watchdog) disarm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.armed, d.running, d.cancel, d.out, d.beat = false, false, nil, nil, 0
}

// begin begins the watch over an attempt.
func (d *watchdog) begin(number int, stream bool, cancel context.CancelFunc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Since(d.began)
	d.running, d.number, d.stream, d.header = true, number, stream, false
	d.since, d.cancel = now, cancel
	d.held.Store(false)
	d.content.Store(false)
	d.cause.Store(uint32(attempt.Success))
	d.byteAt.Store(int64(now))
	d.partAt.Store(int64(now))
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
	now := time.Since(d.began)
	d.header = true
	d.byteAt.Store(int64(now))
	d.wind(now)
}

// read notes that bytes came, and whether there was content among them. It reports false
// where the attempt had been given up before: the content came too late.
func (d *watchdog) read(now time.Time, content bool) bool {
	at := int64(now.Sub(d.began))
	d.byteAt.Store(at)
	if content {
		d.partAt.Store(at)
		if !d.content.Load() {
			return d.contentBegins(time.Duration(at))
		}
	}
	return d.why() == attempt.Success
}

// hold stops the clocks of progress and idleness while a client is being written to.
func (d *watchdog) hold() { d.held.Store(true) }

// release lets them go on where they stood: the write took so long.
func (d *watchdog) release(took time.Duration) {
	d.byteAt.Add(int64(took))
	d.partAt.Add(int64(took))
	d.held.Store(false)
}

func (d *watchdog) contentBegins(now time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.why() != attempt.Success {
		return false
	}
	d.content.Store(true)
	d.wind(now)
	return true
}

// abort gives the call's attempt of that number up, unless its content has begun.
func (d *watchdog) abort(id selection.CallID, number int, why attempt.Outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running && d.id == id && d.number == number && !d.content.Load() {
		d.giveUp(why)
	}
}

// cut gives the call's attempt of that number up, whatever it has brought: another one goes on.
func (d *watchdog) cut(id selection.CallID, number int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running && d.id == id && d.number == number {
		d.giveUp(attempt.Beaten)
	}
}

// why returns why the watchdog gave the attempt up; Success where it did not.
func (d *watchdog) why() attempt.Outcome { return attempt.Outcome(d.cause.Load()) }

func (d *watchdog) giveUp(why attempt.Outcome) {
	if d.why() == attempt.Success {
		d.cause.Store(uint32(why))
		d.cancel()
	}
}

// run is what the timer does.
func (d *watchdog) run() {
	d.mu.Lock()
	d.fires = time.Time{}
	if !d.armed {
		d.mu.Unlock()
		return
	}
	now := time.Since(d.began)
	if due, why := d.due(); d.running && due <= now {
		d.giveUp(why)
	}
	beat := d.beat > 0 && d.beatAt <= now
	id, out, every, onBeat := d.id, d.out, d.beat, d.onBeat
	if !beat {
		d.wind(now)
	}
	d.mu.Unlock()
	if !beat {
		return
	}
	// Nobody who needs this lock must wait for a client that does not read. Meanwhile the
	// call may end, and the record serve another one.
	next, beaten := out.beat(id, every, openStream)
	if beaten {
		onBeat()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.armed && d.id == id {
		d.beatAt = next.Sub(d.began)
		d.wind(time.Since(d.began))
	}
}

const never = time.Duration(1<<63 - 1)

// due returns when the running attempt is to be given up, and why.
func (d *watchdog) due() (at time.Duration, why attempt.Outcome) {
	at = never
	if !d.running || d.why() != attempt.Success {
		return at, attempt.Success
	}
	bound := func(from, limit time.Duration, o attempt.Outcome) {
		if limit > 0 && from+limit < at {
			at, why = from+limit, o
		}
	}
	l, byteAt := &d.limits, time.Duration(d.byteAt.Load())
	bound(0, l.Total, attempt.Overdue)
	switch {
	case d.stream && !d.content.Load():
		if !d.header {
			bound(d.since, l.Header, attempt.HeaderTimeout)
		}
		bound(d.since, l.FirstToken, attempt.FirstTokenTimeout)
	case d.held.Load():
	case d.stream:
		bound(time.Duration(d.partAt.Load()), l.Progress, attempt.Stalled)
		bound(byteAt, l.Idle, attempt.Stalled)
	case d.header:
		bound(byteAt, l.Idle, attempt.Stalled)
	}
	return at, why
}

// wind sets the timer to what is due next, unless it fires before that anyway.
func (d *watchdog) wind(now time.Duration) {
	at, _ := d.due()
	if d.beat > 0 {
		at = min(at, d.beatAt)
	}
	if d.running && d.held.Load() { // look again: who releases does not wind the timer
		for _, limit := range [...]time.Duration{d.limits.Progress, d.limits.Idle} {
			if limit > 0 {
				at = min(at, now+limit)
			}
		}
	}
	if at == never {
		return
	}
	target := d.began.Add(at)
	if !d.fires.IsZero() && !target.Before(d.fires) {
		return
	}
	d.fires = target
	if d.timer == nil {
		d.timer = time.AfterFunc(max(at-now, 0), d.run)
	} else {
		d.timer.Reset(max(at-now, 0))
	}
}
