package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kvasir/gateway/admission"
	"kvasir/gateway/flow"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/policy"
)

// shadowWorld is a day with two gateways that tell each other, LoRA adapters, an engine that is
// down for a while, one that joins, and clients that leave.
func shadowWorld(t *testing.T, rule policy.Rule, day time.Duration, calls int) (Config, []Call) {
	w := testWorld{
		rule: rule, seed: 11, routers: 2, engines: 4, calls: calls, length: day, leaving: 13,
		down: []Outage{{From: mono.Time(day / 3), To: mono.Time(day/3 + day/20)}},
	}
	cfg, trace := w.config(t)
	cfg.Engines[3].Joins = mono.Time(day / 2)
	for i := range trace {
		if i%3 > 0 {
			trace[i].Request.Adapter = kvblock.Hash(i % 3)
		}
	}
	for i := range cfg.Routers {
		cfg.Routers[i].Machine.Sharing = flow.DefaultSharing(flow.PeerID(i + 1))
		cfg.Routers[i].PeerDelay = 3 * time.Millisecond
		cfg.Routers[i].Machine.Pools[0].Queue = admission.Config{MaxWait: 10 * time.Second, Length: 100, Bytes: 1 << 20, Tokens: 500, Work: 50 * time.Millisecond}
	}
	return cfg, trace
}

// decided is everything that a run decided, to the bit, and what came of it.
func decided(o *outcome) string {
	var b strings.Builder
	for _, d := range o.Decisions {
		d.Shadow = nil
		for i := range d.Candidates {
			fmt.Fprintf(&b, "%x ", d.Candidates[i].Score)
		}
		fmt.Fprintf(&b, "%+v\n", d)
	}
	for _, r := range o.Records {
		fmt.Fprintf(&b, "%+v\n", r)
	}
	for _, s := range o.Final {
		for _, p := range s.Pools {
			for _, e := range p.Endpoints {
				fmt.Fprintf(&b, "%+v\n", e)
			}
		}
	}
	return b.String()
}

func shadowed(t *testing.T, real, shadow policy.Rule, day time.Duration, calls int) *outcome {
	cfg, trace := shadowWorld(t, real, day, calls)
	if shadow.Params != nil {
		for i := range cfg.Routers {
			cfg.Routers[i].Shadow = &Shadow{Pool: "p", PolicyName: shadow.Name, Policy: shadow.Params().New()}
		}
	}
	o, err := run(cfg, trace)
	if err != nil {
		t.Fatalf("%s, shadow %s: %v", real.Name, shadow.Name, err)
	}
	return o
}

// TestShadow_ChangesNothing: every policy decides to the bit what it decides alone, whichever
// policy ranks beside it. Each is tried beside itself and beside four others, and each in the
// shadow of four.
func TestShadow_ChangesNothing(t *testing.T) {
	rules := policy.Catalog()
	for i, real := range rules {
		alone := decided(shadowed(t, real, policy.Rule{}, time.Second, 100))
		for _, further := range []int{0, 1, 4, 9, 15} {
			shadow := rules[(i+further)%len(rules)]
			o := shadowed(t, real, shadow, time.Second, 100)
			if decided(o) != alone {
				t.Errorf("%s decides otherwise beside %s", real.Name, shadow.Name)
			}
			tallied(t, o, real, shadow)
		}
	}
}

// TestShadow_ChangesNothingInADay: likewise over a whole day, for the pairs of which one uses
// what the other does not.
func TestShadow_ChangesNothingInADay(t *testing.T) {
	for _, names := range [][2]string{
		{"least-outstanding", "predicted-ttft"}, {"predicted-ttft", "least-outstanding"}, {"least-kv", "kv-cost"},
		{"kv-cost", "lora-affinity"}, {"weighted-least-request", "cache-aware"}, {"round-robin", "weighted-scorers"},
	} {
		real, shadow := mustLookup(t, names[0]), mustLookup(t, names[1])
		alone := shadowed(t, real, policy.Rule{}, 24*time.Hour, 3000)
		if o := shadowed(t, real, shadow, 24*time.Hour, 3000); decided(o) != decided(alone) {
			t.Errorf("%s decides otherwise beside %s", real.Name, shadow.Name)
		}
	}
}

