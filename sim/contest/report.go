package contest

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Report is what cells gave, and how.
type Report struct {
	Command   string        `json:"command"`
	Machine   string        `json:"machine"`
	Took      time.Duration `json:"took_ns"`
	Half      string        `json:"half"`
	Share     float64       `json:"share"` // of the half's sessions, drawn by each seed
	Seeds     int           `json:"seeds"`
	Tolerance float64       `json:"tolerance"`
	Missing   []string      `json:"missing_policies,omitempty"` // of Peers, that this build does not have
	Bars      []Bar         `json:"bars"`
	Results   []*Result     `json:"results"`
}

// Text writes the report for a terminal.
func (r *Report) Text(w io.Writer) error {
	for _, x := range r.Results {
		fmt.Fprintf(w, "%s: %s; %d calls a run, reuse %.0f %%, %d seeds; %d runs in %.0f s\n\n", x.Cell, x.Pool, x.Calls, 100*x.Reuse, x.Seeds, x.Runs, x.TookS)
		if err := x.table().text(w); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	for _, t := range []*table{summary(r.Results), tuned(r.Results), orders(r.Results)} {
		if t == nil {
			continue
		}
		if err := t.text(w); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	for _, b := range r.Bars {
		fmt.Fprintf(w, "%s  %s\n     (%s)\n", verdict(b.Holds), b.Text, b.Detail)
	}
	if len(r.Missing) > 0 {
		fmt.Fprintf(w, "\nnot in this build: %s\n", strings.Join(r.Missing, ", "))
	}
	_, err := fmt.Fprintf(w, "\n%s; %s; %d seeds; took %.0f s\n", r.Command, r.Machine, r.Seeds, r.Took.Seconds())
	return err
}

func verdict(holds bool) string {
	if holds {
		return "yes"
	}
	return "no "
}

// Markdown writes the report as a page.
func (r *Report) Markdown(w io.Writer) error {
	p := &page{w: w}
	p.line("# Results")
	p.line("")
	p.line("<!-- Generated; the command is below. Do not edit. -->")
	p.line("")
	p.line("Policies beside each other in the simulator ([simulator.md](simulator.md)): how many calls a second each one answers within")
	p.line("the SLO, on %d pools with a workload (cells). Made by", len(r.Results))
	p.line("")
	p.line("```")
	p.line("%s", r.Command)
	p.line("```")
	p.line("")
	p.line("in %.0f minutes (%s).", r.Took.Minutes(), r.Machine)
	if len(r.Missing) > 0 {
		p.line("")
		p.line("This build has no %s: the best peer is the best of those that it has.", strings.Join(r.Missing, ", "))
	}
	p.bars(r)
	p.line("## Every cell")
	p.line("")
	summary(r.Results).markdown(w)
	p.line("Goodput, in calls that come a second, is the mean over %d seeds ± half its 95 %% confidence interval (Student's t). The same seed", r.Seeds)
	p.line("gives every policy of a cell the same calls, and ratios are taken seed by seed, so their intervals are narrower than")
	p.line("those of the goodputs. *Reuse* is the share of prompt tokens that a cache without bounds, shared by all, would hold.")
	p.line("")
	p.method(r)
	for _, x := range r.Results {
		p.line("## %s", x.Cell)
		p.line("")
		p.line("%s. %d calls a run, reuse %.0f %%.", x.Pool, x.Calls, 100*x.Reuse)
		p.line("")
		x.table().markdown(w)
	}
	if t := tuned(r.Results); t != nil {
		p.line("## Peers with tuned parameters")
		p.line("")
		p.line("For each cell of 8 replicas, the settings of a small grid were tried on the half of the sessions that is not reported on, and the best one of each")
		p.line("policy played the reported half; the three best policies are listed. %s has its one default setting here, too.", Ours)
		p.line("")
		t.markdown(w)
	}
	if t := orders(r.Results); t != nil {
		p.line("## Under other costs")
		p.line("")
		p.line("The order of the best four by goodput where one kind of cost is 10 %% higher or lower than the profiles say, under the same SLO.")
		p.line("A pair changes places where one is more than %.0f %% above the other with one cost, and as much below it with the other.", 100*alike)
		p.line("")
		t.markdown(w)
	}
	return p.err
}

// page writes lines until one fails.
type page struct {
	w   io.Writer
	err error
}

func (p *page) line(form string, values ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, form+"\n", values...)
	}
}

// bars says what holds.
func (p *page) bars(r *Report) {
	p.line("")
	p.line("## What holds")
	p.line("")
	if len(r.Bars) == 0 {
		p.line("%s took no part, so there is nothing that it could be held to.", Ours)
		p.line("")
		return
	}
	held := 0
	t := &table{head: []string{"bar", "holds", "figure"}}
	for _, b := range r.Bars {
		if b.Holds {
			held++
		}
		t.add(b.Text, strings.TrimSpace(verdict(b.Holds)), b.Detail)
	}
	p.line("%s has one setting in all cells, its defaults, and learns what engines cost from the calls of each run. It is held to %d bars;", Ours, len(r.Bars))
	switch held {
	case len(r.Bars):
		p.line("all of them hold.")
	case 0:
		p.line("none of them holds.")
	default:
		p.line("%d of them hold, %d do not.", held, len(r.Bars)-held)
	}
	p.line("")
	t.markdown(p.w)
}

// method says how it was done.
func (p *page) method(r *Report) {
	p.line("## How it was done")
	p.line("")
	p.line("- **SLO**: a call is good with a time to first token within %v or %g times its unloaded prefill, whichever is longer, and a time per", boundTTFT, boundPrefill)
	p.line("  output token within %v. *Goodput* is the rate at which %.0f %% of the calls are: the crossing is bracketed to %.0f %% and interpolated.", boundTPOT, 100*Attainment, 100*r.Tolerance)
	p.line("- **Sessions**: the half of each workload that a hash of the session draws (%s; the other half is for tuning), of which each seed", r.Half)
	p.line("  draws %.0f %% anew (a generated one is made anew), so that intervals say how other traffic would fare. A trace without sessions has its calls split by their first two", 100*r.Share)
	p.line("  blocks, which keeps the turns of a conversation together. Where that is too little for the pool, it is played several times, each time with prefixes of its own.")
	p.line("  Where it is 0 the rule keeps the SLO at no rate: in fan-outs those do that send all siblings to one replica, whose steps then take longer")
	p.line("  than the time per token that is allowed, however few sessions there are. A mean between has seeds of both kinds.")
	p.line("- **Latencies** are at %.0f %% of the best peer's goodput of that seed, the same rate for all. *Gap*: most less fewest calls that a replica got; *busiest*: the", 100*Matched)
	p.line("  most by the mean. The best peer is the one with the highest mean goodput; that it is chosen afterwards favours it.")
	p.line("- **%s**: one replica as fast as all of them together, with all their blocks. There is none where replicas differ.", Bound)
	p.line("- **Pools**: replicas of llama-3.1-8b; gauges read every second (for weighted-scorers every 50 ms, as llm-d does); prompts and answers up to %d tokens. *Small*: %d tokens of KV each, as in", contextTokens, SmallKV)
	p.line("  llm-d's benchmark; *large*: %d, more than the device has, as where blocks that leave it come back from the host's memory at no cost.", LargeKV)
	p.line("  *Mixed*: half of the replicas are slower and hold half as much.")
	for _, w := range sources() {
		p.line("- **%s**: %s", w.name, w.about)
	}
	p.line("  It is `%s`.", FanOut)
	p.line("")
}
