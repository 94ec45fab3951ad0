package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"kvasir/internal/queueing"
)

const planUsage = `usage: kvasir plan --rate R --prompt-tokens N --output-tokens N --places N --prefill-rate R --tpot D [flags]
       kvasir plan --rate R --prompt-tokens N --output-tokens N --profile NAME [flags]

Sizes a pool by closed forms, each printed with what it assumes: the prefill that a prefix
cache saves, the throughput ceiling of a replica by Little's law, the mean wait by
Pollaczek–Khinchine, Kingman, Erlang C and Allen–Cunneen, and how many replicas each says
are needed. They are means; for tails, caches and routing rules use the simulator.

traffic:
  --rate R            calls a second
  --prompt-tokens N   mean prompt, tokens
  --cached-tokens N   of these, found in the prefix cache (default 0)
  --output-tokens N   mean answer, tokens
  --arrival-cv2 X     squared coefficient of variation of the times between arrivals (default 1: Poisson)
  --service-cv2 X     that of the time a call is worked on (default 1: exponential; measure yours)

a replica, as measured:
  --places N          calls that are resident at most, L_max: the engine's --max-num-seqs, or the
                      highest vllm:num_requests_running (SGLang: sglang:num_running_reqs) while
                      calls wait, where KV memory allows fewer
  --prefill-rate R    tokens a second that it prefills, nothing cached: total_input_tokens / duration
                      in the JSON of
                      kvasir bench --request-rate inf --max-concurrency 8 --random-output-len 1
                        --random-input-len N --save-result
  --tpot D            time an output token with all places taken, for example 25ms: the mean TPOT of
                      kvasir bench --request-rate inf --max-concurrency PLACES --ignore-eos
                        --random-input-len N --random-output-len N
  --profile NAME      in place of those three that are not given: what the cost model of a model on
                      its hardware says, for example llama-3.1-8b/h100 (a wrong name lists them)
  --hidden D          hidden dimension of the model (default 4096)
  --block-factor C    parameters of a block in units of D² (default 12)

the question:
  --wait D            mean wait that is accepted (default 1s)
  --replicas N        replicas (default: as many as the wait asks for, by Allen–Cunneen)
  --format FORMAT     table or json (default table)

example:
  kvasir plan --rate 20 --prompt-tokens 4000 --cached-tokens 3000 --output-tokens 300 --places 64 --prefill-rate 20000 --tpot 25ms --service-cv2 4
  kvasir plan --rate 20 --prompt-tokens 4000 --output-tokens 300 --profile llama-3.1-8b/h100
`

// planFlags are the flags that have no default: a plan is about somebody's pool.
var planFlags = []string{"rate", "prompt-tokens", "output-tokens", "places", "prefill-rate", "tpot"}

// runPlan is kvasir plan: it sizes a pool by closed forms.
func runPlan(_ context.Context, env environment, args []string) int {
	pool, profile, format, err := parsePlan(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(env.stdout, planUsage)
		return 0
	case err != nil:
		return env.misused("plan", err, "the flags")
	}
	plan := pool.Plan()
	if format == "json" {
		err = printJSON(env.stdout, planJSON(pool, profile, plan))
	} else {
		err = printPlan(env.stdout, pool, profile, plan)
	}
	if err != nil {
		fmt.Fprintf(env.stderr, "kvasir plan: %v\n", err)
		return 1
	}
	return 0
}

