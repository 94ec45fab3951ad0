package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"kvasir/client/load"
	"kvasir/client/load/report"
	"kvasir/client/workload"
)

const benchUsage = `usage: kvasir bench --request-rate RATE [flags]

Sends a workload to an OpenAI- or Anthropic-compatible endpoint and measures how it is
answered. Calls are sent when they are due, however slow the answers are; latencies are
counted from then, and beside it from the actual send. Flags have vLLM's names; what other
tools call them is accepted, too (in parentheses).

the endpoint:
  --base-url URL            (--url) with or without /v1 at its end (default http://127.0.0.1:8080)
  --backend NAME            openai (completions), openai-chat, openai-responses, anthropic (default openai-chat)
  --endpoint PATH           default: the backend's
  --model NAME              default: the first that /v1/models names
  --header K=V …            added to each call
  --extra-body JSON         an object whose members each call's body has
  --ignore-eos              answers go on to their bound (engines know it, providers do not)
  --timeout DURATION        bound on a call (default 30m; 0: none)
  --ready-check-timeout-sec N  wait at most so long until it names a model (unless --model does) and
                            answers (default 60; 0: ask for a model's name alone, once)
  --num-warmups N           calls before the run that count nowhere (--warmup-request-count; default 0)

when calls are sent; there is no default rate:
  --request-rate RATE       sessions a second; inf: closed loop, which needs --max-concurrency
  --burstiness B            shape of the gamma distributed gaps: 1 Poisson, below bursty, inf even
                            (--arrival-smoothness; default 1)
  --arrival-pattern NAME    AIPerf's: poisson, gamma or constant (constant is --burstiness inf)
  --ramp-up-strategy NAME   linear or exponential, from --ramp-up-start-rps to --ramp-up-end-rps
  --self-timed              the dataset's own clock (--use-trace-timestamps, --fixed-schedule)
  --speedup FACTOR          of that clock (default 1)
  --max-concurrency N       (--concurrency) most calls in flight; a wait for it counts
  --num-prompts N           (--request-count, --num-requests) calls in all (default 1000)
  --benchmark-duration SEC  begin nothing after so long
  --session-timing HOW      within a session: after (the calls that one follows, and its gap) or
                            recorded (at the recorded offset) (default after)
  --seed N                  (--random-seed) of the workload and the arrivals (default 0)

what is sent:
  --dataset-name NAME       random (the default), prefix_repetition, generated-shared-prefix (gsp),
                            a workload such as 'conversations:turns=6' or '3*chat-turn + tool-agent'
                            (--list-workloads prints all of them)
                            or with --dataset-path: trace, timed_trace, mooncake_trace, custom, or a
                            format that kvasir trace -h lists
  --dataset-path FILE       a trace or prompts, perhaps compressed with zstd or gzip
  --strict                  end at its first bad record; otherwise they are passed over and counted
  --raw-timestamps          do not spread calls over the bins of its clock
  --timed-trace-chunk-hash-size N     tokens a hash id stands for (default: the format's)
  --timed-trace-sec-multiplier X      seconds that a timestamp of 1 means (default: the format's)
  --random-input-len N      (--isl, --input-len) default 1024
  --random-output-len N     (--osl, --output-len) default 128
  --random-range-ratio R    both vary by this part of them (default 0)
  --random-prefix-len N     tokens in front that all share (default 0)
  --prefix-repetition-prefix-len N   default 256; -suffix-len 256, -num-prefixes 10, -output-len 128
  --gsp-num-groups N        default 64; --gsp-prompts-per-group 16, --gsp-system-prompt-len 2048,
                            --gsp-question-len 128, --gsp-output-len 256, --gsp-range-ratio 0,
                            --gsp-num-turns 1, --gsp-group-distribution uniform|zipf,
                            --gsp-zipf-alpha 1
  --bytes-per-token X       of the endpoint's tokenizer on made-up words (default 4)

what is judged and shown:
  --goodput METRIC:MS …     what a good call meets: ttft, tpot, e2el, ntpot; ttft:2000 or ttft:2s
  --percentile-metrics LIST default ttft,tpot,itl,e2el,ntpot
  --metric-percentiles LIST default 50,95,99
  --lag-bound DURATION      a run whose own lag has a 99th percentile above it is invalid (default 50ms)

results:
  --save-result             a JSON file with vLLM's keys; --result-dir DIR (made if it is not there),
                            --result-filename NAME
  --save-detailed           every call in it (memory grows with the run); --append-result
  --label TEXT, --metadata K=V …   kept in it
  --metrics-url URL …       pages of metrics of the gateway and the engines, read before and after:
                            the table then says what of the TTFT was theirs
  --csv FILE                the table's numbers
  --plot PREFIX             PREFIX-latency.svg, -calls.svg, -ttft.svg, -in-flight.svg

a sweep to the knee:
  --sweep RATES|auto        a run for each of the rates (1,2,4), or a search that begins with
                            --request-rate; it ends where the endpoint does not keep up
  --sweep-attainment SHARE  share of good calls at which a rate holds (default 0.99)

Exit code 1: the run is invalid or incomplete. docs/bench.md has every definition.

example:
  kvasir bench --request-rate 20 --num-prompts 500 --goodput ttft:2000 tpot:50
`

