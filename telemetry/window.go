package telemetry

import (
	"slices"
	"sync"
	"time"
)

// SLO is what a model's calls are to keep; 0: no bound.
type SLO struct {
	TTFT, TPOT time.Duration
}

// Ended is what a Trail needs of a call that has ended: names of the configuration, and
// numbers.
type Ended struct {
	Pool, Endpoint string // of the last attempt; "": there was none
	Outcome        Outcome
	Retries        int           // attempts beyond the first, but for a hedge
	TTFT, TPOT     time.Duration // 0: not known
	// Predicted and Actual are the time to first token from the last attempt's dispatch; 0:
	// not known. Either both are or none is.
	Predicted, Actual time.Duration
	Prompt, Cached    int  // tokens; 0 where the answer did not report both
	Output            int  // tokens; 0 where it did not report its usage
	Reported          bool // it did
	Judged, Within    bool
}

// windowMost is how many calls of a model a window keeps between two looks at it. With a look
// a second that is more than a gateway answers.
const windowMost = 1 << 14

// window takes the calls of one model that have ended until somebody looks. It is safe for
// concurrent use.
type window struct {
	mu   sync.Mutex
	slo  SLO
	in   []Ended
	lost int // ended while in was full

	spare []Ended // in's former memory; whoever drains has it
}

func (w *window) configure(slo SLO) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slo = slo
}

func (w *window) add(c *Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.in) == windowMost {
		w.lost++
		return
	}
	n := len(w.in)
	w.in = slices.Grow(w.in, 1)[:n+1]
	e := &w.in[n]
	*e = Ended{Pool: c.Pool, Endpoint: c.Endpoint, Outcome: c.Outcome.valid(), Retries: max(c.Attempts-1, 0)}
	if c.Hedged { // a call has one hedge at most
		e.Retries = max(e.Retries-1, 0)
	}
	if c.Stream && c.TTFT > 0 {
		e.TTFT = c.TTFT
		if c.PredictedTTFT > c.Sent && c.TTFT > c.Sent {
			e.Predicted, e.Actual = c.PredictedTTFT-c.Sent, c.TTFT-c.Sent
		}
	}
	e.TPOT, _ = c.TPOT()
	if c.UsageKnown {
		e.Reported, e.Output = true, max(c.OutputTokens, 0)
		if c.CachedKnown && c.PromptTokens > 0 {
			e.Prompt, e.Cached = c.PromptTokens, c.CachedTokens
		}
	}
	e.Judged, e.Within = w.slo.judge(c, e.TPOT)
}

// drain hands what has come since the last time to f, which must not keep the slice.
func (w *window) drain(f func(calls []Ended, lost int)) {
	w.mu.Lock()
	calls, lost := w.in, w.lost
	w.in, w.spare, w.lost = w.spare[:0], nil, 0
	w.mu.Unlock()
	f(calls, lost)
	clear(calls)
	w.spare = calls[:0]
}

// judge says whether a call could meet the SLO, and whether it did (goodput, article section
// 2). Calls whose clients have left or were at fault could not, nor answers whose time to
// first token was not seen: those that were not streamed. What failed or was refused for want
// of room has not met it. A TPOT that is not known, of one token or where the answer reports
// no usage, is met.
func (s SLO) judge(c *Call, tpot time.Duration) (judged, within bool) {
	if s == (SLO{}) {
		return false, false
	}
	switch c.Outcome {
	case Success:
		if !c.Stream || c.TTFT <= 0 {
			return false, false
		}
		return true, (s.TTFT <= 0 || c.TTFT <= s.TTFT) && (s.TPOT <= 0 || tpot <= s.TPOT)
	case EndpointFailure, BackPressure:
		return true, false
	case Refused:
		return c.Refusal.ours(), false
	default:
		return false, false
	}
}

// ours reports whether a call was refused for what the gateway lacks, and not for what its
// client has sent.
func (r Refusal) ours() bool {
	switch r {
	case BuffersFull, TooManyCalls, NoEndpoint, Draining, QueueFull, QueueBytes, QueueWait, QueueTimeout, Shed, DeadlineUnmet, DeadlinePassed:
		return true
	default:
		return false
	}
}

// Drain hands the calls of every configured model that have ended since the last Drain to f,
// and those of none as model "". lost says how many more there were: beyond 16,384 of a model
// they are counted alone. f must not keep the slice. One Drain runs at a time; calls that end
// meanwhile wait for none of it.
func (m *Metrics) Drain(f func(model string, calls []Ended, lost int)) {
	m.draining.Lock()
	defer m.draining.Unlock()
	for model, w := range m.names.Load().windows {
		w.drain(func(calls []Ended, lost int) { f(model, calls, lost) })
	}
}
