package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// JSON returns the result as one JSON object: first the keys of vLLM's benchmark, by its
// definitions (in them a call begins when it is sent), then what vLLM has not: the same from
// the intended send, the generator's lag, tokens from caches, endpoints, sessions, and the
// object "kvasir" with the keys that the simulator's results have, in seconds. A value that
// was not measured is null.
func (r *Result) JSON() ([]byte, error) {
	o := &object{}
	r.setup(o)
	r.totals(o)
	for _, d := range r.shown() {
		addMS(o, "", d.key, d.actual, r.Percentiles)
	}
	if r.Detailed {
		r.detailed(o)
	}
	r.beyond(o)
	for _, m := range r.Metadata {
		if o.has(m[0]) {
			return nil, fmt.Errorf("metadata %q is a key of the result itself", m[0])
		}
		o.add(m[0], m[1])
	}
	text, err := marshal(o)
	return append(text, '\n'), err
}

// setup adds what was asked for.
func (r *Result) setup(o *object) {
	o.add("date", r.Date.Format("20060102-150405"))
	o.add("endpoint_type", r.Backend)
	o.add("backend", r.Backend)
	o.add("label", orNull(r.Label))
	o.add("model_id", r.Model)
	o.add("tokenizer_id", nil) // tokens are counted by the endpoint
	o.add("num_prompts", r.Prompts)
	if math.IsInf(r.Rate, 1) {
		o.add("request_rate", "inf")
	} else {
		o.add("request_rate", r.Rate)
	}
	o.add("burstiness", r.Burstiness)
	o.add("max_concurrency", orNone(r.MaxConcurrency))
	if r.Ramp.Strategy != "" {
		o.add("ramp_up_strategy", r.Ramp.Strategy)
		o.add("ramp_up_start_rps", r.Ramp.Start)
		o.add("ramp_up_end_rps", r.Ramp.End)
		o.add("rps_change_events", r.rateChanges())
	}
}

// totals adds vLLM's counts and rates.
func (r *Result) totals(o *object) {
	o.add("duration", r.Duration.Seconds())
	o.add("completed", r.Completed)
	o.add("failed", r.Failed)
	o.add("total_input_tokens", r.Tokens.Input)
	o.add("total_output_tokens", r.Tokens.Output)
	o.add("request_throughput", r.Throughput())
	if len(r.SLO) > 0 {
		o.add("request_goodput", r.perSecond(r.Good.Actual))
	} else {
		o.add("request_goodput", nil)
	}
	o.add("output_throughput", r.perSecond(r.Tokens.Output))
	o.add("total_token_throughput", r.perSecond(r.Tokens.Input+r.Tokens.Output))
	o.add("max_output_tokens_per_s", r.peakOutputs())
	o.add("max_concurrent_requests", r.Peak)
	o.add("rtfx", 0.0) // seconds of audio a second: there is none
}

// shownMetric is a quantity that is shown.
type shownMetric struct {
	key, short, title string
	actual            *Distribution
	intended          *Distribution // nil: the same
}

// shown returns the quantities that the run shows, in vLLM's order.
func (r *Result) shown() []shownMetric {
	var shown []shownMetric
	for _, d := range []shownMetric{
		{"ttft", "TTFT", "Time to First Token", &r.TTFT.Actual, &r.TTFT.Intended},
		{"tpot", "TPOT", "Time per Output Token (excl. 1st token)", &r.TPOT, nil},
		{"itl", "ITL", "Inter-token Latency", &r.ITL, nil},
		{"e2el", "E2EL", "End-to-end Latency", &r.E2E.Actual, &r.E2E.Intended},
		{"ntpot", "NTPOT", "Normalized Latency (E2EL per output token)", &r.NTPOT.Actual, &r.NTPOT.Intended},
	} {
		if slices.Contains(r.Metrics, d.key) {
			shown = append(shown, d)
		}
	}
	return shown
}

// addMS adds the moments and percentiles of a quantity in milliseconds, as vLLM names them.
func addMS(o *object, prefix, key string, d *Distribution, percentiles []float64) {
	add := func(what string, seconds float64) { o.add(prefix+what+"_"+key+"_ms", seconds*1e3) }
	add("mean", d.Mean())
	add("median", d.Quantile(0.5))
	add("std", d.Std())
	for _, p := range percentiles {
		add(percentile(p), d.Quantile(p/100))
	}
	add("max", d.Max())
}

// percentile returns vLLM's word for a percentile: p99, p99.9.
func percentile(p float64) string { return "p" + strconv.FormatFloat(p, 'f', -1, 64) }

