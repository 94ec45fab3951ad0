package policy

import (
	"math"
	"time"

	"kvasir/internal/seed"
	"kvasir/selection"
)

// The reasons of lmetric.
const (
	ReasonLeastProduct selection.Reason = "least-product" // no other candidate has a lower product of prefill and calls
	ReasonHotspot      selection.Reason = "hotspot"       // no other one has of those that don't hold a prefix that too many calls share
)

// LMetric picks the lowest product of the prefill work that an endpoint would have with
// this call and the calls that it would have (Zhang et al., LMetric: Simple is Better,
// arXiv 2603.15202):
//
//	score = prefill · batch
//
//	prefill  tokens to compute before all first tokens there: those of the pending
//	         calls and of this one that aren't in the prefix cache
//	batch    outstanding calls, this one included
//
// A product needs no weights: a factor that is common to all endpoints changes no order.
// What it needs is that neither factor is 0, or an endpoint without calls would win
// whatever its cache holds, and of several such none would be told apart by what it
// holds. Both factors are therefore those of the endpoint with this call, as the paper
// says of the first one ("if routed to"): batch is at least 1, and so is prefill because
// one token of a prompt is always computed. Dynamo's variant of the rule, adjusted prefill
// blocks · (decode blocks + 1), and llm-d's lmetric-scorer, this call's uncached tokens ·
// (calls in flight + 1), add 1 in the same way.
//
// The product fails where many calls share a prefix that few endpoints hold: it goes on
// drawing them there. As in the paper's section 5.2 such hot spots are looked for over
// hotspot_window, see hotspots, and their holders left out. The paper counts in one-minute
// windows and found none in its traces; what it is worth here is in decision 0018.
//
// Score: prefill · batch, in tokens times calls; NaN for those that are left out.
type LMetric struct {
	HotspotWindow time.Duration `config:"hotspot_window" doc:"over how long calls are counted that share a prefix; at least 0, 0 for no detector"`
}

// Validate reports a window below 0.
func (c *LMetric) Validate() []ParamError {
	if c.HotspotWindow < 0 {
		return []ParamError{{"hotspot_window", c.HotspotWindow, "a duration of at least 0"}}
	}
	return nil
}

// New returns the policy.
func (c *LMetric) New() selection.Policy {
	return &lMetric{hotspots: hotspots{window: c.HotspotWindow}}
}

type lMetric struct{ hotspots hotspots }

// UsesOverlap marks the policy as one that reads View.Overlap.
func (*lMetric) UsesOverlap() {}

func (p *lMetric) Pick(v *selection.View, q *selection.Request, r *seed.Rand) selection.Choice {
	scores, book, overlap := v.Scores, v.Book, v.Overlap
	longest, holders := int32(0), 0
	least, elsewhere := math.Inf(1), math.Inf(1) // among the holders and the others
	for i, slot := range v.Candidates {
		b, n := &book[slot], selection.OverlapAt(overlap, slot)
		prefill := b.PendingWork.Tokens + q.Work(n).Tokens
		score := float64(prefill) * float64(b.Outstanding+1)
		scores[i] = score
		switch {
		case n > longest:
			elsewhere = min(elsewhere, least)
			longest, holders, least = n, 1, score
		case n == longest:
			holders++
			least = min(least, score)
		default:
			elsewhere = min(elsewhere, score)
		}
	}
	if p.hotspots.window == 0 || !p.hotspots.hot(v, q, longest, holders, least <= elsewhere) {
		return selection.Choice{Index: argmin(scores, r), Reason: ReasonLeastProduct}
	}
	for i, slot := range v.Candidates {
		if selection.OverlapAt(overlap, slot) == longest {
			scores[i] = math.NaN()
		}
	}
	return selection.Choice{Index: argmin(scores, r), Reason: ReasonHotspot}
}

// Forget begins to count anew: who holds what is no longer what calls were drawn by.
func (p *lMetric) Forget(selection.Slot) { p.hotspots = hotspots{window: p.hotspots.window} }

var (
	_ selection.OverlapUser = (*lMetric)(nil)
	_ selection.Forgetter   = (*lMetric)(nil)
)
