package sim

import (
	"fmt"
	"testing"
	"time"

	"kvasir/accelerator"
	"kvasir/client/workload"
	"kvasir/engine"
	"kvasir/gateway/limit"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/policy"
)

// swarm is an agent that calls once and then sends forty children at once, and people who
// each say one thing, one every 100 ms.
func swarm() workload.Source {
	agent := workload.Session{ID: "agent", Class: "agent", At: time.Second, Calls: []workload.Call{plainCall(0)}}
	for range 40 {
		agent.Calls = append(agent.Calls, workload.Call{After: []int{0}, PromptTokens: 4000, OutputTokens: 100})
	}
	var all []workload.Session
	for i := range 60 {
		at := time.Duration(i) * 100 * time.Millisecond
		if i == 10 {
			all = append(all, agent)
		}
		all = append(all, workload.Session{ID: fmt.Sprint("person-", i), Class: "person", At: at, Calls: []workload.Call{plainCall(0)}})
	}
	return source(nil, all...)
}

// fan runs the swarm with so many calls of a conversation at a time; 0: no bound.
func fan(t *testing.T, c limit.Config, wait time.Duration) (*Summary, map[string]int) {
	t.Helper()
	profile, err := accelerator.Lookup("llama-3.1-8b/h100")
	if err != nil {
		t.Fatal(err)
	}
	rule, params, err := policy.Parse("least-outstanding")
	if err != nil {
		t.Fatal(err)
	}
	e := engine.Defaults(profile)
	s := Scenario{Rule: rule, Params: params, Engines: []Engine{{Config: e}}, Scrape: time.Second, Seed: 1, Workload: SessionsConfig{Source: swarm(), Rate: 1}}
	if len(c.Rules) > 0 || c.FanOut.Concurrency > 0 {
		s.Limits = &Limits{Config: c, Model: "m", MaxWait: wait}
	}
	became := map[string]int{}
	s.Ended = func(x *SessionRecord, _ int, r *Record) {
		if x.ID == "agent" && r.Unfinished() == "" {
			became["served"]++
			if r.Held > 0 {
				became["held"]++
			}
		}
		became[r.Unfinished()]++
	}
	result, err := s.Run()
	if err != nil {
		t.Fatal(err)
	}
	return result, became
}

// TestLimits_AFanOutIsSlowedAndOthersAreProtected: forty children of one agent under a cap of
// eight take longer than without one, all are served, and who talks beside them waits less for
// a first token.
func TestLimits_AFanOutIsSlowedAndOthersAreProtected(t *testing.T) {
	free, all := fan(t, limit.Config{}, 0)
	capped, some := fan(t, limit.Config{FanOut: limit.FanOut{Concurrency: 8, Waiting: 100}}, 0)
	if all["served"] != 41 || some["served"] != 41 || all["held"] != 0 || some["held"] != 32 {
		t.Fatalf("without a cap %v, with one %v; want all served, and 32 of the 40 held", all, some)
	}
	agent, with := free.Classes["agent"].E2E.Max, capped.Classes["agent"].E2E.Max
	people, protected := free.Classes["person"].TTFT.P99, capped.Classes["person"].TTFT.P99
	t.Logf("the agent's slowest call: %.2f s without a cap, %.2f s with one; others' TTFT P99: %.3f s and %.3f s", agent, with, people, protected)
	if !(with > agent && with < agent*2) { // its turn comes as soon as a sibling has ended
		t.Errorf("the agent's slowest call takes %.2f s with a cap, %.2f s without", with, agent)
	}
	if !(protected < people*0.6) {
		t.Errorf("others' TTFT P99 is %.3f s with a cap, %.3f s without", protected, people)
	}
}

// TestLimits_ARunIsTheSameEveryTime, its book of limits included.
func TestLimits_ARunIsTheSameEveryTime(t *testing.T) {
	c := limit.Config{FanOut: limit.FanOut{Concurrency: 3, Waiting: 20}, Rules: []limit.Rule{{Scope: limit.Scope{Kind: limit.Model, Name: "m"}, Caps: limit.Caps{RPM: 80, TPM: 90_000}}}}
	a, first := fan(t, c, 2*time.Second)
	b, second := fan(t, c, 2*time.Second)
	if fmt.Sprintf("%+v %v", a, first) != fmt.Sprintf("%+v %v", b, second) {
		t.Error("two runs differ")
	}
	if first["limit_rpm"]+first["limit_tpm"] == 0 || first["limit_waiting"] == 0 {
		t.Errorf("this shows nothing: %v", first)
	}
}

// TestLimits_EverythingIsSettled when a run ends, whatever became of its calls, and no more
// run than may.
func TestLimits_EverythingIsSettled(t *testing.T) {
	const tenant = "acme"
	var calls []Call
	for i := range 60 {
		c := Call{At: mono.Time(i) * 1e6}
		c.Request.ID, c.Request.Stream, c.Request.InputTokens, c.Request.Conversation = selection.CallID(i+1), true, 500, kvblock.Hash(1+i%3)
		c.Request.Tenant = kvblock.Seed("tenant", tenant)
		c.Prompt.PromptTokens, c.Prompt.OutputTokens, c.Prompt.Reason = 500, 40, engine.Stop
		if i%5 == 0 {
			c.LeaveAt = c.At.Add(time.Duration(i) * 3 * time.Millisecond)
		}
		if i%7 == 0 {
			c.Request.Firm, c.Request.Deadline = true, 100*time.Millisecond
		}
		calls = append(calls, c)
	}
	profile, err := accelerator.Lookup("llama-3.1-8b/h100")
	if err != nil {
		t.Fatal(err)
	}
	rule, params, err := policy.Parse("least-outstanding")
	if err != nil {
		t.Fatal(err)
	}
	s := Scenario{Rule: rule, Params: params, Engines: []Engine{{Config: engine.Defaults(profile)}}}
	s.Limits = &Limits{MaxWait: 150 * time.Millisecond, Config: limit.Config{
		FanOut: limit.FanOut{Concurrency: 2, Waiting: 12},
		Rules:  []limit.Rule{{Scope: limit.Scope{Kind: limit.Tenant, Name: tenant}, Caps: limit.Caps{Concurrency: 5, TPM: 1e6}}},
	}}
	s.Defaults()
	// Where the machine has a bound of its own it refuses some that their limits let in.
	for bound, seen := range map[int][]string{0: {"client_gone", "limit_waiting", "deadline_passed"}, 3: {"too_many_calls"}} {
		router := s.Router(0)
		router.Machine.Calls = bound
		became, charged, all := map[string]int{}, int64(0), 0
		result, err := Run(Config{
			Engines: s.Engines, Routers: []Router{router}, Feed: Calls(calls),
			Ended: func(r *Record) {
				all++
				became[r.Unfinished()]++
				if r.Attempts > 0 {
					charged++
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if u := result.Used[0][0]; u.Running != 0 || u.Waiting != 0 || u.Total.Requests != charged {
			t.Errorf("%+v; %d calls were sent", u, charged)
		}
		for _, why := range append(seen, "") {
			if became[why] == 0 {
				t.Errorf("this shows nothing: no call ended as %q, but %v", why, became)
			}
		}
		if all != len(calls) {
			t.Errorf("%d calls of %d ended: %v", all, len(calls), became)
		}
	}
}