// parsePlan reads the flags. The profile is nil where none is named. The error has every
// mistake, or is flag.ErrHelp.
func parsePlan(args []string) (*queueing.Pool, *planProfile, string, error) {
	p := &queueing.Pool{}
	f := flag.NewFlagSet("kvasir plan", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Float64Var(&p.Rate, "rate", 0, "")
	f.Float64Var(&p.PromptTokens, "prompt-tokens", 0, "")
	f.Float64Var(&p.CachedTokens, "cached-tokens", 0, "")
	f.Float64Var(&p.OutputTokens, "output-tokens", 0, "")
	f.Float64Var(&p.ArrivalCV2, "arrival-cv2", 1, "")
	f.Float64Var(&p.ServiceCV2, "service-cv2", 1, "")
	f.IntVar(&p.Places, "places", 0, "")
	f.Float64Var(&p.PrefillRate, "prefill-rate", 0, "")
	tpot := durationFlag(f, new(time.Duration), "tpot", 0)
	f.Float64Var(&p.Hidden, "hidden", 4096, "")
	f.Float64Var(&p.BlockFactor, "block-factor", 12, "")
	wait := durationFlag(f, new(time.Duration), "wait", time.Second)
	f.IntVar(&p.Replicas, "replicas", 0, "")
	format := f.String("format", "table", "")
	name := f.String("profile", "", "")
	if err := f.Parse(args); err != nil {
		return nil, nil, "", err
	}
	p.TPOT, p.Wait = tpot.Seconds(), wait.Seconds()

	given := map[string]bool{}
	f.Visit(func(g *flag.Flag) { given[g.Name] = true })
	var errs []error
	var profile *planProfile
	if given["profile"] {
		var err error
		if profile, err = fillPool(p, *name, given); err != nil {
			errs = append(errs, fmt.Errorf("--profile: %w", err))
		}
	}
	missing := map[string]bool{}
	for _, name := range planFlags {
		if !given[name] && !(given["profile"] && slices.Contains(profileFlags, name)) {
			missing[name] = true
			errs = append(errs, fmt.Errorf("--%s is missing", name))
		}
	}
	if given["replicas"] && p.Replicas == 0 {
		errs = append(errs, fmt.Errorf("--replicas is 0; allowed: 1 to %d", queueing.MaxReplicas))
	}
	for _, e := range p.Validate() {
		e.Field = strings.ReplaceAll(e.Field, "_", "-")
		switch {
		case missing[e.Field] || !given[e.Field] && slices.Contains(profileFlags, e.Field) || e.Field == "cached-tokens" && missing["prompt-tokens"]:
			continue // it is reported already
		case e.Field == "tpot" || e.Field == "wait":
			e.Allowed += " seconds"
		}
		e.Field = "--" + e.Field
		errs = append(errs, e)
	}
	if *format != "table" && *format != "json" {
		errs = append(errs, fmt.Errorf("--format is %q; allowed: table, json", *format))
	}
	if f.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected %q; there are flags alone", f.Arg(0)))
	}
	return p, profile, *format, errors.Join(errs...)
}

// durationFlag defines a flag whose error says how a duration is written.
func durationFlag(f *flag.FlagSet, at *time.Duration, name string, standard time.Duration) *time.Duration {
	*at = standard
	f.Func(name, "", func(s string) (err error) {
		if *at, err = time.ParseDuration(s); err != nil {
			return errors.New("allowed: a duration with its unit, such as 25ms, 1.5s or 10m")
		}
		return nil
	})
	return at
}

