package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"kvasir/accelerator"
	"kvasir/client/load"
	"kvasir/client/workload"
	"kvasir/config"
	"kvasir/engine"
	"kvasir/engine/emulator"
	"kvasir/gateway/proxy"
	"kvasir/selection/policy"
)

const demoUsage = `usage: kvasir demo [flags]

Runs emulated engines, the gateway and a light traffic of conversations in one process,
and shows what goes where.

flags:
  --listen ADDR     where clients call (default 127.0.0.1:8080)
  --admin ADDR      the page, metrics, health, pools (default 127.0.0.1:9090)
  --engines N       emulated engines, 1 to 64 (default 4)
  --policy NAME     how an endpoint is picked (default predicted-ttft)
  --no-traffic      no conversations in the background
  --rate R          calls a second in place of conversations, however slow the answers are; at the
                    end it says what the clients saw (default: 25 with --fault, else none)
  --fault SPEC      engines fail for a share of the calls each: stall=0.01,reset=0.02,429=0.05;
                    also 500, 503, and error-event in the stream; half of those that break an
                    answer do so before its first token (default: none)
  --continue N      streams that break off go on at another engine, up to N times an answer, 0 to 3
                    (default 0)
  --for DURATION    stop after that long, such as 20s (default 0: run until interrupted)

example:
  kvasir demo --policy power-of-two --for 20s
`

const (
	demoModel   = "llama-3.1-8b"
	demoProfile = "llama-3.1-8b/h100"
	// demoBlocks is a fraction of the card's KV blocks, so that a light traffic fills them.
	demoBlocks = 4096
	// demoRate is the open-loop load under faults, in calls a second.
	demoRate = 25
)

type demoOptions struct {
	listen, admin string
	engines       int
	rule          policy.Rule
	noTraffic     bool
	duration      time.Duration
	rate          float64
	faults        emulator.Faults
	continues     int
}

// runDemo is kvasir demo: everything in one process.
func runDemo(ctx context.Context, env environment, args []string) int {
	o, code, ok := parseDemo(env, args)
	if !ok {
		return code
	}
	if o.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.duration)
		defer cancel()
	}
	if err := demo(ctx, env.stdout, o); err != nil {
		fmt.Fprintf(env.stderr, "kvasir demo: %v\n", err)
		return 1
	}
	return 0
}

