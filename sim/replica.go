package sim

import (
	"cmp"
	"fmt"
	"slices"

	"kvasir/engine"
	"kvasir/gateway/attempt"
	"kvasir/internal/mono"
	"kvasir/selection/signal"
)

// replica is one engine that lives and dies.
type replica struct {
	world *world
	cfg   *Engine
	eng   *engine.Engine // nil while it is down
	lives map[engine.ID]*life
	next  mono.Time // of the scheduled Advance
}

func (w *world) addReplica(i int) error {
	p := &replica{world: w, cfg: &w.cfg.Engines[i], next: mono.Never, lives: map[engine.ID]*life{}}
	w.replicas = append(w.replicas, p)
	for _, o := range p.cfg.Down {
		w.schedule(
			event{at: o.From, rank: rankOutage, handle: p.die},
			event{at: o.To, rank: rankOutage, handle: p.start},
		)
	}
	if p.start(0); w.err != nil {
		return fmt.Errorf("engine %d: %w", i, w.err)
	}
	return nil
}

func (p *replica) start(mono.Time) []event {
	cfg := p.cfg.Config
	cfg.EveryToken = true // a machine hears of streams that go on
	p.eng, p.world.err = engine.New(cfg)
	return nil
}

// die breaks every call that the engine worked on, in the order of their ids.
func (p *replica) die(now mono.Time) []event {
	p.eng, p.next = nil, mono.Never
	lost := make([]*life, 0, len(p.lives))
	for _, l := range p.lives {
		lost = append(lost, l)
	}
	slices.SortFunc(lost, func(a, b *life) int { return cmp.Compare(a.call.Request.ID, b.call.Request.ID) })
	clear(p.lives)
	var events []event
	for _, l := range lost {
		events = append(events, l.fail(now, attempt.Broken)...)
	}
	return events
}

// engineID names an attempt at an engine. A call never comes twice to one engine while
// its first visit lasts.
func engineID(l *life) engine.ID { return engine.ID(l.call.Request.ID) }

func (p *replica) submit(now mono.Time, l *life) []event {
	if p.eng == nil {
		return l.fail(now, attempt.ConnectFailed)
	}
	q := l.call.Prompt
	q.ID = engineID(l)
	if err := p.eng.Submit(now, q); err != nil {
		return l.fail(now, attempt.CallerFault)
	}
	p.lives[q.ID] = l
	return p.plan()
}

func (p *replica) abort(now mono.Time, l *life) []event {
	id := engineID(l)
	if p.lives[id] != l {
		return nil
	}
	delete(p.lives, id)
	p.eng.Abort(now, id)
	return p.plan()
}

// plan schedules the engine's next step end.
func (p *replica) plan() []event {
	at, ok := p.eng.Next()
	if !ok || at == p.next {
		return nil
	}
	p.next = at
	return []event{{at: at, rank: rankEngine, handle: func(now mono.Time) []event {
		if p.next != now {
			return nil // the engine died meanwhile, or has something to do before
		}
		p.next = mono.Never
		return append(p.advance(now), p.plan()...)
	}}}
}

func (p *replica) advance(now mono.Time) []event {
	var events []event
	for _, out := range slices.Clone(p.eng.Advance(now)) {
		l := p.lives[out.ID]
		if l == nil {
			continue // its client left; the running step still counted it
		}
		if out.Finished {
			delete(p.lives, out.ID)
		}
		events = append(events, l.output(now, out)...)
	}
	return events
}

// load is what a scrape at now reads.
func (p *replica) load(now mono.Time) (signal.Load, bool) {
	if p.eng == nil {
		return signal.Load{}, false
	}
	s := p.eng.Stats()
	c := &p.cfg.Config
	return signal.Load{
		Running:       signal.Known(float64(s.Running), now),
		Waiting:       signal.Known(float64(s.Waiting), now),
		KVUsage:       signal.Known(s.KVUsage, now),
		KVBlocks:      signal.Known(float64(c.NumBlocks), now),
		BlockTokens:   signal.Known(float64(c.BlockTokens), now),
		PrefixQueries: signal.Known(float64(s.PrefixQueries), now),
		PrefixHits:    signal.Known(float64(s.PrefixHits), now),
	}, true
}
