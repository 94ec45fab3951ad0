package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"kvasir/accelerator"
	"kvasir/engine"
	"kvasir/engine/emulator"
)

const engineUsage = `usage: kvasir engine [flags]

Runs one emulated engine behind vLLM's HTTP API: chat, completions, responses, messages,
embeddings, scores, tokenize, models, health and metrics. It computes when each token would
come on the given hardware, and says pseudo-words. Flags that vLLM has mean what they mean
there.

flags:
  --listen ADDR                     where clients call (default 127.0.0.1:8000)
  --model NAME                      the name it answers to (default: the profile's model)
  --alias NAMES                     further names, separated by commas
  --profile NAME                    model and hardware (default llama-3.1-8b/h100); a wrong name lists them
  --speed FACTOR                    engine seconds a real second (default 1)
  --max-num-seqs N                  most requests running at once (default: the profile's)
  --max-num-batched-tokens N        token budget of a step (default: the profile's)
  --num-gpu-blocks N                KV blocks; one stays empty (default: what the profile's memory holds)
  --block-size N                    tokens a KV block (default 16)
  --max-model-len N                 most tokens of prompt and answer (default: the profile's, or what the KV blocks hold)
  --enable-chunked-prefill=BOOL     compute prompts over several steps (default true)
  --enable-prefix-caching=BOOL      keep the KV blocks of ended requests (default true)
  --lora-modules NAMES              LoRA adapters that it serves as models, separated by commas, each NAME or NAME=PATH
  --max-loras N                     adapters that a step may use together (default 1 with --lora-modules)
  --max-cpu-loras N                 adapters in the host's memory (default: --max-loras)
  --emulate-lora-host-load D        what a step waits for an adapter that is in no slot (default 10ms)
  --emulate-lora-disk-load D        and besides where the host has it not (default 500ms)
  --data-parallel-size N            engines behind the one address, each with the blocks above (default 1)
  --max-num-queued-reqs N           requests that run and wait, over all engines; more are refused with 503 (default: none)
  --enable-prompt-tokens-details=BOOL  report cached_tokens in usage (default true)
  --enable-server-load-tracking=BOOL   /load counts the calls in flight (default false)
  --enable-request-id-headers=BOOL  answers have X-Request-Id (default false)
  --created-series=BOOL             _created families in /metrics (default true, or the contrary of PROMETHEUS_DISABLE_CREATED_SERIES)
  --emulate-version VERSION         what /version and system_fingerprint say (default 0.28.0)
  --api-key KEY                     asked for on /v1 and /v2 paths (default: the variable VLLM_API_KEY, or none)
  --seed N                          of the answers and the faults (default 0)
  --shutdown-timeout DURATION       what calls in flight get when it is stopped (default 5s)

faults, each the share of calls, 0 to 1, that fail so:
  --fault-error-rate SHARE          HTTP 500
  --fault-overload-rate SHARE       HTTP 503
  --fault-limit-rate SHARE          HTTP 429 with Retry-After: 1
  --fault-stall-rate SHARE          the answer stops
  --fault-reset-rate SHARE          the connection is reset
  --fault-stream-error-rate SHARE   the stream ends with an error event

faults while it runs:
  --control=BOOL                    serve these paths, and vLLM's /sleep, /wake_up, /is_sleeping (default false):
    POST /emulator/fault            {"kind": "hang" | "refuse" | "stall" | "reset" | "stream-error",
                                    "after": tokens before it, "status": of refuse, "retry_after": its header,
                                    "calls": how many meet it (0: all)}; GET shows it, DELETE lifts it
    POST /emulator/slow?factor=F    steps take F times as long; 1 undoes it
    POST /emulator/restart?down=D   drop everything; for the duration D connections are reset
    POST /emulator/sleep?level=L    sleep (1 or 2); POST /emulator/wake undoes it
    GET  /emulator/lag              how late outputs came, as the machine was busy

example:
  kvasir engine --listen 127.0.0.1:8000 --model tiny --max-num-seqs 64 --fault-reset-rate 0.01
`

// engineOptions is what the flags say.
type engineOptions struct {
	listen string
	grace  time.Duration
	config emulator.Config
}