// tallied checks the tally against the decisions.
func tallied(t *testing.T, o *outcome, real, shadow policy.Rule) {
	t.Helper()
	var all, told flow.ShadowCount
	for _, d := range o.Decisions {
		x := d.Shadow
		if x == nil || x.Policy != shadow.Name || len(x.Scores) != len(d.Candidates) || len(x.OverlapTokens) != len(d.Candidates) {
			t.Fatalf("%s: a decision without its shadow: %+v", real.Name, x)
		}
		all.Picks++
		if x.Agrees {
			all.Agreed++
			continue
		}
		all.OverlapTokens += int64(x.OverlapTokens[x.Chosen] - x.OverlapTokens[d.Chosen])
		all.Outstanding += int64(d.Candidates[x.Chosen].Outstanding - d.Candidates[d.Chosen].Outstanding)
	}
	for _, s := range o.Final {
		x := s.Pools[0].Shadow
		if x == nil || x.Policy != shadow.Name {
			t.Fatalf("%s: no tally of %s", real.Name, shadow.Name)
		}
		var reasons flow.ShadowCount
		for _, r := range x.Reasons {
			reasons = sum(reasons, r.ShadowCount)
		}
		if reasons != x.ShadowCount {
			t.Errorf("%s beside %s: the reasons add up to %+v, not %+v", shadow.Name, real.Name, reasons, x.ShadowCount)
		}
		told = sum(told, x.ShadowCount)
	}
	if told != all {
		t.Errorf("%s beside %s: tally %+v, decisions %+v", shadow.Name, real.Name, told, all)
	}
}

func sum(a, b flow.ShadowCount) flow.ShadowCount {
	return flow.ShadowCount{
		Picks: a.Picks + b.Picks, Agreed: a.Agreed + b.Agreed,
		OverlapTokens: a.OverlapTokens + b.OverlapTokens, Outstanding: a.Outstanding + b.Outstanding,
	}
}

// replay is a policy that uses nothing and chooses what was chosen before.
type replay struct {
	choices []int
	next    int
}

func (p *replay) Pick(v *selection.View, _ *selection.Request, _ *seed.Rand) selection.Choice {
	for i := range v.Scores {
		v.Scores[i] = 0
	}
	p.next++
	return selection.Choice{Index: p.choices[p.next-1], Reason: "replayed"}
}

// ownPicks are the rules whose scores go by what they picked or drew themselves; gateway/flow's
// tests show that they, too, see what they would.
var ownPicks = []string{"power-of-two", "consistent-hash", "prefix-hash", "round-robin", "weighted-round-robin", "weighted-least-request", "lora-affinity"}

// TestShadow_SeesWhatThePolicyWouldSee: beside a policy that uses neither overlap nor blocks in
// use nor adapters, and places the calls as the rule did, the rule gives the scores that it gave.
func TestShadow_SeesWhatThePolicyWouldSee(t *testing.T) {
	for _, rule := range policy.Catalog() {
		if slices.Contains(ownPicks, rule.Name) {
			continue
		}
		w := testWorld{rule: rule, seed: 11, routers: 1, engines: 4, calls: 300, length: 10 * time.Second, leaving: 13}
		cfg, trace := w.config(t)
		for i := range trace {
			if i%3 > 0 {
				trace[i].Request.Adapter = kvblock.Hash(i % 3)
			}
		}
		before, err := run(cfg, trace)
		if err != nil {
			t.Fatal(err)
		}
		again := &replay{}
		for _, d := range before.Decisions {
			again.choices = append(again.choices, d.Chosen)
		}
		cfg, _ = w.config(t)
		cfg.Routers[0].Machine.Pools[0].Policy = again
		cfg.Routers[0].Shadow = &Shadow{Pool: "p", PolicyName: rule.Name, Policy: rule.Params().New()}
		after, err := run(cfg, trace)
		if err != nil {
			t.Fatal(err)
		}
		for n, d := range after.Decisions {
			was := before.Decisions[n]
			for i, x := range d.Shadow.Scores {
				if a := was.Candidates[i].Score; a != x && (a == a || x == x) {
					t.Fatalf("%s: call %d, %s: score %v, as a shadow %v", rule.Name, d.Call, d.Candidates[i].Endpoint, a, x)
				}
				if a := was.Candidates[i].OverlapTokens; a != 0 && a != d.Shadow.OverlapTokens[i] {
					t.Fatalf("%s: call %d, %s: overlap of %d tokens, as a shadow %d", rule.Name, d.Call, d.Candidates[i].Endpoint, a, d.Shadow.OverlapTokens[i])
				}
			}
		}
	}
}

// TestShadow_DrawsApart: two policies that draw do not draw the same.
func TestShadow_DrawsApart(t *testing.T) {
	rule := mustLookup(t, "random")
	o := shadowed(t, rule, rule, time.Minute, 300)
	for _, s := range o.Final {
		if x := s.Pools[0].Shadow; x.Agreed > x.Picks/2 || x.Agreed < x.Picks/6 {
			t.Errorf("of %d draws among up to four %d agree", x.Picks, x.Agreed)
		}
	}
}

func TestShadow_OfAPoolThatIsNot_IsRefused(t *testing.T) {
	rule := mustLookup(t, "random")
	cfg, trace := shadowWorld(t, rule, time.Minute, 10)
	cfg.Routers[1].Shadow = &Shadow{Pool: "q", PolicyName: rule.Name, Policy: rule.Params().New()}
	if _, err := run(cfg, trace); err == nil || !strings.Contains(err.Error(), `router 1: its machine has no pool "q"`) {
		t.Errorf("got %v", err)
	}
}
