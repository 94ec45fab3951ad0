package proxy

import (
	"net/http"
	"sync"
	"time"

	"kvasir/selection"
)

// outlet is the way back to one client. The call's goroutine writes the answer to it, and
// the watchdog's timer a comment where there is nothing to write for long; the lock keeps
// the two apart.
type outlet struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration // for one write
	shared  bool          // the connection is, over HTTP/2: there a deadline cuts off a call that writes nothing, too

	mu       sync.Mutex
	owner    selection.CallID // whose answer it is; 0: nobody's
	opened   bool             // the header is out
	ahead    bool             // ... with a heartbeat, before there was an answer
	between  bool             // what is written next stands between two events
	sealed   bool             // no heartbeat may follow
	deadline time.Time        // of a write, as last set
	last     time.Time        // of the last write
}

func (o *outlet) reset(owner selection.CallID, w http.ResponseWriter, rc *http.ResponseController, timeout time.Duration, shared bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.owner, o.w, o.rc, o.timeout, o.shared = owner, w, rc, timeout, shared
	o.opened, o.ahead, o.between, o.sealed = false, false, false, false
	o.deadline, o.last = time.Time{}, time.Time{}
}

// open writes the answer's header, which fill completes. It reports false, and does
// nothing, where a heartbeat has opened the answer before.
func (o *outlet) open(status int, fill func(http.Header)) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.opened {
		return false
	}
	o.opened = true
	fill(o.w.Header())
	if !o.shared { // there it is written with what follows
		o.ready(time.Now())
	}
	o.w.WriteHeader(status)
	return true
}

// isAhead reports whether a heartbeat has opened the answer: what went wrong can then be
// told in the stream alone.
func (o *outlet) isAhead() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ahead
}

// write passes bytes to the client at once. between says that an event may follow them,
// and does not have to continue.
func (o *outlet) write(p []byte, now time.Time, between bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.flush(now, p); err != nil {
		return err
	}
	o.last, o.between = now, between
	return nil
}

// flush writes bytes, and takes no longer than the timeout.
func (o *outlet) flush(now time.Time, p []byte) error {
	o.ready(now)
	_, err := o.w.Write(p)
	if err == nil {
		err = o.rc.Flush()
	}
	if o.shared && err == nil {
		o.deadline = time.Time{}
		err = o.rc.SetWriteDeadline(time.Time{})
	}
	return err
}

// heartbeat is a comment, without the blank line that would end an event: some parsers
// dispatch an empty event at such a line once an id was set (field case F05). Parsers take
// it before an event's first line as well as alone.
const heartbeat = ": waiting\n"

// beat writes a heartbeat to the call's client, unless something was written within the
// interval, or is being written, or an event is under way. Before the answer's header it
// opens a stream with one of the gateway's own. It returns when the next one may be due,
// and whether one was written.
func (o *outlet) beat(owner selection.CallID, interval time.Duration, fill func(http.Header)) (next time.Time, beaten bool) {
	now := time.Now()
	if !o.mu.TryLock() {
		return now.Add(interval / 4), false
	}
	defer o.mu.Unlock()
	due := o.last.Add(interval)
	if o.owner != owner || o.sealed || now.Before(due) || o.opened && !o.between {
		return maxTime(due, now.Add(interval/4)), false
	}
	if !o.opened {
		o.opened, o.ahead, o.between = true, true, true
		fill(o.w.Header())
		o.w.WriteHeader(http.StatusOK)
	}
	err := o.flush(now, []byte(heartbeat))
	o.last = now
	o.sealed = err != nil // whoever writes next sees it too
	return now.Add(interval), true
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// seal ends the heartbeats and reports whether one has opened the answer. After it no other
// goroutine touches the writer.
func (o *outlet) seal() (ahead bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sealed = true
	return o.ahead
}

// release seals and lets the writer go.
func (o *outlet) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.owner, o.sealed, o.w, o.rc = 0, true, nil, nil
}

// ready gives what is written next the write timeout, however long the call has waited.
// Moving the deadline costs more than looking at the clock, so it moves in steps.
func (o *outlet) ready(now time.Time) {
	if o.deadline.Sub(now) < o.timeout {
		o.deadline = now.Add(o.timeout + o.timeout/8)
		_ = o.rc.SetWriteDeadline(o.deadline) // a writer without deadlines has no slow clients
	}
}

// readyNow is ready for what the server writes by itself.
func (o *outlet) readyNow() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.shared {
		o.ready(time.Now())
	}
}
