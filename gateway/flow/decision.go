package flow

import (
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// decision describes what a policy is about to choose from. Picking changes what a policy
// goes by, so this is written before, and what it chose in decide.
func (m *Machine) decision(p *pool, c *call) *selection.Decision {
	v := &p.view
	d := &selection.Decision{
		Call: c.request.ID, Attempt: c.attempt, At: v.Now, Pool: p.name, Policy: p.policyName, Conversation: c.request.Conversation,
		Candidates: make([]selection.Candidate, len(v.Candidates)),
	}
	parts := make([][]selection.Part, len(v.Candidates))
	if e, ok := selection.As[selection.Explainer](p.policy); ok {
		parts = e.Explain(v, &c.request)
	}
	for i, slot := range v.Candidates {
		e := &m.endpoints[slot]
		k := selection.Candidate{
			Endpoint:    e.Name,
			Outstanding: int(v.Book[slot].Outstanding),
			SignalAge:   e.Load.Age(v.Now),
			Signals:     append(readings(&e.Load, &m.books[slot], v.Now), m.toldOf(slot, v.Now)...),
			Parts:       parts[i],
		}
		if p.usesOverlap {
			k.Overlap = int(m.overlap[slot])
			k.OverlapTokens = c.request.Tokens(k.Overlap)
			k.Trust = m.state[slot].trust.State().String()
		}
		d.Candidates[i] = k
	}
	return d
}

// decide writes what the policy chose and why.
func decide(d *selection.Decision, v *selection.View, choice selection.Choice) {
	d.Reason, d.Chosen, d.Predicted = choice.Reason, choice.Index, choice.Predicted
	for i := range d.Candidates {
		d.Candidates[i].Score = v.Scores[i]
	}
}

// readings lists what is known of an endpoint's load.
func readings(l *signal.Load, b *selection.Book, now mono.Time) []selection.Reading {
	reported := [...]struct {
		name string
		signal.Gauge
	}{{"running", l.Running}, {"waiting", l.Waiting}, {"waiting_tokens", l.WaitingTokens}, {"kv_usage", l.KVUsage}}
	own := [...]struct {
		name  string
		value int64
	}{{"unseen", int64(b.Unseen)}, {"pending", int64(b.Pending)}, {"pending_tokens", b.PendingTokens}, {"outstanding_tokens", b.OutstandingTokens}}
	out := make([]selection.Reading, 0, len(reported)+len(own))
	for _, g := range reported {
		if g.Known {
			out = append(out, selection.Reading{Name: g.name, Value: g.Value, Source: selection.FromReport, Age: g.Age(now)})
		}
	}
	for _, n := range own {
		out = append(out, selection.Reading{Name: n.name, Value: float64(n.value), Source: selection.FromDispatches})
	}
	return out
}

// toldOf lists what is believed of other gateways' load at a slot, if they have told of any.
func (m *Machine) toldOf(slot selection.Slot, now mono.Time) []selection.Reading {
	x := &m.peers.sums[slot]
	if x.Outstanding == 0 {
		return nil
	}
	seen, own := &m.loads[slot], &m.books[slot]
	var out []selection.Reading
	for _, n := range [...]struct {
		name  string
		value int64
	}{
		{"outstanding", int64(seen.Outstanding - own.Outstanding)}, {"pending", int64(seen.Pending - own.Pending)},
		{"pending_tokens", seen.PendingTokens - own.PendingTokens}, {"outstanding_tokens", seen.OutstandingTokens - own.OutstandingTokens},
	} {
		out = append(out, selection.Reading{Name: n.name, Value: float64(n.value), Source: selection.FromPeers, Age: now.Sub(x.at)})
	}
	return out
}
