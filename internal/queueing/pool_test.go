package queueing

import (
	"math"
	"strings"
	"testing"
)

func example() *Pool {
	return &Pool{Rate: 20, ArrivalCV2: 1, ServiceCV2: 4, PromptTokens: 4000, CachedTokens: 3000, OutputTokens: 301,
		Places: 64, PrefillRate: 20_000, TPOT: 0.025, Hidden: 4096, BlockFactor: 12, Wait: 1}
}

// TestPlan_ByHand: the figures of the example follow from the formulas with pencil and paper.
func TestPlan_ByHand(t *testing.T) {
	s := example().Plan()
	share := 4000.0 / (4000 + 12*4096)
	saving := (1-share)*0.75 + share*0.5625
	warm := 0.2 * (1 - saving)
	for _, test := range []struct {
		name      string
		got, want float64
	}{
		{"attention's share", s.AttentionShare, share},
		{"least saving", s.SavingLeast, 0.5625},
		{"saving", s.Saving, saving},
		{"most saving", s.SavingMost, 0.75},
		{"cold prefill", s.PrefillCold, 0.2},
		{"warm prefill", s.PrefillWarm, warm},
		{"residence", s.Residence, warm + 7.5},
		{"ceiling by places", s.PlacesCeiling, 64 / (warm + 7.5)},
		{"ceiling by prefill", s.PrefillCeiling, 1 / warm},
		{"utilization", s.Utilization, 20 / (s.Ceiling * float64(s.Replicas))},
		{"M/G/1 wait", s.Waits[0].Mean, s.Utilization / (1 - s.Utilization) * 2.5 / s.Ceiling},
	} {
		if math.Abs(test.got-test.want) > 1e-9*test.want {
			t.Errorf("%s: %v, want %v", test.name, test.got, test.want)
		}
	}
	if s.Ceiling != s.PlacesCeiling {
		t.Errorf("the ceiling is %v, want the lower one, %v", s.Ceiling, s.PlacesCeiling)
	}
}

// TestPlan_ReplicasAreTheFewest: with one less the wait is not accepted.
func TestPlan_ReplicasAreTheFewest(t *testing.T) {
	p := example()
	p.Wait = 0.05
	for n, m := range Models() {
		w := p.Plan().Waits[n]
		if w.Replicas < 1 {
			t.Fatalf("%s: %d replicas", m.Name, w.Replicas)
		}
		q := *p
		q.Replicas = w.Replicas
		if got := q.Plan().Waits[n].Mean; got > p.Wait {
			t.Errorf("%s: %d replicas wait %v", m.Name, q.Replicas, got)
		}
		if q.Replicas--; q.Replicas > 0 {
			if got := q.Plan().Waits[n].Mean; got <= p.Wait {
				t.Errorf("%s: %d replicas would do", m.Name, q.Replicas)
			}
		}
	}
}

// TestPlan_OneQueueBeatsMany: pooling never waits longer, and exponential service with
// Poisson arrivals is the same by both formulas.
func TestPlan_OneQueueBeatsMany(t *testing.T) {
	p := example()
	p.Replicas = 4
	w := p.Plan().Waits
	if !(w[4].Mean < w[3].Mean) {
		t.Errorf("one queue waits %v, four wait %v", w[4].Mean, w[3].Mean)
	}
	p.ServiceCV2 = 1
	if w := p.Plan().Waits; w[2].Mean != w[3].Mean || w[0].Mean != w[1].Mean {
		t.Errorf("waits of the same queue differ: %v", w)
	}
}

func TestPlan_BeyondAllReplicas(t *testing.T) {
	p := example()
	p.Rate = 1e6
	s := p.Plan()
	if s.Replicas != MaxReplicas || !math.IsInf(s.Waits[0].Mean, 1) || s.Waits[0].Replicas != 0 {
		t.Errorf("a million calls a second: %d replicas, %+v", s.Replicas, s.Waits[0])
	}
}

func TestPlan_AWholePromptCached(t *testing.T) {
	p := example()
	p.CachedTokens = p.PromptTokens
	s := p.Plan()
	if s.PrefillWarm != 0 || !math.IsInf(s.PrefillCeiling, 1) || s.Ceiling != s.PlacesCeiling {
		t.Errorf("%+v", s)
	}
}

func TestValidate_NamesEveryField(t *testing.T) {
	if errs := example().Validate(); len(errs) > 0 {
		t.Fatalf("the example is refused: %v", errs)
	}
	p := &Pool{Rate: math.NaN(), ArrivalCV2: -1, ServiceCV2: math.Inf(1), PromptTokens: 10, CachedTokens: 11, OutputTokens: 0,
		Places: MaxPlaces + 1, PrefillRate: 0, TPOT: -1, Hidden: 0, BlockFactor: 0, Replicas: -1, Wait: -1}
	var text []string
	for _, e := range p.Validate() {
		text = append(text, e.Error())
	}
	for _, want := range []string{"rate is NaN; allowed: a number from 1e-06 to 1e+06", "arrival_cv2 is -1", "service_cv2 is +Inf",
		"cached_tokens is 11; allowed: a number from 0 to 10", "output_tokens is 0", "places is 4097; allowed: 1 to 4096", "prefill_rate is 0",
		"tpot is -1", "hidden is 0", "block_factor is 0", "replicas is -1; allowed: 0 to 1000", "wait is -1"} {
		if !strings.Contains(strings.Join(text, "\n"), want) {
			t.Errorf("%q is missing of:\n%s", want, strings.Join(text, "\n"))
		}
	}
}

func BenchmarkPlan(b *testing.B) {
	p := example()
	b.ReportAllocs()
	for b.Loop() {
		p.Plan()
	}
}
