package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"kvasir/api"
	"kvasir/internal/stats"
)

const ms = time.Millisecond

// sample is an answered call of n outputs, the first one ttft after the send and the others
// a gap apart; it ends with the last.
func sample(intended, sent, ttft, gap time.Duration, outputs, tokens int) *Sample {
	s := &Sample{Intended: intended, Ready: intended, Sent: sent, Prompt: 100, Usage: api.Usage{Input: 100, Output: tokens, Cached: 40}}
	at := sent + ttft
	for range outputs {
		s.Outputs.Add(at)
		s.End = at
		at += gap
	}
	return s
}

func collect(slo SLO, detailed bool, samples ...*Sample) *Collector {
	c := NewCollector(slo, detailed)
	for _, s := range samples {
		c.Begin(s)
		c.Add(s)
	}
	return c
}

var full = Run{
	Date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Backend: "openai-chat", Model: "m", Workload: "random", Prompts: 3, Rate: 2, Burstiness: 1,
	Metrics: []string{"ttft", "tpot", "itl", "e2el", "ntpot"}, Percentiles: []float64{50, 99}, LagBound: 50 * ms,
	Ramp: Ramp{Strategy: "linear", Start: 1, End: 2, Changes: []RateChange{{1, 0}, {2, time.Second}}},
	SLO:  SLO{{"ttft", 100 * ms}},
}

func TestJSON_HasAllOfVLLMsKeys(t *testing.T) {
	c := collect(full.SLO, true, sample(0, 0, 50*ms, 10*ms, 3, 3), sample(100*ms, 200*ms, 60*ms, 20*ms, 4, 7))
	text, err := c.Result(full).JSON()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	keys, err := os.ReadFile("testdata/vllm_keys.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for key := range strings.Lines(string(keys)) {
		if key = strings.TrimSpace(key); key == "" || key[0] == '#' {
			continue
		}
		n++
		if _, ok := got[key]; !ok {
			t.Errorf("no %s", key)
		}
	}
	if n < 50 {
		t.Errorf("only %d keys were looked for", n)
	}
	for key, want := range map[string]any{
		"completed": 2.0, "request_rate": 2.0, "total_output_tokens": 10.0, "total_input_tokens": 200.0, "cached_tokens": 80.0,
		"mean_ttft_ms": 55.0, "intended_mean_ttft_ms": 105.0, "mean_e2el_ms": 95.0, "intended_mean_e2el_ms": 145.0,
		"mean_tpot_ms": 10.0, "mean_itl_ms": 16.0, "max_itl_ms": 20.0, "label": nil, "valid": true, "complete": true,
		"request_goodput": 2 / 0.32, "intended_request_goodput": 1 / 0.32, "duration": 0.32,
	} {
		v, ok := got[key]
		f, number := want.(float64)
		if number {
			g, _ := v.(float64)
			ok = ok && math.Abs(g-f) < 1e-9*f
		} else {
			ok = ok && v == want
		}
		if !ok {
			t.Errorf("%s is %v, want %v", key, v, want)
		}
	}
	for key, want := range map[string]string{
		"ttfts": "[0.05 0.06]", "itls": "[[0.01 0.01] [0.02 0.02 0.02]]", "start_times": "[0 0.2]", "intended_start_times": "[0 0.1]",
		"input_lens": "[100 100]", "output_lens": "[3 7]", "errors": "[ ]",
	} {
		if g := fmt.Sprint(got[key]); g != want {
			t.Errorf("%s is %s, want %s", key, g, want)
		}
	}
}

// What was not measured is null, not 0.
func TestJSON_NothingMeasuredIsNull(t *testing.T) {
	run := full
	run.Rate, run.SLO = math.Inf(1), nil
	text, err := NewCollector(nil, false).Result(run).JSON()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"mean_ttft_ms", "p99_itl_ms", "request_throughput", "request_goodput", "cached_tokens"} {
		if v, ok := got[key]; !ok || v != nil {
			t.Errorf("%s is %v", key, v)
		}
	}
	if got["request_rate"] != "inf" || got["valid"] != false {
		t.Errorf("rate %v, valid %v", got["request_rate"], got["valid"])
	}
}

