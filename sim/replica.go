package sim

import (
	"cmp"
	"fmt"
	"slices"

	"kvasir/engine"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection/signal"
)

// replica is one engine that lives and dies.
type replica struct {
	world  *world
	cfg    *Engine
	index  int
	eng    *engine.Engine // nil while it is down
	guests map[engine.ID]*visit
	next   mono.Time // of the planned step
	visits uint64    // calls ever submitted
	last   engine.Stats

	streams   []*visit // for progress
	generated int64    // answer tokens, when it was last looked at
	tells     bool     // every token, so that routers see by themselves that streams go on
}

func (w *world) addReplica(i int) error {
	p := &replica{world: w, cfg: &w.cfg.Engines[i], index: i, next: mono.Never, guests: map[engine.ID]*visit{}}
	w.replicas = append(w.replicas, p)
	p.tells = p.cfg.Config.EveryToken
	w.queue.push(event{at: mono.Time(w.cfg.Sample), kind: pulses, engine: int32(i)})
	for _, o := range p.cfg.Down {
		w.queue.push(event{at: o.From, kind: dies, engine: int32(i)})
		w.queue.push(event{at: o.To, kind: starts, engine: int32(i)})
	}
	for n, pace := range p.cfg.Pace {
		w.queue.push(event{at: pace.At, kind: paces, engine: int32(i), index: int32(n)})
	}
	if p.cfg.Joins > 0 {
		w.queue.push(event{at: p.cfg.Joins, kind: starts, engine: int32(i)})
		if err := p.cfg.Config.Validate(); err != nil {
			return fmt.Errorf("engine %d: %w", i, err)
		}
		return nil
	}
	var err error
	if p.eng, err = engine.New(p.cfg.Config); err != nil {
		return fmt.Errorf("engine %d: %w", i, err)
	}
	return nil
}

func (p *replica) start(now mono.Time) {
	// The configuration was accepted when the replica was added.
	p.eng, p.world.err = engine.New(p.cfg.Config)
	p.generated = 0
	if now == p.cfg.Joins {
		for _, r := range p.world.routers {
			if slices.Contains(r.cfg.Engines, p.index) {
				r.grow(now)
			}
		}
	}
}

func (p *replica) pace(now mono.Time, n int) {
	if p.eng != nil {
		p.eng.Throttle(now, p.cfg.Pace[n].Factor)
		p.plan()
	}
}

// die breaks every call that the engine worked on, in the order of their ids.
func (p *replica) die(now mono.Time) {
	if p.eng == nil {
		return
	}
	p.last = p.eng.Stats()
	p.eng, p.next = nil, mono.Never
	lost := make([]*visit, 0, len(p.guests))
	for _, x := range p.guests {
		lost = append(lost, x)
	}
	slices.SortFunc(lost, func(a, b *visit) int { return cmp.Compare(a.life.call.Request.ID, b.life.call.Request.ID) })
	clear(p.guests)
	for _, x := range lost {
		x.lent = false // the engine is gone
		x.end(now, attempt.Broken, flow.Usage{})
	}
}

func (p *replica) submit(now mono.Time, x *visit) {
	if p.eng == nil {
		x.end(now, attempt.ConnectFailed, flow.Usage{})
		return
	}
	if f, wait := p.fault(now, x); f != nil {
		x.refuse(now, f.Outcome, wait)
		return
	}
	p.visits++
	q := x.life.call.Prompt
	q.ID = engine.ID(p.visits)
	if err := p.eng.Submit(now, q); err != nil {
		x.end(now, attempt.CallerFault, flow.Usage{})
		return
	}
	x.replica, x.id, x.lent = p, q.ID, true
	p.guests[q.ID] = x
	p.plan()
}

func (p *replica) abort(now mono.Time, x *visit) {
	if p.guests[x.id] != x {
		return
	}
	delete(p.guests, x.id)
	p.eng.Abort(now, x.id)
	p.plan()
}

// plan plans the engine's next step that brings something.
func (p *replica) plan() {
	at, ok := p.eng.Next()
	if !ok || at == p.next {
		return
	}
	p.next = at
	p.world.queue.push(event{at: at, kind: steps, engine: int32(p.index)})
}

