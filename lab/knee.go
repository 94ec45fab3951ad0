package lab

import (
	"fmt"
	"math"

	"kvasir/client/workload"
	"kvasir/internal/queueing"
	"kvasir/internal/stats"
)

// knee is the chart of article 1.2: how much utilization a wait leaves.
type knee struct {
	wait    float64
	heavy   float64
	prefill float64
	tpot    float64

	own *services // of a trace that was given
}

func kneeLab() Lab {
	return Lab{
		Name: "knee", Title: "how much utilization variability costs", Section: "1.2",
		About: "The mean wait of an M/G/1 queue by the Pollaczek–Khinchine formula, W_q/E[S] = ρ/(1−ρ) · (1 + C_s²)/2, " +
			"read both ways: the wait at a utilization, and the utilization at a wait. A trace of one's own adds a curve: a call's service time is taken for " +
			"prompt/prefill_rate + output · tpot, nothing cached and nobody beside it.",
		Look: []string{
			"Read the curves across, not up: at a wait of three service times deterministic service may be loaded to 0.86, exponential to 0.75, and a heavy tail with C_s² = 4 to 0.55.",
			"Turn `wait` down to 1 and the heavy tail's knee falls to 0.29; turn it up to 10 and it is still at 0.80: patience buys back little of what variability costs.",
			"Turn `heavy_cs2` down from 4 to 1 at a wait of 3 and the knee goes from 0.55 to 0.75, as if a third more replicas had come. A bound on output lengths does that.",
			"Give a trace of your own to have its C_s² in place of the article's guess.",
		},
		Traced:   true,
		settings: func() experiment { return &knee{wait: 3, heavy: 4, prefill: 20_000, tpot: 0.025} },
	}
}

func (k *knee) params() []Param {
	return []Param{
		number(&k.wait, "wait", "mean wait that is accepted, in mean service times", 0.01, 1000),
		number(&k.heavy, "heavy_cs2", "squared coefficient of variation of the heavy tail's service times", 0, 1000),
		number(&k.prefill, "prefill_rate", "tokens a second that are prefilled, for a trace's service times", 1, 1e9),
		number(&k.tpot, "tpot", "time per output token, s, for a trace's service times", 1e-6, 100),
	}
}

// maxServices bounds the calls of a trace whose service times are held.
const maxServices = 1_000_000

// services are what a trace's calls take, in seconds, and their tokens.
type services struct {
	name                   string
	times, prompts, output []float64
	more, cut              bool // there are calls beyond the bound; the file was cut before
}

// open reads the trace's calls.
func (k *knee) open(t *Trace) error {
	own := services{name: t.Name, cut: t.Cut}
	more, err := t.eachCall(maxServices, func(c workload.Call) {
		in, out := float64(c.PromptTokens), float64(c.OutputTokens)
		own.times = append(own.times, in/k.prefill+float64(out*k.tpot))
		own.prompts, own.output = append(own.prompts, in), append(own.output, out)
	})
	own.more = more
	k.own = &own
	return err
}

// table says what is in the trace.
func (s *services) table() Table {
	t := Table{Name: "trace", Title: s.title(), Columns: []Column{{Name: "of a call"}, {Name: "mean"}, {Name: "C²"}, {Name: "P50"}, {Name: "P95"}, {Name: "P99"}, {Name: "greatest"}}}
	for _, row := range []struct {
		name   string
		values []float64
		digits int
	}{{"prompt, tokens", s.prompts, 0}, {"output, tokens", s.output, 0}, {"service time, s", s.times, 2}} {
		m := stats.Summarize(append([]float64(nil), row.values...))
		t.Rows = append(t.Rows, []Cell{Text(row.name), Number(m.Mean, row.digits), Number(squaredVariation(m), 2),
			Number(m.P50, row.digits), Number(m.P95, row.digits), Number(m.P99, row.digits), Number(m.Max, row.digits)})
	}
	return t
}

// title says of how many calls the figures are, and what is not among them.
func (s *services) title() string {
	title := fmt.Sprintf("%s calls of %s", decimal(float64(len(s.times)), 0), s.name)
	switch {
	case s.more:
		title = "the first " + title + "; the rest is left out"
	case s.cut:
		title += ", all of its part within the bound of " + decimal(MaxTrace>>20, 0) + " MiB; the rest is left out"
	}
	return title
}

// cs2 returns the squared coefficient of variation of the service times.
func (s *services) cs2() float64 {
	return squaredVariation(stats.Summarize(append([]float64(nil), s.times...)))
}

// squaredVariation returns (σ/mean)²: 0 where all values are 0.
func squaredVariation(m stats.Summary) float64 {
	if m.Mean == 0 {
		return 0
	}
	cv := m.Std / m.Mean
	return float64(cv * cv)
}

// curve is a kind of service.
type curve struct {
	name string
	cs2  float64
}