// runEngine is kvasir engine: one emulated engine.
func runEngine(ctx context.Context, env environment, args []string) int {
	o, err := parseEngine(env, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(env.stdout, engineUsage)
		return 0
	case err != nil:
		return env.misused("engine", err, "the flags")
	}
	if err := serveEngine(ctx, env.stdout, o); err != nil {
		fmt.Fprintf(env.stderr, "kvasir engine: %v\n", err)
		return 1
	}
	return 0
}

func serveEngine(ctx context.Context, out io.Writer, o engineOptions) error {
	e, err := emulator.New(o.config)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("%w (--listen takes another address)", err)
	}
	fmt.Fprintf(out, "Emulated engine %s (%s) answers at http://%s/v1\n", e.Model(), o.config.Engine.Profile.Name, l.Addr())
	return e.Serve(ctx, l, o.grace)
}

// parseEngine reads the flags. The error has every mistake, or is flag.ErrHelp.
func parseEngine(env environment, args []string) (engineOptions, error) {
	var o engineOptions
	c := &o.config
	f := flag.NewFlagSet("kvasir engine", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.listen, "listen", "127.0.0.1:8000", "")
	model := f.String("model", "", "")
	aliases := f.String("alias", "", "")
	modules := f.String("lora-modules", "", "")
	var lora engine.LoRA
	loraFlags(f, &lora, "emulate-lora-host-load", "emulate-lora-disk-load")
	profile := f.String("profile", "llama-3.1-8b/h100", "")
	details := f.Bool("enable-prompt-tokens-details", true, "")
	created := f.Bool("created-series", !pythonTrue(env.getenv("PROMETHEUS_DISABLE_CREATED_SERIES")), "")
	f.IntVar(&c.Ranks, "data-parallel-size", 1, "")
	f.IntVar(&c.MaxQueued, "max-num-queued-reqs", 0, "")
	f.BoolVar(&c.TrackLoad, "enable-server-load-tracking", false, "")
	f.BoolVar(&c.EchoRequestIDs, "enable-request-id-headers", false, "")
	f.StringVar(&c.Version, "emulate-version", emulator.DefaultVersion, "")
	f.BoolVar(&c.Control, "control", false, "")
	f.Float64Var(&c.Speed, "speed", 1, "")
	f.StringVar(&c.APIKey, "api-key", env.getenv("VLLM_API_KEY"), "")
	f.Uint64Var(&c.Seed, "seed", 0, "")
	f.DurationVar(&o.grace, "shutdown-timeout", 5*time.Second, "")
	f.Float64Var(&c.Faults.Error, "fault-error-rate", 0, "")
	f.Float64Var(&c.Faults.Overload, "fault-overload-rate", 0, "")
	f.Float64Var(&c.Faults.Limit, "fault-limit-rate", 0, "")
	f.Float64Var(&c.Faults.Stall, "fault-stall-rate", 0, "")
	f.Float64Var(&c.Faults.Reset, "fault-reset-rate", 0, "")
	f.Float64Var(&c.Faults.StreamError, "fault-stream-error-rate", 0, "")
	configure := schedulerFlags(f)
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%q is not a flag", f.Arg(0))
	}
	p, err := accelerator.Lookup(*profile)
	if err != nil {
		return o, fmt.Errorf("--profile: %w", err)
	}
	c.Engine = configure(p)
	c.HidePromptDetails, c.HideCreated = !*details, !*created
	c.Models = []string{cmp.Or(*model, p.Model)}
	if *aliases != "" {
		c.Models = append(c.Models, strings.Split(*aliases, ",")...)
	}
	if *modules != "" {
		for module := range strings.SplitSeq(*modules, ",") {
			name, path, _ := strings.Cut(module, "=")
			c.Adapters = append(c.Adapters, emulator.Adapter{Name: name, Path: path})
		}
	}
	given := map[string]bool{}
	f.Visit(func(x *flag.Flag) { given[x.Name] = true })
	if len(c.Adapters) > 0 && !given["max-loras"] {
		lora.MaxLoRAs = 1 // vLLM's default
	}
	c.Engine.LoRA = loraOf(lora)
	err = checkEngine(&o)
	if len(c.Adapters) == 0 {
		for _, name := range []string{"max-loras", "max-cpu-loras", "emulate-lora-host-load", "emulate-lora-disk-load"} {
			if given[name] {
				err = errors.Join(err, fmt.Errorf("--%s is given without --lora-modules", name))
			}
		}
	}
	return o, err
}

