package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Value is a number that may be unknown. The zero Value is unknown, and what is unknown
// has no sample: absent load data is never shown as zero (invariant 8).
type Value struct {
	V     float64
	Known bool
}

// Rotation is whether an endpoint takes calls.
type Rotation uint8

// The states of an endpoint.
const (
	Ejected    Rotation = iota // takes none
	Probing                    // takes one, to see whether it answers again
	InRotation                 // takes its share
)

// Snapshot is the gateway's state at one moment. Names in it are configured ones, and a
// (model, pool, endpoint) occurs once.
type Snapshot struct {
	CallsInFlight int   // accepted and not ended
	BufferedBytes int64 // request bodies held in memory
	Models        []ModelState
	Tenants       []TenantState
}

// TenantState is what a configured tenant uses.
type TenantState struct {
	Tenant                                          string
	Running, Waiting                                int
	Concurrency, Requests, Tokens                   Value // what is left of its caps
	Sent, Refused, Input, Cached, Output, Estimated int64 // since it came
}

// ModelState is the state of one model's machine.
type ModelState struct {
	Model       string
	IndexBytes  int64 // memory held by the prefix index
	IndexBlocks int   // blocks known to it
	Endpoints   []EndpointState
	Queues      []QueueState // of the pools that have one
	Saturation  []SaturationState
	Demand      []DemandState
	Flights     []FlightState // of the pools whose calls wait for siblings
	Hedges      []HedgeState  // of the pools whose late calls get a second attempt
	Discovery   []DiscoveryState
}

// QueueState is what is held at the gateway for a pool.
type QueueState struct {
	Pool          string
	Calls         int
	Bytes, Tokens int64
	Wait          float64 // seconds until they will have gone, as predicted
}

// SaturationState is how saturated a pool is on one axis, or overall.
type SaturationState struct {
	Pool, Axis string
	Level      float64 // 1 is saturated
}

// DemandState is what is asked of a pool beside what it can do.
type DemandState struct {
	Pool                 string
	Calls, Tokens        float64 // a second
	Variation            Value   // of the tokens over the calls
	Held                 int     // calls at the gateway
	HeldTokens           int64
	Waiting              Value // calls in engines, as reported
	Unstarted            int64 // tokens sent to engines, without a first token
	Wait                 Value // seconds until a call that comes now is begun
	MeanWait, WorstWait  Value // by endpoint
	MeanCalls, MostCalls Value // likewise
	Knee                 Value
	Desired              Value // replicas
	InRotation           int
}

// FlightState is how many calls of a pool wait for a sibling that computes what they need.
type FlightState struct {
	Pool  string
	Calls int
}

// HedgeState is what has come of a pool's hedges.
type HedgeState struct {
	Pool              string
	Won, Lost, Failed int64
	Wasted            int64 // prompt tokens of attempts that were beaten
	After             Value // seconds without content until a call is hedged
}

// DiscoveryState is how a pool that is discovered fares.
type DiscoveryState struct {
	Pool string
	Age  float64 // seconds since it last succeeded
}

// EndpointState is what is believed of one endpoint.
type EndpointState struct {
	Pool        string
	Endpoint    string
	Outstanding int // calls charged to it and not ended
	Rotation    Rotation
	Draining    bool    // no new calls go to it
	Healthy     bool    // its health path does not fail
	BusyFor     float64 // seconds that it is left alone for want of room
	Share       float64 // of its share that it may have, 0 to 1

	SignalAge Value // seconds since its newest load report was true
	Running   Value // calls in its batch, as reported
	Waiting   Value // calls it has queued, as reported
	KVUsage   Value // share of its KV blocks in use, 0 to 1, as reported

	Limit Value // of calls in flight, as found

	PrefixTrust     Value // in beliefs about its cache; 2 exact, 1 approximate, 0 load-only
	PrefixPredicted Value // tokens that were predicted to be cached there, since it joined
	PrefixReported  Value // of those, tokens that answers reported as cached
}

// State returns a collector that calls snapshot once a scrape and shows what it
// returns. The caller registers it. snapshot is called from the scrape's goroutine,
// from several at once where scrapes overlap; it must not block on a call.
func State(snapshot func() Snapshot) prometheus.Collector {
	c := &state{snapshot: snapshot, descs: map[*series]*prometheus.Desc{}}
	for _, s := range stated {
		c.descs[s] = s.desc()
	}
	return c
}

