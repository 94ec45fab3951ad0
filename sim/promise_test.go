package sim_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kvasir/accelerator"
	"kvasir/api"
	"kvasir/client/workload"
	"kvasir/engine"
	"kvasir/engine/emulator"
	"kvasir/engine/tokenizer"
	"kvasir/gateway/admission"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/gateway/proxy"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/internal/testkit/memnet"
	"kvasir/selection"
	"kvasir/selection/health"
	"kvasir/selection/observe"
	"kvasir/selection/policy"
	"kvasir/selection/prefix"
	"kvasir/selection/signal"
	"kvasir/sim"
	"kvasir/telemetry"
	"kvasir/upstream"
)

// The promise: what is simulated is what runs. One trace goes through the simulator, and
// through the real gateway and real emulated engines over HTTP, in a bubble of fake time.
// Both must make the same decisions: the same candidates, the same score bits, the same
// signal ages, the same choices, at the same nanoseconds.

const (
	promiseIdle = 400 * time.Millisecond // of connections

	promiseModel     = "m"
	promiseCalls     = 1200
	promiseEngines   = 4
	promiseLength    = 100 * time.Second // of the trace
	promiseScrape    = 700 * time.Millisecond
	promiseBlock     = 256
	promiseRouter    = "router-1"
	promiseSeed      = 20
	promiseKilled    = 1 // the engine that dies
	promiseCacheless = 2 // the engine that caches no prefixes: trust in what it is believed to hold must go
	promiseKillAt    = 40*time.Second + 7
	promiseReviveAt  = 52*time.Second + 11
	promiseBurst     = 48 // calls in the 150 ms before the kill
	promiseMaxTokens = 160
)

// promiseAdapters are what half of the calls ask for.
var promiseAdapters = []string{"sql", "chat", "org/law", "poems", "summaries"}

// promiseCall is one call of the trace.
type promiseCall struct {
	at    time.Duration
	leave time.Duration // 0: the client stays
	route tokenizer.Route
	body  []byte
}

// promiseTrace makes the workload: conversations that grow one prefix, a burst before the
// kill, calls that are not streamed, embeddings, LoRA adapters, and clients that leave. Every arrival
// and every leaving has a nanosecond of its own.
func promiseTrace() []promiseCall {
	r := seed.New(promiseSeed, seed.Workload, 7, 7)
	taken := map[time.Duration]bool{}
	unique := func(d time.Duration) time.Duration {
		for ; taken[d] || taken[d-1] || taken[d+1]; d += 3 {
		}
		taken[d] = true
		return d
	}
	talk := workload.Conversations{Seed: promiseSeed, SystemPrompts: 6, SystemWords: 400, UserWords: 80}
	var calls []promiseCall
	for n := range promiseCalls {
		at := time.Duration(r.Float64() * float64(promiseLength))
		if n < promiseBurst {
			at = promiseKillAt - time.Duration(r.Float64()*float64(150*time.Millisecond))
		}
		c := promiseCall{at: unique(at)}
		fields := map[string]any{"model": promiseModel}
		if r := seed.New(promiseSeed, seed.Adapter, uint64(n), 0); r.Intn(2) == 0 {
			fields["model"] = promiseAdapters[r.Intn(len(promiseAdapters))]
		}
		switch kind := r.Intn(20); {
		case kind == 0:
			c.route = tokenizer.Embeddings
			fields["input"] = talk.Turn(n, 1).Content
		default:
			conversation := r.Intn(promiseCalls / 4)
			messages := talk.Open(conversation)
			if n < promiseBurst { // long prompts that nobody holds, and two siblings of each
				messages = talk.Open(n / 3)
				messages[0].Content = fmt.Sprint(n/3, " ", messages[0].Content)
			}
			for turn := 2; turn <= 1+r.Intn(4); turn++ {
				messages = append(messages, workload.Message{Role: "assistant", Content: "Indeed."}, talk.Turn(conversation, turn))
			}
			fields["messages"] = messages
			fields["max_tokens"] = 1 + r.Intn(promiseMaxTokens)
			fields["ignore_eos"] = true
			if fields["stream"] = kind > 1; kind > 1 {
				fields["stream_options"] = map[string]any{"include_usage": true} // the simulated endpoints always tell
			}
		}
		if r.Intn(15) == 0 {
			c.leave = unique(c.at + time.Duration(r.Float64()*float64(600*time.Millisecond)))
		}
		body, err := json.Marshal(fields)
		if err != nil {
			panic(err)
		}
		c.body = body
		calls = append(calls, c)
	}
	slices.SortFunc(calls, func(a, b promiseCall) int { return cmp.Compare(a.at, b.at) })
	return calls
}

