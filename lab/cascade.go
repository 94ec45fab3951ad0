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
		Look: []string{
			"One call in ten is escalated, and it is the longest tenth: 3.3 times as long as the mean, a third of all work. A pool sized by counting requests is three times too small.",
			"Their spread falls, C_s² from 1.00 to 0.09, and with it the wait, from 4.00 to 2.18 service times, if they came at random. They do not.",
			"Turn `bursty_ca2` from 1 to 5: the wait goes from 2.18 to 10.18. The gain in C_s² is gone from a C_a² of 1.9 on.",
			"`degraded` is the day on which the small model gets worse: from one call in ten escalated to one in two, the large pool has 2.6 times the work.",
		},
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

	degraded, most := c.degraded()
	return Findings{Tables: []Table{work, waits, degraded}, Plots: []Plot{c.plotWork(), c.plotWaits(cs2)}, Verdicts: []Verdict{
		holds("10.2", "when the cheap tier degrades, what it absorbed lands on the expensive one at once", most > 1,
			fmt.Sprintf("from ρ = %s to %s where every call is escalated", show(c.rho), decimal(most, 2))),
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

// degraded says what the large pool gets where the small model passes on more than it was sized
// for, and the utilization where that is everything.
func (c *cascade) degraded() (Table, float64) {
	t := Table{Name: "degraded", Title: fmt.Sprintf("the large pool, sized for ρ = %s, when more is escalated", show(c.rho)),
		Columns: []Column{{Name: "escalated"}, {Name: "work of the large pool"}, {Name: "ρ"}}}
	part := func(share float64) float64 {
		mean, _ := queueing.Escalated(share)
		return float64(share * mean)
	}
	times := 0.0
	for _, share := range []float64{c.share, 0.2, 0.5, 1} {
		times = part(share) / part(c.share)
		t.Rows = append(t.Rows, []Cell{Number(share, 2), Number(times, 2), Number(c.rho*times, 2)})
	}
	return t, c.rho * times
}

// plotWork draws what the escalated calls are like.
func (c *cascade) plotWork() Plot {
	p := Plot{Name: "escalated", Title: "the escalated calls by their share", Kind: Lines, X: Axis{Label: "part of the calls that is escalated", Log: true}, Y: Axis{Label: "in units of all calls'"},
		Marks: []Mark{{"x", c.share, "share"}}, Series: []Series{{Name: "mean service time"}, {Name: "C_s²"}}}
	for share := 1.0; share > 0.005; share *= 0.85 {
		mean, cs2 := queueing.Escalated(share)
		for i, y := range []float64{mean, cs2} {
			p.Series[i].X, p.Series[i].Y = append(p.Series[i].X, share), append(p.Series[i].Y, y)
		}
	}
	mean, cs2 := queueing.Escalated(c.share)
	p.Says = fmt.Sprintf("Where %s of the calls are escalated their mean service time is %s times that of all, their C_s² %s.", show(c.share), decimal(mean, 2), decimal(cs2, 2))
	return p
}

// plotWaits draws the wait of escalated calls by how they come.
func (c *cascade) plotWaits(cs2 float64) Plot {
	p := Plot{Name: "waits", Title: "wait of the escalated calls by how bursty they come", Kind: Lines, X: Axis{Label: "C_a² of the times between them"}, Y: Axis{Label: "wait", Unit: "service times"},
		Marks: []Mark{{"x", c.ca2, "bursty"}}, Series: []Series{{Name: "escalated"}, {Name: "all calls, Poisson"}}}
	for n := range 41 {
		ca2 := 1 + float64(n)*max(c.ca2-1, 9)/40
		for i, y := range []float64{queueing.Kingman(c.rho, ca2, cs2), queueing.Kingman(c.rho, 1, 1)} {
			p.Series[i].X, p.Series[i].Y = append(p.Series[i].X, ca2), append(p.Series[i].Y, y)
		}
	}
	p.Says = fmt.Sprintf("Escalated calls wait longer than all calls would from a C_a² of %s on.", decimal(2-cs2, 2))
	return p
}
