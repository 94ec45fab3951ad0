package contest

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"kvasir/internal/stats"
	"kvasir/sim"
)

// Matched is the share of the best peer's goodput at which all entrants are compared by
// their latencies.
const Matched = 0.8

// Trial is what was measured of an entrant in a cell.
type Trial struct {
	Entrant Entrant
	Goodput *Goodput
	Matched []sim.Summary // by seed, at Matched times the best peer's goodput
}

// BestPeer returns which of the trials is that of the peer with the highest mean goodput; -1
// where there is no peer that has one.
func BestPeer(trials []Trial) int {
	best := -1
	for i, t := range trials {
		if m := t.Goodput.mean(); !t.Entrant.Ours && m > 0 && (best < 0 || m > trials[best].Goodput.mean()) {
			best = i
		}
	}
	return best
}

// MatchedRates returns the rates for Trial.Matched, by seed.
func MatchedRates(best *Goodput) []float64 {
	rates := slices.Clone(best.Rates)
	for i := range rates {
		rates[i] *= Matched
	}
	return rates
}

// Result is what a cell gave.
type Result struct {
	Cell     string     `json:"cell"`
	Workload string     `json:"workload"`
	Pool     string     `json:"pool"`
	FanOut   bool       `json:"fan_out"`
	Seeds    int        `json:"seeds"`
	Calls    int        `json:"calls"` // of a run, the first seed's
	Reuse    sim.Number `json:"reuse"` // of prompt tokens, see Draw.Reuse; likewise
	Trace    sim.Number `json:"trace_calls_per_s"`
	Bound    Estimate   `json:"bound_calls_per_s"`
	BestPeer string     `json:"best_peer"`
	Entries  []Entry    `json:"entries"`
	Tuned    []Entry    `json:"tuned_peers,omitempty"`
	Orders   []Order    `json:"orders,omitempty"`
	TookS    float64    `json:"took_s"`
	Runs     int        `json:"runs"`
}

// Entry is what a cell says of an entrant.
type Entry struct {
	Policy   string     `json:"policy"`
	Ours     bool       `json:"ours,omitempty"`
	Goodput  Estimate   `json:"goodput_calls_per_s"`
	Multiple sim.Number `json:"times_the_trace"`
	Ratio    Estimate   `json:"to_best_peer"` // seed by seed
	Own      Estimate   `json:"ours_to_it"`   // ours by it, seed by seed
	Share    sim.Number `json:"of_bound"`     // of the mean
	Matched  *Latencies `json:"at_the_matched_rate,omitempty"`
}

// Latencies are what an entrant does at the matched rate: means over seeds, times in seconds.
type Latencies struct {
	TTFTP50       sim.Number `json:"ttft_p50_s"`
	TTFTP95       sim.Number `json:"ttft_p95_s"`
	TTFTP99       sim.Number `json:"ttft_p99_s"`
	TPOTP95       sim.Number `json:"tpot_p95_s"`
	Attainment    sim.Number `json:"slo_attainment"`
	Cached        sim.Number `json:"cached_token_ratio"`
	AssignmentGap sim.Number `json:"assignment_gap"`
	CallImbalance sim.Number `json:"call_imbalance"`
}

func latencies(runs []sim.Summary) *Latencies {
	if len(runs) == 0 {
		return nil
	}
	m, _ := sim.Mean(runs)
	return &Latencies{
		TTFTP50: m.TTFT.P50, TTFTP95: m.TTFT.P95, TTFTP99: m.TTFT.P99, TPOTP95: m.TPOT.P95,
		Attainment: m.Attainment, Cached: m.CachedRatio, AssignmentGap: m.AssignmentGap, CallImbalance: m.CallImbalance,
	}
}

