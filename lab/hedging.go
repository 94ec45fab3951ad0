package lab

import (
	"fmt"
	"math"
	"slices"

	"kvasir/internal/portable"
	"kvasir/internal/seed"
	"kvasir/internal/stats"
)

// hedging is article 9.2: a second attempt for what is late.
type hedging struct {
	seeding

	calls     int
	median    float64
	spread    float64
	shared    float64
	threshold float64
	decode    float64

	poolCount int
	poolRate  float64
	slow      float64
}

func hedgingLab() Lab {
	return Lab{
		Name: "hedging", Title: "a duplicate for what is late", Section: "9.2",
		About: "Times to first token are lognormal. What has none after the threshold is sent to another replica as well; the first to answer is taken, the other cancelled. A part of the spread may be the call's own, a long prompt say, " +
			"so that both replicas share it. Load is replica time until the first token, and does not slow anybody down here. Then the answer is decoded, by one replica or, where nothing is cancelled, by both. The article's example has one call; distribution and sizes are ours. " +
			"The last table is of the gateway's own machine with simulated engines, one of which is slow, and round robin, which does not see that: there a duplicate is load for others, and what is late is found out from the pool's own times.",
		Look: []string{
			"In `by-threshold` hedging at P95 duplicates 5 % of the calls and takes P99 from 1,011 ms to 836; P50 and P95 stay where they were. Only the tail shows it.",
			"Turn `threshold` down to 50: half of the calls are duplicated and P99 is at 595 ms, for 9 % more replica time. Duplicating at once has twice the calls and 24 % more replica time for a P99 of 492.",
			"Turn `shared` up to 1: the second attempt is as slow as the first, and 5 % more replica time buy nothing. Hedging helps against slow replicas, not against long prompts.",
			"In `in-a-pool` the machine finds its P95 by itself, hedges 5 % of the calls, and takes P99 from 323 ms to 235. That costs 7 % more prefill, not 5: what is late has long prompts. P95 stays where it was. Turn `slow` up to 8: P99 is 8.5 s without a duplicate and half a second with it.",
			"In `to-the-end` a duplicate that is cancelled at the first token costs little; one that decodes to the end as well costs its whole `decode`.",
		},
		Seeded: true,
		settings: func() experiment {
			return &hedging{calls: 20_000, median: 200, spread: 0.7, threshold: 95, decode: 5000, poolCount: 4000, poolRate: 40, slow: 4}
		},
	}
}

func (x *hedging) params() []Param {
	return []Param{
		count(&x.calls, "calls", "calls of a run", 100, 200_000),
		number(&x.median, "median", "median time to first token of an attempt, ms", 0.1, 1e6),
		number(&x.spread, "spread", "standard deviation of its logarithm", 0, 3),
		number(&x.shared, "shared", "part of that variance that is the call's own, the same on every replica", 0, 1),
		number(&x.threshold, "threshold", "percentile of an attempt's time after which the duplicate is sent, a row of the table; 0: always", 0, 100),
		number(&x.decode, "decode", "time from the first token to the last, ms", 0, 1e7),
		count(&x.poolCount, "pool_calls", "calls of a run of `in-a-pool`", 500, 20_000),
		number(&x.poolRate, "pool_rate", "calls a second there", 1, 200),
		number(&x.slow, "slow", "times as long as the others' that the slow replica's steps take", 1, 20),
	}
}

// raced is what became of one call.
type raced struct {
	took       float64 // until the first token
	duplicated bool
	busy       float64 // replica time until the first token, of both attempts
}

// race sends a second attempt when the first, which would take a, has no answer at the threshold; the
// second takes b. The other one is cancelled when one answers.
func race(a, b, threshold float64) raced {
	if a <= threshold {
		return raced{took: a, busy: a}
	}
	took := min(a, threshold+b)
	return raced{took: took, duplicated: true, busy: took + (took - threshold)}
}

// hedged is what is measured of a run.
type hedged struct {
	duplicated, extra   float64 // per cent of the calls, and of the replica time without hedging
	p50, p95, p99, p999 float64 // ms
	wasted              float64 // per cent of the replica time with decode, where both attempts are decoded
	cancelled           float64 // the same where the other one is cancelled at the first token
}

// latencies draws both attempts of every call. The first of each pair is the same whatever is
// shared: it is made of the call's own part and a replica's.
func (x *hedging) latencies(root uint64) (first, second []float64) {
	r := seed.New(root, seed.Workload, 0, 0)
	own, theirs := math.Sqrt(x.shared), math.Sqrt(1-x.shared)
	for range x.calls {
		call := normal(&r)
		for _, at := range []*[]float64{&first, &second} {
			z := float64(own*call) + float64(theirs*normal(&r))
			*at = append(*at, x.median*portable.Exp(x.spread*z))
		}
	}
	return first, second
}

// normal draws from the standard normal distribution (Box and Muller 1958).
func normal(r *seed.Rand) float64 {
	u, turn := 1-r.Float64(), r.Float64()
	return math.Sqrt(-2*portable.Ln(u)) * portable.CosTurn(turn)
}

