package main

import (
	"testing"

	"kvasir/gateway/attempt"
)

// FuzzParseHedge: what is accepted hedges, within bounds.
func FuzzParseHedge(f *testing.F) {
	for _, text := range []string{"p95", "p99.9,budget=5%", "400ms,budget=100%,whole=10s", "p95,budget=5%,budget=6%", "p,whole=", ",", "1ms,budget=1e-9%"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseHedge(text)
		if err != nil || text == "" {
			return
		}
		late := c.After >= attempt.LeastHedgeAfter && c.After <= attempt.LongestHedgeAfter
		if !c.On() || c.Ratio > attempt.MostHedgeRatio || !late && (c.After != 0 || c.Quantile < attempt.LeastHedgeQuantile || c.Quantile >= 1) ||
			c.Whole != 0 && (c.Whole < attempt.LeastHedgeAfter || c.Whole > attempt.LongestHedgeAfter) {
			t.Errorf("%q is accepted as %+v", text, c)
		}
	})
}
