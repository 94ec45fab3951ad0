package policy

import (
	"math"
	"slices"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// The reasons of lora-affinity: how near the adapter is at those that the other rule ranks.
const (
	ReasonBaseModel selection.Reason = "base-model" // the call has no adapter, so everybody
	ReasonActive    selection.Reason = "active"     // calls of the adapter are there
	ReasonResident  selection.Reason = "resident"   // it is idle in a slot, as far as this router knows
	ReasonEmptySlot selection.Reason = "empty-slot" // a slot has held nothing yet, likewise
	ReasonFreeSlot  selection.Reason = "free-slot"  // a slot is free for it
	ReasonAwaited   selection.Reason = "awaited"    // calls of others wait there for it
	ReasonNoSlot    selection.Reason = "no-slot"    // all slots are in use by other adapters
	ReasonTooBusy   selection.Reason = "too-busy"   // where the adapter is nearer, there is too much load
)

// LoRAAffinity sends a call to where its LoRA adapter is, as long as that costs no balance
// (article section 6.3), and lets another rule rank those that are equally near to it. How
// near an adapter is goes by the classes of GIE's and llm-d's lora-affinity-scorer, which
// gives them 1, 0.8, 0.6 and 0, and by two that these lack:
//
//	active     calls of the adapter are there: this router's own, or a report says so
//	resident   a slot is free there, and of the adapters that this router sent there last
//	           it is among so many as there are slots
//	empty slot a slot is free there, and this router sent it fewer adapters than it has slots
//	free slot  fewer adapters are in use there than it has slots
//	awaited    a report says that calls wait there for it
//	no slot    else
//
// An endpoint may have at most slack outstanding calls more than the least loaded candidate;
// of those that have not, the nearest class stays, and Then ranks it. So a popular adapter
// spreads: when its endpoints are slack calls ahead, it takes a slot at another one, which
// is active from then on. A scorer that adds 0.2 to a sum can't say by how much load it
// may be outweighed; a hard filter lets one adapter bury one endpoint. A call of the base
// model is Then's alone.
//
// Adapters in use are those of this router's outstanding calls, or those that a report names
// as running where these are more. What slots hold beside them is told by nobody; engines
// evict what was not used for longest, which is what the classes resident and empty slot
// reckon with. Adapters that calls wait for take no slot yet; llm-d counts them, too. Where no candidate has a fresh report own counts are all there is; where some
// have, another one's slots are not taken to be free. How many slots there are does not
// change while an engine lives, so for that any age counts.
//
// Slack is 8 by default: in simulations of 16 adapters on 8 engines with 4 slots each, 2 makes
// adapters wander from engine to engine, and with 32 tokens come up to half as slowly again
// where prompts are long.
//
// Score: Then's, for those that stay; NaN for the rest.
type LoRAAffinity struct {
	Then  string `config:"then" doc:"the rule, with its defaults, that ranks the endpoints where the adapter is equally near; any but lora-affinity"`
	Slack int    `config:"slack" doc:"outstanding calls by which an endpoint may exceed the least loaded one; at least 0"`
	Slots int    `config:"slots" doc:"adapters that an engine has slots for where it does not report it (vLLM's max_loras); at least 1"`
}

const loraAffinityName = "lora-affinity"

// Validate reports a rule that does not exist or is this one, a negative slack, and slots
// below 1.
func (c *LoRAAffinity) Validate() []ParamError {
	var errs []ParamError
	if _, ok := Lookup(c.Then); !ok || c.Then == loraAffinityName {
		errs = append(errs, ParamError{"then", c.Then, "the name of a rule other than " + loraAffinityName})
	}
	if c.Slack < 0 {
		errs = append(errs, ParamError{"slack", c.Slack, "an integer of at least 0"})
	}
	if c.Slots < 1 {
		errs = append(errs, ParamError{"slots", c.Slots, "an integer of at least 1"})
	}
	return errs
}

// New returns the policy.
func (c *LoRAAffinity) New() selection.Policy {
	rule, _ := Lookup(c.Then)
	return &loraAffinity{slack: c.Slack, slots: c.Slots, then: rule.Params().New()}
}

type loraAffinity struct {
	slack, slots int
	then         selection.Policy
	sent         [][]kvblock.Hash // by slot: the adapters sent there last, the latest first, as many as it has slots at most

	// What then sees, and its slices, which are scratch.
	view       selection.View
	candidates []selection.Slot
	position   []int32
	scores     []float64
}

// adapterClass is how near an adapter is to an endpoint, the nearest first.
type adapterClass uint8

const (
	active adapterClass = iota
	resident
	emptySlot
	freeSlot
	awaited
	noSlot
	tooFar // beyond all classes
)

var classReasons = [...]selection.Reason{ReasonActive, ReasonResident, ReasonEmptySlot, ReasonFreeSlot, ReasonAwaited, ReasonNoSlot}

// UsesAdapters marks the policy as one that reads the adapters of a View.
func (*loraAffinity) UsesAdapters() {}

// Then returns the rule that ranks.
func (p *loraAffinity) Then() selection.Policy { return p.then }

func (p *loraAffinity) Pick(v *selection.View, q *selection.Request, r *seed.Rand) selection.Choice {
	if q.Adapter == 0 {
		c := p.then.Pick(v, q, r)
		c.Reason = ReasonBaseModel
		return c
	}
	reason := p.keep(v, q.Adapter)
	c := p.then.Pick(&p.view, q, r)
	unscored(v)
	for i, slot := range p.candidates {
		v.Scores[v.Position[slot]] = p.scores[i]
	}
	slot := p.candidates[c.Index]
	p.note(slot, q.Adapter, p.slotsOf(v, slot))
	c.Index, c.Reason = int(v.Position[slot]), reason
	return c
}

// mostSent bounds how many adapters are remembered of an endpoint.
const mostSent = signal.MaxAdapters

// note makes the adapter the latest that was sent to an endpoint of so many slots.
func (p *loraAffinity) note(slot selection.Slot, adapter kvblock.Hash, slots int) {
	for int(slot) >= len(p.sent) {
		p.sent = append(p.sent, nil)
	}
	sent, slots := p.sent[slot], min(slots, mostSent)
	i := slices.Index(sent, adapter)
	if i < 0 {
		if i = len(sent); i < slots {
			sent = append(sent, adapter)
		} else {
			sent = sent[:slots] // there may have been more
			i = slots - 1
		}
	}
	copy(sent[1:], sent[:i])
	sent[0] = adapter
	p.sent[slot] = sent
}

// Forget drops what was sent to the slot.
func (p *loraAffinity) Forget(slot selection.Slot) {
	if int(slot) < len(p.sent) {
		p.sent[slot] = p.sent[slot][:0]
	}
	if f, ok := selection.As[selection.Forgetter](p.then); ok {
		f.Forget(slot)
	}
}

// slotsOf returns how many slots an endpoint has.
func (p *loraAffinity) slotsOf(v *selection.View, slot selection.Slot) int {
	if n := v.Endpoints[slot].Load.Adapters.Slots(); n > 0 {
		return n
	}
	return p.slots
}

// keep makes the view that Then ranks: those of the nearest class that are not too busy. It
// returns why they stay.
func (p *loraAffinity) keep(v *selection.View, adapter kvblock.Hash) selection.Reason {
	most := p.bound(v)
	oldest := v.Oldest()
	reported := slices.ContainsFunc(v.Candidates, func(slot selection.Slot) bool {
		return freshAdapters(&v.Endpoints[slot].Load, oldest)
	})
	best := tooFar
	kept := p.candidates[:0]
	for _, slot := range v.Candidates {
		if int(v.Book[slot].Outstanding) > most {
			continue
		}
		class := active
		if !runs(v, slot, adapter, oldest) {
			if best == active {
				continue
			}
			class = p.room(v, slot, adapter, oldest, reported)
		}
		if class < best {
			best, kept = class, kept[:0]
		}
		if class == best {
			kept = append(kept, slot)
		}
	}
	p.narrow(v, kept)
	if best > active {
		for _, slot := range v.Candidates {
			if int(v.Book[slot].Outstanding) > most &&
				(runs(v, slot, adapter, oldest) || p.room(v, slot, adapter, oldest, reported) < best) {
				return ReasonTooBusy
			}
		}
	}
	return classReasons[best]
}

// bound returns the most outstanding calls that an endpoint may have.
func (p *loraAffinity) bound(v *selection.View) int {
	least := int32(math.MaxInt32)
	for _, slot := range v.Candidates {
		least = min(least, v.Book[slot].Outstanding)
	}
	return int(least) + p.slack
}

// narrow makes those that are kept the candidates of the view that Then ranks.
func (p *loraAffinity) narrow(v *selection.View, kept []selection.Slot) {
	p.candidates = kept
	p.position = slices.Grow(p.position[:0], len(v.Position))[:len(v.Position)]
	for slot := range p.position {
		p.position[slot] = selection.None
	}
	for i, slot := range kept {
		p.position[slot] = int32(i)
	}
	p.scores = slices.Grow(p.scores[:0], len(kept))[:len(kept)]
	p.view = *v
	p.view.Candidates, p.view.Position, p.view.Scores = kept, p.position, p.scores
}

// freshAdapters reports whether the endpoint has told of its adapters since then.
func freshAdapters(l *signal.Load, oldest mono.Time) bool {
	return l.Adapters.Known() && l.Adapters.At >= oldest
}

// runs reports whether the adapter is active at the endpoint.
func runs(v *selection.View, slot selection.Slot, adapter kvblock.Hash, oldest mono.Time) bool {
	load := &v.Endpoints[slot].Load
	return v.AdapterCalls[slot] > 0 || freshAdapters(load, oldest) && load.Adapters.Running().Has(adapter)
}

// room returns how near the adapter is to an endpoint where it is not active. reported tells
// whether a candidate has a fresh report.
func (p *loraAffinity) room(v *selection.View, slot selection.Slot, adapter kvblock.Hash, oldest mono.Time, reported bool) adapterClass {
	load := &v.Endpoints[slot].Load
	slots, inUse := p.slotsOf(v, slot), int(v.Adapters[slot])
	fresh := freshAdapters(load, oldest)
	if fresh {
		inUse = max(inUse, load.Adapters.Running().Len())
	}
	switch {
	case fresh == reported && inUse < slots:
		if int(slot) < len(p.sent) && slices.Contains(p.sent[slot][:min(slots, len(p.sent[slot]))], adapter) {
			return resident
		}
		if int(slot) >= len(p.sent) || len(p.sent[slot]) < min(slots, mostSent) {
			return emptySlot
		}
		return freeSlot
	case fresh && load.Adapters.Waiting().Has(adapter):
		return awaited
	}
	return noSlot
}

var (
	_ selection.AdapterUser = (*loraAffinity)(nil)
	_ selection.Composite   = (*loraAffinity)(nil)
	_ selection.Forgetter   = (*loraAffinity)(nil)
)
