package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"kvasir/accelerator"
	"kvasir/engine"
	"kvasir/internal/mono"
	"kvasir/selection/health"
	"kvasir/selection/policy"
	"kvasir/sim"
)

// repeated is a flag that may be given several times.
type repeated []string

func (r *repeated) String() string     { return strings.Join(*r, " ") }
func (r *repeated) Set(s string) error { *r = append(*r, s); return nil }

// parseSim reads the flags. The error has every mistake, or is flag.ErrHelp.
func parseSim(env environment, args []string) (*simOptions, error) {
	o := &simOptions{}
	s := &o.scenario
	f := flag.NewFlagSet("kvasir sim", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	o.work.flags(f)
	f.Float64Var(&o.rate, "rate-scale", 1, "")
	clock := f.String("clock", "closed-loop", "")
	f.DurationVar(&o.warmup, "warmup", -1, "")

	policies := f.String("policy", "all", "")
	replicas := f.Int("replicas", 4, "")
	model := f.String("model", "llama-3.1-8b", "")
	devices := f.String("device", "h100", "")
	gateways := f.String("gateways", "1", "")
	f.DurationVar(&s.Scrape, "scrape", time.Second, "")
	f.DurationVar(&s.Delay, "scrape-delay", 0, "")
	f.Float64Var(&s.Loss, "scrape-loss", 0, "")
	s.Health = health.Default()
	f.DurationVar(&s.Health.SlowStart, "slow-start", s.Health.SlowStart, "")
	f.DurationVar(&s.Health.Blackout, "blackout", s.Health.Blackout, "")
	f.BoolVar(&s.Stagger, "stagger", false, "")
	shared := f.String("sharing", "none", "")
	queue := f.String("queue", "", "")
	flight := f.String("single-flight", "", "")
	hedge := f.String("hedge", "", "")
	fanOut := f.String("fan-out", "", "")
	var e replicaFlags
	e.flags(f)
	var down, slow, join repeated
	f.Var(&down, "down", "")
	f.Var(&slow, "slow", "")
	f.Var(&join, "join", "")

	ttft := f.String("slo-ttft", "", "")
	f.DurationVar(&s.SLO.TPOT, "slo-tpot", 0, "")
	f.DurationVar(&s.SLO.E2E, "slo-e2e", 0, "")
	f.Uint64Var(&o.seed, "seed", 1, "")
	f.IntVar(&o.seeds, "seeds", 1, "")
	f.StringVar(&o.format, "format", "table", "")
	f.StringVar(&o.timeline, "timeline", "", "")
	f.StringVar(&o.calls, "calls", "", "")
	f.BoolVar(&o.goodput, "goodput", false, "")
	f.Float64Var(&o.attainment, "attainment", 0.9, "")
	f.Float64Var(&o.tolerance, "tolerance", 0.03, "")
	f.StringVar(&o.svg, "svg", "", "")
	f.StringVar(&o.csv, "csv", "", "")
	f.BoolVar(&o.sensitivity, "sensitivity", false, "")
	f.Float64Var(&o.load, "load", 0, "")
	overload := f.String("overload", "", "")
	f.DurationVar(&o.clients.Patience, "patience", 0, "")
	f.IntVar(&o.clients.Retries, "client-retries", 0, "")
	f.DurationVar(&o.deadline, "deadline", 0, "")
	f.IntVar(&o.jobs, "jobs", runtime.GOMAXPROCS(0), "")
	if err := f.Parse(args); err != nil {
		if strings.Contains(err.Error(), "parse error") {
			err = fmt.Errorf("%w (numbers look like 0.5, durations like 4s or 100ms)", err)
		}
		return nil, err
	}
	given := map[string]bool{}
	f.Visit(func(x *flag.Flag) { given[x.Name] = true })
	var errs []error
	bad := func(flag string, value any, allowed string) {
		errs = append(errs, fmt.Errorf("--%s: %v is not allowed; allowed: %s", flag, value, allowed))
	}
	if f.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected %q", f.Arg(0)))
	}
	if !(o.rate >= 1e-6 && o.rate <= 1e6) {
		bad("rate-scale", o.rate, "1e-6 to 1e6")
	}
	if given["warmup"] && o.warmup < 0 {
		bad("warmup", o.warmup, "0s or more")
	}
	switch *clock {
	case sim.ClosedLoop.String():
		o.clock = sim.ClosedLoop
	case sim.Recorded.String():
		o.clock = sim.Recorded
	default:
		bad("clock", *clock, "closed-loop or recorded")
	}
	for _, n := range []struct {
		flag             string
		value, min, most int
	}{
		{"replicas", *replicas, 1, mostReplicas}, {"seeds", o.seeds, 1, 1000}, {"client-retries", o.clients.Retries, 0, 10}, {"jobs", o.jobs, 1, 1 << 10},
	} {
		if n.value < n.min || n.value > n.most {
			bad(n.flag, n.value, fmt.Sprintf("%d to %d", n.min, n.most))
		}
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"scrape", s.Scrape}, {"scrape-delay", s.Delay}, {"slo-tpot", s.SLO.TPOT}, {"slo-e2e", s.SLO.E2E}, {"patience", o.clients.Patience}, {"deadline", o.deadline},
	} {
		if d.value < 0 || d.value > longest {
			bad(d.flag, d.value, fmt.Sprintf("0s to %v", longest))
		}
	}
	for text := range strings.SplitSeq(*gateways, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > mostGateways || slices.Contains(o.gateways, n) {
			bad("gateways", strconv.Quote(text), fmt.Sprintf("numbers from 1 to %d, separated by commas, each once", mostGateways))
			continue
		}
		o.gateways = append(o.gateways, n)
	}
	if err := parseTTFT(*ttft, &s.SLO); err != nil {
		errs = append(errs, err)
	}
	if s.Scrape > 0 && s.Scrape < time.Millisecond {
		bad("scrape", s.Scrape, "0s, or 1ms or more")
	} else if s.Scrape > 0 && s.Delay/s.Scrape > mostReadings {
		bad("scrape-delay", s.Delay, fmt.Sprintf("at most %d times --scrape, %v", mostReadings, s.Scrape))
	}
	if !(s.Loss >= 0 && s.Loss <= 1) {
		bad("scrape-loss", s.Loss, "0 to 1")
	}
	if d := s.Health.SlowStart; d != 0 && (d < time.Second || d > time.Hour) {
		bad("slow-start", d, "0s or 1s..1h")
	}
	if d := s.Health.Blackout; d != 0 && (d < time.Second || d > time.Hour) {
		bad("blackout", d, "0s or 1s..1h")
	}
	if len(o.gateways) > 1 && !given["sharing"] {
		*shared = comparedSharing
	}
	var err error
	if o.sharing, err = parseSharing(*shared); err != nil {
		errs = append(errs, err)
	}
	if !(o.attainment > 0 && o.attainment <= 1) {
		bad("attainment", o.attainment, "above 0, at most 1")
	}
	if !(o.tolerance >= 0.001 && o.tolerance <= 0.5) {
		bad("tolerance", o.tolerance, "0.001 to 0.5")
	}
	if o.format != "table" && o.format != "json" && o.format != "csv" {
		bad("format", o.format, "table, json or csv")
	}
	if o.overload, err = parseLoads(*overload); err != nil {
		errs = append(errs, err)
	}
	if o.sensitivity && !given["load"] {
		o.load = 0.8
	}
	if given["load"] && !(o.load > 0) {
		bad("load", o.load, "above 0, at most 10")
	}
	if !(o.load >= 0 && o.load <= 10) {
		bad("load", o.load, "above 0, at most 10")
	}
	for _, x := range []struct {
		a, b bool
		text string
	}{
		{given["device"] && strings.Contains(*devices, "*"), given["replicas"], "--replicas is given beside --device with counts, which say how many there are"},
		{o.goodput, o.load > 0, "--goodput searches for the rate that --load and --sensitivity take a share of: one of them"},
		{o.sensitivity, o.format == "csv", "--sensitivity prints a table or JSON, no csv"},
		{strings.Contains(*gateways+*shared, ","), o.format == "csv" || o.sensitivity || o.timeline != "" || o.calls != "" || o.svg != "" || o.csv != "",
			"--gateways or --sharing is a list, which prints tables that compare, or JSON; --sensitivity, --format csv, --timeline, --calls, --svg and --csv go with one of each"},
		{o.overload != nil, o.goodput || o.sensitivity || o.load > 0 || given["rate-scale"] || o.format == "csv" || o.timeline != "" || o.calls != "" || strings.Contains(*gateways+*shared, ","),
			"--overload finds its rates itself and prints a table of its own, or JSON: no --goodput, --sensitivity, --load, --rate-scale, --format csv, --timeline, --calls, nor lists of gateways"},
		{o.overload != nil, given["queue"] || given["deadline"], "--overload sets --queue and --deadline itself, one defence after the other"},
		{o.load > 0, given["rate-scale"], "--rate-scale is given beside --load or --sensitivity, which find the rate"},
	} {
		if x.a && x.b {
			errs = append(errs, errors.New(x.text))
		}
	}
	if o.load > 0 && s.SLO == (sim.SLO{}) {
		errs = append(errs, errors.New("--load and --sensitivity need --slo-ttft, --slo-tpot or --slo-e2e"))
	}
	if o.overload != nil && s.SLO.TTFT == 0 {
		errs = append(errs, errors.New("--overload needs --slo-ttft with a duration"))
	}
	if o.goodput && s.SLO == (sim.SLO{}) {
		errs = append(errs, errors.New("--goodput needs --slo-ttft, --slo-tpot or --slo-e2e"))
	}
	if (o.goodput || o.sensitivity) && (o.timeline != "" || o.calls != "") {
		errs = append(errs, errors.New("--timeline and --calls go with a plain run, not with --goodput and --sensitivity"))
	}
	if !o.goodput && (o.svg != "" || o.csv != "") {
		errs = append(errs, errors.New("--svg and --csv go with --goodput; --format csv prints a plain run"))
	}
	if (given["lora-host-load"] || given["lora-disk-load"]) && e.lora.MaxLoRAs == 0 {
		errs = append(errs, errors.New("--lora-host-load and --lora-disk-load need --max-loras"))
	}
	if e.batching != engine.Continuous.String() && e.batching != engine.Static.String() {
		bad("batching", e.batching, "continuous or static")
	}
	o.policies = parsePolicies(*policies, &errs)
	errs = append(errs, o.work.check()...)
	held, err := parseQueue(*queue)
	errs = append(errs, flatten(err)...)
	if s.Queue = held; given["queue"] && *queue == "" {
		errs = append(errs, errors.New("--queue: is empty; allowed: work=500ms,order=fifo and the like"))
	}
	hedged, err := parseHedge(*hedge)
	errs = append(errs, flatten(err)...)
	if s.Hedge = hedged; given["hedge"] && *hedge == "" {
		errs = append(errs, errors.New("--hedge: is empty; allowed: p95,budget=5% and the like"))
	}
	limits, err := parseFanOut(*fanOut)
	errs = append(errs, flatten(err)...)
	if s.Limits = limits; given["fan-out"] && *fanOut == "" {
		errs = append(errs, errors.New("--fan-out: is empty; allowed: concurrency=8 and the like"))
	}
	followed, err := parseFlights(*flight)
	errs = append(errs, flatten(err)...)
	if s.Flight = followed; given["single-flight"] && *flight == "" {
		errs = append(errs, errors.New("--single-flight: is empty; allowed: min-tokens=1024 and the like"))
	}
	engines, poolErrs := parsePool(*model, *devices, *replicas, &e)
	errs = append(errs, poolErrs...)
	s.Engines = engines
	o.block = e.block
	blocks := 0
	for i := range engines {
		blocks += engines[i].Config.NumBlocks + engines[i].Config.Host.Blocks
	}
	if blocks > mostBlocks {
		errs = append(errs, fmt.Errorf("all engines together have %d KV blocks; allowed: %d (--replicas, --num-gpu-blocks, --host-blocks, --block-size)", blocks, mostBlocks))
	}
	o.blocksGiven = given["num-gpu-blocks"] || given["host-blocks"]
	for _, x := range []struct {
		flag  string
		texts []string
	}{{"down", down}, {"slow", slow}, {"join", join}} {
		for _, text := range x.texts {
			o.events = append(o.events, "--"+x.flag+" "+text)
		}
	}
	errs = append(errs, o.sameFiles()...)
	errs = append(errs, parseTimes(s.Engines, "down", down, parseDown)...)
	errs = append(errs, parseTimes(s.Engines, "slow", slow, parseSlow)...)
	errs = append(errs, parseTimes(s.Engines, "join", join, parseJoin)...)
	return o, errors.Join(errs...)
}