func promiseEngine(t *testing.T, rule promised, i int) engine.Config {
	t.Helper()
	profile, err := accelerator.Lookup("llama-3.1-8b/h100")
	if err != nil {
		t.Fatal(err)
	}
	if rule.queue.On() {
		profile = profile.Scaled(15) // slow enough that endpoints have no room at times
	}
	c := engine.Defaults(profile)
	c.EveryToken = true
	c.PrefixCaching = i != promiseCacheless || rule.queue.On() || rule.flight.On()
	c.NumBlocks, c.MaxModelLen, c.MaxSeqs, c.MaxBatchedTokens = 1500, 16000, 64, 2048
	c.LoRA = engine.LoRA{MaxLoRAs: 2, MaxCPULoRAs: 3, LoadFromHost: 2 * time.Millisecond, LoadFromDisk: 9 * time.Millisecond}
	if rule.queue.On() {
		c.LoRA.MaxLoRAs, c.LoRA.MaxCPULoRAs = len(promiseAdapters), len(promiseAdapters) // slow engines have calls enough that wait
	}
	return c
}

// promised is a policy, and a queue in front of it.
type promised struct {
	policy.Rule
	queue  admission.Config
	flight admission.FlightConfig
	hedge  attempt.HedgeConfig
}

func (p promised) name() string {
	switch {
	case p.hedge.On() && p.hedge.After > 0:
		return p.Name + " hedged after " + p.hedge.After.String()
	case p.hedge.On():
		return p.Name + " hedged by quantile"
	case p.queue.Adaptive:
		return p.Name + " behind a limit that is found"
	case p.queue.On():
		return p.Name + " behind " + p.queue.Order.String()
	case p.flight.On():
		return p.Name + " with single-flight"
	}
	return p.Name
}

// allPromised lists every policy without a queue, and some with one.
func allPromised() []promised {
	var out []promised
	for _, rule := range policy.Catalog() {
		out = append(out, promised{Rule: rule})
		queue := admission.Default()
		queue.Work, queue.Length, queue.MaxWait = time.Millisecond, 25, time.Second
		switch rule.Name {
		case "least-outstanding", "ewma-latency":
			out = append(out, promised{Rule: rule, queue: queue})
			out = append(out, promised{Rule: rule, hedge: attempt.HedgeConfig{Ratio: 0.5, Quantile: 0.9}})
			if rule.Name == "least-outstanding" {
				queue.Adaptive, queue.Gradient.Min, queue.Gradient.Window = true, 8, 20
				out = append(out, promised{Rule: rule, queue: queue})
			}
		case "cache-aware":
			out = append(out, promised{Rule: rule, flight: admission.FlightConfig{MinTokens: 200, MaxWait: time.Second, MaxSiblings: 1}})
			queue.Order, queue.Tokens = admission.LeastSlack, 500
			flight := admission.FlightConfig{MinTokens: 200, MaxWait: 300 * time.Millisecond, MaxSiblings: 2}
			out = append(out, promised{Rule: rule, queue: queue, flight: flight})
			queue.Order, queue.Fairness.By, queue.Fairness.Quantum = admission.FairLocal, admission.ByConversation, 2000
			out = append(out, promised{Rule: rule, queue: queue})
		case "predicted-ttft":
			queue.Order, queue.Fairness.By, queue.MaxWaitRatio = admission.Fair, admission.ByConversation, 2
			out = append(out, promised{Rule: rule, queue: queue})
			out = append(out, promised{Rule: rule, hedge: attempt.HedgeConfig{Ratio: 0.5, After: 15 * time.Millisecond, Whole: 100 * time.Millisecond}})
		}
	}
	return out
}