// benchOptions is what the flags say.
type benchOptions struct {
	target  load.Target
	timeout time.Duration
	ready   time.Duration
	warmups int

	rate        float64 // NaN: none was given
	burstiness  float64
	ramp        report.Ramp
	selfTimed   bool
	speedup     float64
	concurrency int
	numPrompts  int
	duration    time.Duration
	recorded    bool
	seed        uint64
	tokenBytes  float64
	lagBound    time.Duration
	datasetName string
	datasetPath string
	list        bool // the workloads, and do nothing else
	strict, raw bool
	hashBlock   int     // tokens; 0: the format's
	timeUnit    float64 // seconds; 0: the format's
	random      struct {
		prefix, input, output int
		ratio                 float64
	}
	repetition struct{ prefixes, prefix, suffix, output int }
	shared     struct {
		groups, prompts, system, question, output, turns int
		ratio, zipf                                      float64
	}
	slo          report.SLO
	metrics      []string
	percentiles  []float64
	saveResult   bool
	saveDetailed bool
	appendResult bool
	resultDir    string
	resultFile   string
	label        string
	metadata     [][2]string
	csv, plot    string
	pages        words // of metrics

	sweep      *report.Sweep
	attainment float64
}

// words is a flag that may be given again and again.
type words []string

func (w *words) String() string     { return strings.Join(*w, " ") }
func (w *words) Set(s string) error { *w = append(*w, s); return nil }

// manyWords are the flags that take every word up to the next flag.
var manyWords = []string{"goodput", "header", "metadata", "metrics-url"}

// oneEach repeats the name of a flag before each of its words.
func oneEach(args []string) []string {
	var spread []string
	for i := 0; i < len(args); i++ {
		spread = append(spread, args[i])
		name := strings.TrimLeft(args[i], "-")
		if !strings.HasPrefix(args[i], "-") || !slices.Contains(manyWords, name) || i+1 == len(args) {
			continue
		}
		i++
		spread = append(spread, args[i])
		for i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			i++
			spread = append(spread, "--"+name, args[i])
		}
	}
	return spread
}

// benchFlags are the flags before they are checked.
type benchFlags struct {
	*flag.FlagSet
	o *benchOptions

	backend, extraBody, rate, burstiness, pattern, timing, metrics, percentiles, sweep string
	header, goodput, metadata                                                          words
	readySec, durationSec, zipf                                                        float64
	distribution                                                                       string
	wrong                                                                              []error // what is wrong with several flags together
}

// alias gives a flag that was defined another name.
func (f *benchFlags) alias(name string, others ...string) {
	for _, other := range others {
		f.Var(f.Lookup(name).Value, other, "")
	}
}