// Result returns what the trials say; bound is nil where there is none.
func (c *Cell) Result(trials []Trial, bound *Goodput, seeds []uint64) (*Result, error) {
	d, err := c.Draw(seeds[0])
	if err != nil {
		return nil, err
	}
	r := &Result{
		Cell: c.Name, Workload: d.Source.Name, Pool: c.Pool, FanOut: c.FanOut, Seeds: len(seeds),
		Calls: d.Calls, Reuse: sim.Number(d.Reuse()), Trace: sim.Number(nan), Bound: estimate(nil),
	}
	if d.Trace > 0 {
		r.Trace = sim.Number(d.Trace)
	}
	if bound != nil {
		r.Bound, r.Runs = estimate(bound.Calls), bound.Runs
	}
	for _, t := range trials {
		r.Entries = append(r.Entries, r.entry(t, trials))
		r.Runs += t.Goodput.Runs + len(t.Matched)
	}
	if best := BestPeer(trials); best >= 0 {
		r.BestPeer = trials[best].Entrant.Name
	}
	slices.SortStableFunc(r.Entries, func(a, b Entry) int { return cmp.Compare(b.Goodput.Mean, a.Goodput.Mean) })
	return r, nil
}

// entry returns what one of the trials says beside the others.
func (r *Result) entry(t Trial, trials []Trial) Entry {
	e := Entry{
		Policy: t.Entrant.Name, Ours: t.Entrant.Ours, Goodput: estimate(t.Goodput.Calls),
		Ratio: estimate(nil), Own: estimate(nil), Matched: latencies(t.Matched),
	}
	e.Multiple = e.Goodput.Mean / r.Trace
	e.Share = e.Goodput.Mean / r.Bound.Mean
	if best := BestPeer(trials); best >= 0 {
		e.Ratio = ratio(t.Goodput, trials[best].Goodput)
	}
	if i := slices.IndexFunc(trials, func(t Trial) bool { return t.Entrant.Ours }); i >= 0 {
		e.Own = ratio(trials[i].Goodput, t.Goodput)
	}
	return e
}

// Tune adds peers with tuned parameters, which the trials beside them had no part in.
func (r *Result) Tune(tuned, trials []Trial) {
	for _, t := range tuned {
		r.Tuned = append(r.Tuned, r.entry(t, trials))
		r.Runs += t.Goodput.Runs
	}
	slices.SortStableFunc(r.Tuned, func(a, b Entry) int { return cmp.Compare(b.Goodput.Mean, a.Goodput.Mean) })
}

// Order is the order of some entrants where costs differ a little from the profile's.
type Order struct {
	Costs    string   `json:"costs"`
	Policies []string `json:"policies"`        // the best first
	Flips    []string `json:"flips,omitempty"` // pairs that stand in another order than with the profile's costs
}

// alike is by how much two goodputs differ at most that are taken to be the same.
const alike = 0.02

// Order adds the order that goodputs have under a variation. Both lists have the same
// entrants and the same seeds. A pair has flipped when one is clearly above the other here,
// and clearly below it there.
func (r *Result) Order(costs string, profile, varied []*Goodput) {
	o := Order{Costs: costs}
	for i := range varied {
		r.Runs += varied[i].Runs
		for j := range i {
			before, after := above(profile[i], profile[j]), above(varied[i], varied[j])
			if before*after < 0 {
				o.Flips = append(o.Flips, fmt.Sprintf("%s, %s", profile[i].Entrant, profile[j].Entrant))
			}
		}
	}
	byGoodput := slices.Clone(varied)
	slices.SortStableFunc(byGoodput, func(a, b *Goodput) int { return cmp.Compare(b.mean(), a.mean()) })
	for _, g := range byGoodput {
		o.Policies = append(o.Policies, g.Entrant)
	}
	r.Orders = append(r.Orders, o)
}

// above returns 1 where a is clearly above b, -1 where it is clearly below, else 0.
func above(a, b *Goodput) int {
	switch x := float64(ratio(a, b).Mean); {
	case x > 1+alike:
		return 1
	case x < 1/(1+alike):
		return -1
	}
	return 0
}

// First returns the goodput by the first so many seeds.
func (g *Goodput) First(n int) *Goodput {
	return &Goodput{Entrant: g.Entrant, Rates: g.Rates[:n], Calls: g.Calls[:n]}
}

// MeanRate returns the mean of the rates, for Search.Near.
func (g *Goodput) MeanRate() float64 {
	m, _ := stats.Interval(g.Rates)
	if math.IsNaN(m) {
		return 0
	}
	return m
}