// promiseRetry grants less than the kill asks for, all models together less than the pool.
func promiseRetry() attempt.Config {
	retry := attempt.Default()
	retry.Ratio, retry.Floor, retry.TotalFloor = 0.02, 1.5, 1
	return retry
}

// promiseMachine is the machine's configuration, with a policy of its own.
func promiseMachine(rule promised) flow.Config {
	pool := flow.Pool{Name: "p", PolicyName: rule.Name, Policy: rule.Params().New(), MaxAge: 10 * time.Second, Queue: rule.queue, Flights: rule.flight}
	for i := range promiseEngines {
		pool.Endpoints = append(pool.Endpoints, flow.Endpoint{Name: promiseName(i), Weight: 1 + float64(i%2)})
	}
	retry := promiseRetry()
	return flow.Config{
		Seed: promiseSeed, Retry: retry, Total: attempt.NewBudget(retry.Total()), Hedge: rule.hedge, Health: health.Default(),
		Prefix:  prefix.Config{BudgetBytes: 8 << 20, SpeculativeTTL: 30 * time.Second},
		Pools:   []flow.Pool{pool},
		Explain: true,
	}
}

func promiseName(i int) string { return fmt.Sprintf("engine-%d", i+1) }
func promiseAddr(i int) string { return promiseName(i) + ":8000" }

// promiseRead turns a call into what router and engine see of it, with the functions that
// the gateway and the emulator use.
func promiseRead(t *testing.T, c promiseCall, id int, cfg emulator.Config) sim.Call {
	t.Helper()
	var reader api.Reader
	var blocks kvblock.Writer
	grammar := map[tokenizer.Route]api.Grammar{tokenizer.Chat: api.Chat, tokenizer.Completions: api.Completions, tokenizer.Embeddings: api.Embeddings}[c.route]
	q, err := reader.Read(grammar, c.body)
	if err != nil {
		t.Fatal(err)
	}
	model, adapter := promiseModel, kvblock.Hash(0)
	if name := string(q.Model); name != promiseModel {
		model, adapter = name, signal.Adapter(name)
	}
	p, err := reader.Prompt(&blocks, model, "", promiseBlock)
	if err != nil {
		t.Fatal(err)
	}
	call, err := tokenizer.Read(c.route, c.body, cfg.Limits())
	if err != nil {
		t.Fatal(err)
	}
	out := sim.Call{
		At: mono.Time(c.at), LeaveAt: mono.Time(c.leave), Prompt: call.Items[0].Request,
		Request: selection.Request{
			ID: selection.CallID(id), Stream: q.Stream, InputTokens: p.InputTokens, OutputTokens: q.MaxTokens,
			Blocks: slices.Clone(p.Blocks), BlockTokens: p.BlockTokens, Head: p.Head, Adapter: adapter, Bytes: int64(len(c.body)),
		},
	}
	if p.Opening != 0 { // which names the conversation, as nothing else does; of the client without a name
		out.Request.Conversation = kvblock.Chain(kvblock.Seed("conversation", ""), binary.LittleEndian.AppendUint64(nil, uint64(p.Opening)))
	}
	out.Prompt.Adapter = adapter // which the emulator knows by number
	if c.route == tokenizer.Embeddings {
		out.Request.Kind = selection.Embed
	}
	return out
}

func promiseEmulator(t *testing.T, rule promised, i int) emulator.Config {
	c := emulator.Config{Models: []string{promiseModel}, Engine: promiseEngine(t, rule, i), Speed: 1, Seed: promiseSeed}
	for _, name := range promiseAdapters {
		c.Adapters = append(c.Adapters, emulator.Adapter{Name: name})
	}
	return c
}

