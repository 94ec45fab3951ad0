package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/telemetry"
)

// LiveGateway is what the stream shows: a *proxy.Gateway is one.
type LiveGateway interface {
	Pools() []proxy.ModelView
	Load() (calls int, buffered int64)
	Tap(*proxy.Tap)
}

// LiveCallSource tells of the calls that have ended: a *telemetry.Metrics is one. Nobody else
// may drain it.
type LiveCallSource interface {
	Drain(func(model string, calls []telemetry.Ended, lost int))
}

// LiveConfig is what the stream needs.
type LiveConfig struct {
	Gateway   LiveGateway
	Calls     LiveCallSource
	MayChange bool     // an admin token is configured
	Policies  []string // that can be shadowed
}

// Live streams GET /v1/live. One goroutine, Run, looks each second, and renders for all that
// watch; while nobody does, it keeps the history and nothing else is done, and no call pays
// for anything. What a watcher is too slow to take is dropped and counted.
type Live struct {
	cfg    LiveConfig
	tap    proxy.Tap
	pace   pace
	shown  chan any      // proxy.Decided and ended, to be rendered
	came   chan *watcher // to be told what there is
	moved  chan struct{} // an endpoint has left rotation, or is back
	over   chan struct{} // closed when Run has ended
	missed atomic.Int64  // of shown, for which there was no room

	mu       sync.Mutex
	watchers map[*watcher]bool // those that are true have been told what there is
	ended    bool

	// Run's own.
	calls   calls
	history *history
	stated  time.Time         // when the state was last sent to all
	looked  time.Time         // when the history got its newest point
	ready   map[string][]byte // what was rendered since then, by event
}

// ended is the end of a call whose decision was shown.
type ended struct {
	call   uint64
	at     time.Time
	record telemetry.Call
}

// watcher is one client of the stream.
type watcher struct {
	events  chan event
	dropped atomic.Int64
}

type event struct {
	name string
	data []byte // shared by all watchers
}

// The bounds of what waits.
const (
	watcherEvents = 64 // for a watcher
	shownEvents   = 64 // for Run
)

const (
	liveBetween      = 200 * time.Millisecond // at the least, from one state to one that a change brings
	liveHeartbeat    = 5 * time.Second        // of silence, after which a comment is sent
	liveWriteTimeout = 10 * time.Second       // for a watcher to take an event
)

// NewLive returns the stream. It serves once Run runs.
func NewLive(cfg LiveConfig) *Live {
	l := &Live{
		cfg: cfg, shown: make(chan any, shownEvents), came: make(chan *watcher, LiveWatchers), moved: make(chan struct{}, 1), over: make(chan struct{}),
		watchers: map[*watcher]bool{},
	}
	l.tap = proxy.Tap{
		Wants: l.pace.allows,
		Decided: func(d proxy.Decided) {
			if d.Decision.Attempt == 0 || l.pace.allows() {
				l.show(d)
			}
		},
		Ended: func(call uint64, c telemetry.Call) { l.show(ended{call, time.Now(), c}) },
		Changed: func() {
			select {
			case l.moved <- struct{}{}:
			default:
			}
		},
	}
	return l
}

// pace lets LiveDecisions pass in a second.
type pace struct{ next atomic.Int64 } // Unix nanoseconds

func (p *pace) allows() bool {
	now := time.Now().UnixNano()
	next := p.next.Load()
	return now >= next && p.next.CompareAndSwap(next, now+int64(time.Second/LiveDecisions))
}

// show hands something to Run, if it has room.
func (l *Live) show(x any) {
	select {
	case l.shown <- x:
	default:
		l.missed.Add(1)
	}
}

// Run looks each second until ctx ends, and then ends the streams. It must be called once.
func (l *Live) Run(ctx context.Context) {
	defer l.end()
	now := time.Now()
	l.history = newHistory(now)
	l.look(now)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var soon <-chan time.Time // when a change is told of; nil: there is none
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			l.look(now)
			l.sendState()
			soon = nil // that has it
		case <-l.moved:
			if soon == nil {
				soon = time.After(liveBetween - time.Since(l.stated))
			}
		case <-soon:
			soon = nil
			delete(l.ready, "state")
			l.sendState()
		case w := <-l.came:
			l.greet(w)
		case x := <-l.shown:
			l.send(describe(x))
		}
	}
}

// sendState tells all that watch of the state.
func (l *Live) sendState() {
	if l.watched() > 0 {
		l.stated = time.Now()
		l.send(event{"state", l.render("state")})
	}
}

func describe(x any) event {
	switch x := x.(type) {
	case proxy.Decided:
		return event{"decision", encode(x.View())}
	case ended:
		return event{"outcome", encode(proxy.NewOutcomeView(x.call, x.at, &x.record))}
	default:
		panic(fmt.Sprintf("web: %T is shown", x))
	}
}