func (p *replica) step(now mono.Time) {
	if p.next != now {
		return // the engine died meanwhile, or has something to do before
	}
	p.next = mono.Never
	eng := p.eng
	p.advance(now)
	if p.eng == eng {
		p.plan()
	}
}

// advance brings the engine to the instant and passes on what came out.
func (p *replica) advance(now mono.Time) {
	eng := p.eng
	outputs := eng.Advance(now)
	if gaps := p.world.cfg.Gaps; gaps != nil {
		for _, g := range eng.Gaps() {
			gaps(p.index, now, g)
		}
	}
	waited := &p.world.result.Waited[p.index]
	*waited = max(*waited, eng.Stats().Waiting)
	for _, out := range outputs {
		x := p.guests[out.ID]
		if x == nil {
			continue // it was aborted; the running step still counted it
		}
		if out.Finished {
			delete(p.guests, out.ID)
			x.lent = false
		}
		x.output(now, &out)
	}
}

// pulse looks at the engine, and so on while there are calls: the routers that have streams
// there learn that these go on, as they do from the bytes that come.
func (p *replica) pulse(now mono.Time) {
	w := p.world
	if p.eng != nil {
		p.advance(now)
	}
	if p.eng != nil {
		s := p.eng.Stats()
		w.usage.sum += s.KVUsage
		w.usage.n++
		if w.cfg.Sampled != nil {
			w.cfg.Sampled(p.index, now, &s)
		}
		if s.GenerationTokens > p.generated && !p.tells {
			for _, r := range w.routers {
				r.alive(now, p.index)
			}
			p.progress(now)
		}
		p.generated = s.GenerationTokens
	}
	if w.cfg.Watched != nil && p.index == 0 {
		for i, r := range w.routers {
			s := r.machine.Snapshot(now)
			w.cfg.Watched(i, &s)
		}
	}
	if w.open > 0 {
		w.queue.push(event{at: now.Add(w.cfg.Sample), kind: pulses, engine: int32(p.index)})
	}
}

// progress lets the routers that want to know learn how far answers are, in the order of their
// calls.
func (p *replica) progress(now mono.Time) {
	p.streams = p.streams[:0]
	for _, x := range p.guests {
		if x.reports && x.begun && x.life.call.Request.Stream {
			p.streams = append(p.streams, x)
		}
	}
	slices.SortFunc(p.streams, func(a, b *visit) int { return cmp.Compare(a.life.call.Request.ID, b.life.call.Request.ID) })
	for _, x := range p.streams {
		if x.replica == p { // one before it may have ended it
			x.progress(now, p.eng.Generated(x.id))
		}
	}
}

func (p *replica) stats() engine.Stats {
	if p.eng == nil {
		return p.last
	}
	return p.eng.Stats()
}

// load is what a scrape at now reads.
func (p *replica) load(now mono.Time) (signal.Load, bool) {
	if p.eng == nil {
		return signal.Load{}, false
	}
	p.advance(now)
	s := p.eng.Stats()
	c := &p.cfg.Config
	load := signal.Load{
		Running:       signal.Known(float64(s.Running), now),
		Waiting:       signal.Known(float64(s.Waiting), now),
		KVUsage:       signal.Known(s.KVUsage, now),
		KVBlocks:      signal.Known(float64(c.NumBlocks), now),
		BlockTokens:   signal.Known(float64(c.BlockTokens), now),
		PrefixQueries: signal.Known(float64(s.PrefixQueries), now),
		PrefixHits:    signal.Known(float64(s.PrefixHits), now),
		Preemptions:   signal.Known(float64(s.Preemptions), now),
	}
	if n := c.LoRA.MaxLoRAs; n > 0 && s.Steps > 0 {
		// As vLLM tells it: after the first step, and an adapter with a call in flight is
		// named in both lists.
		var adapters []kvblock.Hash
		for _, u := range p.eng.Adapters() {
			adapters = append(adapters, u.Adapter)
		}
		load.Adapters = signal.AdaptersOf(n, adapters, slices.Clone(adapters), now)
	}
	return load, true
}