func promisePhase(i int) time.Duration {
	return observe.Phase(promiseRouter, promiseModel+"/"+promiseName(i), promiseScrape)
}

func promiseSimulate(t *testing.T, rule promised, trace []promiseCall) promiseRun {
	t.Helper()
	cfg := sim.Config{Until: mono.Time(promiseLength + time.Minute), Strict: true} // scrapes go on until the last call has ended
	router := sim.Router{Machine: promiseMachine(rule), Scrape: promiseScrape}
	for i := range promiseEngines {
		e := sim.Engine{Config: promiseEngine(t, rule, i)}
		if i == promiseKilled {
			e.Down = []sim.Outage{{From: mono.Time(promiseKillAt), To: mono.Time(promiseReviveAt)}}
		}
		cfg.Engines = append(cfg.Engines, e)
		router.Phases = append(router.Phases, promisePhase(i))
	}
	cfg.Routers = []sim.Router{router}
	emulated := promiseEmulator(t, rule, 0)
	var calls []sim.Call
	for i, c := range trace {
		calls = append(calls, promiseRead(t, c, i+1, emulated))
	}
	run := promiseRun{records: make([]sim.Record, len(trace))}
	cfg.Feed = sim.Calls(calls)
	cfg.Ended = func(r *sim.Record) { run.records[r.Call-1] = *r }
	cfg.Decided = func(_ int, d *selection.Decision) { run.decisions = append(run.decisions, *d) }
	if _, err := sim.Run(cfg); err != nil {
		t.Fatal(err)
	}
	return run
}

// promiseRun is what a simulation brought.
type promiseRun struct {
	records   []sim.Record // in the order of the trace
	decisions []selection.Decision
}

// promiseLive runs the trace through the gateway and the emulators and returns the
// decisions in the order of their instants.
func promiseLive(t *testing.T, rule promised, trace []promiseCall) []selection.Decision {
	var mu sync.Mutex
	var decisions []selection.Decision
	synctest.Test(t, func(t *testing.T) {
		epoch := time.Now()
		network := memnet.New()
		var servers sync.WaitGroup

		start := func(i int) (stop func()) {
			cfg := promiseEmulator(t, rule, i)
			cfg.Epoch = epoch
			e, err := emulator.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			l, err := network.Listen(promiseAddr(i))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			s := &http.Server{Handler: e.Handler(), IdleTimeout: 5 * time.Second}
			servers.Go(func() { _ = e.Run(ctx) })
			servers.Go(func() { _ = s.Serve(l) })
			return func() {
				network.Kill(promiseAddr(i))
				cancel()
				_ = s.Close()
			}
		}
		stops := make([]func(), promiseEngines)
		for i := range stops {
			stops[i] = start(i)
		}

		transport := proxy.NewTransport(proxy.TransportConfig{Connect: time.Second, Idle: promiseIdle, PerHost: 100, Dial: network.DialContext})
		g := promiseGateway(t, rule, epoch, transport, func(d *selection.Decision) {
			mu.Lock()
			defer mu.Unlock()
			decisions = append(decisions, *d)
		})
		front, err := network.Listen("gateway:80")
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: g}
		servers.Go(func() { _ = s.Serve(front) })
		ctx, cancel := context.WithCancel(t.Context())
		servers.Go(func() { g.Watch(ctx) })

		client := &http.Transport{DialContext: network.DialContext, MaxIdleConnsPerHost: 200}
		var clients sync.WaitGroup
		for _, c := range trace {
			clients.Go(func() { promiseSend(t, client, epoch, c) })
		}
		time.Sleep(time.Until(epoch.Add(promiseKillAt)))
		stops[promiseKilled]()
		time.Sleep(time.Until(epoch.Add(promiseReviveAt)))
		stops[promiseKilled] = start(promiseKilled)
		clients.Wait()

		cancel()
		client.CloseIdleConnections()
		_ = s.Close()
		g.Close()
		transport.CloseIdleConnections()
		for _, stop := range stops {
			stop()
		}
		servers.Wait()
	})
	slices.SortFunc(decisions, func(a, b selection.Decision) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Call, b.Call), cmp.Compare(a.Attempt, b.Attempt))
	})
	return decisions
}