func newBenchFlags(o *benchOptions) *benchFlags {
	f := &benchFlags{FlagSet: flag.NewFlagSet("kvasir bench", flag.ContinueOnError), o: o}
	f.SetOutput(io.Discard)
	f.endpoint()
	f.pace()
	f.datasets()
	f.results()
	return f
}

func (f *benchFlags) endpoint() {
	o := f.o
	f.StringVar(&o.target.BaseURL, "base-url", "http://127.0.0.1:8080", "")
	f.alias("base-url", "url")
	f.StringVar(&f.backend, "backend", "openai-chat", "")
	f.StringVar(&o.target.Endpoint, "endpoint", "", "")
	f.StringVar(&o.target.Model, "model", "", "")
	f.Var(&f.header, "header", "")
	f.StringVar(&f.extraBody, "extra-body", "", "")
	f.BoolVar(&o.target.IgnoreEOS, "ignore-eos", false, "")
	durationFlag(f.FlagSet, &o.timeout, "timeout", 30*time.Minute)
	f.Float64Var(&f.readySec, "ready-check-timeout-sec", 60, "")
	f.IntVar(&o.warmups, "num-warmups", 0, "")
	f.alias("num-warmups", "warmup-request-count", "warmup-requests")
}

func (f *benchFlags) pace() {
	o := f.o
	f.StringVar(&f.rate, "request-rate", "", "")
	f.StringVar(&f.burstiness, "burstiness", "1", "")
	f.alias("burstiness", "arrival-smoothness")
	f.StringVar(&f.pattern, "arrival-pattern", "", "")
	f.StringVar(&o.ramp.Strategy, "ramp-up-strategy", "", "")
	f.Float64Var(&o.ramp.Start, "ramp-up-start-rps", math.NaN(), "")
	f.Float64Var(&o.ramp.End, "ramp-up-end-rps", math.NaN(), "")
	f.BoolVar(&o.selfTimed, "self-timed", false, "")
	f.alias("self-timed", "use-trace-timestamps", "fixed-schedule")
	f.Float64Var(&o.speedup, "speedup", 1, "")
	f.IntVar(&o.concurrency, "max-concurrency", 0, "")
	f.alias("max-concurrency", "concurrency")
	f.IntVar(&o.numPrompts, "num-prompts", 1000, "")
	f.alias("num-prompts", "request-count", "num-requests")
	f.Float64Var(&f.durationSec, "benchmark-duration", 0, "")
	f.StringVar(&f.timing, "session-timing", "after", "")
	f.Uint64Var(&o.seed, "seed", 0, "")
	f.alias("seed", "random-seed")
	durationFlag(f.FlagSet, &o.lagBound, "lag-bound", 50*time.Millisecond)
}

func (f *benchFlags) datasets() {
	o := f.o
	f.StringVar(&o.datasetName, "dataset-name", "random", "")
	f.StringVar(&o.datasetPath, "dataset-path", "", "")
	f.BoolVar(&o.list, "list-workloads", false, "")
	f.BoolVar(&o.strict, "strict", false, "")
	f.BoolVar(&o.raw, "raw-timestamps", false, "")
	f.IntVar(&o.hashBlock, "timed-trace-chunk-hash-size", 0, "")
	f.Float64Var(&o.timeUnit, "timed-trace-sec-multiplier", 0, "")
	f.Float64Var(&o.tokenBytes, "bytes-per-token", 4, "")

	r := &o.random
	f.IntVar(&r.prefix, "random-prefix-len", 0, "")
	f.IntVar(&r.input, "random-input-len", 1024, "")
	f.alias("random-input-len", "isl", "input-len")
	f.IntVar(&r.output, "random-output-len", 128, "")
	f.alias("random-output-len", "osl", "output-len")
	f.Float64Var(&r.ratio, "random-range-ratio", 0, "")

	p := &o.repetition
	f.IntVar(&p.prefix, "prefix-repetition-prefix-len", 256, "")
	f.IntVar(&p.suffix, "prefix-repetition-suffix-len", 256, "")
	f.IntVar(&p.output, "prefix-repetition-output-len", 128, "")
	f.IntVar(&p.prefixes, "prefix-repetition-num-prefixes", 10, "")

	g := &o.shared
	f.IntVar(&g.groups, "gsp-num-groups", 64, "")
	f.IntVar(&g.prompts, "gsp-prompts-per-group", 16, "")
	f.IntVar(&g.system, "gsp-system-prompt-len", 2048, "")
	f.IntVar(&g.question, "gsp-question-len", 128, "")
	f.IntVar(&g.output, "gsp-output-len", 256, "")
	f.Float64Var(&g.ratio, "gsp-range-ratio", 0, "")
	f.IntVar(&g.turns, "gsp-num-turns", 1, "")
	f.StringVar(&f.distribution, "gsp-group-distribution", "uniform", "")
	f.Float64Var(&f.zipf, "gsp-zipf-alpha", 1, "")
}

