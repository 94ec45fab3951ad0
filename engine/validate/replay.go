package validate

import (
	"fmt"
	"slices"

	"kvasir/engine"
	"kvasir/internal/mono"
)

// Latencies are those of the requests of a log, in its order, in seconds.
type Latencies struct {
	TTFT []float64 // first token − queued
	TPOT []float64 // (last token − first token) / (tokens − 1); requests of one token have none
	E2E  []float64 // last token − queued
}

func (l *Latencies) add(queued, first, last float64, tokens int) {
	l.TTFT = append(l.TTFT, first-queued)
	l.E2E = append(l.E2E, last-queued)
	if tokens > 1 {
		l.TPOT = append(l.TPOT, (last-first)/float64(tokens-1))
	}
}

// Measured returns what the real engine took.
func Measured(log []Request) Latencies {
	var l Latencies
	for _, q := range log {
		l.add(q.Queued, q.FirstToken, q.LastToken, q.Output)
	}
	return l
}

// Replay gives an engine of the configuration the log's requests, each at the instant at
// which the real engine queued it, and returns what the model takes. The error is the
// configuration's or names the line of a request that the engine refuses.
func Replay(c engine.Config, log []Request) (Latencies, engine.Stats, error) {
	c.EveryToken = false
	e, err := engine.New(c)
	if err != nil {
		return Latencies{}, engine.Stats{}, err
	}
	epoch := log[0].Queued
	first, last := make([]float64, len(log)), make([]float64, len(log))
	take := func(outputs []engine.Output) {
		for _, o := range outputs {
			at := epoch + o.At.Duration().Seconds()
			if o.First {
				first[o.ID] = at
			}
			last[o.ID] = at
		}
	}
	for i, q := range log {
		// queued_ts is stamped between two steps, and the step that follows has the request.
		at := mono.Time(0).Add(mono.FromSeconds(q.Queued - epoch))
		take(e.Advance(at))
		request := engine.Request{ID: engine.ID(i), PromptTokens: q.Prompt, OutputTokens: q.Output}
		if err := e.Submit(at, request); err != nil {
			return Latencies{}, engine.Stats{}, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	take(e.Advance(mono.Never))
	var l Latencies
	for i, q := range log {
		l.add(q.Queued, first[i], last[i], q.Output)
	}
	return l, e.Stats(), nil
}

// Quantity is one number of both engines, in seconds.
type Quantity struct {
	Name        string
	Real, Model float64
}

// Error returns how far the model is off, relative to the real engine.
func (q Quantity) Error() float64 { return q.Model/q.Real - 1 }

// Compare sets the means and 99th percentiles of the model beside the real engine's: mean
// TTFT, TPOT and E2E, then p99 of each.
func Compare(real, model Latencies) []Quantity {
	return []Quantity{
		{"mean TTFT", mean(real.TTFT), mean(model.TTFT)},
		{"mean TPOT", mean(real.TPOT), mean(model.TPOT)},
		{"mean E2E", mean(real.E2E), mean(model.E2E)},
		{"p99 TTFT", p99(real.TTFT), p99(model.TTFT)},
		{"p99 TPOT", p99(real.TPOT), p99(model.TPOT)},
		{"p99 E2E", p99(real.E2E), p99(model.E2E)},
	}
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// p99 returns the value at rank ⌈0.99·n⌉.
func p99(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	return s[(len(s)*99+99)/100-1]
}