// parseTTFT reads --slo-ttft: a duration, a multiple of the unloaded prefill, or both.
func parseTTFT(text string, slo *sim.SLO) error {
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		if factor, ok := strings.CutSuffix(part, "x"); ok {
			x, err := strconv.ParseFloat(factor, 64)
			if err == nil && x > 0 && x <= mostPrefills && slo.Prefill == 0 {
				slo.Prefill = x
				continue
			}
		} else if d, err := time.ParseDuration(part); err == nil && d >= 0 && d <= longest && slo.TTFT == 0 {
			slo.TTFT = d
			continue
		}
		return fmt.Errorf("--slo-ttft: %q is not allowed; allowed: a duration from 0s to %v, a multiple of the unloaded prefill as in 3x, above 0 and at most %d, or both as in 2s,3x (durations like 4s or 100ms)",
			text, longest, mostPrefills)
	}
	return nil
}

// Bounds of what one command may ask for.
const (
	longest          = 10000 * time.Hour // of durations
	mostReplicas     = 4096
	mostBlocks       = 1 << 27     // of KV, over all engines: about 5 GB
	mostReadings     = 1000        // of one engine that are on their way to one gateway
	mostPrefills     = 1000        // of --slo-ttft
	longestPeerDelay = time.Minute // what is told meanwhile is in memory
	mostGateways     = 1 << 10
)

