package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"kvasir/gateway/admission"
)

// longestHold is the longest wait that may be asked for, as in the file.
const longestHold = 10 * time.Minute

// parseQueue reads --queue: KEY=VALUE, separated by commas. The error has every mistake.
func parseQueue(text string) (admission.Config, error) {
	c := admission.Default()
	c.Bytes = 1 << 40 // simulated calls have no bodies
	if text == "" {
		return c, nil
	}
	var errs []error
	bad := func(key, value, allowed string) {
		errs = append(errs, fmt.Errorf("--queue: %s: %q is not allowed; allowed: %s", key, value, allowed))
	}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		if seen[key] {
			errs = append(errs, fmt.Errorf("--queue: %s is given twice", key))
		}
		seen[key] = true
		switch key {
		case "work", "max-wait":
			d, err := time.ParseDuration(value)
			least, allowed := time.Millisecond, "1ms to 10m"
			if key == "max-wait" {
				least, allowed = 10*time.Millisecond, "10ms to 10m"
			}
			if err != nil || d < least || d > longestHold {
				bad(key, value, allowed)
			} else if key == "work" {
				c.Work = d
			} else {
				c.MaxWait = d
			}
		case "tokens":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 1 || n > 1e9 {
				bad(key, value, "1 to 1000000000")
			}
			c.Tokens = n
		case "length":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > 1e6 {
				bad(key, value, "1 to 1000000")
			}
			c.Length = n
		case "limit":
			if value != "gradient" {
				bad(key, value, "gradient")
			}
			c.Adaptive = true
		case "limit-min", "limit-max":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > 1e5 {
				bad(key, value, "1 to 100000")
			}
			if key == "limit-min" {
				c.Gradient.Min = n
			} else {
				c.Gradient.Max = n
			}
		case "turn":
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 || n > 1000 {
				bad(key, value, "0 to 1000")
			}
			c.Turn = n
		case "principal":
			by, err := admission.ParsePrincipal(value)
			if err != nil {
				errs = append(errs, fmt.Errorf("--queue: %w", err))
			}
			c.Fairness.By = by
		case "input", "output", "cached", "quantum", "max-wait-ratio", "limit-tolerance":
			least, most := 0.0, 1000.0
			switch key {
			case "quantum":
				least, most = 1, 1e9
			case "limit-tolerance":
				least, most = 1, 100
			}
			x, err := strconv.ParseFloat(value, 64)
			if err != nil || !(x >= least && x <= most) {
				bad(key, value, fmt.Sprintf("%v to %.0f", least, most))
				continue
			}
			switch key {
			case "input":
				c.Fairness.Input = x
			case "output":
				c.Fairness.Output = x
			case "cached":
				c.Fairness.Cached = x
			case "quantum":
				c.Fairness.Quantum = x
			case "limit-tolerance":
				c.Gradient.Tolerance = x
			default:
				c.MaxWaitRatio = x
			}
		case "order":
			o, err := admission.ParseOrder(value)
			if err != nil {
				errs = append(errs, fmt.Errorf("--queue: %w", err))
			}
			c.Order = o
		default:
			errs = append(errs, fmt.Errorf("--queue: unknown key %q; allowed: work, tokens, limit, limit-min, limit-max, limit-tolerance, order, turn, principal, input, output, cached, quantum, length, max-wait, max-wait-ratio", key))
		}
	}
	if !seen["work"] && !seen["tokens"] && !seen["limit"] {
		errs = append(errs, fmt.Errorf("--queue: %q has neither work, tokens nor limit: nothing would wait", text))
	}
	for _, key := range []string{"limit-min", "limit-max", "limit-tolerance"} {
		if seen[key] && !seen["limit"] {
			errs = append(errs, fmt.Errorf("--queue: %s has no effect without limit", key))
		}
	}
	if c.Gradient.Min > c.Gradient.Max {
		errs = append(errs, fmt.Errorf("--queue: limit-min: %d is not allowed; allowed: at most limit-max, %d", c.Gradient.Min, c.Gradient.Max))
	}
	for _, key := range []string{"principal", "input", "output", "cached", "quantum"} {
		if seen[key] && (!c.Order.Fair() || key == "quantum" && c.Order != admission.FairLocal) {
			errs = append(errs, fmt.Errorf("--queue: %s has no effect with the order %v", key, c.Order))
		}
	}
	return c, errors.Join(errs...)
}

// parseFlights reads --single-flight, likewise.
func parseFlights(text string) (admission.FlightConfig, error) {
	c := admission.DefaultFlights()
	if text == "" {
		return c, nil
	}
	var errs []error
	bad := func(key, value, allowed string) {
		errs = append(errs, fmt.Errorf("--single-flight: %s: %q is not allowed; allowed: %s", key, value, allowed))
	}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		if seen[key] {
			errs = append(errs, fmt.Errorf("--single-flight: %s is given twice", key))
		}
		seen[key] = true
		switch key {
		case "min-tokens":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > 1e7 {
				bad(key, value, "1 to 10000000")
			}
			c.MinTokens = n
		case "max-siblings":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > 1e5 {
				bad(key, value, "1 to 100000")
			}
			c.MaxSiblings = n
		case "max-wait":
			d, err := time.ParseDuration(value)
			if err != nil || d < time.Millisecond || d > longestHold {
				bad(key, value, "1ms to 10m")
			}
			c.MaxWait = d
		default:
			errs = append(errs, fmt.Errorf("--single-flight: unknown key %q; allowed: min-tokens, max-wait, max-siblings", key))
		}
	}
	if !seen["min-tokens"] {
		errs = append(errs, fmt.Errorf("--single-flight: %q has no min-tokens: nothing would wait", text))
	}
	return c, errors.Join(errs...)
}

// queueText names what makes calls wait at the gateway.
func queueText(c admission.Config, f admission.FlightConfig) string {
	var texts []string
	if c.On() {
		texts = append(texts, roomText(c))
	}
	if f.On() {
		texts = append(texts, fmt.Sprintf("siblings of a cold prefix wait to save %d tokens, at most %d for %v", f.MinTokens, f.MaxSiblings, f.MaxWait))
	}
	return strings.Join(texts, "; ")
}

func roomText(c admission.Config) string {
	var room []string
	if c.Work > 0 {
		room = append(room, c.Work.String())
	}
	if c.Tokens > 0 {
		room = append(room, fmt.Sprintf("%d tokens", c.Tokens))
	}
	var while []string
	if len(room) > 0 {
		while = append(while, strings.Join(room, " or ")+" unstarted")
	}
	if c.Adaptive {
		while = append(while, fmt.Sprintf("as many calls as a gradient finds, %d to %d, tolerance %g", c.Gradient.Min, c.Gradient.Max, c.Gradient.Tolerance))
	}
	return fmt.Sprintf("calls wait at the gateway while endpoints have %s, %v, at most %d for %v", strings.Join(while, " or "), c.Order, c.Length, c.MaxWait)
}