func (f *benchFlags) results() {
	o := f.o
	f.Var(&f.goodput, "goodput", "")
	f.StringVar(&f.metrics, "percentile-metrics", "ttft,tpot,itl,e2el,ntpot", "")
	f.StringVar(&f.percentiles, "metric-percentiles", "50,95,99", "")
	f.BoolVar(&o.saveResult, "save-result", false, "")
	f.BoolVar(&o.saveDetailed, "save-detailed", false, "")
	f.BoolVar(&o.appendResult, "append-result", false, "")
	f.StringVar(&o.resultDir, "result-dir", ".", "")
	f.StringVar(&o.resultFile, "result-filename", "", "")
	f.StringVar(&o.label, "label", "", "")
	f.Var(&f.metadata, "metadata", "")
	f.Var(&o.pages, "metrics-url", "")
	f.StringVar(&o.csv, "csv", "", "")
	f.StringVar(&o.plot, "plot", "", "")
	f.StringVar(&f.sweep, "sweep", "", "")
	f.Float64Var(&o.attainment, "sweep-attainment", 0.99, "")
}

// parseBench reads the flags. It reports every mistake.
func parseBench(args []string) (*benchOptions, error) {
	o := &benchOptions{}
	f := newBenchFlags(o)
	if err := f.Parse(oneEach(args)); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("%q is not a flag", f.Arg(0))
	}
	if o.list {
		return o, nil
	}
	var errs []error
	bad := func(flag string, value any, allowed string) {
		errs = append(errs, fmt.Errorf("--%s is %v; allowed: %s", flag, value, allowed))
	}
	f.readEndpoint(bad)
	f.readPace(bad)
	f.readResults(bad)
	errs = append(errs, f.wrong...)
	errs = append(errs, f.readWords()...)

	switch f.distribution {
	case "uniform":
	case "zipf":
		o.shared.zipf = f.zipf
	default:
		bad("gsp-group-distribution", f.distribution, "uniform or zipf")
	}
	ratio := func(flag string, v float64) {
		if !(v >= 0 && v <= 1) {
			bad(flag, v, "0 to 1")
		}
	}
	ratio("random-range-ratio", o.random.ratio)
	ratio("gsp-range-ratio", o.shared.ratio)
	if err := (workload.Text{BytesPerToken: o.tokenBytes}).Validate(); err != nil || o.tokenBytes == 0 {
		bad("bytes-per-token", o.tokenBytes, "1 to 64")
	}
	return o, errors.Join(errs...)
}

type complain func(flag string, value any, allowed string)

func (f *benchFlags) readEndpoint(bad complain) {
	o := f.o
	var names []string
	for _, b := range load.Backends() {
		names = append(names, b.Name)
		if b.Name == f.backend {
			o.target.Backend = b
		}
	}
	if o.target.Backend.Name == "" {
		bad("backend", strconv.Quote(f.backend), strings.Join(names, ", "))
	}
	if f.extraBody != "" {
		if err := json.Unmarshal([]byte(f.extraBody), &o.target.Extra); err != nil {
			bad("extra-body", f.extraBody, "a JSON object ("+err.Error()+")")
		}
	}
	if o.timeout < 0 {
		bad("timeout", o.timeout, "a duration such as 90s, or 0 for none")
	}
	o.ready = secondsOf("ready-check-timeout-sec", f.readySec, bad)
	if o.warmups < 0 || o.warmups > 1e6 {
		bad("num-warmups", o.warmups, "0 to 1000000")
	}
}

