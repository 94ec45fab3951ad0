package lab

import (
	"fmt"
	"math"
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
}

func unitOfWorkLab() Lab {
	return Lab{
		Name: "unit-of-work", Title: "from one request to one session", Section: "13",
		About: "The article's five units of work with its numbers of calls. Each call takes a first token and an answer; between the calls " +
			"of an agent tools run. The times are ours, the article has none. Subagents run side by side, so their unit lasts as long as one branch.",
		settings: func() experiment {
			return &unitOfWork{ttft: 0.5, output: 200, tpot: 0.02, tool: 6, retrieve: 0.3, pause: 60, branches: 8}
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
	return Findings{Tables: []Table{t, spread}, Verdicts: []Verdict{
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