// sameFiles reports files that would be written twice, or over the trace.
func (o *simOptions) sameFiles() []error {
	var errs []error
	files := []struct{ flag, name string }{{"trace", o.work.trace}, {"timeline", o.timeline}, {"calls", o.calls}, {"svg", o.svg}, {"csv", o.csv}}
	for i, a := range files {
		for _, b := range files[:i] {
			if a.name != "" && b.name != "" && sameFile(a.name, b.name) {
				errs = append(errs, fmt.Errorf("--%s and --%s are the same file, %s", b.flag, a.flag, a.name))
			}
		}
	}
	return errs
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	if errX == nil && errY == nil {
		return os.SameFile(x, y) && x.Mode().IsRegular()
	}
	return filepath.Clean(a) == filepath.Clean(b)
}

// parsePolicies reads --policy.
func parsePolicies(text string, errs *[]error) []namedPolicy {
	var out []namedPolicy
	if text == "all" {
		for _, r := range policy.Catalog() {
			out = append(out, namedPolicy{r.Name, r, r.Params()})
		}
		return out
	}
	for name := range strings.SplitSeq(text, ",") {
		rule, params, err := policy.Parse(name)
		if err != nil {
			*errs = append(*errs, fmt.Errorf("--policy: %w", err))
			continue
		}
		out = append(out, namedPolicy{name, rule, params})
	}
	return out
}

