// Command overload asks a pool for three times what it can do, and looks at what it still does
// of use, and whether that comes back by itself: two kvasir engine processes that are slowed
// down, kvasir serve in a process of its own, kvasir bench as an open loop that does not wait.
// It ends with a table, and with status 1 where a promise was broken.
//
//	go run ./overload -surge 60s
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"kvasir/test/endurance/internal/program"
	"kvasir/test/endurance/internal/report"
)

// options is what a run can be told.
type options struct {
	rate   float64
	factor float64
	calm   time.Duration
	surge  time.Duration
	speed  float64
	binary string
	bare   bool
}

var promises = []string{
	"keeps goodput under the overload is 90 % of its peak at least",
	"returns within 30 s after it goodput is 90 % of what it was before",
	"refuses what can't be answered in time is refused fast",
}

func main() {
	var o options
	flag.Float64Var(&o.rate, "rate", 4, "calls a second that are the pool's capacity")
	flag.Float64Var(&o.factor, "factor", 3, "how many times that come meanwhile")
	flag.DurationVar(&o.calm, "calm", 30*time.Second, "how long it is asked for less before and after")
	flag.DurationVar(&o.surge, "surge", time.Minute, "how long the overload lasts")
	flag.Float64Var(&o.speed, "speed", 0.1, "engine seconds a real second")
	flag.StringVar(&o.binary, "binary", "", "a kvasir to run; empty builds one")
	flag.BoolVar(&o.bare, "bare", false, "without queue and deadlines, for comparison; nothing is judged")
	flag.Parse()
	broken, err := run(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "overload:", err)
		os.Exit(1)
	}
	if broken > 0 {
		fmt.Printf("FAILED: %d violations\n", broken)
		os.Exit(1)
	}
}

// bound is the SLO on the first token.
const bound = 4 * time.Second

// stage is the running processes.
type stage struct {
	binary  *program.Binary
	engines []*program.Engine
	gateway *program.Gateway
}

func (s *stage) close() error {
	var errs []error
	if s.gateway != nil {
		errs = append(errs, s.gateway.Stop(20*time.Second))
	}
	for _, e := range s.engines {
		errs = append(errs, e.Stop(20*time.Second))
	}
	if s.binary != nil {
		errs = append(errs, s.binary.Clean())
	}
	return errors.Join(errs...)
}

// start runs two engines and a gateway before them.
func start(o options) (*stage, error) {
	s := &stage{}
	fail := func(err error) (*stage, error) { return nil, errors.Join(err, s.close()) }
	var err error
	if s.binary, err = program.Build(o.binary); err != nil {
		return nil, err
	}
	var urls []string
	for i := range 2 {
		e, err := s.binary.StartEngine("--listen", "127.0.0.1:0", "--model", "m", "--speed", fmt.Sprint(o.speed), "--seed", fmt.Sprint(i+1), "--shutdown-timeout", "1s")
		if err != nil {
			return fail(err)
		}
		s.engines = append(s.engines, e)
		urls = append(urls, "http://"+e.Addr)
	}
	queue := fmt.Sprintf("    deadline: %v\n    queue: {work: 1s, max_wait: %v}\n", bound, bound)
	if o.bare {
		queue = ""
	}
	text := fmt.Sprintf("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nseed: 1\ndrain: 1s\nmodels:\n  m:\n    slo: {ttft: %v}\n%s    endpoints: [%s]\n", bound, queue, strings.Join(urls, ", "))
	file, err := s.binary.WriteConfig("overload.yaml", text)
	if err != nil {
		return fail(err)
	}
	if s.gateway, err = s.binary.StartGateway(s.binary.Dir, file, nil, func([]byte) {}); err != nil {
		return fail(err)
	}
	time.Sleep(2 * time.Second) // engines are scraped by then
	return s, nil
}

// figures are what kvasir bench says of a run.
type figures struct {
	Completed int     `json:"completed"`
	Failed    int     `json:"failed"`
	Goodput   float64 `json:"request_goodput"`
	P99       float64 `json:"p99_ttft_ms"`
	file      string
}

// load sends calls at a rate for so long, and returns what became of them.
func (s *stage) load(name string, rate float64, lasts time.Duration, n int) (figures, error) {
	f := figures{file: filepath.Join(s.binary.Dir, name+".json")}
	var said []string
	p, err := s.binary.Start(s.binary.Dir, nil, func(text []byte) { said = append(said, string(text)) },
		"bench", "--base-url", "http://"+s.gateway.Addr, "--model", "m", "--ignore-eos", "--request-rate", fmt.Sprint(rate), "--num-prompts", "1000000",
		"--benchmark-duration", fmt.Sprint(lasts.Seconds()), "--random-input-len", "2000", "--random-output-len", "60", "--random-range-ratio", "0.5",
		"--goodput", fmt.Sprintf("ttft:%d", bound.Milliseconds()), "--percentile-metrics", "ttft", "--metric-percentiles", "50,99", "--lag-bound", "1m",
		"--ready-check-timeout-sec", "0", "--seed", fmt.Sprint(n), "--save-result", "--result-dir", s.binary.Dir, "--result-filename", name+".json")
	if err != nil {
		return f, err
	}
	waited := p.Wait(lasts + 2*time.Minute)
	text, err := os.ReadFile(f.file)
	if err != nil {
		return f, fmt.Errorf("kvasir bench: %w\n%s", errors.Join(waited, err), strings.Join(said, "\n"))
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return f, err
	}
	// What counts is good calls by the time in which they came, not until the last one's end.
	var all struct {
		Duration float64 `json:"duration"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return f, err
	}
	f.Goodput *= all.Duration / lasts.Seconds()
	return f, nil
}

func run(o options) (broken int, err error) {
	s, err := start(o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	rules := report.NewRules(promises...)
	t := report.NewTable("load", "calls/s", "answered", "failed or refused", "good/s", "P99 TTFT of those answered, s")
	play := func(name string, factor float64, lasts time.Duration, n int) (figures, error) {
		f, err := s.load(name, o.rate*factor, lasts, n)
		t.Row(name, o.rate*factor, f.Completed, f.Failed, fmt.Sprintf("%.2f", f.Goodput), fmt.Sprintf("%.2f", f.P99/1000))
		return f, err
	}
	before, err := play("before", 0.8, o.calm, 1)
	if err != nil {
		return 0, err
	}
	peak, err := play("peak", 1, o.calm, 2)
	if err != nil {
		return 0, err
	}
	meanwhile, err := play("overload", o.factor, o.surge, 3)
	if err != nil {
		return 0, err
	}
	after, err := play("after", 0.8, o.calm, 1)
	if err != nil {
		return 0, err
	}
	t.Print(os.Stdout)
	if o.bare {
		return 0, nil
	}
	most := max(before.Goodput, peak.Goodput)
	rules.Check(meanwhile.Goodput >= 0.9*most, "keeps", "", fmt.Sprintf("at least %.2f good calls a second", 0.9*most), "%.2f", meanwhile.Goodput)
	rules.Check(after.Goodput >= 0.9*before.Goodput, "returns", "", fmt.Sprintf("at least %.2f good calls a second", 0.9*before.Goodput), "%.2f", after.Goodput)
	rules.Check(meanwhile.Failed > 0, "refuses", "", "calls that are refused", "none")
	fmt.Println()
	rules.Print(os.Stdout)
	return rules.Broken(), nil
}
