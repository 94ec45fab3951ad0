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
		Look: []string{
			"At 5 % per request both of two consecutive turns come to the canary 0.25 % of the time: what it says of cache locality rests on one pair in four hundred.",
			"Per session it has every turn of the sessions that it takes, 20 times as many pairs.",
			"Turn `share` up to 0.5: per request it still meets a quarter of the pairs only, and one in a thousand of the conversations of ten turns.",
		},
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
	return Findings{Tables: []Table{t}, Plots: []Plot{c.plot()}, Verdicts: []Verdict{
		equals("15", "a 5 % canary per request gets both of two consecutive turns 0.25 % of the time", figure{0.25, 100 * pair, 2, " %"}),
		holds("15", "the loss is quadratic, not linear", pair < c.share, fmt.Sprintf("half the share leaves %s of the pairs",
			decimal(float64(c.share/2*c.share/2)/pair, 2))),
		holds("15", "a canary per session does far better", c.share > 10*pair,
			fmt.Sprintf("%s times as many pairs", decimal(c.share/pair, 0))),
	}}
}

// plot draws the pairs of turns that a canary meets, by its share.
func (c *canary) plot() Plot {
	p := Plot{Name: "pairs", Title: "pairs of consecutive turns that reach the canary", Kind: Lines, X: Axis{Label: "share of the traffic", Unit: "%"}, Y: Axis{Label: "pairs", Unit: "%"},
		Marks: []Mark{{"x", 100 * c.share, "canary"}}, Series: []Series{{Name: "per request"}, {Name: "per session"}}}
	for percent := range 101 {
		share := float64(percent)
		for i, y := range []float64{share * share / 100, share} {
			p.Series[i].X, p.Series[i].Y = append(p.Series[i].X, share), append(p.Series[i].Y, y)
		}
	}
	p.Says = fmt.Sprintf("A canary of %s %% meets %s %% of the pairs per request and %s %% per session.", decimal(100*c.share, 1), decimal(100*float64(c.share*c.share), 2), decimal(100*c.share, 1))
	return p
}
