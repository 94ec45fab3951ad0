package main

import (
	"fmt"
	"strconv"
	"strings"

	"kvasir/gateway/attempt"
)

// parseHedge reads --hedge: when calls are hedged, then KEY=VALUE, separated by commas. The error
// has every mistake.
func parseHedge(text string) (attempt.HedgeConfig, error) {
	if text == "" {
		return attempt.HedgeConfig{}, nil
	}
	c := attempt.DefaultHedge()
	k := keys{flag: "--hedge"}
	after, rest, more := strings.Cut(text, ",")
	if err := c.SetAfter(after); err != nil {
		k.wrong("%q is not allowed; %w", after, err)
	}
	if !more {
		return c, k.err()
	}
	for key, value := range k.all(rest) {
		switch key {
		case "budget":
			percent, ok := strings.CutSuffix(value, "%")
			x, err := strconv.ParseFloat(percent, 64)
			if !ok || err != nil || !(x > 0 && x <= 100*attempt.MostHedgeRatio) {
				k.bad(key, value, "above 0% to 100%")
			}
			c.Ratio = x / 100
		case "whole":
			c.Whole = k.duration(key, value, attempt.LeastHedgeAfter, attempt.LongestHedgeAfter, fmt.Sprintf("%v to %v", attempt.LeastHedgeAfter, attempt.LongestHedgeAfter))
		default:
			k.wrong("unknown key %q; allowed: budget, whole", key)
		}
	}
	return c, k.err()
}

// hedgeText says which calls are hedged; "" where none is.
func hedgeText(c attempt.HedgeConfig) string {
	if !c.On() {
		return ""
	}
	after := fmt.Sprintf("P%.4g of the pool's times to first token", 100*c.Quantile)
	if c.After > 0 {
		after = c.After.String()
	}
	whole := ""
	if c.Whole > 0 {
		whole = fmt.Sprintf(", answers that come whole after %v", c.Whole)
	}
	return fmt.Sprintf("calls without content are hedged after %s%s, at most %.4g %% of them", after, whole, 100*c.Ratio)
}