func TestJSON_MetadataMustNotHideAResult(t *testing.T) {
	run := full
	run.Metadata = [][2]string{{"card", "h100"}}
	text, err := NewCollector(nil, false).Result(run).JSON()
	if err != nil || !bytes.Contains(text, []byte(`"card":"h100"`)) {
		t.Errorf("%v: %s", err, text)
	}
	run.Metadata = [][2]string{{"completed", "all"}}
	if _, err := NewCollector(nil, false).Result(run).JSON(); err == nil || !strings.Contains(err.Error(), `"completed"`) {
		t.Error("metadata took the place of a result:", err)
	}
}

func TestSample_ASingleTokenHasNoTPOT(t *testing.T) {
	s := sample(0, 0, 50*ms, 0, 1, 1)
	if _, ok := s.TPOT(); ok {
		t.Error("an answer of one token has a TPOT")
	}
	if c := collect(nil, false, s); c.result.TPOT.Count() != 0 || c.result.NTPOT.Actual.Count() != 1 {
		t.Error("TPOT was counted, or NTPOT was not")
	}
	s = sample(0, 0, 50*ms, 10*ms, 5, api.Unknown)
	if tpot, ok := s.TPOT(); !ok || tpot != 10*ms {
		t.Errorf("without usage TPOT is %v", tpot)
	}
	if c := collect(nil, false, s); c.result.Tokens.NoOutput != 1 || c.result.Tokens.Output != 5 {
		t.Errorf("tokens %+v", c.result.Tokens)
	}
}