// pythonTrue reports whether prometheus_client takes the value of a variable for true.
func pythonTrue(s string) bool {
	return slices.Contains([]string{"true", "1", "t"}, strings.ToLower(s))
}

// schedulerFlags defines the flags of engine.Config. The function it returns gives the
// configuration on the given hardware, once the flags are parsed.
func schedulerFlags(f *flag.FlagSet) func(accelerator.Profile) engine.Config {
	seqs := f.Int("max-num-seqs", 0, "")
	budget := f.Int("max-num-batched-tokens", 0, "")
	blocks := f.Int("num-gpu-blocks", 0, "")
	size := f.Int("block-size", accelerator.BlockTokens, "")
	length := f.Int("max-model-len", 0, "")
	chunked := f.Bool("enable-chunked-prefill", true, "")
	caching := f.Bool("enable-prefix-caching", true, "")
	return func(p accelerator.Profile) engine.Config {
		c := engine.Defaults(p)
		c.ChunkedPrefill, c.PrefixCaching = *chunked, *caching
		c.BlockTokens = *size
		if *size > 0 {
			c.NumBlocks = p.Blocks(*size)
		}
		f.Visit(func(given *flag.Flag) {
			switch given.Name {
			case "max-num-seqs":
				c.MaxSeqs = *seqs
			case "max-num-batched-tokens":
				c.MaxBatchedTokens = *budget
			case "num-gpu-blocks":
				c.NumBlocks = *blocks - 1
			}
		})
		c.MaxModelLen = max(min(c.MaxModelLen, c.NumBlocks*c.BlockTokens), 1)
		f.Visit(func(given *flag.Flag) {
			if given.Name == "max-model-len" {
				c.MaxModelLen = *length
			}
		})
		return c
	}
}

// engineFlags names the flag of each field that a configuration error can name.
var engineFlags = map[string]string{
	"Models":               "--model with --alias",
	"Speed":                "--speed",
	"Ranks":                "--data-parallel-size",
	"MaxQueued":            "--max-num-queued-reqs",
	"NumBlocks":            "--num-gpu-blocks less the empty one",
	"BlockTokens":          "--block-size",
	"MaxBatchedTokens":     "--max-num-batched-tokens",
	"MaxSeqs":              "--max-num-seqs",
	"MaxModelLen":          "--max-model-len",
	"Engine.MaxModelLen":   "--max-model-len",
	"Adapters":             "a name in --lora-modules",
	"Engine.LoRA.MaxLoRAs": "--max-loras",
	"LoRA.MaxLoRAs":        "--max-loras",
	"LoRA.MaxCPULoRAs":     "--max-cpu-loras",
	"LoRA.LoadFromHost":    "--emulate-lora-host-load",
	"LoRA.LoadFromDisk":    "--emulate-lora-disk-load",
	"Faults":               "the sum of the --fault flags",
	"Faults.Error":         "--fault-error-rate",
	"Faults.Overload":      "--fault-overload-rate",
	"Faults.Limit":         "--fault-limit-rate",
	"Faults.Stall":         "--fault-stall-rate",
	"Faults.Reset":         "--fault-reset-rate",
	"Faults.StreamError":   "--fault-stream-error-rate",
}

// checkEngine reports every mistake in the words of the command line.
func checkEngine(o *engineOptions) error {
	var errs []error
	bad := func(name string, value any, allowed string) {
		errs = append(errs, fmt.Errorf("%s is %v; allowed: %s", name, value, allowed))
	}
	if o.config.Speed == 0 { // to the emulator, 0 means the default
		bad("--speed", o.config.Speed, "above 0")
	}
	if o.config.Ranks == 0 { // likewise
		bad("--data-parallel-size", o.config.Ranks, "1 or more")
	}
	if o.grace < 0 {
		bad("--shutdown-timeout", o.grace, "0 or more")
	}
	for _, err := range flatten(o.config.Validate()) {
		if e, ok := errors.AsType[*emulator.ConfigError](err); ok && engineFlags[e.Field] != "" {
			bad(engineFlags[e.Field], e.Value, e.Allowed)
		} else if e, ok := errors.AsType[*engine.ConfigError](err); ok && engineFlags[e.Field] != "" {
			bad(engineFlags[e.Field], e.Value, e.Allowed)
		} else {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
