package policy

import (
	"math"
	"slices"

	"kvasir/internal/mono"
	"kvasir/internal/portable"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// The reasons of least-kv: what is known of the endpoint chosen.
const (
	ReasonReported  selection.Reason = "reported"   // its own report
	ReasonMedian    selection.Reason = "median"     // no fresh report; the pool's median stands in
	ReasonOwnCounts selection.Reason = "own-counts" // no fresh report in the whole pool
)

// defaultBlockTokens is the size of a KV block where an engine doesn't tell: vLLM's.
const defaultBlockTokens = 16

// LeastKV picks the endpoint with the fewest KV blocks in use or soon needed (article
// sections 4.1 and 4.2). A gauge of occupied blocks alone can't see a call that waits,
// because it occupies none until it is admitted; a rule that trusts it piles calls on
// whichever endpoint has just drained. So all accepted and unfinished work counts:
//
//	blocks = used + waiting · mean + unseen / block_tokens
//
//	used          KV blocks in use: KV usage (0 to 1) · KV blocks in total, rounded
//	waiting       calls that the engine has accepted and not scheduled
//	mean          blocks of a call: used / running over the pool's reports; this
//	              call's input where nothing runs
//	unseen        input tokens of the calls sent there since that report was true
//	block_tokens  tokens a KV block (16 where the engine doesn't tell)
//
// An endpoint whose usage, total or queue is unknown, stale, negative, NaN or infinite
// has no report. For used + waiting·mean it gets the pool's median, but at least the
// blocks of the calls that this router itself sent there and no longer counts as
// unseen; where no endpoint has a report, that is all there is. Totals and block sizes
// don't change while an engine lives, so for these any age counts.
//
// Score: blocks, as above.
type LeastKV struct{}

// Validate reports nothing: there are no parameters.
func (*LeastKV) Validate() []ParamError { return nil }

// New returns the policy.
func (*LeastKV) New() selection.Policy { return &leastKV{} }

type leastKV struct {
	reports []report // scratch, by candidate
	bits    []uint64 // scratch of median
}

// report is what is made of an endpoint's load.
type report struct {
	used     float64 // blocks
	waiting  float64 // calls
	perToken float64 // blocks a token
	known    bool    // used and waiting are
}

// total returns the blocks that are used or will be by the calls that wait, where a
// call needs mean blocks or, with a mean of 0, those of so many tokens.
func (r *report) total(mean float64, tokens int) float64 {
	if mean == 0 {
		mean = float64(tokens) * r.perToken
	}
	return r.used + float64(r.waiting*mean)
}

func (p *leastKV) Pick(v *selection.View, q *selection.Request, r *seed.Rand) selection.Choice {
	known, mean := p.read(v)
	median := 0.0
	if 0 < known && known < len(p.reports) {
		median = p.median(mean, q.InputTokens)
	}
	scores, book, reports := v.Scores, v.Book, p.reports
	for i, slot := range v.Candidates {
		b, l := &book[slot], &reports[i]
		blocks := l.total(mean, q.InputTokens)
		if !l.known {
			blocks = max(median, float64(b.OutstandingTokens-b.UnseenTokens)*l.perToken)
		}
		scores[i] = blocks + float64(float64(b.UnseenTokens)*l.perToken)
	}
	best := argmin(scores, r)
	switch {
	case reports[best].known:
		return selection.Choice{Index: best, Reason: ReasonReported}
	case known > 0:
		return selection.Choice{Index: best, Reason: ReasonMedian}
	}
	return selection.Choice{Index: best, Reason: ReasonOwnCounts}
}

// read fills p.reports. It returns how many are known and the mean blocks of a running
// call, 0 where none is known to run.
func (p *leastKV) read(v *selection.View) (known int, mean float64) {
	p.reports = slices.Grow(p.reports[:0], len(v.Candidates))[:len(v.Candidates)]
	clear(p.reports)
	endpoints, reports, oldest := v.Endpoints, p.reports, v.Oldest()
	used, running := 0.0, 0.0
	size, perToken := signal.Gauge{}, 1.0/defaultBlockTokens
	for i, slot := range v.Candidates {
		l, r := &endpoints[slot].Load, &reports[i]
		if b := &l.BlockTokens; b.Value != size.Value || b.Known != size.Known { // seldom: pools tend to be of one engine
			size, perToken = *b, 1/blockTokens(b)
		}
		r.perToken = perToken
		usage, waiting, total := &l.KVUsage, &l.Waiting, &l.KVBlocks
		blocks := portable.Round(usage.Value * total.Value)
		// One bound for all four, since bits of what isn't usable are higher.
		worst := max(math.Float64bits(usage.Value), math.Float64bits(waiting.Value),
			math.Float64bits(total.Value), math.Float64bits(blocks))
		if !usage.Known || !waiting.Known || !total.Known || worst > most ||
			min(usage.At, waiting.At) < oldest || total.Value == 0 {
			continue
		}
		r.used, r.waiting, r.known = blocks, waiting.Value, true
		known++
		if fresh(&l.Running, oldest) {
			used, running = used+blocks, running+l.Running.Value
		}
	}
	if running >= 1 { // less than one call is none, whatever a broken engine reports
		mean = used / running
	}
	return known, mean
}

// fresh reports whether a gauge is known, not stale, and can be what an engine counts.
func fresh(g *signal.Gauge, oldest mono.Time) bool {
	return g.Known && g.At >= oldest && usable(g.Value)
}

// usable reports whether x can be what an engine counts: neither negative nor NaN nor
// beyond a bound within which counts add up without rounding, in any order. The bits of
// floats that aren't negative are in the floats' order, all others are higher.
func usable(x float64) bool { return math.Float64bits(x) <= most }

const most = (1023 + 40) << 52 // the bits of 2^40

// blockTokens returns the tokens of a KV block where the engine reported g.
func blockTokens(g *signal.Gauge) float64 {
	if g.Known && usable(g.Value) && g.Value >= 1 {
		return g.Value
	}
	return defaultBlockTokens
}

// median returns the lower median of the totals of the known reports. It takes their
// bits because partitioning integers compiles to code without a branch to mispredict.
func (p *leastKV) median(mean float64, tokens int) float64 {
	p.bits = p.bits[:0]
	for i := range p.reports {
		if r := &p.reports[i]; r.known {
			p.bits = append(p.bits, math.Float64bits(r.total(mean, tokens)))
		}
	}
	return math.Float64frombits(nth(p.bits, (len(p.bits)-1)/2))
}

// nth returns the element that would be at index n if s were sorted, none of which may
// be the largest uint64 (no float that is a number has these bits); it reorders s.
func nth(s []uint64, n int) uint64 {
	for len(s) > 1 {
		last := len(s) - 1
		pivot := mid(s[0], s[last/2], s[last])
		low := partition(s, pivot)
		if n < low {
			s = s[:low]
			continue
		}
		s, n = s[low:], n-low
		equal := partition(s, pivot+1)
		if n < equal {
			return pivot
		}
		s, n = s[equal:], n-equal
	}
	return s[0]
}

// mid returns the middle of three.
func mid(a, b, c uint64) uint64 { return max(min(a, b), min(max(a, b), c)) }

// partition moves the elements below pivot to the front and returns how many they are.
func partition(s []uint64, pivot uint64) int {
	low := 0
	for i, x := range s {
		s[i], s[low] = s[low], x
		below := 0
		if x < pivot {
			below = 1
		}
		low += below
	}
	return low
}
