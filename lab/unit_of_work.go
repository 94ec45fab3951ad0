package lab

import (
	"fmt"
	"math"
	"slices"
)

// unitOfWork is the table of article 13: what is one piece of work to a user.
type unitOfWork struct {
	ttft     float64
	output   float64
	tpot     float64
	tool     float64
	retrieve float64
	pause    float64
	branches int
	children int
	rho      float64
	replicas int
}

func unitOfWorkLab() Lab {
	return Lab{
		Name: "unit-of-work", Title: "from one request to one session", Section: "13",
		About: "The article's five units of work with its numbers of calls. Each call takes a first token and an answer; between the calls " +
			"of an agent tools run. The times are ours, the article has none. Subagents run side by side, so their unit lasts as long as one branch.",
		Look: []string{
			"A chat turn is one call; a long-running agent is three hundred of them over hours. Its model's part of the time is 7 %: a faster pool would not be noticed.",
			"Turn `tool` to 0 and the tool-using agent is all model: 53.8 s, in which every 200 ms of a step are 2.4 s.",
			"In `spread` the variation of a session falls to 0.06 of a step's over 300 steps that are independent. With a correlation of 0.2 it ends at 0.45: sums do not average out.",
			"Turn `children` up to 40: at the same mean load a child waits 67 service times where its siblings all go to one replica, and 17 where they are spread over four.",
		},
		settings: func() experiment {
			return &unitOfWork{ttft: 0.5, output: 200, tpot: 0.02, tool: 6, retrieve: 0.3, pause: 60, branches: 8, children: 10, rho: 0.7, replicas: 4}
		},
	}
}

func (u *unitOfWork) params() []Param {
	return []Param{
		number(&u.ttft, "ttft", "time to first token, s", 0, 1e4),
		number(&u.output, "output_tokens", "answer of a call, tokens", 1, 1e6),
		number(&u.tpot, "tpot", "time per output token, s", 0, 100),
		number(&u.tool, "tool", "tool time between two calls of an agent, s", 0, 1e5),
		number(&u.retrieve, "retrieve", "retrieval between the two calls of a RAG answer, s", 0, 1e5),
		number(&u.pause, "pause", "tool time between two calls of a long-running agent, s", 0, 1e6),
		count(&u.branches, "branches", "subagents side by side; the parent's two calls are apart", 1, 38),
		count(&u.children, "children", "calls that a parent sets off at once, for the waits", 1, 1000),
		number(&u.rho, "utilization", "of each replica, for the waits", 0.01, 0.99),
		count(&u.replicas, "replicas", "that children are spread over, for the waits", 1, 64),
	}
}

// unit is one row: so many calls, of which depth follow each other, with gaps between them.
type unit struct {
	name    string
	article int // model calls
	calls   int
	depth   int
	gap     float64
}

func (u *unitOfWork) run(int) Findings {
	units := []unit{
		{"one chat turn", 1, 1, 1, 0},
		{"RAG answer", 2, 2, 2, u.retrieve},
		{"tool-using agent", 12, 12, 12, u.tool},
		u.subagents(),
		{"long-running agent", 300, 300, 300, u.pause},
	}
	call := u.ttft + float64((u.output-1)*u.tpot)
	t := Table{Name: "units", Title: "units of work", Columns: []Column{{Name: "unit"}, {Name: "calls"}, {Name: "one after the other"},
		{Name: "model", Unit: "s"}, {Name: "tools", Unit: "s"}, {Name: "session", Unit: "s"}, {Name: "model's part", Unit: "%"}}}
	var figures []figure
	var agent, longRunning float64
	for _, w := range units {
		model, tools := float64(float64(w.depth)*call), float64(float64(w.depth-1)*w.gap)
		part := 100 * model / (model + tools)
		switch w.name {
		case "tool-using agent":
			agent = part
		case "long-running agent":
			longRunning = part
		}
		figures = append(figures, figure{float64(w.article), float64(w.calls), 0, ""})
		t.Rows = append(t.Rows, []Cell{Text(w.name), Number(float64(w.calls), 0), Number(float64(w.depth), 0),
			Number(model, 1), Number(tools, 1), Number(model+tools, 1), Number(part, 0)})
	}

	spread := Table{Name: "spread", Title: "coefficient of variation of a session of k steps, in that of one step",
		Columns: []Column{{Name: "k"}, {Name: "steps independent, 1/√k"}, {Name: "correlation 0.2"}, {Name: "correlation 0.5"}}}
	for _, k := range []float64{1, 2, 12, 40, 300} {
		spread.Rows = append(spread.Rows, []Cell{Number(k, 0), Number(sessionSpread(k, 0), 3), Number(sessionSpread(k, 0.2), 3), Number(sessionSpread(k, 0.5), 3)})
	}
	const shaved, steps = 0.2, 10
	fan, plot := u.fanOut()
	alone, buried, shared := u.wait(1), u.wait(float64(u.children)), u.wait(u.share(u.children))
	return Findings{Tables: []Table{t, spread, fan}, Plots: []Plot{plotUnits(t), plotSpread(), plot}, Verdicts: []Verdict{
		holds("13.1", "fan-out makes batch arrivals, and queues run deeper at the same mean rate", shared > alone,
			fmt.Sprintf("a child of %d waits %s service times at ρ = %s even where they are spread over %d replicas, a single call %s",
				u.children, decimal(shared, 1), show(u.rho), u.replicas, decimal(alone, 1))),
		holds("13.1", "pure cache affinity sends the children to one replica and buries it", buried > 2*shared,
			fmt.Sprintf("there they wait %s", decimal(buried, 1))),
		equals("13", "model calls of the five units", figures...),
		equals("13.1", "200 ms shaved off each of 10 steps are 2 s of a session", figure{2, shaved * steps, 0, " s"}),
		holds("13.1", "for agents the model calls are often under half of the time", agent < 50 && longRunning < 50,
			fmt.Sprintf("%s %% of the tool-using agent's time, %s %% of the long-running one's", decimal(agent, 0), decimal(longRunning, 0))),
		holds("13.1", "a session's variation does not fall as 1/√k where steps depend on each other", sessionSpread(300, 0.2) > 5*sessionSpread(300, 0),
			fmt.Sprintf("at 300 steps with correlation 0.2 it is %s of a step's, not %s", decimal(sessionSpread(300, 0.2), 2), decimal(sessionSpread(300, 0), 2))),
	}}
}

