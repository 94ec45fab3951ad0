package telemetry

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ModelPools names a configured model's pools and endpoints: the only names, beside
// this package's constants, that become labels.
type ModelPools struct {
	Model string
	Pools []PoolEndpoints
}

// PoolEndpoints names a configured pool's endpoints.
type PoolEndpoints struct {
	Pool      string
	Endpoints []string
}

// Label values for what has no configured name.
const (
	unknownName = "unknown" // a model or endpoint that is not configured
	noPool      = "none"    // a call that never reached a pool
)

// Metrics counts calls. It is safe for concurrent use.
type Metrics struct {
	calls     *prometheus.CounterVec
	attempts  *prometheus.CounterVec
	retries   *prometheus.CounterVec
	tokens    *prometheus.CounterVec
	refusals  [refusals]prometheus.Counter
	oddities  [oddities]prometheus.Counter
	durations durations

	// Written by New alone, so they need no lock.
	ended    map[poolKey]*tally // calls by outcome; pool "none" included
	pools    map[poolKey]*Pool
	stranger *Pool // handle for what is not configured
}

type poolKey struct{ model, pool string }

// tally counts by outcome under fixed labels. What can happen is created before it
// does; an outcome that can't, or a zero one, gets its series when it happens all the
// same, so that the fault is seen.
type tally struct {
	vec    *prometheus.CounterVec
	labels []string
	by     [outcomes]prometheus.Counter
}

func newTally(vec *prometheus.CounterVec, last Outcome, labels ...string) *tally {
	t := &tally{vec: vec, labels: labels}
	for o := Success; o <= last; o++ {
		t.by[o] = vec.WithLabelValues(append(slices.Clip(labels), o.String())...)
	}
	return t
}

func (t *tally) inc(o Outcome) {
	if c := t.by[o.valid()]; c != nil {
		c.Inc()
		return
	}
	t.vec.WithLabelValues(append(slices.Clip(t.labels), o.String())...).Inc()
}

type durations struct {
	ttft, itl, tpot, e2e, normalized, pick *prometheus.HistogramVec
}

// New registers the counted series and creates their children for every configured
// model, pool, endpoint and outcome, so that each series exists with 0 from the start
// (field case F47): a rate over it is right from the first call on, and an autoscaler
// never meets an absent series. It panics where reg already has one of the series.
func New(reg prometheus.Registerer, models []ModelPools) *Metrics {
	m := &Metrics{
		calls:    callsTotal.counter(reg),
		attempts: attemptsTotal.counter(reg),
		retries:  retriesTotal.counter(reg),
		tokens:   tokensTotal.counter(reg),
		durations: durations{
			ttft: ttftSeconds.histogram(reg), itl: itlSeconds.histogram(reg), tpot: tpotSeconds.histogram(reg),
			e2e: e2eSeconds.histogram(reg), normalized: normalizedSeconds.histogram(reg), pick: pickSeconds.histogram(reg),
		},
		ended: map[poolKey]*tally{},
		pools: map[poolKey]*Pool{},
	}
	refused := refusalsTotal.counter(reg)
	for r := NotRefused + 1; r < refusals; r++ {
		m.refusals[r] = refused.WithLabelValues(r.String())
	}
	odd := odditiesTotal.counter(reg)
	for o := range oddities {
		m.oddities[o] = odd.WithLabelValues(o.String())
	}
	for _, mod := range models {
		m.addEnded(mod.Model, "")
		for _, p := range mod.Pools {
			m.pools[poolKey{mod.Model, p.Pool}] = m.newPool(mod.Model, p.Pool, p.Endpoints)
		}
	}
	m.stranger = m.newPool("", "", nil)
	return m
}