func TestGoodput_CountsCallsThatMeetEveryBound(t *testing.T) {
	slo, err := ParseSLO([]string{"ttft:100", "tpot:20ms", "e2el:0.2s"})
	if err != nil {
		t.Fatal(err)
	}
	held := func(d time.Duration, s *Sample) *Sample { s.Intended -= d; return s }
	at := time.Second
	for _, x := range []struct {
		s                *Sample
		actual, intended bool
	}{
		{sample(at, at, 100*ms, 20*ms, 6, 6), true, true},
		{sample(at, at, 101*ms, 5*ms, 6, 6), false, false},
		{sample(at, at, 50*ms, 21*ms, 6, 6), false, false},
		{sample(at, at, 50*ms, 20*ms, 9, 9), false, false}, // 210 ms in all
		{sample(at, at, 50*ms, 0, 1, 1), true, true},
		{sample(at, at, 50*ms, 40*ms, 3, 5), true, true}, // two tokens an output
		{held(51*ms, sample(at, at, 50*ms, 1*ms, 3, 3)), true, false},
	} {
		r := collect(slo, false, x.s).Result(Run{SLO: slo})
		if r.Good.Actual != b2i(x.actual) || r.Good.Intended != b2i(x.intended) {
			t.Errorf("%+v: good %+v", x, r.Good)
		}
	}
	failed := sample(at, at, 50*ms, 0, 1, 1)
	failed.Failure = Broken
	r := collect(slo, false, sample(at, at, 50*ms, 0, 1, 1), failed).Result(Run{SLO: slo})
	if r.Attainment() != 0.5 {
		t.Errorf("attainment %v of a good and a failed call", r.Attainment())
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestParseSLO_NamesWhatIsWrong(t *testing.T) {
	_, err := ParseSLO([]string{"ttft", "itl:5", "size:1", "tpot:x", "e2el:-1", "ttft:1", "ttft:2"})
	for _, want := range []string{`"ttft" has no colon`, `"itl:5"`, `"size:1"`, `"tpot:x"`, `"e2el:-1"`, `"ttft:2" bounds ttft again`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("nothing of %s in %v", want, err)
		}
	}
}

func FuzzParseSLO(f *testing.F) {
	f.Add("ttft:2000")
	f.Add("tpot:2s")
	f.Fuzz(func(t *testing.T, word string) {
		slo, err := ParseSLO([]string{word})
		if err != nil {
			return
		}
		again, err := ParseSLO(strings.Fields(slo.String()))
		if err != nil || !slices.Equal(slo, again) || len(slo) != 1 || slo[0].Most < 0 {
			t.Errorf("%q is %v, and that is %v, %v", word, slo, again, err)
		}
	})
}

func TestDistribution_AgreesWithExactFigures(t *testing.T) {
	var d, half Distribution
	var values []float64
	for i := range 5000 {
		v := 1e6 + time.Duration(i)*time.Duration(i)*977
		values = append(values, v.Seconds())
		if i%2 == 0 {
			d.Add(v)
		} else {
			half.Add(v)
		}
	}
	d.Merge(&half)
	s := stats.Summarize(values)
	for what, x := range map[string][3]float64{
		"mean": {d.Mean(), s.Mean, 1e-9}, "std": {d.Std(), s.Std, 1e-9}, "max": {d.Max(), s.Max, 0},
		"p50": {d.Quantile(0.5), s.P50, 0.008}, "p99": {d.Quantile(0.99), s.P99, 0.008},
	} {
		if math.Abs(x[0]-x[1]) > x[2]*x[1] {
			t.Errorf("%s is %v, exactly %v", what, x[0], x[1])
		}
	}
	var empty Distribution
	if !math.IsNaN(empty.Mean()) || !math.IsNaN(empty.Max()) || !math.IsNaN(empty.Quantile(0.5)) {
		t.Error("an empty distribution has figures")
	}
}

// However many gaps a call has, each is counted, in bounded memory.
func TestOutputs_CountEveryGapInBoundedMemory(t *testing.T) {
	var o Outputs
	const n = 3 * keptGaps
	for i := range n {
		o.Add(time.Duration(i) * ms)
	}
	var d Distribution
	o.addGaps(&d)
	if d.Count() != n-1 || d.Mean() != 0.001 || len(o.gaps) != keptGaps {
		t.Errorf("%d gaps of %v s, %d kept", d.Count(), d.Mean(), len(o.gaps))
	}
	o.Reset()
	d = Distribution{}
	o.Add(5 * ms)
	if o.addGaps(&d); d.Count() != 0 || o.N != 1 || o.First != 5*ms {
		t.Errorf("after Reset %+v", o)
	}
}

func TestTimeline_CoarsensWithoutLosingCounts(t *testing.T) {
	var line timeline
	const seconds = 3*mostBins + 17
	for i := range seconds {
		b := line.at(time.Duration(i) * time.Second)
		b.sent++
		b.inFlight = max(b.inFlight, i%7)
	}
	sum, most := 0, 0
	for _, b := range line.bins {
		sum, most = sum+b.sent, max(most, b.inFlight)
	}
	if sum != seconds || most != 6 || len(line.bins) > mostBins || line.width != 4*time.Second {
		t.Errorf("%d of %d calls, %d at once, %d bins of %v", sum, seconds, most, len(line.bins), line.width)
	}
	if c := line.coarse(300); len(c.bins) > 300 || len(line.bins) < 1000 {
		t.Errorf("%d coarse bins, %d left", len(c.bins), len(line.bins))
	}
}

func TestInvalid_AboveTheBoundOnLag(t *testing.T) {
	late := func(lag time.Duration) *Result {
		var samples []*Sample
		for i := range 100 {
			s := sample(time.Duration(i)*100*ms, time.Duration(i)*100*ms+lag, 10*ms, ms, 2, 2)
			s.Ready = s.Sent
			samples = append(samples, s)
		}
		return collect(nil, false, samples...).Result(full)
	}
	if why := late(49 * ms).Invalid(); len(why) != 0 {
		t.Errorf("a lag of 49 ms: %v", why)
	}
	if why := late(51 * ms).Invalid(); len(why) != 1 || !strings.Contains(why[0], "fell behind") {
		t.Errorf("a lag of 51 ms: %v", why)
	}
	// A wait for concurrency is the endpoint's, not the generator's.
	s := sample(0, time.Second, 10*ms, ms, 2, 2)
	if why := collect(nil, false, s).Result(full).Invalid(); len(why) != 0 {
		t.Errorf("a wait for concurrency: %v", why)
	}
}

// queue is a server of one call at a time, each of the length given, that calls come to at a
// constant rate for 60 seconds.
func queue(rate float64, service time.Duration) *Result {
	c := NewCollector(nil, false)
	var free time.Duration
	type ending struct{ s *Sample }
	var flying []ending
	for i := 0; float64(i) < 60*rate; i++ {
		at := time.Duration(float64(i) / rate * 1e9)
		for len(flying) > 0 && flying[0].s.End <= at {
			c.Add(flying[0].s)
			flying = flying[1:]
		}
		free = max(free, at) + service
		s := sample(at, at, free-at, 0, 1, 1)
		c.Begin(s)
		flying = append(flying, ending{s})
	}
	for _, f := range flying {
		c.Add(f.s)
	}
	return c.Result(full)
}

func TestSaturated_WhereAQueueGrows(t *testing.T) {
	if why := queue(9, 100*ms).Saturated(); len(why) != 0 {
		t.Errorf("9 a second of 10: %v", why)
	}
	if why := queue(12, 100*ms).Saturated(); len(why) != 1 || !strings.Contains(why[0], "grew") {
		t.Errorf("12 a second of 10: %v", why)
	}
	held := sample(time.Second, 1100*ms, 10*ms, 0, 1, 1)
	if why := collect(nil, false, held).Result(full).Saturated(); len(why) != 1 || !strings.Contains(why[0], "offered") {
		t.Errorf("sent a tenth too slowly: %v", why)
	}
	failed := sample(0, 0, ms, 0, 1, 1)
	failed.Failure = Broken
	if why := collect(nil, false, sample(0, 0, ms, 0, 1, 1), failed).Result(full).Saturated(); len(why) != 1 || !strings.Contains(why[0], "failed") {
		t.Errorf("half of the calls failed: %v", why)
	}
}

// sweepTo runs a sweep against a queue that can do 10 calls a second.
func sweepTo(s *Sweep) {
	for rate, ok := s.Next(); ok; rate, ok = s.Next() {
		s.Add(rate, queue(rate, 100*ms).withoutSLO())
	}
}

func (r *Result) withoutSLO() *Result { r.SLO = nil; return r }

func TestSweep_FindsTheKnee(t *testing.T) {
	for _, start := range []float64{1, 7, 35, 200} {
		s := &Sweep{Start: start, Attainment: 0.9}
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		sweepTo(s)
		knee, ok := s.Knee()
		if !ok || knee < 9 || knee > 10.6 {
			t.Errorf("from %v the knee is %v, %v after %d rates", start, knee, ok, len(s.Steps()))
		}
	}
	s := &Sweep{Rates: []float64{5, 8, 13, 20, 40}, Attainment: 0.9}
	sweepTo(s)
	if knee, _ := s.Knee(); knee != 8 || len(s.Steps()) != 3 {
		t.Errorf("knee %v after %d rates; want 8 and no rate after the first that is too much", knee, len(s.Steps()))
	}
	var table, csv bytes.Buffer
	if err := s.Table(&table); err != nil || !strings.Contains(table.String(), "knee: 8.00 req/s") {
		t.Errorf("%v: %s", err, &table)
	}
	if err := s.CSV(&csv); err != nil || strings.Count(csv.String(), "\n") != 4 {
		t.Errorf("%v: %s", err, &csv)
	}
	if err := s.Curve().SVG(&csv); err != nil {
		t.Error(err)
	}
	if err := s.Waits().SVG(&csv); err != nil {
		t.Error(err)
	}
	fast := &Sweep{Start: 9e5, Attainment: 0.9}
	fast.Add(9e5, queue(1, 10*ms).withoutSLO())
	if rate, more := fast.Next(); more || !fast.Steps()[0].Holds {
		t.Errorf("%v req/s is asked for, which no arrivals can have", rate)
	}
	for _, s := range []*Sweep{{Rates: []float64{1e308}, Attainment: 0.9}, {Start: 1e7, Attainment: 0.9}} {
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "at most 1e+06") {
			t.Errorf("%v, %v: %v", s.Rates, s.Start, err)
		}
	}
	bad := &Sweep{Rates: []float64{2, 1, -1}, Attainment: 2}
	if err := bad.Validate(); err == nil || strings.Count(err.Error(), "allowed") < 3 {
		t.Errorf("mistakes: %v", err)
	}
}

