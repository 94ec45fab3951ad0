package sim

import (
	"math"
	"strconv"
	"time"

	"kvasir/engine"
	"kvasir/internal/mono"
	"kvasir/internal/stats"
)

// SLO is what a call must keep to count as good. A bound of 0 is none.
type SLO struct {
	TTFT time.Duration // from the call's coming to its first content
	TPOT time.Duration // time after the first content by output token after the first
	E2E  time.Duration // from the call's coming to its end

	// Prefill, where above 0, bounds the TTFT of each call by so many times its unloaded
	// prefill, too; the wider one of this bound and of TTFT holds. A long prompt may take its
	// time, a short one need not be faster than a person notices.
	Prefill float64
}

// ttft returns the bound for a call whose prompt an idle engine computes in that time.
func (s SLO) ttft(unloaded time.Duration) time.Duration {
	return max(s.TTFT, mono.FromSeconds(unloaded.Seconds()*s.Prefill))
}

// Meter adds up what a run reports. Calls count that come from From on and before To, and
// sessions that begin then; gaps between tokens count that end then.
type Meter struct {
	From, To mono.Time
	SLO      SLO
	Unloaded func(tokens int) time.Duration // of a prompt; needed where SLO.Prefill is set

	calls, succeeded, good                                 int64
	unfinished                                             map[string]int64 // by what became of them instead
	retries, hedges, wasted                                int64
	attempts, again                                        int64 // upstream, and tries of clients beyond the first: of all that was sent
	tokens, prompt, cached                                 int64
	ttft, tpot, itl, e2e, held, patience, normal, sessions stats.Histogram // nanoseconds; normal: by output token
	failedSessions, skipped                                int64
	sent                                                   []int64 // calls by engine of their last attempt
	fresh                                                  []int64 // their prompt tokens that were not cached, likewise
}

// NewMeter returns a meter of calls that come within the time, over so many engines.
func NewMeter(from, to mono.Time, slo SLO, engines int) *Meter {
	return &Meter{From: from, To: to, SLO: slo, unfinished: map[string]int64{}, sent: make([]int64, engines), fresh: make([]int64, engines)}
}

// keeps reports whether a call kept the SLO.
func (m *Meter) keeps(r *Record) bool {
	s := m.SLO
	if s.Prefill > 0 {
		s.TTFT = s.ttft(m.Unloaded(r.Prompt))
	}
	return r.Succeeded() &&
		(s.TTFT == 0 || r.First.Sub(r.At) <= s.TTFT) &&
		(s.E2E == 0 || r.End.Sub(r.At) <= s.E2E) &&
		(s.TPOT == 0 || r.Tokens < 2 || float64(r.End.Sub(r.First)) <= float64(s.TPOT)*float64(r.Tokens-1))
}

func (m *Meter) counts(t mono.Time) bool { return t >= m.From && t < m.To }

// Call adds a call that has ended: Config.Ended.
func (m *Meter) Call(r *Record) {
	if !m.counts(r.Wanted()) {
		return
	}
	m.attempts += int64(r.Attempts)
	if r.Again {
		m.again++
		return
	}
	m.calls++
	m.retries += int64(max(r.Attempts-1, 0))
	if r.Hedged {
		m.retries--
		m.hedges++
		m.wasted += int64(r.Wasted)
	}
	if r.Engine >= 0 {
		m.sent[r.Engine]++
	}
	if why := r.Unfinished(); why != "" {
		m.unfinished[why]++
		return
	}
	m.succeeded++
	if m.keeps(r) {
		m.good++
	}
	m.tokens += int64(r.Tokens)
	m.prompt += int64(r.Prompt)
	m.cached += int64(r.Cached)
	m.fresh[r.Engine] += int64(r.Prompt - r.Cached)
	first, all := r.First.Sub(r.At), r.End.Sub(r.At)
	m.patience.Add(int64(r.First.Sub(r.Wanted())))
	m.ttft.Add(int64(first))
	m.e2e.Add(int64(all))
	m.held.Add(int64(r.Held))
	if r.Tokens > 0 {
		m.normal.Add(int64(all) / int64(r.Tokens))
	}
	if r.Tokens > 1 {
		m.tpot.Add(int64(all-first) / int64(r.Tokens-1))
	}
}

