package telemetry

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ModelPools names a configured model's pools and endpoints: the only names, beside
// this package's constants, that become labels.
type ModelPools struct {
	Model string
	SLO   SLO // that its goodput goes by
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
	kinds     []string
	vecs      vecs
	refusals  [refusals]prometheus.Counter
	limits    map[[2]string]prometheus.Counter // by scope and limit
	oddities  [oddities]prometheus.Counter
	beats     prometheus.Counter
	repeated  [repeateds]prometheus.Counter
	reloads   *prometheus.CounterVec
	reloaded  prometheus.Gauge
	reloadOK  prometheus.Gauge
	build     *prometheus.GaugeVec
	configure sync.Mutex // one Configure at a time
	names     atomic.Pointer[names]
	draining  sync.Mutex // one Drain at a time
}

// vecs are the families whose labels are configured names.
type vecs struct {
	calls, attempts, failures, retries, continuations, tokens, ejections, restarts, scrapes *prometheus.CounterVec

	ttft, prediction, itl, tpot, e2e, normalized, pick, queueWait *prometheus.HistogramVec
}

// names are the counters of what is configured. They are not changed once they are there.
type names struct {
	ended    map[poolKey]*tally // calls by outcome; pool "none" included
	pools    map[poolKey]*Pool
	stranger *Pool              // handle for what is not configured
	windows  map[string]*window // by model; "": of calls that have none
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

// New registers the counted series. kinds are the names of the ways in which an attempt can
// fail; Configure names what else is counted. It panics where reg already has one of the
// series.
func New(reg prometheus.Registerer, kinds ...string) *Metrics {
	m := &Metrics{
		kinds: kinds,
		vecs: vecs{
			calls: callsTotal.counter(reg), attempts: attemptsTotal.counter(reg), failures: failuresTotal.counter(reg),
			continuations: continuationsTotal.counter(reg),
			retries:       retriesTotal.counter(reg), tokens: tokensTotal.counter(reg), ejections: ejectionsTotal.counter(reg),
			restarts: restartsTotal.counter(reg), scrapes: scrapesTotal.counter(reg),
			ttft: ttftSeconds.histogram(reg), prediction: ttftPrediction.histogram(reg), itl: itlSeconds.histogram(reg), tpot: tpotSeconds.histogram(reg),
			e2e: e2eSeconds.histogram(reg), normalized: normalizedSeconds.histogram(reg), pick: pickSeconds.histogram(reg), queueWait: queueWaitSeconds.histogram(reg),
		},
		beats:    heartbeatsTotal.counter(reg).WithLabelValues(),
		reloads:  reloadsTotal.counter(reg),
		reloaded: reloadedSeconds.gauge(reg).WithLabelValues(),
		reloadOK: reloadSuccessful.gauge(reg).WithLabelValues(),
		build:    buildInfo.gauge(reg),
	}
	m.reloadOK.Set(1)
	for _, result := range [...]string{"applied", "refused"} {
		m.reloads.WithLabelValues(result)
	}
	repeated := repeatedTotal.counter(reg)
	for r := NotRepeated + 1; r < repeateds; r++ {
		m.repeated[r] = repeated.WithLabelValues(r.String())
	}
	refused := refusalsTotal.counter(reg)
	for r := NotRefused + 1; r < refusals; r++ {
		m.refusals[r] = refused.WithLabelValues(r.String())
	}
	limited := limitRefusalsTotal.counter(reg)
	m.limits = map[[2]string]prometheus.Counter{}
	for _, scope := range limitScopes {
		for _, limit := range limitKinds {
			if (scope == "conversation") == (limit == "waiting") { // of conversations that alone is refused, and of it they alone
				m.limits[[2]string{scope, limit}] = limited.WithLabelValues(scope, limit)
			}
		}
	}
	odd := odditiesTotal.counter(reg)
	for o := range oddities {
		m.oddities[o] = odd.WithLabelValues(o.String())
	}
	n := &names{ended: map[poolKey]*tally{}, pools: map[poolKey]*Pool{}, windows: map[string]*window{"": {}}}
	n.stranger = m.newPool("", "")
	n.ended[poolKey{}] = m.newEnded("", "")
	m.names.Store(n)
	return m
}

// Configure makes the counters those of the models: every configured model, pool, endpoint
// and outcome has its series with 0 from the start (field case F47), so that a rate over
// it is right from the first call on and an autoscaler never meets an absent series. What
// stays goes on counting; the series of what is gone are gone (field case F75).
func (m *Metrics) Configure(models []ModelPools) {
	m.configure.Lock()
	defer m.configure.Unlock()
	before := m.names.Load()
	n := &names{ended: map[poolKey]*tally{}, pools: map[poolKey]*Pool{}, stranger: before.stranger}
	n.windows = map[string]*window{"": before.windows[""]}
	n.ended[poolKey{}] = before.ended[poolKey{}]
	keep := func(key poolKey) {
		if n.ended[key] = before.ended[key]; n.ended[key] == nil {
			n.ended[key] = m.newEnded(key.model, key.pool)
		}
	}
	for _, mod := range models {
		keep(poolKey{mod.Model, ""})
		if n.windows[mod.Model] = before.windows[mod.Model]; n.windows[mod.Model] == nil {
			n.windows[mod.Model] = &window{}
		}
		n.windows[mod.Model].configure(mod.SLO)
		for _, p := range mod.Pools {
			key := poolKey{mod.Model, p.Pool}
			keep(key)
			if n.pools[key] = before.pools[key]; n.pools[key] == nil {
				n.pools[key] = m.newPool(key.model, key.pool)
			}
			n.pools[key].configure(&m.vecs, p.Endpoints)
		}
	}
	m.names.Store(n)
	for key := range before.ended {
		if n.ended[key] == nil {
			m.vecs.delete(prometheus.Labels{"model": label(key.model, unknownName), "pool": label(key.pool, noPool)})
		}
	}
}

// all returns every family.
func (v *vecs) all() []interface {
	DeletePartialMatch(prometheus.Labels) int
} {
	return []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{v.calls, v.attempts, v.failures, v.retries, v.continuations, v.tokens, v.ejections, v.restarts, v.scrapes,
		v.ttft, v.prediction, v.itl, v.tpot, v.e2e, v.normalized, v.pick, v.queueWait}
}

// delete drops the series that have all of the labels.
func (v *vecs) delete(labels prometheus.Labels) {
	for _, family := range v.all() {
		family.DeletePartialMatch(labels)
	}
}

// label returns s as a label's value: the registry refuses what is not UTF-8.
func label(s, empty string) string {
	if s == "" {
		return empty
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// newEnded creates the call counters of a pool; an empty pool stands for none.
func (m *Metrics) newEnded(model, pool string) *tally {
	return newTally(m.vecs.calls, Refused, label(model, unknownName), label(pool, noPool))
}

// endedIn returns the call counters for the names of a record. A model that isn't
// configured is "unknown", a pool that isn't is "none".
func (n *names) endedIn(model, pool string) *tally {
	for _, k := range [...]poolKey{{model, pool}, {model, ""}} {
		if t, ok := n.ended[k]; ok {
			return t
		}
	}
	return n.ended[poolKey{}]
}

// windowOf returns the window of a record's model.
func (n *names) windowOf(model string) *window {
	if w, ok := n.windows[model]; ok {
		return w
	}
	return n.windows[""]
}

// Pool returns the handle that counts for a configured pool; it stays the same as long as
// the pool is configured. For names that aren't it is the handle of model "unknown", pool
// "none", so that no caller can make a new series.
func (m *Metrics) Pool(model, pool string) *Pool {
	n := m.names.Load()
	if p, ok := n.pools[poolKey{model, pool}]; ok {
		return p
	}
	return n.stranger
}

// Reloaded counts a configuration that was read anew: one that was put in service, or
// refused.
func (m *Metrics) Reloaded(applied bool) {
	result := "refused"
	if applied {
		result = "applied"
	}
	m.reloadOK.Set(oneIf(applied))
	m.reloads.WithLabelValues(result).Inc()
}

// Built names the source that the program was built from.
func (m *Metrics) Built(version string) { m.build.WithLabelValues(version).Set(1) }

// Applied notes when the configuration in service was put there.
func (m *Metrics) Applied(at time.Time) { m.reloaded.Set(float64(at.Unix())) }

// Repeated counts a call that its client had sent before.
func (m *Metrics) Repeated(by Repeated) {
	if by > NotRepeated && by < repeateds {
		m.repeated[by].Inc()
	}
}

// Heartbeat counts a comment that was sent to a client that waits.
func (m *Metrics) Heartbeat() { m.beats.Inc() }

// Call counts a call that has ended: outcome, refusal, oddity, tokens, and those
// latencies that are known only at the end. What the Pool's own methods count when it
// happens (first token, gaps, picks, attempts) is not counted again. Call once a call.
func (m *Metrics) Call(c *Call) {
	n := m.names.Load()
	n.endedIn(c.Model, c.Pool).inc(c.Outcome)
	n.windowOf(c.Model).add(c)
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

// The scopes and limits that calls are refused by, as gateway/limit names them.
var (
	limitScopes = []string{"tenant", "key", "model", "tenant_model", "conversation"}
	limitKinds  = []string{"concurrency", "rpm", "tpm", "waiting"}
)

// LimitRefused counts a call that a limit has refused, beside Call, which counts the refusal
// itself. What is no scope or no limit is not counted.
func (m *Metrics) LimitRefused(scope, limit string) {
	if c := m.limits[[2]string{scope, limit}]; c != nil {
		c.Inc()
	}
}

// Oddity counts something unusual in a stream.
func (m *Metrics) Oddity(o Oddity) {
	if o < oddities {
		m.oddities[o].Inc()
	}
}

// Pool counts for one pool of one model. Its methods are safe for concurrent use, and
// those that calls use do not allocate.
type Pool struct {
	model, pool string // as labels

	endpoints atomic.Pointer[map[string]*Endpoint]
	elsewhere *tally // attempts at an endpoint that isn't configured
	retries   prometheus.Counter

	continuations [continuations]prometheus.Counter
	failures      map[string]prometheus.Counter // by kind

	input, output, cached, estimated prometheus.Counter

	ttft, prediction, itl, tpot, e2e, normalized, pick, queueWait prometheus.Observer
}

// Endpoint counts for one endpoint of a pool.
type Endpoint struct {
	attempts                        *tally
	ejections, restarts             prometheus.Counter
	scraped, scrapeBad, scrapeOddly prometheus.Counter
}

func (m *Metrics) newPool(model, pool string) *Pool {
	ml, pl := label(model, unknownName), label(pool, noPool)
	v := &m.vecs
	p := &Pool{
		model: ml, pool: pl,
		elsewhere: &tally{vec: v.attempts, labels: []string{ml, pl, unknownName}},
		retries:   v.retries.WithLabelValues(ml, pl),
		failures:  map[string]prometheus.Counter{},

		input:     v.tokens.WithLabelValues(ml, pl, "input"),
		output:    v.tokens.WithLabelValues(ml, pl, "output"),
		cached:    v.tokens.WithLabelValues(ml, pl, "cached"),
		estimated: v.tokens.WithLabelValues(ml, pl, "input_estimated"),

		ttft: v.ttft.WithLabelValues(ml, pl), prediction: v.prediction.WithLabelValues(ml, pl), itl: v.itl.WithLabelValues(ml, pl), tpot: v.tpot.WithLabelValues(ml, pl),
		e2e: v.e2e.WithLabelValues(ml, pl), normalized: v.normalized.WithLabelValues(ml, pl), pick: v.pick.WithLabelValues(ml, pl), queueWait: v.queueWait.WithLabelValues(ml, pl),
	}
	for c := range p.continuations {
		p.continuations[c] = v.continuations.WithLabelValues(ml, pl, Continuation(c).String())
	}
	p.endpoints.Store(&map[string]*Endpoint{})
	if pool != "" {
		for _, kind := range m.kinds {
			p.failures[kind] = v.failures.WithLabelValues(ml, pl, kind)
		}
	}
	return p
}

// configure makes the pool's endpoints those that are named.
func (p *Pool) configure(v *vecs, endpoints []string) {
	before, after := *p.endpoints.Load(), make(map[string]*Endpoint, len(endpoints))
	for _, e := range endpoints {
		if after[e] = before[e]; after[e] == nil {
			l := []string{p.model, p.pool, label(e, unknownName)}
			after[e] = &Endpoint{
				attempts:  newTally(v.attempts, Beaten, l...),
				ejections: v.ejections.WithLabelValues(l...), restarts: v.restarts.WithLabelValues(l...),
				scraped:     v.scrapes.WithLabelValues(append(slices.Clip(l), "read")...),
				scrapeBad:   v.scrapes.WithLabelValues(append(slices.Clip(l), "failed")...),
				scrapeOddly: v.scrapes.WithLabelValues(append(slices.Clip(l), "incomplete")...),
			}
		}
	}
	p.endpoints.Store(&after)
	for e := range before {
		if after[e] == nil {
			v.delete(prometheus.Labels{"model": p.model, "pool": p.pool, "endpoint": label(e, unknownName)})
		}
	}
}

// Endpoint returns the handle that counts for an endpoint of the pool, or nil, whose
// methods count nothing, where it is not configured.
func (p *Pool) Endpoint(name string) *Endpoint { return (*p.endpoints.Load())[name] }

// Ejected counts that the endpoint has left rotation.
func (e *Endpoint) Ejected() {
	if e != nil {
		e.ejections.Inc()
	}
}

// Restarted counts that the endpoint was found to have restarted.
func (e *Endpoint) Restarted() {
	if e != nil {
		e.restarts.Inc()
	}
}

// Scraped counts a scrape: one that failed, or one that was read, with or without faults.
func (e *Endpoint) Scraped(ok, clean bool) {
	switch {
	case e == nil:
	case !ok:
		e.scrapeBad.Inc()
	case !clean:
		e.scrapeOddly.Inc()
	default:
		e.scraped.Inc()
	}
}

// TTFT observes the time from a call's arrival to its first content token. Call it when
// the token comes.
func (p *Pool) TTFT(d time.Duration) { p.ttft.Observe(d.Seconds()) }

// Prediction observes what an attempt's time to first token was predicted to be, beside what
// it was; both from its dispatch and above 0.
func (p *Pool) Prediction(predicted, actual time.Duration) {
	p.prediction.Observe(predicted.Seconds() / actual.Seconds())
}

// ITL observes the gap between two consecutive streamed content events.
func (p *Pool) ITL(d time.Duration) { p.itl.Observe(d.Seconds()) }

// PickTime observes how long one pick and charge took, the wait for the machine's lock
// included.
func (p *Pool) PickTime(d time.Duration) { p.pick.Observe(d.Seconds()) }

// QueueTime observes how long a call was held before an endpoint had room for it.
func (p *Pool) QueueTime(d time.Duration) { p.queueWait.Observe(d.Seconds()) }

// Attempt counts an upstream attempt that has ended. number is the attempt's place in
// its call; 0 is the first, every other one is a retry. kind is the failure's own name,
// one of those that New was told; empty for a success.
func (p *Pool) Attempt(endpoint string, number int, o Outcome, kind string) {
	t := p.elsewhere
	if e := p.Endpoint(endpoint); e != nil {
		t = e.attempts
	}
	t.inc(o)
	if number > 0 {
		p.retries.Inc()
	}
	if c := p.failures[kind]; c != nil {
		c.Inc()
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