// A run in which the generator fell behind is not the endpoint's fault: it is made again, and
// after three of them nothing is said of the rate.
func TestSweep_ALateGeneratorIsNotAKnee(t *testing.T) {
	late := func(rate float64) *Result {
		r := queue(rate, 10*ms).withoutSLO()
		for range 1000 {
			r.Lag.Add(time.Second)
		}
		return r
	}
	s := &Sweep{Rates: []float64{1, 2, 4}, Attainment: 0.9}
	var rates []float64
	for rate, ok := s.Next(); ok; rate, ok = s.Next() {
		rates = append(rates, rate)
		switch n := len(rates); {
		case n == 2 || n == 3 || n > 4: // 2 is late twice, 4 is late always
			s.Add(rate, late(rate))
		default:
			s.Add(rate, queue(rate, 10*ms).withoutSLO())
		}
	}
	knee, _ := s.Knee()
	at, ended := s.Unmeasured()
	if fmt.Sprint(rates) != "[1 2 2 2 4 4 4]" || knee != 2 || at != 4 || !ended {
		t.Errorf("rates %v, knee %v, ended at %v %v", rates, knee, at, ended)
	}
	var table bytes.Buffer
	if err := s.Table(&table); err != nil || !strings.Contains(table.String(), "ENDED at 4.00 req/s, at which the generator fell behind 3 times (lag at its 99th percentile: 1000.00 ms)") || !strings.Contains(table.String(), "what helps: fewer calls a second of one generator") {
		t.Errorf("%v: %s", err, &table)
	}
}