// subagents returns the parallel unit: the parent's first and last call, and what the
// branches share out between them. The depth is the longest branch's and the parent's.
func (u *unitOfWork) subagents() unit {
	const calls = 40
	each := (calls - 2 + u.branches - 1) / u.branches
	return unit{"parallel subagents", calls, calls, each + 2, u.tool}
}

// sessionSpread returns the coefficient of variation of a sum of k steps in units of one
// step's, when any two steps have the given correlation: √((1 + (k−1)·r)/k).
func sessionSpread(k, r float64) float64 { return math.Sqrt((1 + float64((k-1)*r)) / k) }

// wait returns the mean wait of a call of a batch at one replica, in mean services: batches come as
// a Poisson process and services are exponential (M^[b]/M/1),
//
//	Wq = (ρ·(1 + C_s²)/2 + (b−1)/2) / (1−ρ)
//
// with C_s² = 1. The second term is the wait for one's own siblings.
func (u *unitOfWork) wait(batch float64) float64 { return (u.rho + (batch-1)/2) / (1 - u.rho) }

// share returns how many of so many children one of the replicas gets, where they are spread: 1 at
// least.
func (u *unitOfWork) share(children int) float64 {
	return max(float64(children)/float64(u.replicas), 1)
}

// fanOut says how long children wait, where their prefix is and spread over the replicas.
func (u *unitOfWork) fanOut() (Table, Plot) {
	t := Table{Name: "fan-out", Title: fmt.Sprintf("mean wait of a child at ρ = %s, in service times", show(u.rho)),
		Columns: []Column{{Name: "children at once"}, {Name: "all to one replica"}, {Name: fmt.Sprintf("spread over %d", u.replicas)}, {Name: "one by one"}}}
	p := Plot{Name: "fan-out", Title: t.Title, Kind: Lines, X: Axis{Label: "children at once"}, Y: Axis{Label: "wait", Unit: "service times"},
		Series: []Series{{Name: t.Columns[1].Name}, {Name: t.Columns[2].Name}, {Name: t.Columns[3].Name}}}
	sizes := []int{1, 2, 5, 10, 20}
	if !slices.Contains(sizes, u.children) {
		sizes = append(sizes, u.children)
		slices.Sort(sizes)
	}
	for _, n := range sizes {
		row := []Cell{Number(float64(n), 0)}
		for i, w := range []float64{u.wait(float64(n)), u.wait(u.share(n)), u.wait(1)} {
			row = append(row, Number(w, 1))
			p.Series[i].X, p.Series[i].Y = append(p.Series[i].X, float64(n)), append(p.Series[i].Y, w)
		}
		t.Rows = append(t.Rows, row)
	}
	p.Says = fmt.Sprintf("Of %d children at once each waits %s service times on one replica, %s spread over %d; calls that come one by one wait %s.",
		u.children, decimal(u.wait(float64(u.children)), 1), decimal(u.wait(u.share(u.children)), 1), u.replicas, decimal(u.wait(1), 1))
	return t, p
}

// plotUnits draws the model's and the tools' part of each unit.
func plotUnits(t Table) Plot {
	p := Plot{Name: "units", Title: "where the time of a unit of work goes", Kind: Bars, Y: Axis{Label: "part of the time", Unit: "%", Most: 100}, Series: []Series{{Name: "model"}, {Name: "tools"}}}
	least, of := 100.0, ""
	for i, row := range t.Rows {
		part := row[6].Value()
		p.X.Names = append(p.X.Names, row[0].String())
		for n, y := range []float64{part, 100 - part} {
			p.Series[n].X, p.Series[n].Y = append(p.Series[n].X, float64(i)), append(p.Series[n].Y, y)
		}
		if part <= least {
			least, of = part, row[0].String()
		}
	}
	p.Says = fmt.Sprintf("The model has the least part in the unit %q: %s %% of its time.", of, decimal(least, 0))
	return p
}

// plotSpread draws a session's variation by its steps.
func plotSpread() Plot {
	p := Plot{Name: "spread", Title: "a session's coefficient of variation, in that of one step", Kind: Lines, X: Axis{Label: "steps", Log: true}, Y: Axis{Label: "in that of one step", Most: 1}}
	for _, r := range []float64{0, 0.2, 0.5} {
		s := Series{Name: "correlation " + show(r)}
		for k := 1.0; k <= 300; k = math.Ceil(k * 1.2) {
			s.X, s.Y = append(s.X, k), append(s.Y, sessionSpread(k, r))
		}
		p.Series = append(p.Series, s)
	}
	p.Says = fmt.Sprintf("At 300 steps it is %s where steps are independent, %s with a correlation of 0.2 and %s with one of 0.5.",
		decimal(sessionSpread(300, 0), 2), decimal(sessionSpread(300, 0.2), 2), decimal(sessionSpread(300, 0.5), 2))
	return p
}
