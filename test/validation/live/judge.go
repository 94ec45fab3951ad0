package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"kvasir/test/validation/stage"
)

// What must hold.
const (
	// margin is how far two policies' simulated means must differ, as a share of the lesser,
	// to be told apart, however little simulated runs vary: one run in real time is off by as
	// much.
	margin = 0.15

	// mostOff is how far predictions may be from what came, at the median.
	mostOff = 0.15

	// leastPredicted is the share of calls for which there must be a prediction.
	leastPredicted = 0.9

	// mostMeanLag and mostLag bound the lag of every engine, in the mean and at P99. A step
	// takes from 8 ms on.
	mostMeanLag = 2 * time.Millisecond
	mostLag     = 20 * time.Millisecond
)

// separated are pairs that the rate must tell apart by every measure, the better one first;
// at another rate the ranking would say little.
var separated = [][2]string{
	{"cache-aware", "least-outstanding"}, {"kv-cost", "least-outstanding"},
	{predictor, "cache-aware"}, {predictor, "kv-cost"},
}

// result is one policy by both.
type result struct {
	policy    string
	simulated []stage.Figures // by run; the first has the live run's calls to the nanosecond
	live      *stage.Run
	said      *predictions
}

// measure is something that policies are ranked by; less is better.
type measure struct {
	name string
	of   func(stage.Figures) float64
}

// Where two policies are tied by the one, the other may tell them apart: the mean is made by
// the longest waits, and the calls that miss the SLO by the bulk.
var measures = []measure{
	{"mean TTFT", func(f stage.Figures) float64 { return f.TTFT.Mean }},
	{"share of calls that miss the SLO", func(f stage.Figures) float64 { return 1 - *f.Good }},
}

// spread returns the least, the mean and the greatest of the simulated runs.
func (m *measure) spread(r *result) (low, mean, high float64) {
	low, high = m.of(r.simulated[0]), m.of(r.simulated[0])
	for _, f := range r.simulated {
		x := m.of(f)
		low, high = min(low, x), max(high, x)
		mean += x / float64(len(r.simulated))
	}
	return low, mean, high
}

// better reports whether every simulated run of a is better than every one of b, by more
// than the margin in the mean.
func (m *measure) better(a, b *result) bool {
	_, mine, worst := m.spread(a)
	best, others, _ := m.spread(b)
	return worst < best && mine*(1+margin) < others
}

// judge prints what was found and returns why it is not as it must be.
func (o *options) judge(w io.Writer, all []result) []string {
	figures(w, all)
	var wrong []string
	for i := range measures {
		wrong = append(wrong, measures[i].ranks(w, all)...)
	}
	fmt.Fprintln(w)
	for i := range all {
		r := &all[i]
		wrong = append(wrong, r.placed()...)
		if late := r.late(); late != "" && !o.ranking {
			wrong = append(wrong, late)
		}
		if r.policy != predictor {
			continue
		}
		p := r.said
		fmt.Fprintf(w, "predicted TTFT beside the actual one, %d calls: off by %.1f %% at the median (allowed: %.0f %%), %.1f %% at P90; within %.0f %% for %.0f %% of calls; predicted / actual P10 %.2f, P50 %.2f, P90 %.2f\n",
			len(p.ratios), 100*p.off(0.5), 100*mostOff, 100*p.off(0.9), 100*mostOff, 100*p.within(mostOff), quantile(p.ratios, 0.1), quantile(p.ratios, 0.5), quantile(p.ratios, 0.9))
		if !o.ranking {
			wrong = append(wrong, p.wrong()...)
		}
	}
	return wrong
}

// figures prints a row for each policy, live / simulated; of the mean TTFT, all runs.
func figures(w io.Writer, all []result) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "policy\tcalls\tTTFT mean\tsimulated\truns\toff by\tTTFT P50\tTTFT P95\tgood %\tcached %\tengines late P99\tcores\ttook\t")
	for i := range all {
		r := &all[i]
		l, s := r.live, r.simulated[0]
		mean := measures[0].of
		low, _, high := measures[0].spread(r)
		_, lag := r.lag()
		fmt.Fprintf(t, "%s\t%.0f\t%.3f\t%.3f\t%.3f–%.3f\t%+.1f %%\t%.3f / %.3f\t%.2f / %.2f\t%s\t%s\t%.1f ms\t%.2f\t%.0f s\t\n",
			r.policy, l.Calls, mean(l.Figures), mean(s), low, high, 100*(mean(s)/mean(l.Figures)-1),
			l.TTFT.P50, s.TTFT.P50, l.TTFT.P95, s.TTFT.P95, shares(l.Good, s.Good), shares(l.Cached, s.Cached), lag.Seconds()*1e3, l.Busy(), l.Took.Seconds())
	}
	_ = t.Flush() // standard output
	fmt.Fprintln(w)
}