// after returns the threshold of a percentile of the attempts' times: 0 for none, +Inf for 100.
func after(sorted []float64, percentile float64) float64 {
	switch percentile {
	case 0:
		return 0
	case 100:
		return math.Inf(1)
	}
	return stats.Quantile(sorted, percentile/100)
}

// play hedges a seed's calls at a percentile.
func (x *hedging) play(first, second []float64, percentile float64) hedged {
	threshold := after(slices.Sorted(slices.Values(first)), percentile)
	var h hedged
	var took []float64
	var alone, busy, whole float64
	n := 0
	for i := range first {
		c := race(first[i], second[i], threshold)
		took = append(took, c.took)
		alone, busy = alone+first[i], busy+c.busy
		whole += first[i] + x.decode
		if c.duplicated {
			n++
			h.wasted += second[i] + x.decode
		}
	}
	slices.Sort(took)
	h.duplicated = 100 * float64(n) / float64(len(first))
	h.extra = 100 * (busy/alone - 1)
	h.wasted = 100 * h.wasted / whole
	h.cancelled = 100 * (busy - alone) / whole
	h.p50, h.p95, h.p99, h.p999 = stats.Quantile(took, 0.5), stats.Quantile(took, 0.95), stats.Quantile(took, 0.99), stats.Quantile(took, 0.999)
	return h
}

// hedges are the runs of one row, by seed.
type hedges struct{ duplicated, extra, p50, p95, p99, p999, wasted, cancelled []float64 }

// hedgeRow is a row of the table by threshold.
type hedgeRow struct {
	percentile float64
	hedges
}

// hedgePercentiles are the rows beside the setting's.
var hedgePercentiles = []float64{100, 99, 95, 90, 75, 50, 0}

func (x *hedging) rows(seeds int) []hedgeRow {
	all := slices.Clone(hedgePercentiles)
	if !slices.Contains(all, x.threshold) {
		all = append(all, x.threshold)
		slices.Sort(all)
		slices.Reverse(all)
	}
	rows := make([]hedgeRow, len(all))
	for s := range seeds {
		first, second := x.latencies(x.root(s))
		for i, percentile := range all {
			x.ask()
			h := x.play(first, second, percentile)
			r := &rows[i]
			r.percentile = percentile
			r.duplicated, r.extra = append(r.duplicated, h.duplicated), append(r.extra, h.extra)
			r.p50, r.p95, r.p99, r.p999 = append(r.p50, h.p50), append(r.p95, h.p95), append(r.p99, h.p99), append(r.p999, h.p999)
			r.wasted, r.cancelled = append(r.wasted, h.wasted), append(r.cancelled, h.cancelled)
		}
	}
	return rows
}

func (r hedgeRow) name() string {
	switch r.percentile {
	case 100:
		return "never"
	case 0:
		return "at once"
	}
	return "P" + show(r.percentile)
}

func (x *hedging) run(seeds int) Findings {
	rows := x.rows(seeds)
	t := Table{Name: "by-threshold", Title: "when the duplicate is sent", Columns: []Column{{Name: "duplicate"}, {Name: "duplicated", Unit: "% of calls"}, {Name: "replica time", Unit: "% more"},
		{Name: "TTFT P50", Unit: "ms"}, {Name: "P95", Unit: "ms"}, {Name: "P99", Unit: "ms"}, {Name: "P99.9", Unit: "ms"}}}
	end := Table{Name: "to-the-end", Title: fmt.Sprintf("replica time with %s ms of decode, in %% more than without hedging", decimal(x.decode, 0)),
		Columns: []Column{{Name: "duplicate"}, {Name: "the other is cancelled at the first token", Unit: "%"}, {Name: "both are decoded", Unit: "%"}}}
	for _, r := range rows {
		t.Rows = append(t.Rows, []Cell{Text(r.name()), Mean(r.duplicated, 1), Mean(r.extra, 1), Mean(r.p50, 0), Mean(r.p95, 0), Mean(r.p99, 0), Mean(r.p999, 0)})
		end.Rows = append(end.Rows, []Cell{Text(r.name()), Mean(r.cancelled, 2), Mean(r.wasted, 1)})
	}
	pool := x.pool(seeds)
	return Findings{
		Tables: []Table{t, exampleTable(), end, x.poolTable(pool)}, Plots: x.plots(rows),
		Verdicts: slices.Concat(hedgeVerdicts(rows), poolVerdicts(pool)),
	}
}

// The article's example, in ms: replica A takes 920, B 300, and the threshold is 400.
const (
	exampleA, exampleB, exampleThreshold = 920, 300, 400
)

