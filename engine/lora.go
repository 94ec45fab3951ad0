package engine

import (
	"fmt"
	"slices"
	"time"

	"kvasir/accelerator"
	"kvasir/internal/kvblock"
)

// LoRA is low-rank adapters over the base model (the article's section 6.3). A slot on the
// device holds one. A waiting request whose adapter has none, where running requests use all
// of them, is passed over; those behind it may go on, and it is looked at first in the next
// step (vLLM). So no request is passed by another one of its adapter, and those of other
// adapters hold it up only while they keep every slot in use without a break.
//
// An adapter that is in no slot is loaded before the step that first computes with it, and
// the step waits. The slot whose adapter has been idle longest gives way; so it is in the
// host's memory, from which adapters that are in slots are not evicted while in use.
// Computing with an adapter takes as long as without.
//
// Whoever makes a request's blocks must seed their chain with the adapter: the keys and
// values of one adapter are no other's.
type LoRA struct {
	MaxLoRAs     int           // slots: adapters that the requests of a step may use together (max_loras); 0: none, and all else must be 0
	MaxCPULoRAs  int           // adapters in the host's memory, those in slots included (max_cpu_loras, whose default is max_loras); MaxLoRAs or more
	LoadFromHost time.Duration // from there into a slot
	LoadFromDisk time.Duration // from the disk to the host, before that
}

// Bounds of a LoRA's fields: the engine looks through its adapters one by one, and a load
// that takes longer is a mistake of unit.
const (
	mostLoRAs   = 4096
	maxLoRALoad = 10 * time.Minute
)

func (l *LoRA) validate(bad func(field string, value any, allowed string)) {
	if l.MaxLoRAs == 0 && *l != (LoRA{}) {
		bad("LoRA.MaxLoRAs", 0, "1 or more where another field of LoRA is set")
		return
	}
	if l.MaxLoRAs < 0 || l.MaxLoRAs > mostLoRAs {
		bad("LoRA.MaxLoRAs", l.MaxLoRAs, fmt.Sprintf("0 to %d", mostLoRAs))
	} else if l.MaxCPULoRAs < l.MaxLoRAs || l.MaxCPULoRAs > mostLoRAs {
		bad("LoRA.MaxCPULoRAs", l.MaxCPULoRAs, fmt.Sprintf("MaxLoRAs, %d, to %d", l.MaxLoRAs, mostLoRAs))
	}
	if l.LoadFromHost < 0 || l.LoadFromHost > maxLoRALoad {
		bad("LoRA.LoadFromHost", l.LoadFromHost, fmt.Sprintf("0 to %v", maxLoRALoad))
	}
	if l.LoadFromDisk < 0 || l.LoadFromDisk > maxLoRALoad {
		bad("LoRA.LoadFromDisk", l.LoadFromDisk, fmt.Sprintf("0 to %v", maxLoRALoad))
	}
}

// AdapterUse is how many requests use an adapter.
type AdapterUse struct {
	Adapter          kvblock.Hash
	Running, Waiting int
}

// Adapters returns which adapters the requests use that the engine runs and that wait, as
// of the same instant as Stats, in the order in which the adapters came into use. The slice
// is valid until the next Advance.
func (e *Engine) Adapters() []AdapterUse { return e.lora.shown }

// adapter is one that the host holds.
type adapter struct {
	id      kvblock.Hash
	running int  // requests that run with it; it is idle where none does
	slotted bool // it is in a slot
}

// adapters is the engine's LoRA adapters.
type adapters struct {
	cfg LoRA

	// held is those in the host's memory. Of those that are idle the longest idle comes
	// first; where the others stand among them says nothing.
	held    []adapter
	slotted int
	used    int   // of those in slots, the ones that are not idle
	idled   int64 // how often one became idle

	fromHost, fromDisk int // loads for the running step

	inUse   []AdapterUse // by requests that run or wait, in the order in which they came into use
	changed bool         // since it was published

	shown    []AdapterUse
	deferred int // requests that lack a slot, as of then
}

// mayRun reports whether a request of the adapter may join the batch: it runs already, or a
// slot is not in use.
func (a *adapters) mayRun(id kvblock.Hash) bool {
	if id == 0 || a.used < a.cfg.MaxLoRAs {
		return true
	}
	i := a.find(id)
	return i >= 0 && a.held[i].running > 0
}