// beyond adds what vLLM's results have not.
func (r *Result) beyond(o *object) {
	o.add("valid", len(r.Invalid()) == 0)
	o.add("invalid_because", append([]string{}, r.Invalid()...))
	if r.Verdict != nil {
		o.add("sweep_holds", r.Verdict.Holds)
		o.add("sweep_does_not_hold_because", append([]string{}, r.Verdict.Why...))
	} else {
		o.add("sweep_holds", nil)
		o.add("sweep_does_not_hold_because", nil)
	}
	o.add("complete", r.Complete())
	o.add("stopped", orNull(r.Stopped))
	o.add("closed_loop", orNull(r.ClosedLoop))
	o.add("workload", r.Workload)
	o.add("seed", r.Seed)
	o.add("goodput_slo", orNull(r.SLO.String()))

	for _, d := range r.shown() {
		if d.intended != nil {
			addMS(o, "intended_", d.key, d.intended, r.Percentiles)
		}
	}
	if len(r.SLO) > 0 {
		o.add("intended_request_goodput", r.Goodput())
	} else {
		o.add("intended_request_goodput", nil)
	}
	o.add("offered_rate", r.Offered())
	o.add("send_rate", r.SendRate())
	o.add("schedule_lag_bound_ms", float64(r.LagBound)/1e6)
	addMS(o, "", "schedule_lag", &r.Lag, []float64{50, 99})
	addMS(o, "", "concurrency_wait", &r.Held, []float64{50, 99})
	addMS(o, "intended_", "visible_ttft", &r.Visible, r.Percentiles)

	o.add("sent", r.Sent)
	o.add("unfinished", r.Unfinished)
	o.add("unsent", r.Unsent)
	o.add("skipped_after_failure", r.Skipped)
	failures := &object{}
	for _, f := range r.Failures {
		one := &object{}
		one.add("calls", f.Calls)
		one.add("first", f.Example)
		failures.add(string(f.Kind), one)
	}
	o.add("failures", failures)

	o.add("streamed_outputs", r.StreamedOutputs)
	o.add("bad_events", r.BadEvents)
	o.add("calls_without_input_usage", r.Tokens.NoInput)
	o.add("calls_without_output_usage", r.Tokens.NoOutput)
	addCached(o, r.Tokens)
	addGroups(o, "endpoints", r.Endpoints)
	addGroups(o, "classes", r.Classes)
	o.add("sessions", r.Sessions)
	o.add("failed_sessions", r.FailedSessions)
	addMS(o, "", "session_completion", &r.Completion, r.Percentiles)
	spans := []*object{}
	for _, s := range r.Spans {
		one := &object{}
		one.add("span", s.Name)
		one.add("source", s.Source)
		one.add("mean_ms", s.Mean*1e3)
		one.add("calls", s.Calls)
		spans = append(spans, one)
	}
	o.add("spans", spans)
	o.add("spans_left_out", r.SpansLeftOut)
	o.add("definitions", definitionsObject())
	o.add("kvasir", r.simulated())
}

// addCached adds the tokens that came from caches; null where no usage told.
func addCached(o *object, t Tokens) {
	if t.CachedOf > 0 {
		o.add("cached_tokens", t.Cached)
	} else {
		o.add("cached_tokens", nil)
	}
	o.add("cached_token_ratio", t.CachedRatio())
}

func addGroups(o *object, key string, groups []*Group) {
	all := &object{}
	for _, g := range groups {
		one := &object{}
		one.add("completed", g.Completed)
		one.add("failed", g.Failed)
		addMS(one, "intended_", "ttft", &g.TTFT, []float64{99})
		addMS(one, "intended_", "e2el", &g.E2E, []float64{99})
		one.add("input_tokens", g.Tokens.Input)
		one.add("output_tokens", g.Tokens.Output)
		addCached(one, g.Tokens)
		if g.completion.Count() > 0 {
			addMS(one, "", "session_completion", &g.completion, []float64{99})
		}
		all.add(g.Name, one)
	}
	o.add(key, all)
}

// simulated is the result with the keys, units and definitions of kvasir sim's.
func (r *Result) simulated() *object {
	o := &object{}
	o.add("calls", r.Completed)
	for _, d := range []struct {
		key string
		of  *Distribution
	}{
		{"ttft_s", &r.TTFT.Intended}, {"tpot_s", &r.TPOT}, {"itl_s", &r.ITL}, {"e2e_s", &r.E2E.Intended},
		{"normalized_latency_s", &r.NTPOT.Intended}, {"session_completion_s", &r.Completion},
	} {
		one := &object{}
		one.add("mean", d.of.Mean())
		one.add("p50", d.of.Quantile(0.5))
		one.add("p95", d.of.Quantile(0.95))
		one.add("p99", d.of.Quantile(0.99))
		one.add("max", d.of.Max())
		o.add(d.key, one)
	}
	if len(r.SLO) > 0 {
		o.add("slo_attainment", r.Attainment())
		o.add("goodput_rps", r.Goodput())
	} else {
		o.add("slo_attainment", nil)
		o.add("goodput_rps", nil)
	}
	o.add("output_tokens_per_s", r.perSecond(r.Tokens.Output))
	o.add("cached_token_ratio", r.Tokens.CachedRatio())
	return o
}

// rateChanges lists when the rate of a ramp reached a whole number.
func (r *Result) rateChanges() []*object {
	changes := []*object{}
	for _, c := range r.Ramp.Changes {
		o := &object{}
		o.add("rps", c.Rate)
		o.add("timestamp", r.Date.Add(c.At).Format("2006-01-02T15:04:05.000000"))
		changes = append(changes, o)
	}
	return changes
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func orNone(n int) any {
	if n == 0 {
		return nil
	}
	return n
}
