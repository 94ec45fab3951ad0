package report

import (
	"fmt"
	"math"
	"time"
)

// Run is what a result has to say of the run, besides what was measured.
type Run struct {
	Date     time.Time // of its start
	Label    string    // may be empty
	Backend  string    // vLLM's name of the route's grammar
	Model    string
	Workload string // what was asked, in words
	// ClosedLoop says what of the run waits for answers, and so sends less to a slow server;
	// empty: nothing does.
	ClosedLoop string
	Seed       uint64

	Prompts        int     // calls asked for
	Rate           float64 // calls or sessions a second; +Inf: closed loop; NaN: the workload's own clock
	Burstiness     float64 // of the arrivals: CV = 1/√b
	MaxConcurrency int     // 0: no bound
	Ramp           Ramp
	SLO            SLO
	Metadata       [][2]string // keys and values that the user has given

	Metrics     []string  // of ttft, tpot, itl, e2el and ntpot: which are shown
	Percentiles []float64 // which of them, 0 to 100
	LagBound    time.Duration
	Stopped     string // why the run ended before it was complete; empty: it was
}

// Ramp is a rate that changes over the run; no Strategy, no ramp.
type Ramp struct {
	Strategy   string  // linear or exponential
	Start, End float64 // calls or sessions a second
	Changes    []RateChange
}

// RateChange is when the rate of a ramp reaches a whole number.
type RateChange struct {
	Rate int
	At   time.Duration
}

// Result is what a run has measured. What is called intended is counted from when calls
// should have been sent, what is called actual from when they were.
type Result struct {
	Run
	Verdict *Verdict // of a sweep; nil: it was in none

	Duration                    time.Duration // until the last call's end
	LastIntended, LastSent      time.Duration
	Sent, Completed, Failed     int
	Unfinished, Unsent, Skipped int // cut off by the run's end; not yet sent by then; not sent because an earlier call of the session failed
	Failures                    []FailureCount
	Peak                        int // most calls in flight at once
	Good                        struct{ Intended, Actual int }
	Tokens                      Tokens
	StreamedOutputs             int // that brought content
	BadEvents                   int // of all calls that ended
	Sessions, FailedSessions    int
	SpansLeftOut                int
	Lag                         Distribution // how late the generator was
	Held                        Distribution // how long calls waited for a slot of MaxConcurrency
	TTFT, E2E, NTPOT            Both
	TPOT, ITL, Visible          Distribution // Visible: time to the first visible token, from the intended send
	Completion                  Distribution // of sessions, from the intended start to the last call's end
	Endpoints, Classes          []*Group
	Spans                       []SpanMean
	Detailed                    bool
	details                     []detail
	timeline                    timeline
}

// Late reports whether the generator fell behind, and how far at the 99th percentile, in
// seconds.
func (r *Result) Late() (lag float64, late bool) { return r.Lag.Quantile(0.99), r.late() }

// SpanMean is a part of the calls' time that somebody on their way has measured, in the mean.
type SpanMean struct {
	Name   string
	Source string  // who says so
	Mean   float64 // in seconds
	Calls  int64
}

// Result returns what was collected of the run. The collector must not be used any more.
func (c *Collector) Result(run Run) *Result {
	r := &c.result
	r.Run = run
	r.Endpoints, r.Classes = c.groups[byEndpoint].sorted(), c.groups[byClass].sorted()
	for _, s := range c.spans {
		r.Spans = append(r.Spans, SpanMean{s.name, "answers' Server-Timing", s.time.Mean(), s.time.Count()})
	}
	r.Detailed, r.details, r.timeline = c.detailed, c.details, c.timeline
	return r
}

// Invalid returns why the run does not show what it was meant to: none, and it is valid.
// The bound is on the 99th percentile of the generator's lag, since latencies from the
// intended send contain it. A run in which nothing was answered shows nothing.
func (r *Result) Invalid() []string {
	var why []string
	if lag := r.Lag.Quantile(0.99); r.late() {
		why = append(why, fmt.Sprintf("the generator fell behind: its lag's 99th percentile is %s, over the bound of %v", milli(lag), r.LagBound))
	}
	if r.Completed == 0 {
		why = append(why, "no call was answered")
	}
	return why
}

// late reports whether the generator fell behind.
func (r *Result) late() bool { return r.LagBound > 0 && r.Lag.Quantile(0.99) > r.LagBound.Seconds() }

// Complete reports whether all that was to be sent was sent, and nothing was cut off.
func (r *Result) Complete() bool { return r.Stopped == "" && r.Unfinished+r.Unsent == 0 }

// Open reports whether calls were sent when the workload had them sent, however slow the
// answers were.
func (r *Result) Open() bool { return !math.IsInf(r.Rate, 1) && r.MaxConcurrency == 0 }

// perSecond divides by the run's duration; NaN where nothing ended.
func (r *Result) perSecond(n int) float64 {
	if r.Duration <= 0 {
		return math.NaN()
	}
	return float64(n) / r.Duration.Seconds()
}

// Throughput returns the calls that were answered, a second.
func (r *Result) Throughput() float64 { return r.perSecond(r.Completed) }

// Goodput returns the good calls a second, latencies counted from the intended send.
func (r *Result) Goodput() float64 { return r.perSecond(r.Good.Intended) }

// Attainment returns the share of calls that were good, of all that have ended: a failed
// call is not good.
func (r *Result) Attainment() float64 { return ratio(r.Good.Intended, r.Completed+r.Failed) }

// Offered returns the calls a second that were to be sent, over the time in which they were.
func (r *Result) Offered() float64 { return rate(r.Sent, r.LastIntended) }

// SendRate returns the calls a second that were sent, over the time in which they were.
func (r *Result) SendRate() float64 { return rate(r.Sent, r.LastSent) }

// rate returns how many a second n instants are of which the last one is given.
func rate(n int, last time.Duration) float64 {
	if last <= 0 {
		return math.NaN()
	}
	return float64(n) / last.Seconds()
}

// CachedRatio returns the share of the prompts' tokens that came from a cache, over the calls
// whose usage says; NaN where none does.
func (t Tokens) CachedRatio() float64 { return ratio(t.Cached, t.CachedOf) }

func ratio(n, of int) float64 {
	if of == 0 {
		return math.NaN()
	}
	return float64(n) / float64(of)
}

// peakOutputs returns the most streamed outputs that came in a second. In a run of more
// than mostBins seconds it is the highest mean of several seconds.
func (r *Result) peakOutputs() float64 {
	most := 0
	for _, b := range r.timeline.bins {
		most = max(most, b.outputs)
	}
	if r.timeline.width == 0 {
		return 0
	}
	return float64(most) / r.timeline.width.Seconds()
}

// milli writes a number of seconds in milliseconds.
func milli(seconds float64) string { return fmt.Sprintf("%.2f ms", seconds*1e3) }
