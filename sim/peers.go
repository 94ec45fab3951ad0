package sim

import (
	"kvasir/gateway/flow"
	"kvasir/internal/mono"
)

// told is what a router has told the others at once.
type told struct {
	from  int
	words []flow.Word
}

// tell sends what the machine has to tell to every other router that listens.
func (r *router) tell(now mono.Time) {
	t := &told{from: r.index, words: r.machine.Words()}
	for i, x := range r.world.routers {
		if x == r || !x.cfg.Machine.Sharing.On || x.cfg.PeerLoss != nil && x.cfg.PeerLoss(r.index, now) {
			continue
		}
		r.world.queue.push(event{at: now.Add(x.cfg.PeerDelay), kind: learns, router: int32(i), told: t})
	}
}

// learn reports to the machine what another router has told. Engines are the same for both,
// slots may not be.
func (r *router) learn(now mono.Time, t *told) {
	from := r.world.routers[t.from]
	for i := range t.words {
		w := &t.words[i]
		e := -1
		if int(w.Slot) < len(from.engines) {
			e = from.engines[w.Slot]
		}
		if e < 0 || r.slots[e].at < 0 {
			continue
		}
		r.step(now, flow.Heard(r.slots[e].at, r.slots[e].generation, w, r.cfg.PeerDelay))
	}
}