// encode is json.Marshal of what has no float that is NaN or infinite.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		b, _ = json.Marshal(map[string]string{"error": err.Error()})
	}
	return b
}

// look takes in what has become of calls, and notes a point of the history.
func (l *Live) look(now time.Time) {
	l.calls.look(now, l.cfg.Calls)
	l.history.add(now, l.cfg.Gateway.Pools(), l.calls.recent)
	l.looked, l.ready = now, map[string][]byte{}
}

// render returns an event's data, which all that come before the next look share.
func (l *Live) render(name string) []byte {
	if l.ready[name] == nil {
		if name == "history" {
			l.ready[name] = encode(l.history.view(l.looked))
		} else {
			l.ready[name] = encode(l.state(time.Now()))
		}
	}
	return l.ready[name]
}

func (l *Live) state(now time.Time) LiveState {
	unrouted, _ := l.calls.sums("")
	s := LiveState{
		At: proxy.UnixSeconds(now), MayChange: l.cfg.MayChange, Watchers: l.watched(), Unrouted: unrouted.Calls, Policies: l.cfg.Policies,
		Models: l.calls.models(l.cfg.Gateway.Pools()),
	}
	s.InFlight, s.Buffered = l.cfg.Gateway.Load()
	return s
}

func (l *Live) watched() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.watchers)
}

// send offers an event to all that watch.
func (l *Live) send(e event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	missed := l.missed.Swap(0)
	for w, greeted := range l.watchers {
		if greeted {
			w.dropped.Add(missed)
			w.take(e)
		}
	}
}

// greet tells a watcher that has come what there is, before anything else.
func (l *Live) greet(w *watcher) {
	history, state := event{"history", l.render("history")}, event{"state", l.render("state")}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, there := l.watchers[w]; there {
		l.watchers[w] = true
		w.take(history)
		w.take(state)
	}
}

func (w *watcher) take(e event) {
	select {
	case w.events <- e:
	default:
		w.dropped.Add(1)
	}
}

// join takes a watcher in; nil: there are as many as may be, or the stream has ended.
func (l *Live) join() *watcher {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || len(l.watchers) == LiveWatchers {
		return nil
	}
	w := &watcher{events: make(chan event, watcherEvents)}
	select {
	case l.came <- w:
	default: // who has left since is still to be told
		return nil
	}
	l.watchers[w] = false
	if len(l.watchers) == 1 {
		l.cfg.Gateway.Tap(&l.tap)
	}
	return w
}

func (l *Live) leave(w *watcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.watchers, w)
	if len(l.watchers) == 0 {
		l.cfg.Gateway.Tap(nil)
	}
}

func (l *Live) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	close(l.over)
}

// ServeHTTP streams to one watcher, until it leaves or Run has ended.
func (l *Live) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w := l.join()
	if w == nil {
		rw.Header().Set("Content-Type", "application/json")
		rw.Header().Set("Retry-After", "5")
		rw.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintf(rw, "{\"error\":\"%d watch already, which is the most, or the gateway stops\"}\n", LiveWatchers)
		return
	}
	defer l.leave(w)
	s := &stream{rc: http.NewResponseController(rw), w: rw}
	h := rw.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	h.Set("X-Content-Type-Options", "nosniff")
	rw.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead || s.write([]byte("retry: 2000\n\n")) != nil {
		return
	}
	silence := time.NewTimer(liveHeartbeat)
	defer silence.Stop()
	for {
		var err error
		select {
		case <-r.Context().Done():
			return
		case <-l.over:
			return
		case e := <-w.events:
			err = s.event(e, w)
		case <-silence.C:
			err = s.write([]byte(": still here\n\n"))
		}
		if err != nil {
			return
		}
		silence.Reset(liveHeartbeat)
	}
}

// stream writes to one watcher.
type stream struct {
	rc  *http.ResponseController
	w   http.ResponseWriter
	buf bytes.Buffer
}

// noneDropped is how a state begins as it is rendered; each watcher has its own count there.
const noneDropped = `{"dropped_events":0`

func (s *stream) event(e event, w *watcher) error {
	s.buf.Reset()
	s.buf.WriteString("event: ")
	s.buf.WriteString(e.name)
	s.buf.WriteString("\ndata: ")
	if rest, ok := bytes.CutPrefix(e.data, []byte(noneDropped)); ok && e.name == "state" {
		s.buf.WriteString(`{"dropped_events":`)
		s.buf.WriteString(strconv.FormatInt(w.dropped.Load(), 10))
		s.buf.Write(rest)
	} else {
		s.buf.Write(e.data)
	}
	s.buf.WriteString("\n\n")
	return s.write(s.buf.Bytes())
}

func (s *stream) write(p []byte) error {
	_ = s.rc.SetWriteDeadline(time.Now().Add(liveWriteTimeout)) // where it can't be set, the server's own counts
	if _, err := s.w.Write(p); err != nil {
		return err
	}
	return s.rc.Flush()
}
