package sim

import (
	"reflect"
	"testing"
	"time"

	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/internal/mono"
	"kvasir/selection/health"
	"kvasir/selection/policy"
)

// spill is a world of two pools, the first of provisioned throughput: engine 0 answers 429 with
// the time that is left, from 20 s to 50 s. rules are the first pool's breaker's.
func spill(t *testing.T, rules []health.Rule) *outcome {
	t.Helper()
	rule, _ := policy.Lookup("least-outstanding")
	w := testWorld{rule: rule, seed: 7, routers: 1, engines: 2, calls: 800, length: 80 * time.Second}
	cfg, calls := w.config(t)
	cfg.Engines[0].Faults = []Fault{{From: mono.Time(20 * time.Second), To: mono.Time(50 * time.Second), Share: 1, Outcome: attempt.Limited, NamesEnd: true}}
	m := &cfg.Routers[0].Machine
	one, other := m.Pools[0], m.Pools[0]
	one.Name, other.Name = "ptu", "payg"
	one.Endpoints, other.Endpoints = one.Endpoints[:1], other.Endpoints[1:]
	one.Policy, other.Policy = rule.Params().New(), rule.Params().New()
	one.Breaker = rules
	m.Pools = []flow.Pool{one, other}
	m.Health.SlowStart = 0
	o, err := run(cfg, calls)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Article section 14.4 in virtual time: with the rule one call meets the 429 and all others go to
// the pool behind, for as long as it says. Then the first pool has them again.
func TestFault_ProvisionedSpillsForAsLongAsItSays(t *testing.T) {
	rules := []health.Rule{{
		Failures: 1, Statuses: []health.Statuses{{From: 429, To: 429}}, Trip: time.Second, MaxTrip: time.Minute,
		RetryAfter: true, MaxAfter: 24 * time.Hour,
	}}
	o := spill(t, rules)
	var met, before, within, after int
	for i := range o.Records {
		r := &o.Records[i]
		if !r.Succeeded() {
			t.Fatalf("call %d ended with %v, refused %v", r.Call, r.Outcome, r.Refused)
		}
		if r.Attempts > 1 {
			met++
		}
		switch at := r.At.Duration(); {
		case at < 20*time.Second:
			before += r.Engine
		case at < 50*time.Second:
			within += 1 - r.Engine
		default:
			after += 1 - r.Engine
		}
	}
	if met != 1 {
		t.Errorf("%d calls met the 429, want the one that trips the rule", met)
	}
	if before != 0 || within != 0 {
		t.Errorf("%d calls spilled before the quota was used up, %d went to the first pool while it was", before, within)
	}
	if after < 100 {
		t.Errorf("%d calls went to the first pool once its time was over", after)
	}
	e := o.Final[0].Pools[0].Endpoints[0]
	if e.Health != health.InRotation {
		t.Errorf("it ends %v", e.Health)
	}
	if again := spill(t, rules); !reflect.DeepEqual(o.Records, again.Records) {
		t.Error("a second run is another one")
	}
}

// Without the rule the first pool is left alone for as long as it says too, up to health.max_busy,
// and stays in rotation: that is what back-pressure does.
func TestFault_WithoutARuleBackPressureSpillsAsWell(t *testing.T) {
	o := spill(t, nil)
	for i := range o.Records {
		if r := &o.Records[i]; !r.Succeeded() {
			t.Fatalf("call %d ended with %v, refused %v", r.Call, r.Outcome, r.Refused)
		}
	}
	if e := o.Final[0].Pools[0].Endpoints[0]; e.Cause != health.NoCause {
		t.Errorf("it left rotation: %v", e.Cause)
	}
}

// A share is drawn for each attempt by itself.
func TestFault_StrikesItsShare(t *testing.T) {
	rule, _ := policy.Lookup("round-robin")
	w := testWorld{rule: rule, seed: 3, routers: 1, engines: 3, calls: 2000, length: 200 * time.Second}
	cfg, calls := w.config(t)
	for e := range cfg.Engines {
		cfg.Engines[e].Faults = []Fault{{To: mono.Never, Share: 0.05, Seed: 3, Outcome: attempt.Failed, Wait: attempt.NoWait}}
	}
	m := &cfg.Routers[0].Machine
	m.Total = attempt.NewBudget(m.Retry.Total())
	o, err := run(cfg, calls)
	if err != nil {
		t.Fatal(err)
	}
	attempts, failed := 0, 0
	for i := range o.Records {
		attempts += o.Records[i].Attempts
		if !o.Records[i].Succeeded() {
			failed++
		}
	}
	if struck := attempts - len(calls); struck < 60 || struck > 150 {
		t.Errorf("%d of %d attempts were struck, want about 1 in 20", struck, attempts)
	}
	if failed > 10 {
		t.Errorf("%d calls failed although their attempts at others would not", failed)
	}
}
