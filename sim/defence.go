package sim

import (
	"time"

	"kvasir/client/workload"
	"kvasir/gateway/admission"
)

// Defence is what stands between clients and engines when more is asked for than can be done.
type Defence struct {
	Name, Doc string
	Apply     func(*Scenario) // to a scenario with an SLO
}

// holdWork is how much prefill an endpoint is given at a time where calls wait at the gateway.
const holdWork = 50 * time.Millisecond

// Hold lets the scenario's calls wait at the gateway, as long as they may.
func Hold(s *Scenario, longest time.Duration) {
	s.Queue = admission.Default()
	s.Queue.Work, s.Queue.MaxWait = holdWork, longest
	s.Queue.Length, s.Queue.Bytes = 1<<20, 1<<40 // simulated calls have no bodies
}

// Within gives the scenario's calls a deadline for their first token.
func Within(s *Scenario, ttft time.Duration) {
	s.Workload.Source = s.Workload.Source.On(func(x *workload.Session) workload.Terms {
		t := x.Terms
		t.Deadline = ttft
		return t
	})
}

// Defences lists what can be put between clients and engines, each with all before it.
func Defences() []Defence {
	return []Defence{
		{"none", "all calls go to engines at once, and wait in their queues", func(*Scenario) {}},
		{"queue", "they wait at the gateway, for ever, and go where there is room", func(s *Scenario) { Hold(s, time.Hour) }},
		{"bound", "no longer than the SLO on the first token: by the prediction when they come, and in fact", func(s *Scenario) { Hold(s, s.SLO.TTFT) }},
		{"deadline", "and are refused where that can't be met, and dropped once it has passed", func(s *Scenario) {
			Hold(s, s.SLO.TTFT)
			Within(s, s.SLO.TTFT)
			s.Overload = admission.DefaultOverload()
		}},
	}
}
