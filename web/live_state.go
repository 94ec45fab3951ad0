package web

import (
	"time"

	"kvasir/gateway/proxy"
	"kvasir/telemetry"
)

// calls keeps what has become of the calls that ended lately, by model.
type calls struct {
	trails map[string]*telemetry.Trail
	missed map[string]int // in the newest look
}

// early is how much less than their seconds windows look back: looks come a little early or
// late, and a window is not to have one more for that.
const early = time.Second / 2

// look takes in what has ended since the last time.
func (c *calls) look(now time.Time, source LiveCallSource) {
	former := c.trails
	c.trails, c.missed = map[string]*telemetry.Trail{}, map[string]int{}
	source.Drain(func(model string, ended []telemetry.Ended, lost int) {
		t := former[model]
		if t == nil {
			t = telemetry.NewTrail(now.Add(-time.Second), LiveWindow*time.Second-early)
		}
		t.Add(now, ended)
		c.trails[model], c.missed[model] = t, lost
	})
}

// sums returns what became of a model's calls, and of each endpoint's.
func (c *calls) sums(model string) (telemetry.Sum, map[[2]string]telemetry.Sum) {
	if t := c.trails[model]; t != nil {
		return t.Sums(LivePairs)
	}
	return telemetry.Sum{}, nil
}

// recent returns a model's newest point.
func (c *calls) recent(model string) LivePoint {
	t := c.trails[model]
	if t == nil {
		return LivePoint{}
	}
	s := t.Recent(LiveRecent*time.Second - early)
	p := LivePoint{PerSecond: rate(s.Calls, s.Covers)}
	if s.Judged > 0 {
		p.Goodput = new(share(s.Within, s.Judged))
	}
	if s.TTFT.N > 0 {
		p.TTFTP95 = new(s.TTFT.P95)
	}
	return p
}

// models puts what became of the calls to what is known of the pools.
func (c *calls) models(views []proxy.ModelView) []LiveModel {
	out := make([]LiveModel, 0, len(views))
	for _, v := range views {
		all, by := c.sums(v.Model)
		judged := v.SLO != nil
		m := LiveModel{
			ModelView: v, Window: liveCalls(all, judged), Recent: c.recent(v.Model), Prediction: prediction(all),
			Missed: c.missed[v.Model], Pools: make([]LivePool, 0, len(v.Pools)),
		}
		for _, p := range v.Pools {
			lp := LivePool{PoolView: p, Endpoints: make([]LiveEndpoint, 0, len(p.Endpoints))}
			for _, e := range p.Endpoints {
				sum, ended := by[[2]string{p.Pool, e.Endpoint}]
				if !ended {
					sum.Covers = all.Covers
				}
				lp.Endpoints = append(lp.Endpoints, LiveEndpoint{EndpointView: e, Window: liveCalls(sum, judged)})
			}
			m.Pools = append(m.Pools, lp)
		}
		out = append(out, m)
	}
	return out
}

func liveCalls(s telemetry.Sum, judged bool) LiveCalls {
	c := LiveCalls{
		Seconds: s.Covers.Seconds(), Calls: s.Calls, PerSecond: rate(s.Calls, s.Covers),
		Refusals: s.Of(telemetry.Refused), ClientsGone: s.Of(telemetry.ClientGone), Retries: s.Retries,
		CallerFaults: s.Of(telemetry.CallerFault),
		Failures:     s.Of(telemetry.EndpointFailure) + s.Of(telemetry.BackPressure) + s.Of(0), // one without an outcome is a failure of ours
		TTFT:         quantiles(s.TTFT), TPOT: quantiles(s.TPOT),
	}
	if s.Reported > 0 {
		c.OutputPerSecond = new(rate(s.Output, s.Covers))
	}
	if judged {
		c.Goodput = &LiveGoodput{Judged: s.Judged, Within: s.Within, PerSecond: rate(s.Within, s.Covers)}
		if s.Judged > 0 {
			c.Goodput.Share = new(share(s.Within, s.Judged))
		}
	}
	if s.Prompt > 0 {
		c.CachedShare = new(share(s.Cached, s.Prompt))
	}
	return c
}

func quantiles(q telemetry.Quantiles) LiveQuantiles {
	if q.N == 0 {
		return LiveQuantiles{}
	}
	return LiveQuantiles{N: q.N, P50: &q.P50, P95: &q.P95, P99: &q.P99}
}

func prediction(s telemetry.Sum) LivePrediction {
	p := LivePrediction{N: s.Predictions, Predicted: Numbers{}, Actual: Numbers{}}
	if s.Predictions > 0 {
		p.MedianError, p.P95Error = &s.Errors.P50, &s.Errors.P95
	}
	for _, pair := range s.Pairs {
		p.Predicted, p.Actual = append(p.Predicted, pair.Predicted.Seconds()), append(p.Actual, pair.Actual.Seconds())
	}
	return p
}

func rate(n int, over time.Duration) float64 {
	if over <= 0 {
		return 0
	}
	return float64(n) / over.Seconds()
}

func share(part, whole int) float64 { return float64(part) / float64(whole) }