func parseDemo(env environment, args []string) (o demoOptions, code int, ok bool) {
	flags := flag.NewFlagSet("kvasir demo", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8080", "")
	flags.StringVar(&o.admin, "admin", "127.0.0.1:9090", "")
	flags.IntVar(&o.engines, "engines", 4, "")
	name := flags.String("policy", "predicted-ttft", "")
	flags.BoolVar(&o.noTraffic, "no-traffic", false, "")
	flags.DurationVar(&o.duration, "for", 0, "")
	flags.Float64Var(&o.rate, "rate", 0, "")
	faults := flags.String("fault", "", "")
	flags.IntVar(&o.continues, "continue", 0, "")
	misuse := func(format string, values ...any) (demoOptions, int, bool) {
		fmt.Fprintf(env.stderr, "kvasir demo: "+format+"\nkvasir demo -h lists the flags.\n", values...)
		return o, 2, false
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(env.stdout, demoUsage)
		return o, 0, false
	case err != nil:
		return misuse("%v", err)
	}
	if flags.NArg() > 0 {
		return misuse("%q is not a flag", flags.Arg(0))
	}
	if o.engines < 1 || o.engines > 64 {
		return misuse("--engines is %d; allowed: 1 to 64", o.engines)
	}
	if o.duration < 0 {
		return misuse("--for is %v; allowed: a duration such as 20s, or 0 for no end", o.duration)
	}
	if o.listen == o.admin && !strings.HasSuffix(o.listen, ":0") {
		return misuse("--listen and --admin are both %s; they must differ", o.listen)
	}
	if *faults != "" {
		var err error
		if o.faults, err = parseDemoFaults(*faults); err != nil {
			return misuse("--fault: %v", err)
		}
		if o.rate == 0 && !o.noTraffic {
			o.rate = demoRate
		}
	}
	if o.continues < 0 || o.continues > demoAttempts {
		return misuse("--continue is %d; allowed: 0 to %d", o.continues, demoAttempts)
	}
	if !(o.rate >= 0 && o.rate <= 1000) {
		return misuse("--rate is %v; allowed: 0 to 1000 calls a second", o.rate)
	}
	if o.noTraffic && o.rate > 0 {
		return misuse("--no-traffic and --rate %v exclude each other", o.rate)
	}
	if o.rule, ok = policy.Lookup(*name); !ok {
		return misuse("--policy is %q; allowed: %s", *name, strings.Join(policyNames(), ", "))
	}
	return o, 0, true
}

func demo(ctx context.Context, out io.Writer, o demoOptions) error {
	fleet, err := startFleet(o.engines, o.faults)
	if err != nil {
		return err
	}
	defer fleet.stop()

	c := demoConfig(o, fleet.urls)
	n, err := startNode(c, nodeOptions{log: newLogger(io.Discard, logLevel(c))})
	if err != nil {
		return fmt.Errorf("%w (another address can be given with --listen and --admin)", err)
	}
	base := "http://" + n.dataAddr
	greet(out, base, "http://"+n.adminAddr, c.AdminToken.Reveal(), o)

	traffic := &traffic{}
	var open *openLoad
	switch {
	case o.rate > 0:
		if open, err = startOpenLoad(ctx, base, o.rate); err != nil {
			return errors.Join(err, n.stop(0, 2*time.Second))
		}
	case !o.noTraffic:
		traffic.start(ctx, base, o.engines)
	}
	err = watchPools(ctx, out, n, traffic)
	traffic.stop()
	if open != nil {
		seen := open.end()
		seen.print(out)
	}
	return errors.Join(err, n.stop(0, 2*time.Second))
}

func demoConfig(o demoOptions, urls []string) *config.Config {
	c := config.Default()
	c.Listen, c.Admin, c.Log.Calls = o.listen, o.admin, false
	c.AdminToken = config.NewSecret(newKey())
	pool := config.DefaultPool()
	pool.Name, pool.ServedAs = "emulated", demoModel
	pool.Policy = config.Policy{Name: o.rule.Name, Params: o.rule.Params()}
	for i, u := range urls {
		e := config.DefaultEndpoint()
		e.URL, e.Name = u, fmt.Sprintf("engine-%d", i+1)
		pool.Endpoints = append(pool.Endpoints, e)
	}
	model := config.DefaultModel()
	model.SLO = config.SLO{TTFT: time.Second, TPOT: 50 * time.Millisecond}
	model.Continue.Times = o.continues
	if o.faults.Any() || o.continues > 0 {
		c.Retry.Attempts = demoAttempts
		model.Timeouts.FirstToken, model.Timeouts.Progress = demoFirstToken, demoProgress
	}
	model.Name, model.Aliases, model.Pools = demoModel, []string{"default"}, []config.Pool{pool}
	c.Models = config.Models{model}
	return &c
}

// fleet is the demo's engines, each behind a port of its own.
type fleet struct {
	urls    []string
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func startFleet(n int, faults emulator.Faults) (*fleet, error) {
	profile, err := accelerator.Lookup(demoProfile)
	if err != nil {
		return nil, err
	}
	cfg := engine.Defaults(profile)
	cfg.NumBlocks = demoBlocks
	cfg.MaxModelLen = min(cfg.MaxModelLen, demoBlocks*cfg.BlockTokens)
	ctx, cancel := context.WithCancel(context.Background())
	f := &fleet{cancel: cancel}
	for i := range n {
		faults.Seed = uint64(i + 1) // they say the same, and fail at different calls
		e, err := emulator.New(emulator.Config{Models: []string{demoModel}, Engine: cfg, Seed: 1, Faults: faults})
		if err != nil {
			f.stop()
			return nil, err
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			f.stop()
			return nil, err
		}
		f.urls = append(f.urls, "http://"+l.Addr().String())
		f.running.Go(func() { _ = e.Serve(ctx, l, 0) }) // ends when ctx does; calls are cut then
	}
	return f, nil
}

func (f *fleet) stop() {
	f.cancel()
	f.running.Wait()
}

// traffic is the demo's background conversations.
type traffic struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	client  *http.Client

	mu     sync.Mutex
	errors int
	last   error
}

func (t *traffic) start(ctx context.Context, base string, engines int) {
	ctx, t.cancel = context.WithCancel(ctx)
	t.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16 * engines}}
	chat := load.Chat{
		BaseURL: base, Model: demoModel, Users: 6 * engines, Turns: 6, Think: 1500 * time.Millisecond, MaxTokens: 160,
		Conversations: workload.Conversations{Seed: 1, SystemPrompts: 3 * engines, SystemWords: 900, UserWords: 60},
	}
	t.running.Go(func() {
		chat.Run(ctx, t.client, func(err error) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.errors, t.last = t.errors+1, err
		})
	})
}

