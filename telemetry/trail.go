package telemetry

import (
	"math"
	"slices"
	"time"

	"kvasir/internal/stats"
)

// trailMost bounds the calls that a Trail keeps beside the newest batch, at 40 bytes each.
// Where more end within its span it reaches less far back.
const trailMost = 1 << 16

// Trail keeps the calls of one model that have ended within a span, as they were drained:
// batch by batch. It is not safe for concurrent use. The zero Trail is none: use NewTrail.
type Trail struct {
	span    time.Duration
	since   time.Time // since when it is kept
	batches []batch   // oldest first
	calls   int       // in all batches
	ids     map[[2]string]int32
	names   [][2]string // by id
}

// batch is what ended from the batch before until an instant.
type batch struct {
	until time.Time
	calls []step
}

// step is a call of a Trail. Times are microseconds, 0: not known.
type step struct {
	endpoint                           int32 // -1: none
	ttft, tpot                         uint32
	predicted, actual                  uint32
	prompt, cached, output             uint32
	outcome                            Outcome
	retries                            uint8
	reported, judged, within, compared bool
}

// NewTrail returns a trail that begins now and keeps calls for as long as span.
func NewTrail(now time.Time, span time.Duration) *Trail {
	return &Trail{span: span, since: now, ids: map[[2]string]int32{}}
}

// Add takes the calls that have ended since the last Add, and forgets those that ended before
// the span.
func (t *Trail) Add(now time.Time, calls []Ended) {
	b := batch{until: now}
	if len(calls) > 0 {
		b.calls = make([]step, len(calls))
		for i := range calls {
			b.calls[i] = t.step(&calls[i])
		}
	}
	t.batches = append(t.batches, b)
	t.calls += len(b.calls)
	gone := 0
	for gone < len(t.batches)-1 && (t.calls > trailMost || now.Sub(t.batches[gone].until) >= t.span) {
		t.calls -= len(t.batches[gone].calls)
		t.since = t.batches[gone].until
		t.batches[gone] = batch{}
		gone++
	}
	t.batches = t.batches[gone:]
	if len(t.names) > trailMost { // endpoints come and go
		t.forget()
	}
}

func (t *Trail) step(e *Ended) step {
	return step{
		endpoint: t.id(e.Pool, e.Endpoint), ttft: micros(e.TTFT), tpot: micros(e.TPOT),
		predicted: micros(e.Predicted), actual: micros(e.Actual),
		prompt: capped(e.Prompt), cached: capped(e.Cached), output: capped(e.Output),
		outcome: e.Outcome, retries: uint8(min(e.Retries, math.MaxUint8)), reported: e.Reported, judged: e.Judged, within: e.Within,
		compared: e.Predicted > 0 && e.Actual > 0,
	}
}

// micros rounds up, so that what is known stays above 0.
func micros(d time.Duration) uint32 {
	return uint32(min(max((d+time.Microsecond-1)/time.Microsecond, 0), math.MaxUint32))
}

func capped(n int) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

func (t *Trail) id(pool, endpoint string) int32 {
	if endpoint == "" {
		return -1
	}
	key := [2]string{pool, endpoint}
	id, ok := t.ids[key]
	if !ok {
		id = int32(len(t.names))
		t.ids[key] = id
		t.names = append(t.names, key)
	}
	return id
}

// forget drops the names that no call has any more.
func (t *Trail) forget() {
	names := t.names
	t.ids, t.names = map[[2]string]int32{}, nil
	for _, b := range t.batches {
		for i := range b.calls {
			if id := b.calls[i].endpoint; id >= 0 {
				b.calls[i].endpoint = t.id(names[id][0], names[id][1])
			}
		}
	}
}

// Sum is what became of the calls of a Trail, or of an endpoint's among them.
type Sum struct {
	Covers      time.Duration // how far back it reaches
	Calls       int
	Outcomes    [outcomes]int
	Retries     int
	Reported    int // answers that reported their usage
	Output      int // their tokens
	Judged      int // calls that could meet the SLO
	Within      int // and did
	Prompt      int // tokens of prompts of which it is known how many were cached
	Cached      int
	TTFT, TPOT  Quantiles
	Predictions int // of which the errors are
	Errors      Quantiles
	Pairs       []Pair // the newest predictions, oldest first
}