func shares(live, simulated *float64) string {
	text := func(x *float64) string {
		if x == nil {
			return "-"
		}
		return fmt.Sprintf("%.1f", 100**x)
	}
	return text(live) + " / " + text(simulated)
}

// lag is that of the engine that was latest, in the mean and at P99.
func (r *result) lag() (mean, p99 time.Duration) {
	for _, l := range r.live.Lags {
		mean, p99 = max(mean, time.Duration(l.Mean*1e9)), max(p99, time.Duration(l.P99*1e9))
	}
	return mean, p99
}

// late says why nothing can be said of the run: the machine was too slow. Empty: it was not.
func (r *result) late() string {
	mean, p99 := r.lag()
	if mean <= mostMeanLag && p99 <= mostLag {
		return ""
	}
	return fmt.Sprintf("%s: the run does not count: an engine was late by %v in the mean and %v at P99 (allowed: %v and %v); the machine is too slow or has other work",
		r.policy, mean.Round(10*time.Microsecond), p99.Round(10*time.Microsecond), mostMeanLag, mostLag)
}

// ranks prints both rankings and says where they differ.
func (m *measure) ranks(w io.Writer, all []result) []string {
	live := func(r *result) float64 { return m.of(r.live.Figures) }
	bySim, byLive := slices.Clone(all), slices.Clone(all)
	slices.SortStableFunc(bySim, func(a, b result) int {
		_, x, _ := m.spread(&a)
		_, y, _ := m.spread(&b)
		return cmp.Compare(x, y)
	})
	slices.SortStableFunc(byLive, func(a, b result) int { return cmp.Compare(live(&a), live(&b)) })
	var names []string
	for i := range byLive {
		names = append(names, byLive[i].policy)
	}
	fmt.Fprintf(w, "by %s\n  simulated:    %s\n  in real time: %s\n", m.name, m.chain(bySim), strings.Join(names, " < "))

	var wrong, ties []string
	by := map[string]*result{}
	for i := range bySim {
		a := &bySim[i]
		by[a.policy] = a
		for j := i + 1; j < len(bySim); j++ {
			switch b := &bySim[j]; {
			case !m.better(a, b):
				ties = append(ties, a.policy+" and "+b.policy)
			case live(a) >= live(b):
				wrong = append(wrong, fmt.Sprintf("by %s, %s is better than %s as simulated, and not in real time", m.name, a.policy, b.policy))
			}
		}
	}
	if len(ties) > 0 {
		fmt.Fprintf(w, "  tied, since simulated runs overlap or means are within %.0f %%: %s\n", 100*margin, strings.Join(ties, ", "))
	}
	for _, s := range separated {
		if a, b := by[s[0]], by[s[1]]; a != nil && b != nil && !m.better(a, b) {
			wrong = append(wrong, fmt.Sprintf("the rate does not tell %s from %s by %s: the former must be better as simulated", s[0], s[1], m.name))
		}
	}
	return wrong
}

// chain writes a ranking, with ≈ between neighbours that are tied.
func (m *measure) chain(sorted []result) string {
	var text strings.Builder
	text.WriteString(sorted[0].policy)
	for i := 1; i < len(sorted); i++ {
		link := " < "
		if !m.better(&sorted[i-1], &sorted[i]) {
			link = " ≈ "
		}
		text.WriteString(link + sorted[i].policy)
	}
	return text.String()
}

// placed says what is wrong with who placed the calls.
func (r *result) placed() []string {
	if n := r.said.policies[r.policy]; len(r.said.policies) != 1 || float64(n) != r.live.Calls {
		return []string{fmt.Sprintf("%s: of %.0f calls the gateway's log has these, by policy: %v", r.policy, r.live.Calls, r.said.policies)}
	}
	return nil
}

// wrong says what is wrong with the predictions.
func (p *predictions) wrong() []string {
	var wrong []string
	if n := len(p.ratios); float64(n) < leastPredicted*float64(n+p.short) {
		wrong = append(wrong, fmt.Sprintf("%d of %d calls were predicted; wanted: %.0f %%", n, n+p.short, 100*leastPredicted))
	}
	if off := p.off(0.5); !(off <= mostOff) { // NaN of none
		wrong = append(wrong, fmt.Sprintf("predictions are off by %.1f %% at the median; allowed: %.0f %%", 100*off, 100*mostOff))
	}
	return wrong
}
