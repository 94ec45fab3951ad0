package pace

import (
	"math"
	"testing"

	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
)

// truth is about what an 8B model on an H100 takes (accelerator's catalogue).
var truth = Model{Base: 0.008, Token: 2.1e-5, Attention: 7.85e-10, Context: 4e-8}

// sample is a call that found no other prefill under way.
type sample struct {
	slot    selection.Slot
	work    selection.Work
	context int64
	seconds float64
}

// world draws samples of so many endpoints that take as many times as long as factors say,
// each time with a relative error of up to noise.
type world struct {
	random  seed.Rand
	factors []float64
	noise   float64
}

func newWorld(noise float64, factors ...float64) *world {
	return &world{random: seed.New(1, seed.Pick, 1, 0), factors: factors, noise: noise}
}

func (w *world) next() sample {
	slot := selection.Slot(w.random.Intn(len(w.factors)))
	input := int64(math.Exp(4 + 7*w.random.Float64())) // 55 to 60,000 tokens
	cached := int64(w.random.Float64() * float64(input))
	if w.random.Float64() < 0.3 {
		cached = 0
	}
	s := sample{slot: slot, work: selection.Prefill(input, cached), context: int64(w.random.Intn(400_000))}
	error := 1 + w.noise*(2*w.random.Float64()-1)
	s.seconds = w.factors[slot] * seconds(&truth, s.work, s.context) * error
	return s
}

func seconds(m *Model, w selection.Work, context int64) float64 {
	return m.Step(context) + m.Prefill(w, context)
}

func (p *Pool) teach(w *world, n int) {
	for range n {
		s := w.next()
		p.Learn(0, s.slot, s.work, s.context, s.seconds)
	}
}

// off is the greatest relative error of the pool's predictions over n samples without noise.
func (p *Pool) off(factors []float64, n int) float64 {
	w := newWorld(0, factors...)
	worst := 0.0
	for range n {
		s := w.next()
		said := p.Factor(s.slot, 0) * seconds(p.Model(), s.work, s.context)
		worst = max(worst, math.Abs(said/s.seconds-1))
	}
	return worst
}

func TestLearn_FindsTheModel(t *testing.T) {
	for _, c := range []struct {
		noise, off float64
	}{{0, 0.02}, {0.3, 0.1}} {
		var p Pool
		p.teach(newWorld(c.noise, 1, 1, 1, 1), 2000)
		if off := p.off([]float64{1, 1, 1, 1}, 500); off > c.off {
			t.Errorf("with a noise of %v predictions are off by up to %.0f %%, want %.0f; model %+v", c.noise, 100*off, 100*c.off, *p.Model())
		}
	}
}

// TestLearn_WhenNothingIsKnown_SaysWhatIsLonger also before there are predictions.
func TestLearn_WhenNothingIsKnown_SaysWhatIsLonger(t *testing.T) {
	var p Pool
	p.Grow(3)
	if p.Known() || p.Factor(3, 0) != 1 || *p.Model() != unknown {
		t.Errorf("an empty pool knows %+v, factor %v", *p.Model(), p.Factor(3, 0))
	}
	w := newWorld(0, 1)
	for n := range enough {
		if p.Known() {
			t.Fatalf("known after %d samples", n)
		}
		p.teach(w, 1)
	}
	if !p.Known() {
		t.Errorf("not known after %d samples", enough)
	}
}

// TestLearn_EqualEndpointsStayEqual: a difference that is noise would send every call to
// the same endpoint.
func TestLearn_EqualEndpointsStayEqual(t *testing.T) {
	var p Pool
	w := newWorld(0.3, 1, 1, 1, 1, 1, 1, 1, 1)
	p.teach(w, 500)
	for range 200 {
		p.teach(w, 10)
		for slot := range w.factors {
			if f := p.Factor(selection.Slot(slot), 0); f != 1 {
				t.Fatalf("slot %d has a factor of %v", slot, f)
			}
		}
	}
}

func TestLearn_TellsSlowEndpointsFromFastOnes(t *testing.T) {
	factors := []float64{1, 1, 2, 2}
	var p Pool
	p.teach(newWorld(0.2, factors...), 3000)
	ratio := p.Factor(3, 0) / p.Factor(0, 0)
	if ratio < 1.6 || ratio > 2.2 {
		t.Errorf("slot 3 takes %.2f times as long as slot 0, want about 2", ratio)
	}
	// The dead zone leaves up to a tenth of error on either side.
	if off := p.off(factors, 500); off > 0.25 {
		t.Errorf("predictions are off by up to %.0f %%", 100*off)
	}
	p.Forget(3)
	if p.Factor(3, 0) != 1 || p.Factor(2, 0) == 1 {
		t.Errorf("after Forget the factors are %v and %v", p.Factor(3, 0), p.Factor(2, 0))
	}
	p.Forget(99) // never heard of
}