// printPlan prints the plan for people.
func printPlan(w io.Writer, p *queueing.Pool, profile *planProfile, s queueing.Plan) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if profile != nil {
		fmt.Fprintf(t, "assumed by the cost model of %s, not measured\n", profile.Name)
		for _, a := range profile.Assumed {
			fmt.Fprintf(t, "  %s\t%s\t%s\n", a.What, a.value, a.Formula)
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintln(t, "what a replica can do")
	row := func(name, value, how string) { fmt.Fprintf(t, "  %s\t%s\t%s\n", name, value, how) }
	row("attention's share of a cold prefill", perCent(s.AttentionShare), "n/(n + c·d); constants aside")
	row("prefill saved by the cache", perCent(s.Saving), fmt.Sprintf("between (m/n)² = %s and m/n = %s", perCent(s.SavingLeast), perCent(s.SavingMost)))
	row("prefill, cold", seconds(s.PrefillCold), "tokens over the rate at which they are prefilled")
	row("prefill, with the cache", seconds(s.PrefillWarm), "the same less what is saved; fetching cached blocks is free")
	row("in the engine, W", seconds(s.Residence), "prefill and a TPOT for each token after the first, at a full batch")
	row("ceiling by places", rate(s.PlacesCeiling), "λ_max = L_max/W (Little); holds for any distribution and order")
	row("ceiling by prefill", rate(s.PrefillCeiling), "prefills of a replica take turns")
	row("utilization", perCent(s.Utilization), fmt.Sprintf("%s calls/s over %d × the lower ceiling", short(p.Rate), s.Replicas))
	fmt.Fprintf(t, "\nthe mean wait with %s, and the replicas with which it is %s or less\n", count(s.Replicas, "replica"), seconds(p.Wait))
	for _, a := range s.Waits {
		needed := strconv.Itoa(a.Replicas)
		if a.Replicas == 0 {
			needed = fmt.Sprintf("over %d", queueing.MaxReplicas)
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s: %s\n", a.Model.Name, seconds(a.Mean), needed, a.Model.Formula, a.Model.Assumes)
	}
	fmt.Fprintln(t, "\nAll of them assume a steady state, arrivals that do not depend on the load, a queue without bound, and first come first served.")
	return t.Flush()
}

// planned is the plan's JSON. What is without bound, and more replicas than a plan looks
// at, are null.
type planned struct {
	Pool    *queueing.Pool `json:"pool"`
	Profile *planProfile   `json:"profile"` // null: all was given

	AttentionShare float64    `json:"attention_share"`
	PrefillSaving  float64    `json:"prefill_saving"`
	SavingBounds   [2]float64 `json:"prefill_saving_bounds"`
	PrefillColdS   float64    `json:"prefill_cold_s"`
	PrefillWarmS   float64    `json:"prefill_warm_s"`
	ResidenceS     float64    `json:"residence_s"`
	PlacesCeiling  float64    `json:"places_ceiling_rps"`
	PrefillCeiling *float64   `json:"prefill_ceiling_rps"`
	Replicas       int        `json:"replicas"`
	Utilization    float64    `json:"utilization"`
	Waits          []waited   `json:"waits"`
}

type waited struct {
	Model    string   `json:"model"`
	Formula  string   `json:"formula"`
	Assumes  string   `json:"assumes"`
	MeanS    *float64 `json:"mean_wait_s"`
	Replicas *int     `json:"replicas_needed"`
}

func planJSON(p *queueing.Pool, profile *planProfile, s queueing.Plan) planned {
	finite := func(x float64) *float64 {
		if math.IsInf(x, 0) {
			return nil
		}
		return &x
	}
	out := planned{Pool: p, Profile: profile, AttentionShare: s.AttentionShare, PrefillSaving: s.Saving, SavingBounds: [2]float64{s.SavingLeast, s.SavingMost},
		PrefillColdS: s.PrefillCold, PrefillWarmS: s.PrefillWarm, ResidenceS: s.Residence, PlacesCeiling: s.PlacesCeiling,
		PrefillCeiling: finite(s.PrefillCeiling), Replicas: s.Replicas, Utilization: s.Utilization}
	for _, a := range s.Waits {
		w := waited{Model: a.Model.Name, Formula: a.Model.Formula, Assumes: a.Model.Assumes, MeanS: finite(a.Mean)}
		if a.Replicas > 0 {
			w.Replicas = &a.Replicas
		}
		out.Waits = append(out.Waits, w)
	}
	return out
}

// short prints three significant digits, without an exponent where people read none.
func short(x float64) string {
	if math.IsInf(x, 1) {
		return "without bound"
	}
	if x >= 1000 && x < 1e15 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

func perCent(x float64) string { return short(100*x) + " %" }

func seconds(x float64) string {
	if math.IsInf(x, 1) {
		return short(x)
	}
	if x < 1 {
		return short(1000*x) + " ms"
	}
	return short(x) + " s"
}

func rate(x float64) string {
	if math.IsInf(x, 1) {
		return short(x)
	}
	return short(x) + " calls/s"
}