// replicaFlags are the flags of kvasir engine that the simulator's replicas have, too.
type replicaFlags struct {
	seqs, batched, blocks, block, length int
	chunked, caching                     bool
	overhead                             time.Duration
	batching                             string
	speculation                          engine.Speculation
	host                                 engine.HostTier
	lora                                 engine.LoRA
}

func (e *replicaFlags) flags(f *flag.FlagSet) {
	f.IntVar(&e.seqs, "max-num-seqs", 0, "")
	f.IntVar(&e.batched, "max-num-batched-tokens", 0, "")
	f.IntVar(&e.blocks, "num-gpu-blocks", 0, "")
	f.IntVar(&e.block, "block-size", 0, "")
	f.IntVar(&e.length, "max-model-len", 0, "")
	f.BoolVar(&e.chunked, "enable-chunked-prefill", true, "")
	f.BoolVar(&e.caching, "enable-prefix-caching", true, "")
	f.DurationVar(&e.overhead, "step-overhead", engine.DefaultOverhead, "")
	f.StringVar(&e.batching, "batching", engine.Continuous.String(), "")
	f.IntVar(&e.speculation.Drafted, "speculative-tokens", 0, "")
	f.Float64Var(&e.speculation.Acceptance, "speculative-acceptance", 0, "")
	f.DurationVar(&e.speculation.Overhead, "speculative-overhead", 0, "")
	f.IntVar(&e.host.Blocks, "host-blocks", 0, "")
	f.Float64Var(&e.host.Bandwidth, "host-bandwidth", 0, "")
	loraFlags(f, &e.lora, "lora-host-load", "lora-disk-load")
}

