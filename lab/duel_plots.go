package lab

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// plots has the first seed's calls one by one, as shares, and how full the fullest replica is.
func (d *duel) plots(left, right *duelRun, all []duelPair) []Plot {
	names := [2]string{d.left, d.right}
	if d.left == d.right {
		names[1] += " again"
	}
	calls := Plot{Name: "ttft-by-call", Title: "TTFT of each call", Kind: Dots, X: Axis{Label: "the call comes at", Unit: "s"}, Y: Axis{Label: "TTFT", Unit: "s", Log: true}}
	shares := Plot{Name: "ttft-share", Title: "calls by their TTFT", Kind: Lines, X: Axis{Label: "TTFT", Unit: "s", Log: true}, Y: Axis{Label: "of the calls, at most that", Unit: "%"}}
	full := Plot{Name: "fullest", Title: "calls under way at the fullest replica", Kind: Steps, X: Axis{Label: "time", Unit: "s"}, Y: Axis{Label: "calls"}}
	calls.Marks = []Mark{{Axis: "y", At: d.goal.ttft, Label: "SLO"}}
	shares.Marks = []Mark{{Axis: "x", At: d.goal.ttft, Label: "SLO"}}
	end := max(left.last, right.last)
	var peaks [2]float64
	for i, run := range []*duelRun{left, right} {
		dots, line := Series{Name: names[i]}, Series{Name: names[i]}
		var times []float64
		for k := range run.calls {
			if c := &run.calls[k]; c.ok {
				dots.X, dots.Y = append(dots.X, c.at.Seconds()), append(dots.Y, c.ttft().Seconds())
				times = append(times, c.ttft().Seconds())
			}
		}
		slices.Sort(times)
		for percent := 2; percent <= 100 && len(times) > 0; percent += 2 {
			line.X, line.Y = append(line.X, times[(len(times)*percent+99)/100-1]), append(line.Y, float64(percent))
		}
		steps := fullest(run, d.replicas, end)
		steps.Name = names[i]
		peaks[i] = slices.Max(steps.Y)
		calls.Series, shares.Series, full.Series = append(calls.Series, dots), append(shares.Series, line), append(full.Series, steps)
	}
	faster := 0
	for _, p := range all {
		if p.left.ok && p.right.ok && p.right.ttft() < p.left.ttft() {
			faster++
		}
	}
	calls.Says = fmt.Sprintf("Of %d calls %d have their first token sooner under %s.", len(all), faster, names[1])
	shares.Says = fmt.Sprintf("%s has half of its calls' first tokens within %s s and 95 %% within %s s; %s within %s s and %s s.",
		names[0], decimal(float64(left.summary.TTFT.P50), 2), decimal(float64(left.summary.TTFT.P95), 2),
		names[1], decimal(float64(right.summary.TTFT.P50), 2), decimal(float64(right.summary.TTFT.P95), 2))
	full.Says = fmt.Sprintf("The fullest replica has up to %s calls under way under %s, up to %s under %s.", decimal(peaks[0], 0), names[0], decimal(peaks[1], 0), names[1])
	return []Plot{calls, shares, full}
}

// fullestPoints is at how many instants replicas are looked at.
const fullestPoints = 200

// fullest counts the calls at each replica at equally spaced instants and keeps the most.
func fullest(run *duelRun, replicas int, end time.Duration) Series {
	counts := make([][]float64, replicas)
	for i := range counts {
		counts[i] = make([]float64, fullestPoints)
	}
	step := max(end/fullestPoints, 1)
	for i := range run.calls {
		c := &run.calls[i]
		if c.replica < 0 {
			continue
		}
		for k := int((c.at + step - 1) / step); k < fullestPoints && time.Duration(k)*step < c.end; k++ {
			counts[c.replica][k]++
		}
	}
	var s Series
	for k := range fullestPoints {
		most := 0.0
		for _, c := range counts {
			most = max(most, c[k])
		}
		s.X, s.Y = append(s.X, (time.Duration(k)*step).Seconds()), append(s.Y, most)
	}
	return s
}

// Bounds of the player: calls, and lanes over all frames.
const (
	playedCalls = 200
	playedLanes = 3200
)

