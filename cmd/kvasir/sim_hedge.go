package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"kvasir/gateway/attempt"
)

// parseHedge reads --hedge: when calls are hedged, then KEY=VALUE, separated by commas. The error
// has every mistake.
func parseHedge(text string) (attempt.HedgeConfig, error) {
	if text == "" {
		return attempt.HedgeConfig{}, nil
	}
	c := attempt.DefaultHedge()
	var errs []error
	after, rest, more := strings.Cut(text, ",")
	if err := c.SetAfter(after); err != nil {
		errs = append(errs, fmt.Errorf("--hedge: %q is not allowed; %w", after, err))
	}
	seen := map[string]bool{}
	for more {
		var part string
		part, rest, more = strings.Cut(rest, ",")
		key, value, _ := strings.Cut(part, "=")
		if seen[key] {
			errs = append(errs, fmt.Errorf("--hedge: %s is given twice", key))
		}
		seen[key] = true
		switch key {
		case "budget":
			percent, ok := strings.CutSuffix(value, "%")
			x, err := strconv.ParseFloat(percent, 64)
			if !ok || err != nil || !(x > 0 && x <= 100*attempt.MostHedgeRatio) {
				errs = append(errs, fmt.Errorf("--hedge: budget: %q is not allowed; allowed: above 0%% to 100%%", value))
			}
			c.Ratio = x / 100
		case "whole":
			d, err := time.ParseDuration(value)
			if err != nil || d < attempt.LeastHedgeAfter || d > attempt.LongestHedgeAfter {
				errs = append(errs, fmt.Errorf("--hedge: whole: %q is not allowed; allowed: %v to %v", value, attempt.LeastHedgeAfter, attempt.LongestHedgeAfter))
			}
			c.Whole = d
		default:
			errs = append(errs, fmt.Errorf("--hedge: unknown key %q; allowed: budget, whole", key))
		}
	}
	return c, errors.Join(errs...)
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
