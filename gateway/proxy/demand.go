package proxy

import (
	"kvasir/gateway/flow"
	"kvasir/selection"
	"kvasir/telemetry"
)

// DemandView is what is asked of a PoolView's pool beside what it can do: what an autoscaler goes by.
// Rates are over the last minute; what is not known is null.
type DemandView struct {
	Calls      float64      `json:"calls_per_second"`  // refused and shed ones included
	Tokens     float64      `json:"tokens_per_second"` // of prefill that no cache holds
	Variation  *float64     `json:"variation"`         // squared coefficient of variation of these over the calls
	Waiting    WaitingView  `json:"waiting"`
	Wait       *float64     `json:"predicted_wait_seconds"` // until a call that comes now is begun
	Endpoints  SpreadView   `json:"outstanding"`
	Begin      SpreadView   `json:"begin_seconds"` // predicted time until an endpoint begins what comes now
	Replica    ReplicaView  `json:"replica"`
	Knee       *float64     `json:"knee_utilization"`
	Needed     ReplicasView `json:"replicas"`
	InRotation int          `json:"replicas_in_rotation"`
}

// WaitingView is what waits.
type WaitingView struct {
	Gateway       int      `json:"gateway_calls"`
	GatewayTokens int64    `json:"gateway_tokens"`
	Engine        *float64 `json:"engine_calls"`  // as endpoints in rotation report
	EngineTokens  int64    `json:"engine_tokens"` // sent, and without a first token
}

// SpreadView is a number over the endpoints in rotation of which it is known.
type SpreadView struct {
	Mean  *float64 `json:"mean"`
	Worst *float64 `json:"worst"`
	At    *string  `json:"worst_endpoint"`
}

// ReplicaView is what one endpoint does, in the mean.
type ReplicaView struct {
	Speed     *float64 `json:"prefill_tokens_per_second"`
	Residence *float64 `json:"residence_seconds"` // of a call, without its wait
	Places    *float64 `json:"places"`            // calls that its KV cache holds
}

// ReplicasView is how many the demand needs.
type ReplicasView struct {
	Prefill *float64 `json:"for_prefill"`
	Places  *float64 `json:"for_places"`
	Desired *float64 `json:"desired"`
}

// above returns a number that is not known where it is 0.
func above(x float64) telemetry.Value { return telemetry.Value{V: x, Known: x > 0} }

func orNull(v telemetry.Value) *float64 {
	if !v.Known {
		return nil
	}
	return &v.V
}

func demandView(p *flow.PoolState) *DemandView {
	d := &p.Demand
	s := demandState(p.Name, d)
	name := func(slot selection.Slot) *string {
		for i := range p.Endpoints {
			if e := &p.Endpoints[i]; e.Slot == slot {
				return &e.Name
			}
		}
		return nil
	}
	spread := func(x *flow.Spread, mean, worst telemetry.Value) SpreadView {
		v := SpreadView{Mean: orNull(mean), Worst: orNull(worst)}
		if x.Known > 0 {
			v.At = name(x.At)
		}
		return v
	}
	return &DemandView{
		Calls: d.Calls, Tokens: d.Tokens, Variation: orNull(s.Variation),
		Waiting:   WaitingView{Gateway: d.Held, GatewayTokens: d.HeldTokens, Engine: orNull(s.Waiting), EngineTokens: d.Unstarted},
		Wait:      orNull(s.Wait),
		Endpoints: spread(&d.Outstanding, s.MeanCalls, s.MostCalls), Begin: spread(&d.Begin, s.MeanWait, s.WorstWait),
		Replica: ReplicaView{
			Speed: orNull(above(d.Replica.Speed)), Residence: orNull(above(d.Replica.Residence.Seconds())), Places: orNull(above(d.Replica.Places)),
		},
		Knee:       orNull(s.Knee),
		Needed:     ReplicasView{Prefill: orNull(above(d.Prefill)), Places: orNull(above(d.Need.Places)), Desired: orNull(s.Desired)},
		InRotation: d.InRotation,
	}
}

// demandState is demandView for metrics.
func demandState(pool string, d *flow.DemandState) telemetry.DemandState {
	of := func(x *flow.Spread, v float64) telemetry.Value { return telemetry.Value{V: v, Known: x.Known > 0} }
	return telemetry.DemandState{
		Pool: pool, Calls: d.Calls, Tokens: d.Tokens, Variation: telemetry.Value{V: d.Variation, Known: d.Calls > 0},
		Held: d.Held, HeldTokens: d.HeldTokens, Waiting: of(&d.Engines, d.Engines.Sum), Unstarted: d.Unstarted,
		Wait:     telemetry.Value{V: d.Wait.Seconds(), Known: d.WaitKnown},
		MeanWait: of(&d.Begin, d.Begin.Mean), WorstWait: of(&d.Begin, d.Begin.Worst),
		MeanCalls: of(&d.Outstanding, d.Outstanding.Mean), MostCalls: of(&d.Outstanding, d.Outstanding.Worst),
		Knee: above(d.Knee), Desired: above(float64(d.Need.Replicas)), InRotation: d.InRotation,
	}
}