// player goes through the calls in the order in which they came to the left policy.
func (d *duel) player(all []duelPair) Player {
	all = all[:min(len(all), playedCalls, playedLanes/(2*d.replicas))]
	p := Player{Name: "calls", Title: "call by call, the first seed", Step: "call", Steps: len(all), Boards: []Board{{Name: d.left}, {Name: d.right}}}
	if d.left == d.right {
		p.Boards[1].Name += " again"
	}
	for _, pair := range all {
		head := fmt.Sprintf("call %d: %s tokens in, %s out", pair.number, decimal(float64(pair.left.prompt), 0), decimal(float64(pair.left.output), 0))
		for i, c := range []*duelCall{pair.left, pair.right} {
			f := d.frame(c)
			f.Head = head
			p.Boards[i].Frames = append(p.Boards[i].Frames, f)
			for _, l := range f.Lanes {
				p.Most = max(p.Most, l.Value)
			}
		}
	}
	for i := range p.Boards {
		t := &Track{Label: "TTFT, s", Flag: "the policies would choose otherwise"}
		for k, pair := range all {
			c := []*duelCall{pair.left, pair.right}[i]
			ttft := math.NaN()
			if c.ok {
				ttft = c.ttft().Seconds()
			}
			t.Values = append(t.Values, ttft)
			if x := c.decision; x != nil && !x.Shadow.Agrees {
				t.Flags = append(t.Flags, k)
			}
		}
		p.Boards[i].Track = t
	}
	return p
}

// frame shows where one policy has a call go.
func (d *duel) frame(c *duelCall) Frame {
	f := Frame{Note: d.explain(c.decision, c.prompt), Facts: []Fact{{"comes at", decimal(c.at.Seconds(), 1) + " s"}}}
	if c.ok {
		f.Facts = append(f.Facts, Fact{"TTFT", decimal(c.ttft().Seconds(), 2) + " s"}, Fact{"cached", decimal(float64(c.cached), 0) + " tokens"})
	} else {
		f.Facts = append(f.Facts, Fact{"answered", "no"})
	}
	for i := range d.replicas {
		f.Lanes = append(f.Lanes, Lane{Name: fmt.Sprintf("replica %d", i+1), State: Idle, Text: "cannot be picked"})
	}
	x := c.decision
	if x == nil {
		return f
	}
	sees := d.seesCaches()
	for i := range x.Candidates {
		k := &x.Candidates[i]
		l := &f.Lanes[replicaOf(k.Endpoint)]
		l.State, l.Value, l.Text = "", float64(k.Outstanding), ""
		if sees {
			l.Text = decimal(float64(x.Shadow.OverlapTokens[i]), 0) + " tokens held"
		}
		if i == x.Chosen {
			l.State, l.Fresh, l.Value = d.came(c), 1, l.Value+1
		}
	}
	return f
}

// came says what the call found at the replica that it came to.
func (d *duel) came(c *duelCall) LaneState {
	switch {
	case !c.ok:
		return Chosen
	case c.cached > 0:
		return Hit
	}
	return Miss
}

// verdicts judges what the article says, for the settings that are the lab's own.
func (d *duel) verdicts(all *duelRuns) []Verdict {
	if all.alone == 0 {
		return nil
	}
	var otherwise, overlap, outstanding, none []float64
	for i := range all.left {
		l := &all.left[i]
		var n shadowCount
		for _, r := range l.shadow {
			n.plus(r.shadowCount)
		}
		otherwise = append(otherwise, 100*float64(n.differs)/float64(n.picks))
		overlap = append(overlap, float64(n.overlap)/float64(n.differs))
		outstanding = append(outstanding, float64(n.outstanding)/float64(n.differs))
		none = append(none, 0)
	}
	of := func(name string, runs []duelRun) []float64 {
		for _, m := range measures() {
			if m.Name == name {
				return m.values(runs)
			}
		}
		panic("no measure " + name)
	}
	return []Verdict{
		holds("15", "a shadow affects neither the primary's latency nor its result", all.same == all.alone,
			fmt.Sprintf("in %d of %d seeds every call has the same times, replica and cached tokens with and without it", all.same, all.alone)),
		above("15", "it tells without a canary where the other policy would choose otherwise", otherwise, none, 1, " % of the picks"),
		above("16", "where they differ, who goes by affinity chooses more of the prompt cached", overlap, none, 0, " tokens"),
		above("16", "and pays for that with load: more calls are under way there", outstanding, none, 2, " calls"),
		above("16", "prioritize affinity and the hit rate rises", of("cached", all.right), of("cached", all.left), 1, " points"),
		above("16", "while load skews", of("assignment gap", all.right), of("assignment gap", all.left), 0, " calls"),
	}
}