func (a *adapters) find(id kvblock.Hash) int {
	return slices.IndexFunc(a.held, func(h adapter) bool { return h.id == id })
}

// run counts a request that joins the batch, which it may, and loads its adapter where that
// is in no slot.
func (a *adapters) run(id kvblock.Hash) {
	if id == 0 {
		return
	}
	a.count(id, 1, -1)
	i := a.find(id)
	if i < 0 {
		if len(a.held) == a.cfg.MaxCPULoRAs {
			a.evict()
		}
		i = len(a.held)
		a.held = append(a.held, adapter{id: id})
		a.fromDisk++
	}
	if !a.held[i].slotted {
		if a.slotted == a.cfg.MaxLoRAs {
			a.held[slices.IndexFunc(a.held, func(h adapter) bool { return h.slotted && h.running == 0 })].slotted = false
			a.slotted--
		}
		a.held[i].slotted = true
		a.slotted++
		a.fromHost++
	}
	if a.held[i].running++; a.held[i].running == 1 {
		a.used++
	}
}

// evict takes the adapter that was idle longest out of the host's memory, and out of its
// slot if it has one. One is idle whenever a request of another may run.
func (a *adapters) evict() {
	i := slices.IndexFunc(a.held, func(h adapter) bool { return h.running == 0 })
	if a.held[i].slotted {
		a.slotted--
	}
	a.held = slices.Delete(a.held, i, i+1)
}

// stop counts a request that leaves the batch.
func (a *adapters) stop(id kvblock.Hash) {
	if id == 0 {
		return
	}
	a.count(id, -1, 0)
	i := a.find(id)
	h := a.held[i]
	if h.running--; h.running > 0 {
		a.held[i] = h
		return
	}
	a.held = append(slices.Delete(a.held, i, i+1), h)
	a.used--
	a.idled++
}

// count notes that more or fewer requests run with the adapter, and wait for it.
func (a *adapters) count(id kvblock.Hash, running, waiting int) {
	if id == 0 {
		return
	}
	i := slices.IndexFunc(a.inUse, func(u AdapterUse) bool { return u.Adapter == id })
	if i < 0 {
		i = len(a.inUse)
		a.inUse = append(a.inUse, AdapterUse{Adapter: id})
	}
	a.inUse[i].Running += running
	a.inUse[i].Waiting += waiting
	a.changed = true
}

// settle drops the adapter from those in use where no request uses it any more.
func (a *adapters) settle(id kvblock.Hash) {
	if id == 0 {
		return
	}
	i := slices.IndexFunc(a.inUse, func(u AdapterUse) bool { return u.Adapter == id })
	if a.inUse[i].Running == 0 && a.inUse[i].Waiting == 0 {
		a.inUse = slices.Delete(a.inUse, i, i+1)
		a.changed = true
	}
}

// loading returns what the loads for the running step add to its length.
func (a *adapters) loading(length accelerator.Femtoseconds) accelerator.Femtoseconds {
	each := func(d time.Duration) accelerator.Femtoseconds {
		return accelerator.Femtoseconds(d) * accelerator.Nanosecond
	}
	return length.Plus(each(a.cfg.LoadFromDisk), int64(a.fromDisk)).Plus(each(a.cfg.LoadFromHost), int64(a.fromHost))
}

// publish copies those in use to where they are shown, if they have changed.
func (a *adapters) publish() {
	if !a.changed {
		return
	}
	a.changed, a.deferred = false, 0
	a.shown = append(a.shown[:0], a.inUse...)
	for _, u := range a.shown {
		if !a.mayRun(u.Adapter) {
			a.deferred += u.Waiting
		}
	}
}

// eligible returns the first waiting request that may have a slot for its adapter, nil if
// there is none. Those before it were passed over, and are again until an adapter becomes
// idle: while all slots are in use, the same adapters use them.
func (e *Engine) eligible() *request {
	if e.passedAt != e.lora.idled {
		e.passed, e.passedAt = nil, e.lora.idled
	}
	r := e.waiting.head
	if e.passed != nil {
		r = e.passed.next
	}
	for ; r != nil && !e.lora.mayRun(r.Adapter); r = r.next {
		e.passed = r
	}
	return r
}
