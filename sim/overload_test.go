package sim

import (
	"fmt"
	"testing"
	"time"

	"kvasir/client/workload"
	"kvasir/gateway/admission"
	"kvasir/internal/seed"
	"kvasir/selection/policy"
)

// crowd is a workload of calls without common prefixes, so many a second; of gives each its terms.
func crowd(seconds int, rate float64, of func(i int, r *seed.Rand) workload.Terms) workload.Source {
	return workload.Source{Name: "crowd", Sessions: func(yield func(workload.Session, error) bool) {
		at := time.Duration(0)
		for i := 0; at < time.Duration(seconds)*time.Second; i++ {
			r := seed.New(1, seed.Workload, uint64(i), 0)
			at += time.Duration(float64(r.Int64n(int64(2*time.Second))) / rate)
			s := workload.Session{ID: fmt.Sprint(i), At: at, Calls: []workload.Call{{PromptTokens: 500 + r.Intn(3000), OutputTokens: 20 + r.Intn(200)}}}
			s.Terms = of(i, &r)
			if !yield(s, nil) {
				return
			}
		}
	}}
}

func crowdScenario(t testing.TB, queue admission.Config, w workload.Source) Scenario {
	s := testScenario(t, "least-outstanding", 2)
	s.Workload.Source, s.Workload.Rate, s.Warmup, s.SLO = w, 1, 20*time.Second, SLO{TTFT: 2 * time.Second}
	s.Queue = queue
	return s
}

// holds is a queue of the order.
func holds(order admission.Order) admission.Config {
	q := admission.Default()
	q.Work, q.Order = 500*time.Millisecond, order
	return q
}

// knee is about as many calls a second as the two engines of a crowdScenario answer.
const knee = 15.0

// TestOverload_AFairOrderShieldsWhoAsksForLittle: one tenant sends nine tenths of the calls, half as
// many again as there is room for; the other one notices nothing.
func TestOverload_AFairOrderShieldsWhoAsksForLittle(t *testing.T) {
	tenants := crowd(120, 1.5*knee, func(i int, _ *seed.Rand) workload.Terms {
		if i%10 == 0 {
			return workload.Terms{Tenant: "few"}
		}
		return workload.Terms{Tenant: "many"}
	})
	fifo := mustRun(t, crowdScenario(t, holds(admission.FIFO), tenants)).Tenants["few"]
	t.Logf("%v: SLO kept by %.3f of the few calls, TTFT p95 %.2f s", admission.FIFO, fifo.Attainment, fifo.TTFT.P95)
	if fifo.Attainment > 0.3 {
		t.Errorf("first come, first served: %v of the few calls keep the SLO; the test says nothing", fifo.Attainment)
	}
	for _, order := range []admission.Order{admission.Fair, admission.FairLocal} {
		x := mustRun(t, crowdScenario(t, holds(order), tenants)).Tenants["few"]
		t.Logf("%v: SLO kept by %.3f of the few calls, TTFT p95 %.2f s", order, x.Attainment, x.TTFT.P95)
		if x.Attainment < 0.99 {
			t.Errorf("%v: %v of the few calls keep the SLO", order, x.Attainment)
		}
	}
}

// TestOverload_BackgroundYields: a third of the calls is of higher priority than the others, which
// are too many; those of higher priority keep the SLO, and the others don't starve.
func TestOverload_BackgroundYields(t *testing.T) {
	run := func(background int) (chat, batch Summary) {
		x := mustRun(t, crowdScenario(t, holds(admission.FIFO), crowd(120, 1.5*knee, func(i int, _ *seed.Rand) workload.Terms {
			if i%3 == 0 {
				return workload.Terms{Tenant: "chat"}
			}
			return workload.Terms{Tenant: "batch", Priority: background}
		})))
		return x.Tenants["chat"], x.Tenants["batch"]
	}
	if chat, _ := run(0); chat.Attainment > 0.3 {
		t.Errorf("of equal priority: %v of the calls keep the SLO; the test says nothing", chat.Attainment)
	}
	chat, batch := run(-1)
	t.Logf("SLO kept by %.3f of the interactive calls, TTFT p95 %.2f s; answered %v of %v others", chat.Attainment, chat.TTFT.P95, batch.Succeeded, batch.Calls)
	if chat.Attainment < 0.99 || batch.Succeeded < batch.Calls/3 {
		t.Errorf("%v of the interactive calls keep the SLO, and %v of %v others are answered", chat.Attainment, batch.Succeeded, batch.Calls)
	}
}

// late runs calls with a deadline of 2 s, so many a second.
func late(t testing.TB, rule string, queue admission.Config, ramp admission.Ramp, rate float64) *Summary {
	s := crowdScenario(t, queue, crowd(120, rate, func(int, *seed.Rand) workload.Terms { return workload.Terms{Deadline: 2 * time.Second} }))
	s.Rule, _ = policy.Lookup(rule)
	s.Overload = admission.DefaultOverload()
	s.Overload.Ramp = ramp
	return mustRun(t, s)
}