// With an SLO a rate holds by its good calls, although the endpoint keeps up.
func TestSweep_HoldsByTheSLO(t *testing.T) {
	s := &Sweep{Rates: []float64{1}, Attainment: 0.9}
	r := queue(1, 100*ms)
	r.SLO, r.Good.Intended = SLO{{"ttft", 50 * ms}}, 0
	s.Add(1, r)
	if _, ok := s.Knee(); ok {
		t.Error("a rate holds without a good call")
	}
	if why := s.Steps()[0].Why; len(why) != 1 || why[0] != "0 % of the calls are good, under the bound of 90 %" {
		t.Errorf("it does not hold because %q", why)
	}
	r.Good.Intended = r.Completed * 95 / 100
	s = &Sweep{Rates: []float64{1}, Attainment: 0.9}
	s.Add(1, r)
	if _, ok := s.Knee(); !ok {
		t.Error("95 % of good calls do not hold at 90 %")
	}
}

// A rate that does not hold says by which bound, in the table, the JSON and the CSV.
func TestSweep_SaysWhyARateDoesNotHold(t *testing.T) {
	growing := queue(20, 100*ms).withoutSLO()
	failing := queue(1, 10*ms).withoutSLO()
	failing.Failed = failing.Completed
	slow := queue(1, 10*ms).withoutSLO()
	slow.LastSent = 2 * slow.LastIntended
	cut := queue(1, 10*ms).withoutSLO()
	cut.Stopped = "the source failed"
	unanswered := queue(1, 10*ms)
	unanswered.Completed, unanswered.Failed = 0, 0
	for _, x := range []struct {
		r    *Result
		want string
	}{
		{growing, "the queue grew: calls in flight and TTFT rose all the time"},
		{failing, "50 % of the calls failed, over the bound of 5 %"},
		{slow, "sent 0.51 calls a second of 1.02 offered, under the bound of 95 % of it"},
		{cut, "it ended early: the source failed"},
		{unanswered, "no call was answered"},
	} {
		s := &Sweep{Rates: []float64{1}, Attainment: 0.9}
		s.Add(1, x.r)
		var table, csv bytes.Buffer
		if err := errors.Join(s.Table(&table), s.CSV(&csv)); err != nil {
			t.Fatal(err)
		}
		text, err := x.r.JSON()
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Holds *bool    `json:"sweep_holds"`
			Why   []string `json:"sweep_does_not_hold_because"`
		}
		if err := json.Unmarshal(text, &got); err != nil || got.Holds == nil || *got.Holds || fmt.Sprint(got.Why) != "["+x.want+"]" {
			t.Errorf("%v: %q, want %q", err, got.Why, x.want)
		}
		if !strings.Contains(table.String(), "does not hold: "+x.want+"\nknee: no rate held\n") || !strings.Contains(table.String(), "P99 lag ms") || !strings.Contains(csv.String(), x.want) {
			t.Errorf("no %q in\n%s%s", x.want, &table, &csv)
		}
	}
}