// seconds turns a number of seconds into a duration.
func secondsOf(flag string, s float64, bad complain) time.Duration {
	if !(s >= 0 && s <= 1e8) {
		bad(flag, s, "seconds from 0 to 1e8")
		return 0
	}
	return time.Duration(s * 1e9)
}

// number reads a flag's number.
func readNumber(flag, text string, bad complain, allowed string, ok func(float64) bool) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !ok(v) {
		bad(flag, strconv.Quote(text), allowed)
		return math.NaN()
	}
	return v
}

func (f *benchFlags) readPace(bad complain) {
	o := f.o
	o.rate = math.NaN()
	if f.rate != "" {
		o.rate = readNumber("request-rate", f.rate, bad, "a number of sessions a second from 1e-9 to 1e6, or inf", func(v float64) bool { return v >= 1e-9 && (v <= 1e6 || math.IsInf(v, 1)) })
	}
	o.burstiness = readNumber("burstiness", f.burstiness, bad, "0.001 or more, or inf", func(v float64) bool { return v >= 0.001 })
	switch f.pattern {
	case "", "gamma":
	case "poisson":
		o.burstiness = 1
	case "constant":
		o.burstiness = math.Inf(1)
	default:
		bad("arrival-pattern", strconv.Quote(f.pattern), "constant, poisson or gamma")
	}
	if o.concurrency < 0 || o.concurrency > 1<<14 {
		bad("max-concurrency", o.concurrency, "1 to 16384, or 0 for no bound")
	}
	if o.numPrompts < 1 || o.numPrompts > 1e9 {
		bad("num-prompts", o.numPrompts, "1 to 1000000000")
	}
	o.duration = secondsOf("benchmark-duration", f.durationSec, bad)
	switch f.timing {
	case "after":
	case "recorded":
		o.recorded = true
	default:
		bad("session-timing", strconv.Quote(f.timing), "after or recorded")
	}
	if o.lagBound <= 0 {
		bad("lag-bound", o.lagBound, "a duration above 0")
	}
	if !(o.speedup >= 1e-6 && o.speedup <= 1e6) {
		bad("speedup", o.speedup, "1e-6 to 1e6")
	}
	if !(o.timeUnit >= 0 && o.timeUnit <= 3600) {
		bad("timed-trace-sec-multiplier", o.timeUnit, "above 0, at most 3600")
	}
	f.readRamp(bad)
	o.readSweep(f.sweep, bad)
	const paces = "one of --request-rate RATE, --ramp-up-strategy NAME, --self-timed and --sweep RATES"
	var given []string
	for _, pace := range []struct {
		flag string
		is   bool
	}{{"--request-rate", !math.IsNaN(o.rate)}, {"--ramp-up-strategy", o.ramp.Strategy != ""}, {"--self-timed", o.selfTimed}} {
		if pace.is {
			given = append(given, pace.flag)
		}
	}
	switch {
	case f.rate != "" && math.IsNaN(o.rate), o.sweep != nil && o.sweep.Rates != nil:
	case len(given) == 0:
		f.wrong = append(f.wrong, errors.New("nothing says when calls are sent; allowed: "+paces))
	case len(given) > 1:
		f.wrong = append(f.wrong, fmt.Errorf("%s are given; allowed: %s", strings.Join(given, " and "), paces))
	case math.IsInf(o.rate, 1) && o.concurrency == 0:
		bad("request-rate", "inf", "inf with --max-concurrency alone: it is a closed loop, in which a call is sent when another one has ended")
	}
}

