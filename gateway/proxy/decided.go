package proxy

import (
	"math"
	"time"

	"kvasir/selection"
	"kvasir/telemetry"
)

// DecisionView is a pick as the live dashboard shows it: the JSON of the x-kvasir-explain
// header, and beside it whose call it was and what was traded. What is unknown is null.
type DecisionView struct {
	Call        uint64      `json:"call"` // the gateway's own number of it
	ID          string      `json:"id"`   // as the client and the log see it
	Model       string      `json:"model"`
	At          float64     `json:"at_unix_seconds"`
	InputTokens int         `json:"input_tokens"` // of the prompt, as estimated for routing
	Traded      TradeView   `json:"traded"`
	Shadow      *ShadowView `json:"shadow"` // null: no policy is shadowed
	explained
}

// TradeView says what locality was given for what balance, or the other way round: the
// chosen endpoint's against the best of each among the candidates.
type TradeView struct {
	Overlap          *int   `json:"overlap_tokens"` // null: the policy does not go by it
	BestOverlap      *int   `json:"best_overlap_tokens"`
	BestOverlapAt    string `json:"best_overlap_endpoint,omitempty"`
	Outstanding      int    `json:"outstanding"`
	LeastOutstanding int    `json:"least_outstanding"`
	LeastAt          string `json:"least_outstanding_endpoint"`
}

// ShadowView is what another policy would have chosen from the same candidates.
type ShadowView struct {
	Policy    string           `json:"policy"`
	Reason    string           `json:"reason"`
	Predicted short            `json:"predicted_ttft_seconds,omitempty"`
	Chosen    string           `json:"chosen"`
	Agrees    bool             `json:"agrees"`
	Traded    *ShadowTrade     `json:"traded"`     // against the choice that was made; null: they agree
	Endpoints []ShadowEndpoint `json:"candidates"` // those that the decision shows, in its order
}

// ShadowTrade is what the shadow's choice had more than the one that was made.
type ShadowTrade struct {
	Overlap     int `json:"overlap_tokens_gained"`
	Outstanding int `json:"outstanding_added"`
}

// ShadowEndpoint is how the other policy saw one candidate.
type ShadowEndpoint struct {
	Endpoint string   `json:"endpoint"`
	Score    *float64 `json:"score"` // null: it did not look at it
	Parts    numbers  `json:"parts,omitempty"`
}

// OutcomeView is what became of a call whose decision was shown. What is unknown is null.
type OutcomeView struct {
	Call          uint64   `json:"call"`
	ID            string   `json:"id"`
	Model         string   `json:"model"`
	At            float64  `json:"at_unix_seconds"`
	Pool          string   `json:"pool"`     // of the last attempt
	Endpoint      string   `json:"endpoint"` // likewise
	Outcome       string   `json:"outcome"`
	Status        int      `json:"status"`
	Attempts      int      `json:"attempts"`
	Stream        bool     `json:"stream"`
	Held          float64  `json:"held_seconds"`
	TTFT          *float64 `json:"ttft_seconds"` // from the call's arrival, as the prediction
	PredictedTTFT *float64 `json:"predicted_ttft_seconds"`
	TPOT          *float64 `json:"tpot_seconds"`
	E2E           float64  `json:"e2e_seconds"`
	PromptTokens  *int     `json:"prompt_tokens"`
	CachedTokens  *int     `json:"cached_tokens"`
	OutputTokens  *int     `json:"output_tokens"`
}

// UnixSeconds returns an instant as the views have it, to the millisecond.
func UnixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// View describes what was decided.
func (d *Decided) View() DecisionView {
	v := DecisionView{
		Call: uint64(d.Decision.Call), ID: d.ID, Model: d.Model, At: UnixSeconds(d.At), InputTokens: d.InputTokens,
		Traded: traded(d.Decision), explained: explainAtMost(d.Decision, maxShown, maxShownBytes),
	}
	v.Shadow = shadowView(d.Decision, &v.explained)
	return v
}

func shadowView(d *selection.Decision, shown *explained) *ShadowView {
	s := d.Shadow
	if s == nil {
		return nil
	}
	v := &ShadowView{
		Policy: s.Policy, Reason: string(s.Reason), Predicted: short(s.Predicted.Seconds()), Chosen: d.Candidates[s.Chosen].Endpoint,
		Agrees: s.Agrees, Endpoints: []ShadowEndpoint{},
	}
	if !v.Agrees {
		v.Traded = &ShadowTrade{
			Overlap:     s.OverlapTokens[s.Chosen] - s.OverlapTokens[d.Chosen],
			Outstanding: d.Candidates[s.Chosen].Outstanding - d.Candidates[d.Chosen].Outstanding,
		}
	}
	for _, i := range shown.shown {
		e := ShadowEndpoint{Endpoint: d.Candidates[i].Endpoint, Score: finite(s.Scores[i])}
		if s.Parts != nil {
			e.Parts = s.Parts[i]
		}
		v.Endpoints = append(v.Endpoints, e)
	}
	return v
}

// What bounds the candidates of a decision that is shown, the chosen one among them.
const (
	maxShown      = 64
	maxShownBytes = 32 << 10
)

func traded(d *selection.Decision) TradeView {
	chosen := &d.Candidates[d.Chosen]
	local, idle := chosen, chosen // the first of the best, and the chosen one where it is among them
	for i := range d.Candidates {
		k := &d.Candidates[i]
		if k.OverlapTokens > local.OverlapTokens {
			local = k
		}
		if k.Outstanding < idle.Outstanding {
			idle = k
		}
	}
	t := TradeView{Outstanding: chosen.Outstanding, LeastOutstanding: idle.Outstanding, LeastAt: idle.Endpoint}
	if chosen.Trust != "" {
		t.Overlap, t.BestOverlap, t.BestOverlapAt = &chosen.OverlapTokens, &local.OverlapTokens, local.Endpoint
	}
	return t
}

// NewOutcomeView describes the end of a call.
func NewOutcomeView(call uint64, at time.Time, c *telemetry.Call) OutcomeView {
	v := OutcomeView{
		Call: call, ID: c.ID, Model: c.Model, At: UnixSeconds(at), Pool: c.Pool, Endpoint: c.Endpoint,
		Outcome: c.Outcome.String(), Status: c.Status, Attempts: c.Attempts, Stream: c.Stream,
		Held: c.Held.Seconds(), E2E: c.E2E.Seconds(),
	}
	if c.TTFT > 0 {
		v.TTFT = new(c.TTFT.Seconds())
	}
	if c.PredictedTTFT > 0 {
		v.PredictedTTFT = new(c.PredictedTTFT.Seconds())
	}
	if d, ok := c.TPOT(); ok {
		v.TPOT = new(d.Seconds())
	}
	if c.UsageKnown {
		v.PromptTokens, v.OutputTokens = new(c.PromptTokens), new(c.OutputTokens)
		if c.CachedKnown {
			v.CachedTokens = new(c.CachedTokens)
		}
	}
	return v
}

// finite returns nil for a score that is none.
func finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