// label returns s as a label's value: the registry refuses what is not UTF-8.
func label(s, empty string) string {
	if s == "" {
		return empty
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// addEnded creates the call counters of a pool; an empty pool stands for none.
func (m *Metrics) addEnded(model, pool string) *tally {
	t := newTally(m.calls, Refused, label(model, unknownName), label(pool, noPool))
	m.ended[poolKey{model, pool}] = t
	return t
}

// endedIn returns the call counters for the names of a record. A model that isn't
// configured is "unknown", a pool that isn't is "none".
func (m *Metrics) endedIn(model, pool string) *tally {
	for _, k := range [...]poolKey{{model, pool}, {model, ""}, {"", ""}} {
		if t, ok := m.ended[k]; ok {
			return t
		}
	}
	panic("telemetry: New made no counters for strangers")
}

// Pool returns the handle that counts for a configured pool; keep it, it never
// changes. For names that aren't configured it is the handle of model "unknown", pool
// "none", so that no caller can make a new series.
func (m *Metrics) Pool(model, pool string) *Pool {
	if p, ok := m.pools[poolKey{model, pool}]; ok {
		return p
	}
	return m.stranger
}

// Call counts a call that has ended: outcome, refusal, oddity, tokens, and those
// latencies that are known only at the end. What the Pool's own methods count when it
// happens (first token, gaps, picks, attempts) is not counted again. Call once a call.
func (m *Metrics) Call(c *Call) {
	m.endedIn(c.Model, c.Pool).inc(c.Outcome)
	if c.Refusal != NotRefused && c.Refusal < refusals {
		m.refusals[c.Refusal].Inc()
	}
	if c.DoneMissing {
		m.Oddity(DoneMissing)
	}
	if c.Outcome == Success {
		m.Pool(c.Model, c.Pool).succeeded(c)
	}
}

// Oddity counts something unusual in a stream.
func (m *Metrics) Oddity(o Oddity) {
	if o < oddities {
		m.oddities[o].Inc()
	}
}

// Pool counts for one pool of one model. Its methods do not allocate and are safe for
// concurrent use.
type Pool struct {
	endpoints map[string]*tally
	elsewhere *tally // attempts at an endpoint that isn't configured
	retries   prometheus.Counter

	input, output, cached, estimated prometheus.Counter

	ttft, itl, tpot, e2e, normalized, pick prometheus.Observer
}

func (m *Metrics) newPool(model, pool string, endpoints []string) *Pool {
	ml, pl := label(model, unknownName), label(pool, noPool)
	d := m.durations
	p := &Pool{
		endpoints: make(map[string]*tally, len(endpoints)),
		elsewhere: &tally{vec: m.attempts, labels: []string{ml, pl, unknownName}},
		retries:   m.retries.WithLabelValues(ml, pl),

		input:     m.tokens.WithLabelValues(ml, pl, "input"),
		output:    m.tokens.WithLabelValues(ml, pl, "output"),
		cached:    m.tokens.WithLabelValues(ml, pl, "cached"),
		estimated: m.tokens.WithLabelValues(ml, pl, "input_estimated"),

		ttft: d.ttft.WithLabelValues(ml, pl), itl: d.itl.WithLabelValues(ml, pl), tpot: d.tpot.WithLabelValues(ml, pl),
		e2e: d.e2e.WithLabelValues(ml, pl), normalized: d.normalized.WithLabelValues(ml, pl), pick: d.pick.WithLabelValues(ml, pl),
	}
	for _, e := range endpoints {
		p.endpoints[e] = newTally(m.attempts, ClientGone, ml, pl, label(e, unknownName))
	}
	m.addEnded(model, pool)
	return p
}

// TTFT observes the time from a call's arrival to its first content token. Call it when
// the token comes.
func (p *Pool) TTFT(d time.Duration) { p.ttft.Observe(d.Seconds()) }

// ITL observes the gap between two consecutive streamed content events.
func (p *Pool) ITL(d time.Duration) { p.itl.Observe(d.Seconds()) }

// PickTime observes how long one pick and charge took, the wait for the machine's lock
// included.
func (p *Pool) PickTime(d time.Duration) { p.pick.Observe(d.Seconds()) }

// Attempt counts an upstream attempt that has ended. number is the attempt's place in
// its call; 0 is the first, every other one is a retry.
func (p *Pool) Attempt(endpoint string, number int, o Outcome) {
	t, ok := p.endpoints[endpoint]
	if !ok {
		t = p.elsewhere
	}
	t.inc(o)
	if number > 0 {
		p.retries.Inc()
	}
}

func (p *Pool) succeeded(c *Call) {
	p.e2e.Observe(c.E2E.Seconds())
	if d, ok := c.TPOT(); ok {
		p.tpot.Observe(d.Seconds())
	}
	if d, ok := c.Normalized(); ok {
		p.normalized.Observe(d.Seconds())
	}
	if !c.UsageKnown {
		p.estimated.Add(count(c.InputTokens))
		return
	}
	p.input.Add(count(c.PromptTokens))
	p.output.Add(count(c.OutputTokens))
	p.cached.Add(count(c.CachedTokens))
}

// count keeps a counter from going back on a usage that an endpoint made up: a negative
// number of tokens counts as none.
func count(tokens int) float64 { return float64(max(tokens, 0)) }
