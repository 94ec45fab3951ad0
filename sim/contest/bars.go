package contest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"kvasir/sim"
)

// Bar is something that the default policy is held to, and whether it holds.
type Bar struct {
	Text   string `json:"bar"`
	Holds  bool   `json:"holds"`
	Detail string `json:"detail"` // the figure that decides, and where
}

// The bars.
const (
	leastOfPeer     = 0.98 // of the best peer's goodput, in every cell
	meanOfPeer      = 1.05 // likewise, in the mean over cells
	fanOutOfPeer    = 1.15 // likewise, in every cell of fan-out
	ofOutstanding   = 1.5  // of least-outstanding's, in every cell where reuse pays
	reusePays       = 0.3  // the share of prompt tokens from which on it does
	mostLatency     = 1.1  // of the best peer's TTFT P99 and TPOT P95 at the matched rate
	outstandingRule = "least-outstanding"
)

// figure is a cell's number that a bar looks at.
type figure struct {
	cell  string
	value float64
	text  string
}

// Bars returns what holds of what the default policy is held to; nil where it did not take
// part. A bar that no cell has a figure for is left out.
func Bars(results []*Result) []Bar {
	var ratios, fanOut, outstanding, ttft, tpot []figure
	var orders, flips int
	var flipped []string
	for _, r := range results {
		own := r.ours()
		if own == nil || r.BestPeer == "" {
			continue
		}
		best := r.of(r.BestPeer)
		x := figure{r.Cell, float64(own.Ratio.Mean), with("%.3f", own.Ratio) + " of " + r.BestPeer}
		ratios = append(ratios, x)
		if r.FanOut {
			fanOut = append(fanOut, x)
		}
		if base := r.of(outstandingRule); base != nil && r.Reuse > reusePays {
			times := float64(base.Own.Mean)
			if math.IsNaN(times) && own.Goodput.Mean > 0 { // for some seeds it keeps the SLO at no rate
				times = float64(own.Goodput.Mean / base.Goodput.Mean)
			}
			outstanding = append(outstanding, figure{r.Cell, times, fmt.Sprintf("%.2f times, reuse %.0f %%", times, 100*r.Reuse)})
		}
		if own.Matched != nil && best.Matched != nil {
			ttft = append(ttft, latencyFigure(r.Cell, "TTFT P99", own.Matched.TTFTP99, best.Matched.TTFTP99, 1, "s"))
			tpot = append(tpot, latencyFigure(r.Cell, "TPOT P95", own.Matched.TPOTP95, best.Matched.TPOTP95, 1000, "ms"))
		}
		for _, o := range r.Orders {
			orders++
			for _, pair := range o.Flips {
				flips++
				flipped = append(flipped, fmt.Sprintf("%s, %s: %s", r.Cell, o.Costs, pair))
			}
		}
	}
	if len(ratios) == 0 {
		return nil
	}
	mean := 0.0
	for _, f := range ratios {
		mean += f.value / float64(len(ratios))
	}
	bars := []Bar{
		least(fmt.Sprintf("goodput ≥ %g × the best peer's in every cell", leastOfPeer), ratios, leastOfPeer),
		{fmt.Sprintf("goodput ≥ %g × the best peer's in the mean over cells", meanOfPeer), mean >= meanOfPeer, fmt.Sprintf("%.3f over %d cells", mean, len(ratios))},
	}
	if len(fanOut) > 0 {
		bars = append(bars, least(fmt.Sprintf("goodput ≥ %g × the best peer's in every cell of fan-out", fanOutOfPeer), fanOut, fanOutOfPeer))
	}
	if len(outstanding) > 0 {
		bars = append(bars, least(fmt.Sprintf("goodput ≥ %g × least-outstanding's wherever reuse is above %.0f %%", ofOutstanding, 100*reusePays), outstanding, ofOutstanding))
	}
	if len(ttft) > 0 {
		text := fmt.Sprintf(" at %.0f %% of the best peer's goodput ≤ %g × that peer's", 100*Matched, mostLatency)
		bars = append(bars, most("TTFT P99"+text, ttft, mostLatency), most("TPOT P95"+text, tpot, mostLatency))
	}
	if orders > 0 {
		detail := fmt.Sprintf("no pair of the best four changes places in %d orders", orders)
		if flips > 0 {
			detail = fmt.Sprintf("%d pairs change places in %d orders: %s", flips, orders, strings.Join(flipped, "; "))
		}
		bars = append(bars, Bar{fmt.Sprintf("order of the best four stable under ±10 %% of the costs (pairs more than %.0f %% apart)", 100*alike), flips == 0, detail})
	}
	return bars
}

// ours returns the default policy's entry; nil where there is none.
func (r *Result) ours() *Entry {
	if i := slices.IndexFunc(r.Entries, func(e Entry) bool { return e.Ours }); i >= 0 {
		return &r.Entries[i]
	}
	return nil
}

// of returns a policy's entry; nil where there is none.
func (r *Result) of(policy string) *Entry {
	if i := slices.IndexFunc(r.Entries, func(e Entry) bool { return e.Policy == policy }); i >= 0 {
		return &r.Entries[i]
	}
	return nil
}

func latencyFigure(cell, what string, own, peer sim.Number, scale float64, unit string) figure {
	return figure{cell, float64(own / peer), fmt.Sprintf("%s %.3g %s, the peer's %.3g %s", what, float64(own)*scale, unit, float64(peer)*scale, unit)}
}

// least is a bar that the lowest figure decides.
func least(text string, figures []figure, bound float64) Bar {
	low := slices.MinFunc(figures, byValue)
	return decided(text, figures, low, func(x float64) bool { return x >= bound })
}

// most is a bar that the highest figure decides.
func most(text string, figures []figure, bound float64) Bar {
	high := slices.MaxFunc(figures, byValue)
	return decided(text, figures, high, func(x float64) bool { return x <= bound })
}

func byValue(a, b figure) int { return cmp.Compare(a.value, b.value) }

// decided says in how many cells a bar holds and what its worst figure is. What is not a
// number does not hold.
func decided(text string, figures []figure, worst figure, holds func(float64) bool) Bar {
	n := 0
	for _, f := range figures {
		if holds(f.value) {
			n++
		} else if math.IsNaN(f.value) {
			worst = f
		}
	}
	return Bar{text, n == len(figures), fmt.Sprintf("in %d of %d cells; worst: %s, %s", n, len(figures), worst.cell, worst.text)}
}
