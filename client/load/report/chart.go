package report

import (
	"fmt"
	"math"
	"time"

	"kvasir/internal/plot"
)

// Latency returns the distribution functions of the latencies that the run shows, on a
// logarithmic axis.
func (r *Result) Latency() plot.Chart {
	c := r.chart("Latencies")
	c.X, c.Y = plot.Axis{Label: "time", Unit: "s", Log: true}, plot.Axis{Label: "share of calls (ITL: of gaps)", Min: 0, Max: 1}
	for _, m := range r.shown() {
		if m.intended != nil {
			c.Series = append(c.Series, distribution(m.short+", intended", m.intended), distribution(m.short+", actual", m.actual))
		} else {
			c.Series = append(c.Series, distribution(m.short, m.actual))
		}
	}
	return c
}

// distribution returns the share of values up to each value.
func distribution(name string, d *Distribution) plot.Series {
	s := plot.Series{Name: name, Steps: true}
	seen := int64(0)
	d.histogram.Each(func(_, high, n int64) {
		seen += n
		at := math.Min(float64(high), float64(d.histogram.Max()))
		s.Points = append(s.Points, plot.Point{X: at / 1e9, Y: float64(seen) / float64(d.Count())})
	})
	return s
}

// chartBins is how many points a series over time has at most.
const chartBins = 300

// Rates returns the calls a second over the run: those that were to be sent, were sent, were
// answered and failed.
func (r *Result) Rates() plot.Chart {
	c := r.chart("Calls over the run")
	c.X, c.Y = plot.Axis{Label: "time since the start", Unit: "s"}, plot.Axis{Label: "calls", Unit: "1/s"}
	t := r.timeline.coarse(chartBins)
	for _, s := range []struct {
		name string
		of   func(bin) int
	}{
		{"to be sent", func(b bin) int { return b.intended }},
		{"sent", func(b bin) int { return b.sent }},
		{"answered", func(b bin) int { return b.completed }},
		{"failed", func(b bin) int { return b.failed }},
	} {
		c.Series = append(c.Series, t.series(s.name, func(b bin) float64 { return float64(s.of(b)) / t.width.Seconds() }))
	}
	return c
}

// Waits returns the time to first token over the run, by when calls were to be sent, and
// how many calls were in flight.
func (r *Result) Waits() plot.Chart {
	c := r.chart("Time to first token over the run")
	c.X, c.Y = plot.Axis{Label: "intended send since the start", Unit: "s"}, plot.Axis{Label: "TTFT from the intended send", Unit: "s", Log: true}
	t := r.timeline.coarse(chartBins)
	c.Series = []plot.Series{
		t.series("mean", func(b bin) float64 { return b.ttft.Seconds() / float64(b.ttfts) }),
		t.series("greatest", func(b bin) float64 {
			if b.ttfts == 0 {
				return math.NaN()
			}
			return b.ttftMost.Seconds()
		}),
	}
	for _, b := range r.SLO {
		if b.Metric == "ttft" {
			c.Marks = []plot.Mark{{At: b.Most.Seconds(), Label: "SLO"}}
		}
	}
	return c
}

// InFlight returns the most calls in flight at once, over the run.
func (r *Result) InFlight() plot.Chart {
	c := r.chart("Calls in flight")
	c.X, c.Y = plot.Axis{Label: "time since the start", Unit: "s"}, plot.Axis{Label: "calls in flight"}
	t := r.timeline.coarse(chartBins)
	c.Series = []plot.Series{t.series("", func(b bin) float64 { return float64(b.inFlight) })}
	return c
}

// series returns a value of each bin; the first one's stands at the start.
func (t *timeline) series(name string, of func(bin) float64) plot.Series {
	s := plot.Series{Name: name, Steps: true}
	for i, b := range t.bins {
		s.Points = append(s.Points, plot.Point{X: (time.Duration(i) * t.width).Seconds(), Y: of(b)})
	}
	return s
}

func (r *Result) chart(title string) plot.Chart {
	under := fmt.Sprintf("%s, %d calls", r.Workload, r.Completed)
	if !math.IsNaN(r.Rate) && !math.IsInf(r.Rate, 0) {
		under += fmt.Sprintf(", %v req/s", r.Rate)
	}
	if r.Failed > 0 {
		under += fmt.Sprintf(", %d more failed", r.Failed)
	}
	if len(r.Invalid()) > 0 {
		under += ", INVALID"
	}
	if !r.Complete() {
		under += ", INCOMPLETE"
	}
	return plot.Chart{Title: title, Subtitle: under}
}