// Session adds a session that has ended: SessionsConfig.Ended.
func (m *Meter) Session(r *SessionRecord) {
	if !m.counts(r.At) {
		return
	}
	m.skipped += int64(r.Skipped)
	if r.Failed {
		m.failedSessions++
		return
	}
	m.sessions.Add(int64(r.End.Sub(r.At)))
}

// Gaps adds times between outputs: Config.Gaps. They are an arithmetic series, of which each
// bucket of a histogram takes a run.
func (m *Meter) Gaps(_ int, now mono.Time, g engine.Gap) {
	if !m.counts(now) {
		return
	}
	step := int64(0)
	if g.Steps > 1 {
		step = int64(g.Last-g.First) / (g.Steps - 1)
	}
	m.itl.AddSeries(int64(g.First), step, g.Steps, g.Sequences)
}

// Number is a float64 that JSON has as null where it is not a number.
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) {
	if f := float64(n); f-f != 0 { // NaN or infinite
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(n), 'g', 6, 64), nil
}

// Quantiles is what is told of a distribution, by nearest rank to within 0.8 %; NaN where
// it is empty.
type Quantiles struct {
	Mean Number `json:"mean"`
	P50  Number `json:"p50"`
	P90  Number `json:"p90"`
	P95  Number `json:"p95"`
	P99  Number `json:"p99"`
	Max  Number `json:"max"`
}

// seconds returns a histogram of nanoseconds in seconds.
func seconds(h *stats.Histogram) Quantiles {
	if h.Count() == 0 {
		nan := Number(math.NaN())
		return Quantiles{nan, nan, nan, nan, nan, nan}
	}
	at := func(q float64) Number { return Number(float64(h.Quantile(q)) / 1e9) }
	return Quantiles{Mean: Number(h.Mean() / 1e9), P50: at(0.5), P90: at(0.9), P95: at(0.95), P99: at(0.99), Max: at(1)}
}

// Summary is a run's result in numbers. Times are seconds; the definitions are those of
// article section 2 and of vLLM's benchmark. Of several runs it has the means, Calls and
// the other counts included.
type Summary struct {
	Calls      Number            `json:"calls"`                // that came within the time that is measured
	Succeeded  Number            `json:"succeeded"`            // of those, answered whole
	Unfinished map[string]Number `json:"unfinished,omitempty"` // the others, by reason

	TTFT       Quantiles `json:"ttft_s"`               // from a call's coming to its first content
	TPOT       Quantiles `json:"tpot_s"`               // by call: time after the first content by output token after the first
	ITL        Quantiles `json:"itl_s"`                // between two outputs of one call, pooled over all calls
	E2E        Quantiles `json:"e2e_s"`                // from a call's coming to its end
	Held       Quantiles `json:"held_s"`               // of that, at the gateway for an endpoint with room
	Normalized Quantiles `json:"normalized_latency_s"` // that by output token
	Session    Quantiles `json:"session_completion_s"` // from a session's start to its last call's end

	FailedSessions Number    `json:"failed_sessions"`
	Skipped        Number    `json:"skipped_calls"`       // not sent, because one that they wait for failed
	Attainment     Number    `json:"slo_attainment"`      // share of the calls that came that kept the SLO
	Goodput        Number    `json:"goodput_rps"`         // those by second of the time that is measured
	Rate           Number    `json:"calls_rps"`           // calls that came by second
	OutputRate     Number    `json:"output_tokens_per_s"` // answer tokens of the calls that came within the time, by second of it
	CachedRatio    Number    `json:"cached_token_ratio"`  // prompt tokens found in an engine's cache, of those of answered calls
	AssignmentGap  Number    `json:"assignment_gap"`      // most less fewest calls that an engine got
	CallImbalance  Number    `json:"call_imbalance"`      // most calls that an engine got, by the mean
	WorkImbalance  Number    `json:"work_imbalance"`      // most uncached prompt tokens that an engine got, by the mean
	Retries        Number    `json:"retries"`
	Attempts       Number    `json:"attempts"`                       // upstream, of these calls and of all that their clients sent again
	Patience       Quantiles `json:"since_wanted_s"`                 // from when a client first asked to its first content, over all its tries
	ClientRetries  Number    `json:"client_retries"`                 // calls that clients sent again
	Hedges         Number    `json:"hedges,omitempty"`               // calls that had a second attempt beside another one
	Wasted         Number    `json:"wasted_prefill_ratio,omitempty"` // prompt tokens computed for attempts that were beaten, by those computed for answers
	QueuePeak      Number    `json:"queue_peak"`                     // most requests that waited in one engine
	KVUtilization  Number    `json:"kv_utilization"`                 // mean share of KV blocks in use, over engines and time
	Preemptions    Number    `json:"preemptions"`

	Events int `json:"-"` // that the simulator handled

	// Classes has the same of each class of a workload that has several. Gaps between outputs
	// and what engines report have no class: these are NaN there.
	Classes map[string]Summary `json:"classes,omitempty"`

	// Tenants has the same of each tenant of a workload that has several; those whose tenant
	// is not known are one, without a name.
	Tenants map[string]Summary `json:"tenants,omitempty"`
}

