package lab

import (
	"fmt"

	"kvasir/internal/queueing"
)

// cascade is the arithmetic of article 10.2: what escalation does to the large pool.
type cascade struct {
	share float64
	rho   float64
	ca2   float64
}

func cascadeLab() Lab {
	return Lab{
		Name: "cascade", Title: "what the large pool of a model cascade sees", Section: "10.2",
		About: "Service times are exponential and the longest are escalated. What is escalated is left-truncated: a threshold of ln(1/share) " +
			"plus an exponential time. Kingman's approximation says what that does to the wait, and what burstier escalations do.",
		settings: func() experiment { return &cascade{share: 0.1, rho: 0.8, ca2: 5} },
	}
}

func (c *cascade) params() []Param {
	return []Param{
		number(&c.share, "share", "part of the calls that is escalated", 0.0001, 1),
		number(&c.rho, "utilization", "of the large pool, for the waits", 0, 0.99),
		number(&c.ca2, "bursty_ca2", "squared coefficient of variation of the times between escalations, where they come in bursts", 1, 1000),
	}
}

func (c *cascade) run(int) Findings {
	work := Table{Name: "work", Title: "the escalated calls' service time, all calls having mean 1 and C_s² = 1",
		Columns: []Column{{Name: "escalated"}, {Name: "mean"}, {Name: "C_s²"}, {Name: "part of all work"}}}
	for _, share := range []float64{1, 0.5, 0.2, 0.1, 0.05, 0.01} {
		mean, cs2 := queueing.Escalated(share)
		work.Rows = append(work.Rows, []Cell{Number(share, 2), Number(mean, 2), Number(cs2, 3), Number(share*mean, 3)})
	}
	mean, cs2 := queueing.Escalated(c.share)
	_, raw := queueing.Escalated(1)

	waits := Table{Name: "waits", Title: fmt.Sprintf("wait at ρ = %s by Kingman's approximation, in service times of the calls named", show(c.rho)),
		Columns: []Column{{Name: "traffic"}, {Name: "C_a²"}, {Name: "C_s²"}, {Name: "wait"}}}
	wait := func(name string, ca2, cs2 float64) float64 {
		w := queueing.Kingman(c.rho, ca2, cs2)
		waits.Rows = append(waits.Rows, []Cell{Text(name), Number(ca2, 2), Number(cs2, 2), Number(w, 2)})
		return w
	}
	all := wait("all calls, Poisson", 1, raw)
	steady := wait("escalated, were they Poisson", 1, cs2)
	bursty := wait("escalated, in bursts", c.ca2, cs2)

	return Findings{Tables: []Table{work, waits}, Verdicts: []Verdict{
		equals("10.2", "escalating the top 10 % of exponential service times takes C_s² from 1.00 to 0.09 and the mean up 3.3 times",
			figure{1.00, raw, 2, ""}, figure{0.09, cs2, 2, ""}, figure{3.3, mean, 1, " times"}),
		holds("10.2", "by the (1 + C_s²)/2 term alone conditions improve", steady < all,
			fmt.Sprintf("wait of %s against %s service times", decimal(steady, 2), decimal(all, 2))),
		holds("10.2", "the large pool cannot be sized from request counts", mean > 2,
			fmt.Sprintf("%s %% of the calls are %s %% of the work", decimal(100*c.share, 0), decimal(100*float64(c.share*mean), 0))),
		holds("10.2", "what rises is C_a²: escalations in bursts undo the gain", bursty > all,
			fmt.Sprintf("at C_a² = %s the wait is %s service times", show(c.ca2), decimal(bursty, 2))),
	}}
}
