// Package pace is layer 3 (endpoint selection), pure: how long endpoints take for prefill,
// learned from the times that calls took.
//
// The time of prefill at an endpoint of the usual speed is taken to be
//
//	seconds = base + token·tokens + attention·token² + context·contexts·(1 + tokens/chunk)
//
// which is what a transformer's steps are made of: the dense layers' work by token, the
// attention of each token over those before it, and in every step the attention of the
// calls that decode meanwhile over their contexts. The four coefficients belong to the
// model and the engine, so all endpoints of a pool teach them together; a factor by endpoint
// says how many times as long it takes, for pools of several kinds of devices and for
// replicas that are slow.
package pace

import (
	"time"

	"kvasir/internal/mono"
	"kvasir/internal/portable"
	"kvasir/selection"
)

// Model is what prefill costs at an endpoint of the usual speed. No coefficient is negative.
type Model struct {
	Base      float64 // seconds before a first token without any work
	Token     float64 // seconds a token of prefill
	Attention float64 // seconds a token²
	Context   float64 // seconds a step and a token of context of the calls that decode beside it
}

// Chunk is how many tokens of prefill a step is taken to have: vLLM's max_num_batched_tokens
// on large devices.
const Chunk = 8192

// Prefill returns how many seconds the work takes beside calls that decode, whose contexts
// have so many tokens together, once its first step has begun.
func (m *Model) Prefill(w selection.Work, context int64) float64 {
	return float64(float64(w.Tokens)*(m.Token+float64(m.Context*float64(context))/Chunk)) + float64(m.Attention*float64(w.Attention))
}

// Step returns how many seconds a step without prefill takes, and so a decoded token.
func (m *Model) Step(context int64) float64 { return m.Base + float64(m.Context*float64(context)) }

// unknown is the model of a pool of which nothing is known: 10,000 tokens a second.
var unknown = Model{Base: 0.02, Token: 1e-4}

// terms of the model: base, tokens, token², context.
const terms = 4

type vector [terms]float64

// units bring the features of usual samples near 1.
var units = vector{1, 1e3, 1e7, 1e6}

func features(w selection.Work, context int64) vector {
	tokens := float64(w.Tokens)
	return vector{
		1, tokens / units[1], float64(w.Attention) / units[2],
		float64(float64(context)*(1+tokens/Chunk)) / units[3],
	}
}

const (
	forget = 0.999 // weight that what was learned loses with each sample
	doubt  = 0.05  // samples that the unknown model counts for
	sweeps = 8     // of coordinate descent a sample, which go on where the last ones ended
	least  = 0.02  // seconds below which errors count by themselves and not in relation to the time
)

// fit is a regression by least squares of relative errors, with forgetting and without
// negative coefficients.
type fit struct {
	products [terms][terms]float64
	targets  vector
	theta    vector // the coefficients, times units
	samples  float64
}

// prior is what a fit believes before it has learned.
var prior = vector{unknown.Base, unknown.Token * units[1], unknown.Attention * units[2], unknown.Context * units[3]}

// learn takes a sample. Its weight comes from the time that was expected, not from the one
// that it took: with the latter, calls that take longer than expected would count less than
// those that take as much less, and everything would come out too low.
func (f *fit) learn(x *vector, seconds, expected float64) {
	scale := 1 / max(expected, least)
	weight := float64(scale * scale)
	for i := range terms {
		wx := float64(weight * x[i])
		for j := range terms {
			f.products[i][j] = float64(f.products[i][j]*forget) + float64(wx*x[j])
		}
		f.targets[i] = float64(f.targets[i]*forget) + float64(wx*seconds)
	}
	f.samples = float64(f.samples*forget) + 1
	for range sweeps {
		for i := range terms {
			ridge := max(f.products[i][i]*(doubt/(f.samples+doubt)), 1e-9)
			rest := f.targets[i] + float64(ridge*prior[i])
			for j := range terms {
				if j != i {
					rest -= float64(f.products[i][j] * f.theta[j])
				}
			}
			f.theta[i] = max(rest/(f.products[i][i]+ridge), 0)
		}
	}
}

// expect returns what the model says of a sample.
func (f *fit) expect(x *vector) float64 {
	sum := 0.0
	for i := range terms {
		sum += float64(f.theta[i] * x[i])
	}
	return sum
}

func (f *fit) model() Model {
	return Model{
		Base: f.theta[0], Token: f.theta[1] / units[1],
		Attention: f.theta[2] / units[2], Context: f.theta[3] / units[3],
	}
}

// speed is how many times as long as the model says an endpoint takes.
type speed struct {
	factor           float64
	actual, expected float64   // sums over its samples, with forgetting
	at               mono.Time // of the newest
}

