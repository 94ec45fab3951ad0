package lab

import "fmt"

// canary is the arithmetic of article 15: which conversations a routing canary meets whole.
type canary struct {
	share float64
	turns int
}

func canaryLab() Lab {
	return Lab{
		Name: "canary", Title: "which conversations a canary meets whole", Section: "15",
		About: "A canary takes a share of the calls, each drawn by itself, or of the sessions. What it measures of cache locality are " +
			"pairs of consecutive turns that both came to it.",
		settings: func() experiment { return &canary{share: 0.05, turns: 10} },
	}
}

func (c *canary) params() []Param {
	return []Param{
		number(&c.share, "share", "part of the traffic that the canary takes", 0, 1),
		count(&c.turns, "turns", "longest conversation in the table, turns", 2, 1000),
	}
}

func (c *canary) run(int) Findings {
	t := Table{Name: "whole", Title: "part of the conversations that reach a " + decimal(100*c.share, 1) + " % canary whole",
		Columns: []Column{{Name: "turns"}, {Name: "per request", Unit: "%"}, {Name: "per session", Unit: "%"}}}
	whole := c.share
	pair := 0.0
	for turns := 1; turns <= c.turns; turns++ {
		if turns == 2 {
			pair = whole
		}
		if turns <= 3 || turns%5 == 0 || turns == c.turns {
			t.Rows = append(t.Rows, []Cell{Number(float64(turns), 0), Number(100*whole, 5), Number(100*c.share, 5)})
		}
		whole *= c.share
	}
	return Findings{Tables: []Table{t}, Verdicts: []Verdict{
		equals("15", "a 5 % canary per request gets both of two consecutive turns 0.25 % of the time", figure{0.25, 100 * pair, 2, " %"}),
		holds("15", "the loss is quadratic, not linear", pair < c.share, fmt.Sprintf("half the share leaves %s of the pairs",
			decimal(float64(c.share/2*c.share/2)/pair, 2))),
		holds("15", "a canary per session does far better", c.share > 10*pair,
			fmt.Sprintf("%s times as many pairs", decimal(c.share/pair, 0))),
	}}
}
