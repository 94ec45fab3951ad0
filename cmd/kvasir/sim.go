package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"kvasir/client/arrival"
	"kvasir/client/workload"
	"kvasir/selection/policy"
	"kvasir/sim"
)

const simUsage = `usage: kvasir sim (--trace FILE | --workload SPEC) [flags]

Plays a workload through the gateway's own state machine and policies, over models of
engines, in virtual time, and prints what each policy would have done. The same seed gives
the same bytes.

workload:
  --trace FILE               Mooncake, Azure, BurstGPT, agent sessions, ShareGPT, vLLM's, AIPerf's or
                             Kvasir's own format; may be compressed with zstd or gzip
  --trace-format FORMAT      (default: found out by its first record)
  and all other flags of reading and changing that kvasir trace -h lists, but --seed and --rate:
  --for 10m, --sessions 1000, --loops 3 --fresh, --raw, --strict, --adapters zipf:n=16, …
  --workload SPEC            a generator in place of a trace, such as conversations:turns=6,system=2000;
                             help lists them
  --arrivals SPEC            when its sessions come, such as gamma:rate=2,burstiness=0.3; help lists
                             them (default poisson:rate=1, for 10m)
  --rate-scale X             sessions come X times as fast (default 1): a trace is over sooner then, a
                             generator has more sessions in the same time
  --clock NAME               closed-loop: a session's next call comes once those before it have
                             ended and its gap is over; recorded: when the trace says (default
                             closed-loop)
  --warmup D                 calls that come earlier are not measured, by a trace's own clock (default:
                             a tenth of the workload's length)

pool:
  --policy NAMES             separated by commas, or all (default all); parameters follow a colon:
                             cache-aware:cache_threshold=0.5;balance_abs_threshold=32
  --replicas N               (default 4)
  --model NAME --device NAME of the replicas (default llama-3.1-8b on h100); --device takes a
                             list with counts for a mixed pool: h100*3,a100*1
  --gateways N               each with a view of its own (default 1); a session stays with one. A list,
                             1,2,4,8, compares them at the same rate; --load then takes its share of
                             the capacity with the first one
  --sharing SPEC             none: each gateway knows of its own calls alone; 5ms: they tell each other
                             what they send where, which is heard so late; 5ms/0.3: and that share of
                             it never. A list compares them (default none; where --gateways is a list,
                             ` + comparedSharing + `)
  --scrape D                 between two readings of an engine's gauges, 0: none (default 1s)
  --scrape-delay D           from a reading until the gateway has it (default 0s)
  --scrape-loss SHARE        of the readings (default 0)
  --stagger                  gateways read at instants of their own
  --queue SPEC               calls wait at the gateway until an endpoint has room: while less prefill
                             than work (predicted time) or tokens (uncached) is unstarted there, and
                             fewer calls are in flight than a limit that is found (limit=gradient,
                             limit-min=4,limit-max=1024,limit-tolerance=3):
                             work=500ms,tokens=8192,order=least-slack,length=1024,max-wait=30s,
                             max-wait-ratio=4 (of the mean service time), turn=8 (every eighth call
                             is of a lower priority); order is fifo, least-slack or deadline, to the
                             deadline that --slo-ttft gives, fair (least service first, of each
                             principal=tenant or conversation, in tokens weighted input=1,output=2,
                             cached=0.1) or fair-local (quantum=16384 ahead for a prefix's sake)
                             (default: none wait)
  --single-flight SPEC       siblings of a cold prefix wait until the first has computed it, where it
                             saves them so many tokens: min-tokens=1024,max-wait=5s,max-siblings=64
                             (default: none wait)
  --patience D               a client leaves that has no first token by then (default: none does)
  --client-retries N         it tries again so often, as SDKs do: after 0.5 s, 1 s, 2 s …, or after the
                             Retry-After that it was given; it counts as one call (default 0)
  --deadline D               after it a first token is worth nothing: the gateway refuses calls that
                             can't make it (default: there is none)
  --hedge SPEC               a call without content after that time, or after that percentile of
                             the times to first token, gets a second attempt elsewhere, within a
                             share of the calls: p95,budget=5% or 400ms,budget=5%; whole=10s does
                             so with answers that are not streamed, too (default: none)
  --fan-out SPEC             a session's further calls wait at the gateway until one of them has ended:
                             concurrency=8,waiting=256,max-wait=1m (default: none wait)
  --max-num-seqs N, --max-num-batched-tokens N, --num-gpu-blocks N, --max-model-len N,
  --enable-chunked-prefill=BOOL, --enable-prefix-caching=BOOL
                             as vLLM's (default: the profile's)
  --step-overhead D          what the host adds to every step (default 1ms)
  --batching NAME            continuous or static (default continuous)
  --speculative-tokens N --speculative-acceptance SHARE --speculative-overhead D
                             tokens drafted for a decode in a step, the probability that each is
                             accepted, and what drafting adds to a step (default: none)
  --host-blocks N --host-bandwidth BYTES
                             KV blocks in the host's memory, and bytes a second back (default: none)
  --max-loras N --max-cpu-loras N
                             LoRA adapters that a step may use together, and that the host's memory
                             holds (default: none, and --max-loras)
  --lora-host-load D --lora-disk-load D
                             what a step waits for an adapter that is in no slot, and besides where
                             the host has it not (defaults 10ms and 500ms)
  --block-size N             tokens a KV block (default: the trace's, else 16)
  --down ENGINE@FROM-TO      one of the replicas, counted from 1, is gone and comes back empty; without
                             -TO it does not; may be repeated, as the following
  --slow ENGINE@AT=FACTOR    its steps take FACTOR times as long from then on
  --join ENGINE@AT           it is added to the pool then, cold
  --slow-start D             how long one that joins or comes back takes to its full share, 0: it has it
                             at once (default 30s)
  --blackout D               for how long its reports of load are not believed then (default 10s)

result:
  --slo-ttft D, --slo-tpot D, --slo-e2e D   what a call must keep to count as good (default: none)
  --slo-ttft D,3x            or 3x alone: no bound is shorter than so many times the call's unloaded
                             prefill, the time that the first of the replicas, idle and with nothing
                             cached, needs for its prompt
  --seed N --seeds N         the first seed, and how many runs (defaults 1 and 1)
  --format NAME              table, json or csv (default table)
  --timeline FILE            CSV: what each engine reports every second, of the first policy's first run
  --calls FILE               CSV: every call of that run
  --goodput                  search the highest --rate-scale that keeps the SLO for --attainment
                             of the calls; --svg FILE and --csv FILE draw and list the curve
  --attainment SHARE         (default 0.9)
  --tolerance SHARE          how narrow the search gets (default 0.03)
  --load SHARE               run at this share of the pool's capacity, in place of --rate-scale: the highest
                             rate at which least-outstanding keeps the SLO for --attainment of the calls
  --sensitivity              rank order when prefill, decode and overhead cost 10 % more or less,
                             each time at the same --load (default 0.8 then)
  --overload LOADS           run at multiples of the capacity (as --load's, with clients that wait), from
                             0.01 to 10, such as 0.8,1,2,3, behind each of the gateway's defences: what
                             keeps the SLO then; needs --slo-ttft
  --jobs N                   runs at a time (default: the machine's cores)

example:
  kvasir sim --trace conversation_trace.jsonl --policy round-robin,cache-aware --replicas 8 \
    --rate-scale 1.5 --slo-ttft 4s --slo-tpot 100ms
`