type state struct {
	snapshot func() Snapshot
	descs    map[*series]*prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *state) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *state) Collect(ch chan<- prometheus.Metric) {
	emit := func(s *series, v float64, labels ...string) {
		kind := prometheus.GaugeValue
		if s.kind == "counter" {
			kind = prometheus.CounterValue
		}
		ch <- prometheus.MustNewConstMetric(c.descs[s], kind, v, labels...)
	}
	snap := c.snapshot()
	emit(&callsInFlight, float64(snap.CallsInFlight))
	emit(&bufferedBytes, float64(snap.BufferedBytes))
	for _, t := range snap.Tenants {
		tenant := label(t.Tenant, unknownName)
		emit(&tenantCalls, float64(t.Running), tenant, "running")
		emit(&tenantCalls, float64(t.Waiting), tenant, "waiting")
		left := func(limit string, v Value) {
			if v.Known {
				emit(&tenantRemaining, v.V, tenant, limit)
			}
		}
		left("concurrency", t.Concurrency)
		left("rpm", t.Requests)
		left("tpm", t.Tokens)
		emit(&tenantRequests, float64(t.Sent), tenant)
		emit(&tenantRefused, float64(t.Refused), tenant)
		emit(&tenantTokens, float64(t.Input), tenant, "input")
		emit(&tenantTokens, float64(t.Cached), tenant, "cached")
		emit(&tenantTokens, float64(t.Output), tenant, "output")
		emit(&tenantEstimated, float64(t.Estimated), tenant)
	}
	for _, m := range snap.Models {
		model := label(m.Model, unknownName)
		emit(&indexBytes, float64(m.IndexBytes), model)
		emit(&indexBlocks, float64(m.IndexBlocks), model)
		for _, d := range m.Discovery {
			emit(&discoveryAge, d.Age, model, label(d.Pool, noPool))
		}
		for _, f := range m.Flights {
			emit(&flightCalls, float64(f.Calls), model, label(f.Pool, noPool))
		}
		for _, h := range m.Hedges {
			pool := label(h.Pool, noPool)
			emit(&hedgesTotal, float64(h.Won), model, pool, "won")
			emit(&hedgesTotal, float64(h.Lost), model, pool, "lost")
			emit(&hedgesTotal, float64(h.Failed), model, pool, "failed")
			emit(&hedgeWasted, float64(h.Wasted), model, pool)
			if h.After.Known {
				emit(&hedgeAfter, h.After.V, model, pool)
			}
		}
		for _, q := range m.Queues {
			labels := []string{model, label(q.Pool, noPool)}
			emit(&queueCalls, float64(q.Calls), labels...)
			emit(&queueBytes, float64(q.Bytes), labels...)
			emit(&queueTokens, float64(q.Tokens), labels...)
			emit(&queuePredicted, q.Wait, labels...)
		}
		for _, s := range m.Saturation {
			emit(&poolSaturation, s.Level, model, label(s.Pool, noPool), s.Axis)
		}
		for _, d := range m.Demand {
			labels := []string{model, label(d.Pool, noPool)}
			known := func(s *series, v Value, more ...string) {
				if v.Known {
					emit(s, v.V, append(labels[:2:2], more...)...)
				}
			}
			emit(&demandCalls, d.Calls, labels...)
			emit(&demandTokens, d.Tokens, labels...)
			known(&demandVariation, d.Variation)
			emit(&waitingCalls, float64(d.Held), labels[0], labels[1], "gateway")
			known(&waitingCalls, d.Waiting, "engine")
			emit(&waitingTokens, float64(d.HeldTokens), labels[0], labels[1], "gateway")
			emit(&waitingTokens, float64(d.Unstarted), labels[0], labels[1], "engine")
			known(&predictedWait, d.Wait)
			known(&endpointWait, d.MeanWait, "mean")
			known(&endpointWait, d.WorstWait, "worst")
			known(&endpointCalls, d.MeanCalls, "mean")
			known(&endpointCalls, d.MostCalls, "worst")
			known(&kneeUtilization, d.Knee)
			known(&replicasDesired, d.Desired)
			emit(&replicasInRotation, float64(d.InRotation), labels...)
		}
		for _, e := range m.Endpoints {
			labels := []string{model, label(e.Pool, noPool), label(e.Endpoint, unknownName)}
			emit(&inFlight, float64(e.Outstanding), labels...)
			emit(&inRotation, oneIf(e.Rotation == InRotation), labels...)
			emit(&probing, oneIf(e.Rotation == Probing), labels...)
			emit(&draining, oneIf(e.Draining), labels...)
			emit(&healthy, oneIf(e.Healthy), labels...)
			emit(&busySeconds, e.BusyFor, labels...)
			emit(&share, e.Share, labels...)
			known := func(s *series, v Value) {
				if v.Known {
					emit(s, v.V, labels...)
				}
			}
			known(&signalAge, e.SignalAge)
			known(&endpointRunning, e.Running)
			known(&endpointWaiting, e.Waiting)
			known(&endpointKVUsage, e.KVUsage)
			known(&endpointLimit, e.Limit)
			known(&prefixTrust, e.PrefixTrust)
			known(&prefixPredicted, e.PrefixPredicted)
			known(&prefixReported, e.PrefixReported)
		}
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
