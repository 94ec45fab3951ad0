package lab

import (
	"fmt"
	"slices"

	"kvasir/accelerator"
	"kvasir/engine"
	"kvasir/gateway/attempt"
	"kvasir/internal/mono"
	"kvasir/internal/portable"
	"kvasir/internal/seed"
	"kvasir/internal/stats"
	"kvasir/selection"
	"kvasir/selection/policy"
	"kvasir/sim"
)

// The same with the gateway's own machine, which hedges calls to a pool of simulated engines. There
// a hedge is load: it slows others down, and the machine has to find out itself what is late.

// poolRow is a row of the table: what the machine may hedge.
type poolRow struct {
	name  string
	hedge attempt.HedgeConfig
	pooled
}

// pooled are the runs of a row, by seed.
type pooled struct {
	hedged, extra []float64 // per cent of the calls, and of the prefill that answers took
	p50, p95, p99 []float64 // ms
}

// The rows, in their order.
const (
	poolNever = iota
	poolP95
	poolP90
	poolHalf
)

func poolRows() []poolRow {
	at := func(quantile, ratio float64) attempt.HedgeConfig {
		return attempt.HedgeConfig{Quantile: quantile, Ratio: ratio}
	}
	return []poolRow{
		poolNever: {name: "never"},
		poolP95:   {name: "P95, at most 5 %", hedge: at(0.95, 0.05)},
		poolP90:   {name: "P90, at most 10 %", hedge: at(0.9, 0.1)},
		poolHalf:  {name: "P50, at most 50 %", hedge: at(0.5, 0.5)},
	}
}

const (
	poolReplicas = 16
	poolPrompt   = 2000 // tokens of the median prompt
	poolLongest  = 16_000
	poolAnswer   = 50 // tokens
)

// poolCalls draws a seed's calls: they come at random, and share nothing.
func (x *hedging) poolCalls(root uint64) []sim.Call {
	r := seed.New(root, seed.Workload, 1, 0)
	calls := make([]sim.Call, x.poolCount)
	at := 0.0
	for i := range calls {
		at -= portable.Ln(1-r.Float64()) / x.poolRate
		tokens := int(min(float64(poolPrompt*portable.Exp(float64(0.5*normal(&r)))), poolLongest))
		calls[i] = sim.Call{
			At:      mono.Time(mono.FromSeconds(at)),
			Request: selection.Request{ID: selection.CallID(i + 1), Stream: true, InputTokens: max(tokens, 1), OutputTokens: poolAnswer},
			Prompt:  engine.Request{PromptTokens: max(tokens, 1), OutputTokens: poolAnswer, Reason: engine.Length},
		}
	}
	return calls
}

// playPool runs a seed's calls with what the row may hedge.
func (x *hedging) playPool(calls []sim.Call, root uint64, row *poolRow) {
	profile, err := accelerator.Lookup("llama-3.1-8b/h100")
	if err != nil {
		panic(err) // it is of the catalogue
	}
	rule, _ := policy.Lookup("round-robin")
	s := sim.Scenario{Rule: rule, Seed: root, Hedge: row.hedge}
	for range poolReplicas {
		s.Engines = append(s.Engines, sim.Engine{Config: engine.Defaults(profile)})
	}
	s.Engines[0].Pace = []sim.Pace{{At: 0, Factor: x.slow}}
	s.Defaults()
	var took []float64
	var hedged, wasted, computed float64
	cfg := sim.Config{
		Stopped: x.stopped, Engines: s.Engines, Routers: []sim.Router{s.Router(0)}, Feed: sim.Calls(calls),
		Ended: func(r *sim.Record) {
			if int(r.Call) <= x.poolCount*3/10 { // until the machine knows what is late
				return
			}
			took = append(took, 1000*r.First.Sub(r.At).Seconds())
			computed, wasted = computed+float64(r.Prompt-r.Cached), wasted+float64(r.Wasted)
			if r.Hedged {
				hedged++
			}
		},
	}
	if _, err := sim.Run(cfg); err != nil {
		x.fail(err) // it is stopped: the settings' bounds leave no room for a mistake
	}
	slices.Sort(took)
	row.hedged = append(row.hedged, 100*hedged/float64(len(took)))
	row.extra = append(row.extra, 100*wasted/computed)
	row.p50, row.p95, row.p99 = append(row.p50, stats.Quantile(took, 0.5)), append(row.p95, stats.Quantile(took, 0.95)), append(row.p99, stats.Quantile(took, 0.99))
}

func (x *hedging) pool(seeds int) []poolRow {
	rows := poolRows()
	for s := range seeds {
		calls := x.poolCalls(x.root(s))
		for i := range rows {
			x.ask()
			x.playPool(calls, x.root(s), &rows[i])
		}
	}
	return rows
}

func (x *hedging) poolTable(rows []poolRow) Table {
	t := Table{Name: "in-a-pool", Title: fmt.Sprintf("the gateway's machine and %d simulated engines, one of them %s times as slow", poolReplicas, show(x.slow)),
		Columns: []Column{{Name: "duplicate"}, {Name: "hedged", Unit: "% of calls"}, {Name: "prefill", Unit: "% more"}, {Name: "TTFT P50", Unit: "ms"}, {Name: "P95", Unit: "ms"}, {Name: "P99", Unit: "ms"}}}
	for _, r := range rows {
		t.Rows = append(t.Rows, []Cell{Text(r.name), Mean(r.hedged, 1), Mean(r.extra, 1), Mean(r.p50, 0), Mean(r.p95, 0), Mean(r.p99, 0)})
	}
	return t
}

func poolVerdicts(rows []poolRow) []Verdict {
	never, p95 := rows[poolNever], rows[poolP95]
	return []Verdict{
		holds("9.2", "the machine keeps its budget: at most 5 % of the calls are hedged", slices.Max(p95.hedged) <= 6, fmt.Sprintf("%s %% of the calls", Mean(p95.hedged, 1))),
		above("9.2", "hedged at the pool's own P95 by the machine itself, the tail of a pool with a slow replica is shorter: P99", never.p99, p95.p99, 0, " ms"),
	}
}