// rate returns the factor that the sums show while they count for so much.
func (s *speed) rate(weight float64) float64 {
	return (float64(s.actual*weight) + speedDoubt) / (float64(s.expected*weight) + speedDoubt)
}

// weight returns for how much the sums count at an instant. An endpoint that is taken to be
// slow gets few calls, or none, and with none it could never show that it is slow no longer: so
// what nothing has confirmed for a while fades, until it gets some again.
func (s *speed) weight(now mono.Time) float64 {
	silent := now.Sub(s.at) - quiet
	if silent <= 0 {
		return 1
	}
	return portable.Exp(-ln2 * silent.Seconds() / fade.Seconds())
}

const (
	speedForget = 0.98 // half of what is believed comes from the last 35 samples
	speedDoubt  = 4    // samples at the usual speed that count beside its own

	// whole is the work in seconds from which on a sample counts wholly for the factor: of
	// shorter calls most of the time is waiting for the step under way.
	whole = 0.1

	// dead is how far a factor must be from 1 to be believed. Equal replicas must stay
	// equal: differences that are noise would send every call to the same one.
	dead = 0.1

	// surprise is how many times as long as expected a sample may have taken: what takes
	// longer has another reason.
	surprise = 4

	// enough samples make predictions.
	enough = 16

	// quiet is how long an endpoint may go without a sample before what is known of its speed
	// begins to fade; fade later half of it counts, and so on. After a minute a factor of 1.5 has
	// come down to 1.1.
	quiet = 5 * time.Second
	fade  = 10 * time.Second

	ln2 = 0.6931471805599453
)

// Pool is what is known of a pool's endpoints. The zero Pool knows nothing. It is not safe
// for concurrent use.
type Pool struct {
	fit    fit
	model  Model
	speeds []speed // by slot
	seen   int
}

// Grow makes room for slots up to the given one.
func (p *Pool) Grow(slot selection.Slot) {
	if len(p.speeds) == 0 {
		p.fit, p.model = fit{theta: prior}, unknown
	}
	for int(slot) >= len(p.speeds) {
		p.speeds = append(p.speeds, speed{factor: 1})
	}
}

// Known reports whether enough was learned for predictions in seconds. Before that the model
// still says which of two works is longer.
func (p *Pool) Known() bool { return p.seen >= enough }

// Model returns the model; it must not be changed.
func (p *Pool) Model() *Model { return &p.model }

// Factor returns how many times as long the slot's endpoint takes, as far as is known at the
// instant. The slot must be one for which there is room.
func (p *Pool) Factor(slot selection.Slot, now mono.Time) float64 {
	s := &p.speeds[slot]
	f := s.factor
	if !odd(f) {
		return 1
	}
	if now.Sub(s.at) > quiet {
		if f = s.rate(s.weight(now)); !odd(f) {
			return 1
		}
	}
	return f
}

// odd reports whether a factor is far enough from 1 to be believed.
func odd(f float64) bool { return f > 1+dead || f < 1/(1+dead) }

// Learn takes a sample: the slot's endpoint, which had no other prefill to do, took so many
// seconds (above 0) to the first token of a call with the work, which it gave at the instant.
func (p *Pool) Learn(at mono.Time, slot selection.Slot, w selection.Work, context int64, seconds float64) {
	p.Grow(slot)
	s := &p.speeds[slot]
	if w := s.weight(at); w < 1 {
		s.actual, s.expected = float64(s.actual*w), float64(s.expected*w)
		s.factor = s.rate(1)
	}
	s.at = max(s.at, at)
	x := features(w, context)
	expected := p.fit.expect(&x)
	if p.Known() {
		seconds = min(seconds, float64(surprise*float64(expected*s.factor))+least)
	}
	usual := seconds * p.mean() / s.factor
	if p.Known() {
		p.fit.learn(&x, usual, expected)
	} else {
		p.fit.learn(&x, usual, usual)
	}
	p.model = p.fit.model()
	if p.seen++; !p.Known() {
		return
	}
	weight := min(expected/whole, 1)
	s.actual = float64(s.actual*speedForget) + float64(weight*(seconds/max(expected, 1e-4)))
	s.expected = float64(s.expected*speedForget) + weight
	s.factor = s.rate(1)
}

// mean is the factors' mean. What the model learns is scaled by it, or model and factors
// could drift apart together, one up and the others down.
func (p *Pool) mean() float64 {
	sum := 0.0
	for i := range p.speeds {
		sum += p.speeds[i].factor
	}
	return sum / float64(len(p.speeds))
}

// Forget takes back what was learned of the slot's endpoint: another one will have the slot,
// or the same one after a restart. It counts as one of the usual speed.
func (p *Pool) Forget(slot selection.Slot) {
	if int(slot) < len(p.speeds) {
		p.speeds[slot] = speed{factor: 1}
	}
}