// least is the shortest time in seconds that rates are told of.
const least = 1.0

// Summary returns what was added up. Rates are NaN where less than a second was measured.
func (m *Meter) Summary() Summary {
	span := float64(m.To.Sub(m.From)) / 1e9
	if span < least {
		span = math.NaN() // a rate would say nothing
	}
	per := func(n int64, of float64) Number { return Number(float64(n) / of) }
	s := Summary{
		Calls: Number(m.calls), Succeeded: Number(m.succeeded), FailedSessions: Number(m.failedSessions), Skipped: Number(m.skipped),
		TTFT: seconds(&m.ttft), TPOT: seconds(&m.tpot), ITL: seconds(&m.itl), E2E: seconds(&m.e2e), Held: seconds(&m.held),
		Normalized: seconds(&m.normal), Session: seconds(&m.sessions),
		Attainment: per(m.good, float64(m.calls)), Goodput: per(m.good, span), Rate: per(m.calls, span),
		OutputRate: per(m.tokens, span), CachedRatio: per(m.cached, float64(m.prompt)),
		Retries: Number(m.retries), Attempts: Number(m.attempts), ClientRetries: Number(m.again), Patience: seconds(&m.patience),
		Hedges: Number(m.hedges),
	}
	if m.hedges > 0 {
		s.Wasted = per(m.wasted, float64(m.prompt-m.cached))
	}
	for why, n := range m.unfinished {
		if s.Unfinished == nil {
			s.Unfinished = map[string]Number{}
		}
		s.Unfinished[why] = Number(n)
	}
	fewest, most, sent, work, all := int64(math.MaxInt64), int64(0), int64(0), int64(0), int64(0)
	for e := range m.sent {
		fewest, most = min(fewest, m.sent[e]), max(most, m.sent[e])
		sent += m.sent[e]
		work = max(work, m.fresh[e])
		all += m.fresh[e]
	}
	if m.SLO == (SLO{}) {
		s.Attainment, s.Goodput = Number(math.NaN()), Number(math.NaN())
	}
	s.AssignmentGap = Number(most - fewest)
	s.CallImbalance = Number(float64(most) * float64(len(m.sent)) / float64(sent))
	s.WorkImbalance = Number(float64(work) * float64(len(m.fresh)) / float64(all))
	return s
}