func (k *knee) curves() []curve {
	all := []curve{{"deterministic", 0}, {"exponential", 1}, {"heavy tail", k.heavy}}
	if k.own != nil {
		all = append(all, curve{k.own.name, k.own.cs2()})
	}
	return all
}

func (k *knee) run(int) Findings {
	at := Table{Name: "knee", Title: "utilization at which the mean wait is " + show(k.wait) + " service times",
		Columns: []Column{{Name: "service"}, {Name: "C_s²"}, {Name: "(1 + C_s²)/2"}, {Name: "ρ"}}}
	waits := Table{Name: "curve", Title: "mean wait in service times", Columns: []Column{{Name: "ρ"}}}
	curves := k.curves()
	var knees []float64
	for _, c := range curves {
		rho := queueing.Knee(k.wait, 1, c.cs2)
		knees = append(knees, rho)
		at.Rows = append(at.Rows, []Cell{Text(c.name), Number(c.cs2, 1), Number((1+c.cs2)/2, 2), Number(rho, 4)})
		waits.Columns = append(waits.Columns, Column{Name: c.name})
	}
	for percent := 5; percent <= 95; percent += 5 {
		rho := float64(percent) / 100
		row := []Cell{Number(rho, 2)}
		for _, c := range curves {
			row = append(row, Number(queueing.PollaczekKhinchine(rho, c.cs2), 2))
		}
		waits.Rows = append(waits.Rows, row)
	}
	tables := []Table{at, waits}
	if k.own != nil {
		tables = append(tables, k.own.table())
	}
	return Findings{Tables: tables, Plots: []Plot{k.plot(curves, knees)}, Verdicts: k.verdicts(knees)}
}

// plot draws the waits up to four times the accepted one, with a mark where each curve meets it.
func (k *knee) plot(curves []curve, knees []float64) Plot {
	p := Plot{Name: "waits", Title: "mean wait by utilization", Kind: Lines,
		X: Axis{Label: "utilization ρ", Most: 1}, Y: Axis{Label: "mean wait", Unit: "service times", Most: 4 * k.wait},
		Marks: []Mark{{"y", k.wait, "accepted wait"}}}
	for i, c := range curves {
		s := Series{Name: fmt.Sprintf("%s, C_s² = %s", c.name, decimal(c.cs2, 1))}
		for percent := range 100 {
			rho := float64(percent) / 100
			s.X, s.Y = append(s.X, rho), append(s.Y, queueing.PollaczekKhinchine(rho, c.cs2))
		}
		p.Series = append(p.Series, s)
		p.Marks = append(p.Marks, Mark{"x", knees[i], decimal(knees[i], 2)})
	}
	p.Says = fmt.Sprintf("At a mean wait of %s service times deterministic service is at ρ = %s, exponential at %s and the heavy tail at %s",
		show(k.wait), decimal(knees[0], 2), decimal(knees[1], 2), decimal(knees[2], 2))
	if k.own != nil {
		p.Says += fmt.Sprintf(", and %s, whose C_s² is %s, at %s", k.own.name, decimal(curves[3].cs2, 2), decimal(knees[3], 2))
	}
	p.Says += "."
	return p
}

func (k *knee) verdicts(knees []float64) []Verdict {
	const rho = 0.8 // the ratios are the same at every utilization
	deterministic := queueing.PollaczekKhinchine(rho, 0)
	exponential := queueing.PollaczekKhinchine(rho, 1)
	heavy := queueing.PollaczekKhinchine(rho, k.heavy)
	diverges := queueing.PollaczekKhinchine(0.99, k.heavy) / queueing.PollaczekKhinchine(0.9, k.heavy)
	// What variability costs may be bought back in two ways: less of it, or more replicas.
	calmer := queueing.Knee(k.wait, 1, 1) / knees[2]
	return []Verdict{
		equals("1.2", "three service times of wait are reached at ρ = 0.86, 0.75 and 0.55 for C_s² = 0, 1 and 4",
			figure{0.86, knees[0], 2, ""}, figure{0.75, knees[1], 2, ""}, figure{0.55, knees[2], 2, ""}),
		equals("1.2", "at C_s² = 4 the queue is 2.5 times as deep as with exponential service, 5 times as with deterministic",
			figure{2.5, heavy / exponential, 1, ""}, figure{5, heavy / deterministic, 1, ""}),
		about("1.2", "the heavy tail costs about thirty points of utilization against deterministic service",
			30, 100*(knees[0]-knees[2]), 0, " points"),
		holds("1.2", "the wait diverges as utilization approaches 1", diverges > 10 && math.IsInf(queueing.PollaczekKhinchine(1, k.heavy), 1),
			fmt.Sprintf("from ρ = 0.9 to 0.99 it grows %s times", decimal(diverges, 0))),
		holds("1.2", "less variability is worth roughly as much as more capacity", calmer > 1.2,
			fmt.Sprintf("C_s² of 1 in place of 4 lets the same pool carry %s times the load at the same wait", decimal(calmer, 2))),
	}
}