func promiseGateway(t *testing.T, rule promised, epoch time.Time, transport http.RoundTripper, log func(*selection.Decision)) *proxy.Gateway {
	t.Helper()
	dialect, err := upstream.Lookup("vllm")
	if err != nil {
		t.Fatal(err)
	}
	live := proxy.Pool{Scrape: promiseScrape, Dialect: dialect}
	for i := range promiseEngines {
		live.Endpoints = append(live.Endpoints, proxy.Endpoint{URL: "http://" + promiseAddr(i)})
	}
	g, err := proxy.New(proxy.Config{
		Models:     []proxy.Model{{Name: promiseModel, Adapters: promiseAdapters, Machine: promiseMachine(rule), Pools: []proxy.Pool{live}}},
		Limits:     proxy.Limits{Calls: 5000, Body: 1 << 20, Buffered: 1 << 30, Event: 1 << 20, Preamble: 64 << 10},
		Access:     proxy.Access{Anonymous: true},
		Retry:      promiseRetry(),
		Timeouts:   proxy.Timeouts{Header: time.Minute, FirstToken: time.Minute, Progress: time.Minute, Idle: time.Minute, Total: time.Hour},
		Heartbeat:  15 * time.Second,
		ServerIdle: 2 * promiseIdle, // engines here close no idle connections, and none is suspected
		BlockBytes: promiseBlock, BodyTimeout: time.Minute, WriteTimeout: time.Minute,
		Router: promiseRouter, Transport: transport, Metrics: telemetry.New(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler),
		OnDecision: func(_ string, d *selection.Decision) { log(d) },
		Epoch:      epoch,
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// promiseSend is one client.
func promiseSend(t *testing.T, client http.RoundTripper, epoch time.Time, c promiseCall) {
	ctx := t.Context()
	if c.leave > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, epoch.Add(c.leave))
		defer cancel()
	}
	time.Sleep(time.Until(epoch.Add(c.at)))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway:80"+c.route.Path(), bytes.NewReader(c.body))
	if err != nil {
		t.Error(err)
		return
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.RoundTrip(r)
	if err != nil {
		if ctx.Err() == nil && c.leave == 0 {
			t.Errorf("call at %v: %v", c.at, err)
		}
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // a stream that the kill cut may end in an error
}

func TestPromise(t *testing.T) {
	trace := promiseTrace()
	for _, rule := range allPromised() {
		t.Run(rule.name(), func(t *testing.T) {
			t.Parallel()
			simulated := promiseSimulate(t, rule, trace)
			live := promiseLive(t, rule, trace)
			promiseCompare(t, simulated.decisions, live)
			s := summarize(simulated)
			if rule.hedge.On() && (s.hedged < len(trace)/100 || s.beatenFirst == 0 || s.wasted == 0) {
				t.Errorf("hedging is not exercised: %d hedged, %d first attempts beaten", s.hedged, s.beatenFirst)
			}
			t.Logf("%d hedged, %d first attempts beaten", s.hedged, s.beatenFirst)
			t.Logf("%d calls, %d decisions compared, %d overlapping, %d held, %d retries, %d given up, %d clients left, %d cut, %d without trust",
				len(trace), len(live), s.overlapping, s.held, s.retries, s.givenUp, s.left, s.cut, s.mistrusted)
			if (rule.name() == "cache-aware" || rule.name() == "predicted-ttft") && s.mistrusted == 0 {
				t.Error("the engine that caches nothing is trusted")
			}
			if s.wronglyMistrusted > 0 {
				t.Errorf("in %d decisions an engine was not trusted that caches", s.wronglyMistrusted)
			}
			if s.overlapping < len(trace)/2 || s.retries == 0 || s.left == 0 {
				t.Error("the trace does not exercise what it should")
			}
			if rule.queue.On() && (s.held < len(trace)/20 || s.refused == 0 || s.leftQueue == 0 || s.heldAgain == 0) {
				t.Errorf("the queue is not exercised: %+v", s)
			}
			if !rule.queue.On() && rule.flight.On() != (s.held > 0) {
				t.Errorf("%d calls waited for siblings", s.held)
			}
			if rule.Name == "least-outstanding" && !rule.queue.On() && !rule.hedge.On() && s.budgetSpent == 0 {
				t.Error("the kill did not ask for more retries than the budget grants")
			}
		})
	}
}

// promiseCompare reports the first decision that differs.
func promiseCompare(t *testing.T, simulated, live []selection.Decision) {
	t.Helper()
	for i := range min(len(simulated), len(live)) {
		if s, l := show(simulated[i]), show(live[i]); s != l {
			t.Fatalf("decision %d differs:\nsimulated %s\nlive      %s", i, s, l)
		}
	}
	if len(simulated) != len(live) {
		t.Fatalf("%d decisions simulated, %d live", len(simulated), len(live))
	}
}

// show writes a decision with its scores to the bit.
func show(d selection.Decision) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "call %d of conversation %x attempt %d at %d pool %s by %s: %s -> %d predicted %d of", d.Call, d.Conversation, d.Attempt, d.At, d.Pool, d.Policy, d.Reason, d.Chosen, d.Predicted)
	for _, c := range d.Candidates {
		fmt.Fprintf(&b, " [%s score %016x overlap %d outstanding %d age %d trust %s", c.Endpoint, math.Float64bits(c.Score), c.Overlap, c.Outstanding, c.SignalAge, c.Trust)
		for _, p := range c.Parts {
			fmt.Fprintf(&b, " %s %016x", p.Name, math.Float64bits(p.Value))
		}
		for _, r := range c.Signals {
			fmt.Fprintf(&b, " %s %016x of %s %d", r.Name, math.Float64bits(r.Value), r.Source, r.Age)
		}
		b.WriteByte(']')
	}
	return b.String()
}

// firstEngine returns where the call's first attempt went.
func (r *promiseRun) firstEngine(call selection.CallID) int {
	for _, d := range r.decisions {
		if d.Call == call && d.Attempt == 0 {
			for i := range promiseEngines {
				if promiseName(i) == d.Candidates[d.Chosen].Endpoint {
					return i
				}
			}
		}
	}
	return -1
}

type promiseSummary struct {
	overlapping, retries, givenUp, budgetSpent, left, cut int
	held, refused, leftQueue, heldAgain                   int
	hedged, beatenFirst, wasted                           int
	mistrusted, wronglyMistrusted                         int // decisions that saw an endpoint load-only
}

func summarize(r promiseRun) promiseSummary {
	var s promiseSummary
	for _, d := range r.decisions {
		for _, c := range d.Candidates {
			switch {
			case c.Trust != signal.LoadOnly.String():
			case c.Endpoint == promiseName(promiseCacheless):
				s.mistrusted++
			default:
				s.wronglyMistrusted++
			}
		}
	}
	var latest mono.Time // end of any earlier call
	for _, c := range r.records {
		if c.At < latest {
			s.overlapping++
		}
		latest = max(latest, c.End)
		s.retries += max(c.Attempts-1, 0)
		if c.Hedged {
			s.hedged++
			s.wasted += c.Wasted
			if c.Succeeded() && c.Engine != r.firstEngine(c.Call) {
				s.beatenFirst++
			}
		}
		if c.Held > 0 {
			s.held++
			if c.Attempts > 1 {
				s.heldAgain++
			}
		}
		if c.Refused >= flow.QueueFull {
			s.refused++
		}
		if c.Attempts == 0 && c.Outcome == attempt.ClientGone && c.Refused == flow.NoReason {
			s.leftQueue++
		}
		switch {
		case c.Refused != flow.NoReason:
			s.givenUp++
			if c.Refused == flow.BudgetSpent {
				s.budgetSpent++
			}
		case c.Outcome == attempt.ClientGone:
			s.left++
		case c.Outcome == attempt.Broken:
			s.cut++
		}
	}
	return s
}