// TestFactor_OfTheSilentFades: an endpoint that is taken to be slow gets few calls, or none, so
// without any it must get some again; then a few show what it is.
func TestFactor_OfTheSilentFades(t *testing.T) {
	at := func(seconds float64) mono.Time { return mono.Time(seconds * 1e9) }
	for _, c := range []struct {
		name string
		now  float64 // what the endpoint is once it gets calls again
	}{{"well again", 1}, {"slow still", 2}} {
		var p Pool
		w := newWorld(0.1, 1, 1, 1, 2)
		p.teach(w, 3000)
		slow := p.Factor(3, 0)
		if slow < 1.4 {
			t.Fatalf("%s: a factor of %v", c.name, slow)
		}
		if f := p.Factor(3, at(5)); f != slow {
			t.Errorf("%s: after 5 s a factor of %v, had %v", c.name, f, slow)
		}
		before := slow
		for s := 6.0; s < 120; s++ {
			f := p.Factor(3, at(s))
			if f > before {
				t.Fatalf("%s: after %v s it rises from %v to %v", c.name, s, before, f)
			}
			before = f
		}
		if before != 1 {
			t.Errorf("%s: after two minutes a factor of %v", c.name, before)
		}
		again := newWorld(0.1, 1, 1, 1, c.now)
		for n := range 40 {
			s := again.next()
			s.slot, s.seconds = 3, c.now*seconds(&truth, s.work, s.context)
			p.Learn(at(120+float64(n)/10), s.slot, s.work, s.context, s.seconds)
		}
		if f := p.Factor(3, at(124)); c.now == 1 && f > 1 || c.now == 2 && f < 1.3 {
			t.Errorf("%s: after forty more calls a factor of %v", c.name, f)
		}
	}
}

// TestLearn_WhatTakesMuchLongerHasAnotherReason: one call in fifty took thirty times as long.
func TestLearn_WhatTakesMuchLongerHasAnotherReason(t *testing.T) {
	var p Pool
	w := newWorld(0.1, 1, 1)
	p.teach(w, 200)
	for range 2000 {
		s := w.next()
		if w.random.Float64() < 0.02 {
			s.seconds *= 30
		}
		p.Learn(0, s.slot, s.work, s.context, s.seconds)
	}
	if off := p.off([]float64{1, 1}, 500); off > 0.2 {
		t.Errorf("predictions are off by up to %.0f %%", 100*off)
	}
}

// TestLearn_FollowsWhatChanges: all endpoints become three times as slow.
func TestLearn_FollowsWhatChanges(t *testing.T) {
	var p Pool
	p.teach(newWorld(0.1, 1, 1), 1000)
	p.teach(newWorld(0.1, 3, 3), 4000)
	if off := p.off([]float64{3, 3}, 500); off > 0.2 {
		t.Errorf("predictions are off by up to %.0f %%", 100*off)
	}
}

// TestLearn_NothingIsEverNegativeOrNaN whatever it is told.
func TestLearn_NothingIsEverNegativeOrNaN(t *testing.T) {
	r := seed.New(3, seed.Pick, 1, 0)
	var p Pool
	for range 3000 {
		input := int64(r.Intn(1 << 20))
		w := selection.Prefill(input, int64(r.Intn(1<<20)))
		p.Learn(mono.Time(r.Intn(1<<40)), selection.Slot(r.Intn(5)), w, int64(r.Intn(1<<30)), math.Exp(40*r.Float64()-20))
		m := *p.Model()
		for _, x := range []float64{m.Base, m.Token, m.Attention, m.Context, p.Factor(0, 0)} {
			if !(x >= 0) || math.IsInf(x, 0) {
				t.Fatalf("model %+v, factor %v", m, p.Factor(0, 0))
			}
		}
	}
}

func TestLearn_DoesNotAllocate(t *testing.T) {
	var p Pool
	w := newWorld(0.1, 1, 1)
	p.teach(w, 10)
	if n := testing.AllocsPerRun(100, func() { p.teach(w, 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLearn(b *testing.B) {
	var p Pool
	w := newWorld(0.1, 1, 1)
	s := w.next()
	b.ReportAllocs()
	for b.Loop() {
		p.Learn(0, s.slot, s.work, s.context, s.seconds)
	}
}