// A sweep that measured no rate says so, and why.
func TestSweep_WithoutARow(t *testing.T) {
	s := &Sweep{Start: 8, Attainment: 0.9}
	for rate, ok := s.Next(); ok; rate, ok = s.Next() {
		r := queue(rate, 10*ms).withoutSLO()
		for range 1000 {
			r.Lag.Add(time.Second)
		}
		s.Add(rate, r)
		if lag, late := r.Late(); !late || lag < 0.9 || r.Verdict.Holds || !strings.Contains(strings.Join(r.Verdict.Why, ""), "over the bound of 50ms") {
			t.Errorf("late %v, by %v: %v", late, lag, r.Verdict)
		}
	}
	var table bytes.Buffer
	if err := s.Table(&table); err != nil || !strings.Contains(table.String(), "nothing is known of this rate") || !strings.Contains(table.String(), "knee: no rate was measured\n") {
		t.Errorf("%v: %s", err, &table)
	}
}

func TestTable_SaysWhatSpoilsARun(t *testing.T) {
	failed := sample(0, 0, ms, 0, 1, 1)
	failed.Failure, failed.Detail = "http_500", "boom"
	cut := sample(0, 0, ms, 0, 1, 1)
	cut.Failure = Unfinished
	late := sample(0, time.Second, 10*ms, ms, 3, 3)
	late.Ready, late.Endpoint, late.Class, late.Spans = late.Sent, "e1", "chat", []Span{{"queue", 3 * ms}}
	run := full
	run.ClosedLoop, run.Stopped = "everything waits", "interrupted"
	r := collect(full.SLO, false, failed, cut, late).Result(run)
	var out bytes.Buffer
	if err := r.Table(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"INVALID: the generator fell behind", "what helps: fewer calls a second of one generator (several share a rate), more CPU for it, or a wider --lag-bound", "INCOMPLETE: interrupted", "FAILURES: 1 of 2", "CLOSED LOOP: everything waits", "http_500:", "first: boom",
		"P99 TTFT (ms):", "Max E2EL (ms):", "Mean NTPOT (ms):", "e1", "chat", "queue (ms):", "Lag P50", "Request goodput",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	out.Reset()
	if err := r.CSV(&out); err != nil || !strings.Contains(out.String(), "ttft,actual send,1,10.000000") || !strings.Contains(out.String(), "ttft,intended send,1,1010.000000") {
		t.Errorf("%v: %s", err, &out)
	}
	for _, c := range []interface{ Validate() error }{r.Latency(), r.Rates(), r.Waits(), r.InFlight()} {
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
}

// Sessions without a class are no class.
func TestCollector_NoClassIsNoGroup(t *testing.T) {
	c := collect(nil, false, sample(0, 0, ms, ms, 2, 2))
	c.AddSession(SessionSample{End: 2 * ms, Calls: 1})
	c.AddSession(SessionSample{Class: "chat", End: 4 * ms, Calls: 1})
	if r := c.Result(full); len(r.Classes) != 1 || r.Classes[0].completion.Count() != 1 || r.Completion.Count() != 2 {
		t.Errorf("classes %+v", r.Classes)
	}
}

// Names that an endpoint makes up do not fill the memory.
func TestCollector_BoundsNames(t *testing.T) {
	c := NewCollector(nil, false)
	for i := range 1000 {
		s := sample(0, 0, ms, ms, 2, 2)
		s.Endpoint, s.Spans = fmt.Sprint("e", i), []Span{{fmt.Sprint("s", i), ms}}
		c.Begin(s)
		c.Add(s)
	}
	r := c.Result(full)
	calls := 0
	for _, g := range r.Endpoints {
		calls += g.Completed
	}
	if len(r.Endpoints) != mostGroups+1 || calls != 1000 || len(r.Spans) != mostSpans || r.SpansLeftOut != 1000-mostSpans {
		t.Errorf("%d endpoints with %d calls, %d spans and %d left out", len(r.Endpoints), calls, len(r.Spans), r.SpansLeftOut)
	}
}

func BenchmarkCollector(b *testing.B) {
	c := NewCollector(full.SLO, false)
	s := sample(0, 0, 50*ms, 10*ms, 128, 128)
	b.ReportAllocs()
	for b.Loop() {
		c.Begin(s)
		c.Add(s)
	}
}