// simOptions is what the flags say.
type simOptions struct {
	work     workloadOptions
	policies []namedPolicy
	scenario sim.Scenario // of every run, but for policy, seed and workload
	warmup   time.Duration
	rate     float64
	clock    sim.Clock

	seed                    uint64
	seeds, jobs             int
	format, timeline, calls string
	goodput, sensitivity    bool
	attainment, tolerance   float64
	load                    float64 // 0: --rate-scale counts
	overload                []float64
	clients                 sim.Clients
	deadline                time.Duration
	svg, csv                string
	gateways                []int
	sharing                 []sharing
	block                   int
	blocksGiven             bool     // their number, by a flag
	events                  []string // the flags that say what happens to engines
}

// namedPolicy is a rule with parameters, and how it was asked for.
type namedPolicy struct {
	name   string
	rule   policy.Rule
	params policy.Params
}

// runSim is kvasir sim.
func runSim(ctx context.Context, env environment, args []string) int {
	o, err := parseSim(env, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(env.stdout, simUsage)
		return 0
	case o != nil && o.work.spec == "help":
		fmt.Fprint(env.stdout, workload.Describe())
		return 0
	case o != nil && o.work.arrivals == "help":
		fmt.Fprint(env.stdout, arrival.Catalog().Describe())
		return 0
	case err != nil:
		return env.misused("sim", err, "the flags")
	}
	if err := o.run(ctx, env); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		fmt.Fprintf(env.stderr, "kvasir sim: %v\n", err)
		return 1
	}
	return 0
}