// Of returns how many calls had the outcome.
func (s *Sum) Of(o Outcome) int { return s.Outcomes[o.valid()] }

// Quantiles are quantiles of N numbers by nearest rank, to within 0.8 %: seconds, or shares.
type Quantiles struct {
	N             int
	P50, P95, P99 float64
}

// Pair is a prediction of the time to first token, and what it was, both from the dispatch.
type Pair struct{ Predicted, Actual time.Duration }

// counter counts what a Sum is made of.
type counter struct {
	Sum
	ttft, tpot, errors stats.Histogram
}

// perError is how finely relative errors are counted.
const perError = 1e6

func (c *counter) add(s *step) {
	c.Calls++
	c.Outcomes[s.outcome.valid()]++
	c.Retries += int(s.retries)
	c.Output += int(s.output)
	c.Prompt += int(s.prompt)
	c.Cached += int(s.cached)
	if s.reported {
		c.Reported++
	}
	if s.judged {
		c.Judged++
	}
	if s.within {
		c.Within++
	}
	if s.ttft > 0 {
		c.ttft.Add(int64(s.ttft))
	}
	if s.tpot > 0 {
		c.tpot.Add(int64(s.tpot))
	}
	if s.compared {
		off := math.Abs(float64(s.predicted)-float64(s.actual)) / float64(s.actual)
		c.errors.Add(int64(math.Round(off * perError)))
	}
}

func (c *counter) sum(covers time.Duration) Sum {
	c.Covers = covers
	c.TTFT = quantiles(&c.ttft, 1e6)
	c.TPOT = quantiles(&c.tpot, 1e6)
	c.Errors = quantiles(&c.errors, perError)
	c.Predictions = c.Errors.N
	return c.Sum
}

func quantiles(h *stats.Histogram, perUnit float64) Quantiles {
	at := func(q float64) float64 { return float64(h.Quantile(q)) / perUnit }
	return Quantiles{N: int(h.Count()), P50: at(0.5), P95: at(0.95), P99: at(0.99)}
}

// Recent sums up the calls that ended within d before the last Add.
func (t *Trail) Recent(d time.Duration) Sum {
	var c counter
	var covers time.Duration
	t.back(d, func(b *batch, from time.Time) {
		covers = t.batches[len(t.batches)-1].until.Sub(from)
		for i := range b.calls {
			c.add(&b.calls[i])
		}
	})
	return c.sum(covers)
}

// back calls f with the batches of the last d, newest first, and with the instant from which
// each begins.
func (t *Trail) back(d time.Duration, f func(b *batch, from time.Time)) {
	for i := len(t.batches) - 1; i >= 0; i-- {
		b := &t.batches[i]
		if t.batches[len(t.batches)-1].until.Sub(b.until) >= d {
			return
		}
		from := t.since
		if i > 0 {
			from = t.batches[i-1].until
		}
		f(b, from)
	}
}

// Sums sums up all calls of the trail, with at most so many of the newest predictions, and
// those of each endpoint, by pool and name.
func (t *Trail) Sums(pairs int) (all Sum, endpoints map[[2]string]Sum) {
	var c counter
	by := make([]*counter, len(t.names))
	for _, b := range t.batches {
		for i := range b.calls {
			s := &b.calls[i]
			c.add(s)
			if s.endpoint >= 0 {
				if by[s.endpoint] == nil {
					by[s.endpoint] = &counter{}
				}
				by[s.endpoint].add(s)
			}
		}
	}
	covers := time.Duration(0)
	if n := len(t.batches); n > 0 {
		covers = t.batches[n-1].until.Sub(t.since)
	}
	all = c.sum(covers)
	all.Pairs = t.pairs(pairs)
	endpoints = make(map[[2]string]Sum, len(by))
	for id, e := range by {
		if e != nil {
			endpoints[t.names[id]] = e.sum(covers)
		}
	}
	return all, endpoints
}

func (t *Trail) pairs(most int) []Pair {
	var out []Pair
	for i := len(t.batches) - 1; i >= 0 && len(out) < most; i-- {
		calls := t.batches[i].calls
		for j := len(calls) - 1; j >= 0 && len(out) < most; j-- {
			if s := &calls[j]; s.compared {
				out = append(out, Pair{time.Duration(s.predicted) * time.Microsecond, time.Duration(s.actual) * time.Microsecond})
			}
		}
	}
	slices.Reverse(out)
	return out
}