func exampleTable() Table {
	t := Table{Name: "example", Title: fmt.Sprintf("the article's example: A takes %d ms, B %d ms", exampleA, exampleB),
		Columns: []Column{{Name: "duplicate"}, {Name: "article", Unit: "ms"}, {Name: "ours", Unit: "ms"}, {Name: "replica time", Unit: "ms"}}}
	for _, row := range []struct {
		name      string
		article   float64
		threshold float64
	}{{"never", 920, math.Inf(1)}, {fmt.Sprintf("after %d ms", exampleThreshold), 700, exampleThreshold}, {"at once", 300, 0}} {
		c := race(exampleA, exampleB, row.threshold)
		t.Rows = append(t.Rows, []Cell{Text(row.name), Number(row.article, 0), Number(c.took, 0), Number(c.busy, 0)})
	}
	return t
}

func hedgeVerdicts(rows []hedgeRow) []Verdict {
	row := func(percentile float64) hedges {
		return rows[slices.IndexFunc(rows, func(r hedgeRow) bool { return r.percentile == percentile })].hedges
	}
	never, p95, always := row(100), row(95), row(0)
	took := func(threshold float64) figure { return figure{0, race(exampleA, exampleB, threshold).took, 0, " ms"} }
	alone, hedge, both := took(math.Inf(1)), took(exampleThreshold), took(0)
	alone.article, hedge.article, both.article = 920, 700, 300
	return []Verdict{
		equals("9.2", "the example's call takes 920 ms alone, 700 hedged at 400, 300 always duplicated", alone, hedge, both),
		within("9.2", "hedging at P95 duplicates 5 % of the calls by construction", 5, p95.duplicated, 0.1, 1, " %"),
		holds("9.2", "the additional load is limited to about 5 %", average(p95.extra) <= 5.5, fmt.Sprintf("%s %% more replica time, as what is late is the long part of it and is cancelled when the duplicate answers", Mean(p95.extra, 1))),
		above("9.2", "hedging at P95 substantially shortens the tail: P99", never.p99, p95.p99, 0, " ms"),
		above("9.2", "hedging at P95 substantially shortens the tail: P99.9", never.p999, p95.p999, 0, " ms"),
		within("9.2", "always duplicating doubles the calls", 100, always.duplicated, 0, 0, " %"),
		above("15", "the effect of hedging appears in the tail alone: P99 falls by more than P50", differences(never.p99, p95.p99), differences(never.p50, p95.p50), 0, " ms"),
		near("15", "P50 and P95 are not enough to see it: they stay", append(slices.Clone(never.p50), never.p95...), append(slices.Clone(p95.p50), p95.p95...), 1, 1, " ms"),
		above("9.2", "hedging until the first token is far cheaper than running both through decode", p95.wasted, times(10, p95.cancelled), 1, " points over ten times the other"),
	}
}

// times returns a multiple of each value.
func times(n float64, values []float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = float64(n * v)
	}
	return out
}

func (x *hedging) plots(rows []hedgeRow) []Plot {
	trade := Plot{Name: "trade", Title: "what the tail costs, by threshold", Kind: Dots, X: Axis{Label: "calls duplicated", Unit: "%"}, Y: Axis{Label: "TTFT P99", Unit: "ms"},
		Series: []Series{{Name: "duplicate"}}}
	for _, r := range rows {
		trade.Series[0].dot(r.name(), r.duplicated, r.p99)
	}
	first, last := rows[0], rows[len(rows)-1]
	at := rows[slices.IndexFunc(rows, func(r hedgeRow) bool { return r.percentile == x.threshold })]
	trade.Says = fmt.Sprintf("P99 is %s ms without duplicates, %s with %s %% of the calls duplicated, %s where all are.", decimal(average(first.p99), 0),
		decimal(average(at.p99), 0), decimal(average(at.duplicated), 0), decimal(average(last.p99), 0))

	tail := Plot{Name: "tail", Title: "calls that are still waiting, first seed", Kind: Lines, X: Axis{Label: "time", Unit: "ms", Log: true}, Y: Axis{Label: "still waiting", Unit: "%", Log: true}}
	a, b := x.latencies(x.root(0))
	sorted := slices.Sorted(slices.Values(a))
	for _, percentile := range slices.Compact([]float64{100, x.threshold, 0}) {
		r := hedgeRow{percentile: percentile}
		s := Series{Name: "duplicate " + r.name()}
		threshold := after(sorted, percentile)
		var took []float64
		for i := range a {
			took = append(took, race(a[i], b[i], threshold).took)
		}
		slices.Sort(took)
		// From half of the calls to the last: each point leaves a twentieth fewer than the one before.
		for left := len(took) / 2; left > 0; left -= max(left/20, 1) {
			s.X, s.Y = append(s.X, took[len(took)-left-1]), append(s.Y, 100*float64(left)/float64(len(took)))
		}
		tail.Series = append(tail.Series, s)
	}
	tail.Says = fmt.Sprintf("One call in a thousand waits longer than %s ms without a duplicate, %s ms where it is sent: %s.", decimal(average(first.p999), 0), decimal(average(at.p999), 0), at.name())
	return []Plot{trade, tail}
}