// replicaFlagOf has the flag that sets a field of engine.Config.
var replicaFlagOf = map[string]string{
	"NumBlocks": "num-gpu-blocks", "BlockTokens": "block-size", "MaxBatchedTokens": "max-num-batched-tokens", "MaxSeqs": "max-num-seqs",
	"MaxModelLen": "max-model-len", "Overhead": "step-overhead", "PrefixCaching": "enable-prefix-caching",
	"Host.Blocks": "host-blocks", "Host.Bandwidth": "host-bandwidth", "Speculation.Drafted": "speculative-tokens",
	"Speculation.Acceptance": "speculative-acceptance", "Speculation.Overhead": "speculative-overhead",
	"LoRA.MaxLoRAs": "max-loras", "LoRA.MaxCPULoRAs": "max-cpu-loras", "LoRA.LoadFromHost": "lora-host-load",
	"LoRA.LoadFromDisk": "lora-disk-load",
}

// config is one replica's; blocks of another size than --block-size hold as many tokens.
func (e *replicaFlags) config(p accelerator.Profile, block int) engine.Config {
	c := engine.Defaults(p)
	set := func(field *int, value int) {
		if value != 0 {
			*field = value
		}
	}
	set(&c.BlockTokens, block)
	c.NumBlocks = p.Blocks(c.BlockTokens)
	set(&c.NumBlocks, e.blocks)
	set(&c.MaxSeqs, e.seqs)
	set(&c.MaxBatchedTokens, e.batched)
	set(&c.MaxModelLen, e.length)
	if e.seqs == 0 {
		c.MaxSeqs = min(c.MaxSeqs, c.MaxBatchedTokens/(1+max(e.speculation.Drafted, 0)))
	}
	c.ChunkedPrefill, c.PrefixCaching, c.Overhead = e.chunked, e.caching, e.overhead
	c.Speculation, c.Host, c.LoRA = e.speculation, e.host, loraOf(e.lora)
	if e.batching == engine.Static.String() {
		c.Batching, c.ChunkedPrefill = engine.Static, false
	}
	return c
}

