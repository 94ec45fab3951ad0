package main

import (
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
	k := keys{flag: "--queue"}
	for key, value := range k.all(text) {
		switch key {
		case "work":
			c.Work = k.duration(key, value, time.Millisecond, longestHold, "1ms to 10m")
		case "max-wait":
			c.MaxWait = k.duration(key, value, 10*time.Millisecond, longestHold, "10ms to 10m")
		case "tokens":
			c.Tokens = int64(k.integer(key, value, 1, 1e9))
		case "length":
			c.Length = k.integer(key, value, 1, 1e6)
		case "limit":
			if value != "gradient" {
				k.bad(key, value, "gradient")
			}
			c.Adaptive = true
		case "limit-min":
			c.Gradient.Min = k.integer(key, value, 1, 1e5)
		case "limit-max":
			c.Gradient.Max = k.integer(key, value, 1, 1e5)
		case "turn":
			c.Turn = k.integer(key, value, 0, 1000)
		case "principal":
			by, err := admission.ParsePrincipal(value)
			if err != nil {
				k.wrong("%w", err)
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
				k.bad(key, value, fmt.Sprintf("%v to %.0f", least, most))
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
				k.wrong("%w", err)
			}
			c.Order = o
		default:
			k.wrong("unknown key %q; allowed: work, tokens, limit, limit-min, limit-max, limit-tolerance, order, turn, principal, input, output, cached, quantum, length, max-wait, max-wait-ratio", key)
		}
	}
	if !k.seen["work"] && !k.seen["tokens"] && !k.seen["limit"] {
		k.wrong("%q has neither work, tokens nor limit: nothing would wait", text)
	}
	for _, key := range []string{"limit-min", "limit-max", "limit-tolerance"} {
		if k.seen[key] && !k.seen["limit"] {
			k.wrong("%s has no effect without limit", key)
		}
	}
	if c.Gradient.Min > c.Gradient.Max {
		k.wrong("limit-min: %d is not allowed; allowed: at most limit-max, %d", c.Gradient.Min, c.Gradient.Max)
	}
	for _, key := range []string{"principal", "input", "output", "cached", "quantum"} {
		if k.seen[key] && (!c.Order.Fair() || key == "quantum" && c.Order != admission.FairLocal) {
			k.wrong("%s has no effect with the order %v", key, c.Order)
		}
	}
	return c, k.err()
}

// parseFlights reads --single-flight, likewise.
func parseFlights(text string) (admission.FlightConfig, error) {
	c := admission.DefaultFlights()
	if text == "" {
		return c, nil
	}
	k := keys{flag: "--single-flight"}
	for key, value := range k.all(text) {
		switch key {
		case "min-tokens":
			c.MinTokens = k.integer(key, value, 1, 1e7)
		case "max-siblings":
			c.MaxSiblings = k.integer(key, value, 1, 1e5)
		case "max-wait":
			c.MaxWait = k.duration(key, value, time.Millisecond, longestHold, "1ms to 10m")
		default:
			k.wrong("unknown key %q; allowed: min-tokens, max-wait, max-siblings", key)
		}
	}
	if !k.seen["min-tokens"] {
		k.wrong("%q has no min-tokens: nothing would wait", text)
	}
	return c, k.err()
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