func (f *benchFlags) readRamp(bad complain) {
	o := f.o
	rate := func(v float64) bool { return v >= 1e-9 && v <= 1e6 }
	switch o.ramp.Strategy {
	case "":
		if !math.IsNaN(o.ramp.Start) || !math.IsNaN(o.ramp.End) {
			bad("ramp-up-strategy", "not given", "linear or exponential where the ramp's rates are given")
		}
	case "linear", "exponential":
		if !rate(o.ramp.Start) && !(o.ramp.Start == 0 && o.ramp.Strategy == "linear") {
			bad("ramp-up-start-rps", o.ramp.Start, "a number of sessions a second from 1e-9 to 1e6; a linear ramp may start at 0")
		}
		if !rate(o.ramp.End) {
			bad("ramp-up-end-rps", o.ramp.End, "a number of sessions a second from 1e-9 to 1e6")
		}
	default:
		bad("ramp-up-strategy", strconv.Quote(o.ramp.Strategy), "linear or exponential")
	}
}

func (o *benchOptions) readSweep(text string, bad complain) {
	if text == "" {
		return
	}
	o.sweep = &report.Sweep{Attainment: o.attainment}
	if text == "auto" {
		o.sweep.Start = o.rate
	} else {
		for word := range strings.SplitSeq(text, ",") {
			rate := readNumber("sweep", strings.TrimSpace(word), bad, "ascending rates from 1e-9 to 1e6, separated by commas, or auto", func(v float64) bool { return v >= 1e-9 && v <= 1e6 })
			o.sweep.Rates = append(o.sweep.Rates, rate)
		}
		if !math.IsNaN(o.rate) {
			bad("request-rate", o.rate, "none beside --sweep with rates")
		}
	}
	if o.selfTimed || o.ramp.Strategy != "" {
		bad("sweep", text, "no --self-timed and no ramp beside it")
	}
	if err := o.sweep.Validate(); err != nil && !slices.ContainsFunc(o.sweep.Rates, math.IsNaN) { // that was said
		bad("sweep", text, err.Error())
	}
}

func (f *benchFlags) readResults(bad complain) {
	o := f.o
	for word := range strings.SplitSeq(f.metrics, ",") {
		if word = strings.TrimSpace(word); !slices.Contains([]string{"ttft", "tpot", "itl", "e2el", "ntpot"}, word) {
			bad("percentile-metrics", strconv.Quote(f.metrics), "ttft, tpot, itl, e2el and ntpot, separated by commas")
			break
		}
		o.metrics = append(o.metrics, word)
	}
	for word := range strings.SplitSeq(f.percentiles, ",") {
		p := readNumber("metric-percentiles", strings.TrimSpace(word), bad, "numbers above 0, at most 100, separated by commas", func(v float64) bool { return v > 0 && v <= 100 })
		if slices.Contains(o.percentiles, p) {
			bad("metric-percentiles", strconv.Quote(f.percentiles), "each number once")
			continue
		}
		o.percentiles = append(o.percentiles, p)
	}
	o.saveResult = o.saveResult || o.saveDetailed || o.appendResult || o.resultFile != ""
	if o.appendResult && o.resultFile == "" {
		bad("append-result", "given", "with --result-filename alone")
	}
	if o.sweep != nil && o.resultFile != "" && !o.appendResult {
		bad("result-filename", o.resultFile, "in a sweep with --append-result alone, since each rate has a result")
	}
}

// readWords reads the flags that take several words.
func (f *benchFlags) readWords() (errs []error) {
	o := f.o
	var err error
	if o.slo, err = report.ParseSLO(f.goodput); err != nil {
		errs = append(errs, fmt.Errorf("--goodput: %w", err))
	}
	o.target.Header = http.Header{}
	errs = append(errs, o.readHeader(f.header)...)
	for _, word := range f.metadata {
		key, value, ok := strings.Cut(word, "=")
		if !ok || key == "" {
			errs = append(errs, fmt.Errorf("--metadata is %q; allowed: KEY=VALUE", word))
			continue
		}
		o.metadata = append(o.metadata, [2]string{key, value})
	}
	return errs
}