// parsePool reads --model, --device and --replicas.
func parsePool(model, devices string, replicas int, e *replicaFlags) ([]sim.Engine, []error) {
	var errs []error
	var out []sim.Engine
	counted := false
	for part := range strings.SplitSeq(devices, ",") {
		device, count, has := strings.Cut(part, "*")
		n := replicas
		if has {
			counted = true
			var err error
			if n, err = strconv.Atoi(count); err != nil || n < 1 || n > 1<<16 {
				errs = append(errs, fmt.Errorf("--device: %q is not allowed; allowed: DEVICE*COUNT with a count from 1", part))
				continue
			}
		} else if counted || strings.Contains(devices, ",") {
			errs = append(errs, fmt.Errorf("--device: %q has no count; in a list each has one: h100*3,a100*1", part))
			continue
		}
		p, err := accelerator.Lookup(model + "/" + device)
		if err != nil {
			errs = append(errs, fmt.Errorf("--model, --device: %w", err))
			continue
		}
		c := e.config(p, e.block)
		if err := c.Validate(); err != nil {
			for _, err := range flatten(err) {
				if e, ok := errors.AsType[*engine.ConfigError](err); ok && replicaFlagOf[e.Field] != "" {
					err = fmt.Errorf("--%s is %v; allowed on %s: %s", replicaFlagOf[e.Field], e.Value, p.Name, e.Allowed)
				}
				errs = append(errs, err)
			}
			continue
		}
		for range n {
			out = append(out, sim.Engine{Config: c})
		}
	}
	return out, errs
}

// parseTimes reads what happens to engines: ENGINE@rest.
func parseTimes(engines []sim.Engine, name string, texts []string, take func(*sim.Engine, string) error) []error {
	var errs []error
	for _, text := range texts {
		number, rest, ok := strings.Cut(text, "@")
		n, err := strconv.Atoi(number)
		if !ok || err != nil || n < 1 || n > len(engines) {
			errs = append(errs, fmt.Errorf("--%s: %q is not allowed; it begins with an engine from 1 to %d and @", name, text, len(engines)))
			continue
		}
		if err := take(&engines[n-1], rest); err != nil {
			errs = append(errs, fmt.Errorf("--%s: %q: %w", name, text, err))
		}
	}
	return errs
}

func parseDown(e *sim.Engine, rest string) error {
	from, to, back := strings.Cut(rest, "-")
	a, errA := time.ParseDuration(from)
	b, errB := longest, error(nil) // it does not come back
	if back {
		b, errB = time.ParseDuration(to)
	}
	switch {
	case errA != nil || errB != nil || a <= 0 || b <= a || b > longest:
		return fmt.Errorf("expected FROM-TO, or FROM alone where it does not come back: durations above 0s in their order, at most %v", longest)
	case len(e.Down) > 0 && mono.Time(a) <= e.Down[len(e.Down)-1].To:
		return errors.New("it is down then already; give the times in their order")
	}
	e.Down = append(e.Down, sim.Outage{From: mono.Time(a), To: mono.Time(b)})
	return nil
}

func parseSlow(e *sim.Engine, rest string) error {
	at, factor, ok := strings.Cut(rest, "=")
	a, errA := time.ParseDuration(at)
	x, errX := strconv.ParseFloat(factor, 64)
	if !ok || errA != nil || errX != nil || a < 0 || !(x > 0 && x <= engine.MaxPace) {
		return fmt.Errorf("expected AT=FACTOR, a duration and a number above 0, at most %g", float64(engine.MaxPace))
	}
	e.Pace = append(e.Pace, sim.Pace{At: mono.Time(a), Factor: x})
	return nil
}

func parseJoin(e *sim.Engine, rest string) error {
	at, err := time.ParseDuration(rest)
	if err != nil || at <= 0 {
		return errors.New("expected a duration above 0")
	}
	e.Joins = mono.Time(at)
	return nil
}