// unbound runs calls without one.
func unbound(t testing.TB, rule string, queue admission.Config, rate float64) *Summary {
	s := crowdScenario(t, queue, crowd(120, rate, func(int, *seed.Rand) workload.Terms { return workload.Terms{} }))
	s.Rule, _ = policy.Lookup(rule)
	return mustRun(t, s)
}

// TestOverload_WhatCannotBeInTimeIsRefused: at twice the rate that there is room for, goodput stays
// near its peak where calls that can't keep their deadline are refused, and is lost where they
// have none; so it is without a queue, by what the policy predicts.
func TestOverload_WhatCannotBeInTimeIsRefused(t *testing.T) {
	ramp := admission.DefaultOverload().Ramp
	peak := late(t, "least-outstanding", holds(admission.FIFO), ramp, 0.9*knee).Goodput
	for _, x := range []struct {
		name, rule string
		queue      admission.Config
		least      Number
	}{
		{"with a queue", "least-outstanding", holds(admission.Deadline), 0.9},
		{"without", "predicted-ttft", admission.Config{}, 0.8},
	} {
		on, off := late(t, x.rule, x.queue, ramp, 2*knee), unbound(t, x.rule, x.queue, 2*knee)
		t.Logf("%s: goodput %.2f, without deadlines %.2f; its peak is %.2f", x.name, on.Goodput, off.Goodput, peak)
		if on.Goodput < x.least*peak || off.Goodput > 0.2*peak {
			t.Errorf("%s: goodput %v, without deadlines %v; its peak is %v", x.name, on.Goodput, off.Goodput, peak)
		}
		if on.Unfinished["deadline_unmet"] == 0 {
			t.Errorf("%s: %v", x.name, on.Unfinished)
		}
	}
}

// TestOverload_TheRampIsAGoodOne: of several, over rates and with and without a queue.
func TestOverload_TheRampIsAGoodOne(t *testing.T) {
	chosen, best := Number(0), Number(0)
	for _, ramp := range []admission.Ramp{{From: 0.4, To: 0.8}, {From: 0.5, To: 1}, {From: 0.6, To: 0.9}, {From: 0.7, To: 0.9}, {From: 0.8, To: 1}, {From: 0.8, To: 1.2}, {From: 0.9, To: 0.9}, {From: 1, To: 1}} {
		sum, line := Number(0), ""
		for _, rate := range []float64{1, 1.3, 2} {
			with := late(t, "least-outstanding", holds(admission.FIFO), ramp, rate*knee).Goodput
			without := late(t, "predicted-ttft", admission.Config{}, ramp, rate*knee).Goodput
			sum += with + without
			line += fmt.Sprintf(" | %.2f, %.2f", with, without)
		}
		t.Logf("%v to %v%s", ramp.From, ramp.To, line)
		best = max(best, sum)
		if ramp == admission.DefaultOverload().Ramp {
			chosen = sum
		}
	}
	if chosen < 0.95*best {
		t.Errorf("goodput with the default ramp sums to %v, with another to %v", chosen, best)
	}
}

// TestOverload_ProgressIsCharged: principals whose prompts are alike and whose answers are not get
// the same service, and so not the same number of calls.
func TestOverload_ProgressIsCharged(t *testing.T) {
	s := crowdScenario(t, holds(admission.Fair), crowd(180, 3*knee, func(i int, _ *seed.Rand) workload.Terms { return workload.Terms{} }))
	all := s.Workload.Source.Sessions
	s.Workload.Source.Sessions = func(yield func(workload.Session, error) bool) {
		i := 0
		for x, err := range all {
			x.Calls[0].PromptTokens, x.Calls[0].OutputTokens, x.Tenant = 1000, 50, "short"
			if i++; i%2 == 0 {
				x.Calls[0].OutputTokens, x.Tenant = 1000, "long"
			}
			if !yield(x, err) {
				return
			}
		}
	}
	x := mustRun(t, s)
	t.Logf("answered: %v short calls, %v long ones", x.Tenants["short"].Succeeded, x.Tenants["long"].Succeeded)
	if short, long := x.Tenants["short"], x.Tenants["long"]; long.Succeeded*1.8 > short.Succeeded {
		t.Errorf("%v short calls are answered, and %v long ones: the weights are 1100 to 3000", short.Succeeded, long.Succeeded)
	}
}

// TestOverload_FairLocalKeepsCachesWarm: where conversations of ten tenants overload the pool, more
// of their prompts are found in caches than where fairness is strict.
func TestOverload_FairLocalKeepsCachesWarm(t *testing.T) {
	var cached, good [2]Number
	for i, order := range []admission.Order{admission.Fair, admission.FairLocal} {
		s := testScenario(t, "cache-aware", 4)
		s.Queue = holds(order)
		s.Workload.Source = conversations(2000).On(func(x *workload.Session) workload.Terms { return workload.Terms{Tenant: x.ID[len(x.ID)-1:]} })
		s.Workload.Rate = 20
		x := mustRun(t, s)
		cached[i], good[i] = x.CachedRatio, x.Goodput
		t.Logf("%v: %.3f of the prompts cached, goodput %.2f", order, x.CachedRatio, x.Goodput)
	}
	if cached[1] < 2*cached[0] || good[1] < 1.5*good[0] {
		t.Errorf("cached %v, goodput %v", cached, good)
	}
}