func (t *traffic) stop() {
	if t.cancel == nil {
		return
	}
	t.cancel()
	t.running.Wait()
	t.client.CloseIdleConnections()
}

func (t *traffic) failures() (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.errors, t.last
}

// demoQuestion is longer than a block of the prefix index (256 bytes), so that asking it
// twice shows where the prompt's head is held.
const demoQuestion = "The dwarves Fjalar and Galar slew Kvasir, the wisest of all, caught his blood in two vats and a kettle, " +
	"mixed it with honey and brewed a mead of it; whoever drank from it became a poet or a scholar. " +
	"To the Aesir they said that Kvasir had choked on his own wisdom, for nobody was learned enough to ask him all he knew. " +
	"Who had the mead afterwards?"

func greet(out io.Writer, base, admin, token string, o demoOptions) {
	fmt.Fprintf(out, `Kvasir demo: emulated engines: %d (%s), policy %s

  OpenAI base URL   %s/v1      model %s
  page              %s/
  admin             %s/metrics   %s/v1/pools
  admin token       %s (the page asks for it before it changes anything)

  try it, twice; the header x-kvasir-explain in the answer says why it went where it went (so
  short a prompt is also sent elsewhere, where less work waits):
  curl -iN %s/v1/chat/completions -H 'content-type: application/json' -H 'x-kvasir-explain: 1' -d '{"model":"%s","stream":true,"max_tokens":48,"messages":[{"role":"user","content":"%s"}]}'

`, o.engines, demoProfile, o.rule.Name, base, demoModel, admin, admin, admin, token, base, demoModel, demoQuestion)
}

// watchPools shows the endpoints' table until ctx ends: on a terminal in place, twice a
// second, elsewhere below one another, every two seconds.
func watchPools(ctx context.Context, out io.Writer, n *node, t *traffic) error {
	every, rewind := 2*time.Second, ""
	if isTerminal(out) {
		every = 500 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-n.failed:
			return err
		case <-tick.C:
			var table strings.Builder
			printPools(&table, n.gateway.Pools())
			if n, last := t.failures(); n > 0 {
				fmt.Fprintf(&table, "background calls that failed: %d, the last one: %.100v\n", n, last)
			}
			fmt.Fprint(out, rewind, table.String())
			if isTerminal(out) {
				rewind = fmt.Sprintf("\x1b[%dA\x1b[J", strings.Count(table.String(), "\n"))
			}
		}
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func printPools(out io.Writer, models []proxy.ModelView) {
	for _, m := range models {
		for _, p := range m.Pools {
			fmt.Fprintf(out, "%-10s %-12s %9s %8s %8s %7s %9s %9s\n",
				"endpoint", "state", "in-flight", "running", "waiting", "KV use", "hit rate", "sent")
			for _, e := range p.Endpoints {
				state := e.State
				if e.Draining {
					state = "draining"
				}
				fmt.Fprintf(out, "%-10s %-12s %9d %8s %8s %7s %9s %9d\n", e.Endpoint, state, e.InFlight,
					number(e.Running), number(e.Waiting), percent(e.KVUsage), percent(e.PrefixHitRate), e.Dispatched)
			}
			fmt.Fprintln(out)
		}
	}
}

func number(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f", *v)
}

func percent(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100**v)
}
