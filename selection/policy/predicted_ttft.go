package policy

import (
	"time"

	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/pace"
)

// The reasons of predicted-ttft.
const (
	ReasonNearest   selection.Reason = "nearest"   // the lowest cost, and nobody holds more of the prompt
	ReasonElsewhere selection.Reason = "elsewhere" // the lowest cost, though another one holds more of the prompt
)

// PredictedTTFT picks the lowest predicted cost of answering the call, to itself and to
// others, in shares of what callers want (View.SLO):
//
//	cost = (ttft + work·busy/(1 - busy)·W) / D_ttft
//	     + decode·tpot / D_tpot
//	     + active·(interference·W/E[output] + crowding·step) / D_tpot
//
//	u       uncached tokens: input less overlap (resident, or on its way with a call in flight)
//	W       prefill time of u, attention over what is cached included
//	ttft    what is left of the prefill pending there + W + one step
//	busy    share of the last seconds that the candidates have spent on prefill, what is
//	        pending there included
//	tpot    a step with the contexts of all calls there and this one's, / (1 - that share of
//	        the endpoint's own)
//	step    what this call's context adds to each step
//	active  calls there that are not finished
//
// The second part is the price of work as such: a prefix that is computed again takes time
// away from calls to come, which a rule gives away that only looks at the call itself, as
// soon as a cold endpoint is idle. As in a queue it grows with busy/(1 - busy), so an idle
// pool spreads a burst over everybody and a full one keeps to what is cached. The last part
// is what this call does to those beside it: its prefill stops their answers for W, which
// spreads over E[output] tokens, and its context makes each of their steps longer.
//
// Nothing has to be measured beforehand. What prefill and steps cost is learned from the
// answers (package pace): of calls that found no other prefill under way, with the cached
// tokens that their usage reports where it does. E[output] is the mean answer. Where no SLO
// is given, D is the median of what calls get, so that the two still weigh alike; but no
// time between tokens below a step's, since behind a proxy that buffers answers come in one
// piece. What is pending is the load book's and exact; it is taken to be served in the order
// of its coming, and the oldest call's progress is the time that has passed.
//
// Other rules are parts of it: least-prefill-left is its first term in tokens, lmetric the
// product of that with active, sticky-until-saturated the second with a threshold in place
// of a price. docs/decisions/0018 says what each term is worth.
//
// Score: cost. Setting a weight to 0 takes its term out.
type PredictedTTFT struct {
	Work         float64       `config:"work" doc:"weight of the price of prefill work, which grows with how busy the pool is; at least 0"`
	Decode       float64       `config:"decode" doc:"weight of the time between the call's own tokens; at least 0"`
	Interference float64       `config:"interference" doc:"weight of what the call's prefill delays others; at least 0"`
	Crowding     float64       `config:"crowding" doc:"weight of what the call's context delays others; at least 0"`
	Window       time.Duration `config:"window" doc:"over how long the prefill that endpoints have done counts as their being busy; above 0"`
}

// Validate reports negative weights and a window that is not positive.
func (c *PredictedTTFT) Validate() []ParamError {
	var errs []ParamError
	for _, w := range []struct {
		name  string
		value float64
	}{{"work", c.Work}, {"decode", c.Decode}, {"interference", c.Interference}, {"crowding", c.Crowding}} {
		if !finite(w.value) || w.value < 0 {
			errs = append(errs, ParamError{w.name, w.value, "a number of at least 0"})
		}
	}
	if c.Window <= 0 {
		errs = append(errs, ParamError{"window", c.Window, "a duration above 0"})
	}
	return errs
}

// New returns the policy.
func (c *PredictedTTFT) New() selection.Policy {
	return &predictedTTFT{config: *c, window: newDecay(c.Window), ttft: 1, tpot: 0.05, output: 200}
}

type predictedTTFT struct {
	config PredictedTTFT
	pace   pace.Pool
	window *decay
	done   []done  // by slot
	ttft   typical // what calls get, in seconds
	tpot   typical
	output float64   // mean tokens of an answer
	now    mono.Time // of the newest Pick

	outlooks []outlook // scratch, parallel to View.Candidates
}

// done is the prefill that an endpoint has done, in seconds; old work counts less.
type done struct {
	seconds float64
	at      mono.Time
}

// typical follows the median of what it is told by one percent a time.
type typical float64

func (t *typical) follow(x float64) {
	if x > float64(*t) {
		*t *= 1.01
	} else {
		*t /= 1.01
	}
}

// mostBusy bounds the share of time with prefill, beyond which a decode would never end.
const mostBusy = 0.95

// UsesOverlap marks the policy as one that reads View.Overlap.
func (*predictedTTFT) UsesOverlap() {}

// outlook is what is expected of a call at an endpoint, in seconds.
type outlook struct {
	backlog float64 // until the prefill that is pending there is done
	prefill float64 // W
	start   float64 // one step
	busy    float64 // share of the last time
	step    float64 // added to each step there
}

func (o *outlook) ttft() float64 { return o.backlog + o.prefill + o.start }

// tpot is the time between the call's tokens.
func (o *outlook) tpot() float64 { return (o.start + o.step) / (1 - o.busy) }

// look returns what is expected of the call, parallel to the candidates.
func (p *predictedTTFT) look(v *selection.View, q *selection.Request) []outlook {
	p.grow(v.Candidates[len(v.Candidates)-1])
	p.outlooks = p.outlooks[:0]
	for _, slot := range v.Candidates {
		b, m, f := &v.Book[slot], p.pace.Model(), p.pace.Factor(slot, v.Now)
		decoding := b.OutstandingTokens - b.PendingTokens
		o := outlook{
			prefill: float64(f * m.Prefill(q.Work(selection.OverlapAt(v.Overlap, slot)), decoding)),
			start:   float64(f * m.Step(b.OutstandingTokens)),
			step:    float64(f * float64(m.Context*float64(q.InputTokens))),
		}
		pending := 0.0
		if b.Pending > 0 {
			served := v.Now.Sub(b.HeadSince).Seconds()
			head, rest := float64(f*m.Prefill(b.Head, decoding)), float64(f*m.Prefill(b.PendingWork.Minus(b.Head), decoding))
			pending = head + rest
			if b.HeadSilent {
				o.backlog = max(pending-served, 0)
			} else {
				o.backlog = max(head-served, 0) + rest
			}
		}
		o.busy = min((p.before(v.Now, slot)+pending)/p.config.Window.Seconds(), mostBusy)
		p.outlooks = append(p.outlooks, o)
	}
	return p.outlooks
}

// before returns the seconds of prefill that the endpoint has done in the window.
func (p *predictedTTFT) before(now mono.Time, slot selection.Slot) float64 {
	d := &p.done[slot]
	return float64(d.seconds * p.window.weight(now.Sub(d.at)))
}

// standard is what costs are measured by.
type standard struct {
	ttft, tpot float64 // D, in seconds
	work       float64 // price of a second of prefill, in seconds
}

func (p *predictedTTFT) standard(v *selection.View, outlooks []outlook) standard {
	d := standard{ttft: float64(p.ttft), tpot: max(float64(p.tpot), p.pace.Model().Step(0))}
	if v.SLO.TTFT > 0 {
		d.ttft = v.SLO.TTFT.Seconds()
	}
	if v.SLO.TPOT > 0 {
		d.tpot = v.SLO.TPOT.Seconds()
	}
	sum := int64(0) // of integers, which is the same in any order
	for i := range outlooks {
		sum += int64(float64(outlooks[i].busy * (1 << 40)))
	}
	busy := float64(sum) / (1 << 40) / float64(len(outlooks))
	d.work = p.config.Work * busy / (1 - busy)
	return d
}

// terms are a cost's parts, in shares of what is wanted.
type terms struct{ ttft, work, decode, imposed float64 }

func (t *terms) sum() float64 { return t.ttft + t.work + t.decode + t.imposed }

func (p *predictedTTFT) price(o *outlook, d standard, active int32) terms {
	c := &p.config
	delay := float64(c.Interference*o.prefill)/p.output + float64(c.Crowding*o.step)
	return terms{
		ttft:    o.ttft() / d.ttft,
		work:    float64(d.work*o.prefill) / d.ttft,
		decode:  float64(c.Decode*o.tpot()) / d.tpot,
		imposed: float64(float64(active)*delay) / d.tpot,
	}
}

func (p *predictedTTFT) Pick(v *selection.View, q *selection.Request, r *seed.Rand) selection.Choice {
	p.now = v.Now
	outlooks := p.look(v, q)
	d := p.standard(v, outlooks)
	for i, slot := range v.Candidates {
		t := p.price(&outlooks[i], d, v.Book[slot].Outstanding)
		v.Scores[i] = t.sum()
	}
	choice := selection.Choice{Index: argmin(v.Scores, r), Reason: ReasonNearest}
	if selection.OverlapAt(v.Overlap, v.Candidates[choice.Index]) < longestOverlap(v) {
		choice.Reason = ReasonElsewhere
	}
	if p.pace.Known() {
		choice.Predicted = mono.FromSeconds(outlooks[choice.Index].ttft())
	}
	return choice
}

// Explain implements selection.Explainer: what is expected of the call, and what it costs.
func (p *predictedTTFT) Explain(v *selection.View, q *selection.Request) [][]selection.Part {
	outlooks := p.look(v, q)
	d := p.standard(v, outlooks)
	all := make([][]selection.Part, len(v.Candidates))
	for i, slot := range v.Candidates {
		o := &outlooks[i]
		t := p.price(o, d, v.Book[slot].Outstanding)
		all[i] = []selection.Part{
			{Name: "backlog_seconds", Value: o.backlog}, {Name: "prefill_seconds", Value: o.prefill},
			{Name: "start_seconds", Value: o.start}, {Name: "step_seconds", Value: o.step}, {Name: "busy_share", Value: o.busy},
			{Name: "ttft_cost", Value: t.ttft}, {Name: "work_cost", Value: t.work},
			{Name: "decode_cost", Value: t.decode}, {Name: "imposed_cost", Value: t.imposed},
		}
	}
	return all
}

// Learn notes the prefill that a call's first token shows to be done.
func (p *predictedTTFT) Learn(s *selection.Sample) { p.note(s) }

// note counts the prefill of a call as done. What is refused or given up before never is.
func (p *predictedTTFT) note(s *selection.Sample) {
	p.grow(s.Slot)
	p.count(s.At, s.Slot, p.pace.Factor(s.Slot, s.At)*p.pace.Model().Prefill(s.Own, s.Context))
}

// Witness counts the prefill of other gateways' calls likewise.
func (p *predictedTTFT) Witness(at mono.Time, slot selection.Slot, w selection.Work) {
	p.grow(slot)
	p.count(at, slot, p.pace.Factor(slot, at)*p.pace.Model().Prefill(w, 0))
}

// count adds prefill that was done by an instant, which may be before that of the newest.
func (p *predictedTTFT) count(at mono.Time, slot selection.Slot, seconds float64) {
	t := &p.done[slot]
	at = max(at, t.at)
	t.seconds = p.before(at, slot) + seconds
	t.at = at
}

// LearnEnd teaches the pace of endpoints, and how long answers are. Only calls that found no
// other prefill under way say what their own took.
func (p *predictedTTFT) LearnEnd(e *selection.End) {
	p.grow(e.Slot)
	if u := e.Usage; u.Known && u.Output > 0 {
		p.output += float64(0.01 * (float64(u.Output) - p.output))
	}
	if !e.ShowsStart {
		p.note(&e.Sample)
		return
	}
	p.ttft.follow(e.TTFT.Seconds())
	if e.Ahead.Tokens == 0 {
		p.pace.Learn(e.At, e.Slot, actual(e), e.Context, max(e.TTFT, time.Microsecond).Seconds())
	}
	if u := e.Usage; u.Known && u.Output > 1 {
		p.tpot.follow(e.Ended.Sub(e.At).Seconds() / float64(u.Output-1))
	}
}

// actual is the work that the call's prefill was: by what its answer said was cached, else
// as it was believed.
func actual(e *selection.End) selection.Work {
	if !e.Usage.CachedKnown || e.Usage.Prompt <= 0 {
		return e.Own
	}
	return selection.Prefill(int64(e.Input), int64(e.Usage.CachedOf(e.Input)))
}

// PrefillTime implements selection.Predictor.
func (p *predictedTTFT) PrefillTime(slot selection.Slot, w selection.Work) (time.Duration, bool) {
	p.grow(slot)
	return mono.FromSeconds(p.pace.Factor(slot, p.now) * p.pace.Model().Prefill(w, 0)), p.pace.Known()
}

// Forget takes back what was learned of the slot's endpoint.
func (p *predictedTTFT) Forget(slot selection.Slot) {
	p.pace.Forget(slot)
	if int(slot) < len(p.done) {
		p.done[slot] = done{}
	}
}

func (p *predictedTTFT) grow(slot selection.Slot) {
	p.pace.Grow(slot)
	if n := int(slot) + 1; n > len(p.done) {
		p.done = append(p.done, make([]done, n-len(p.done))...)
	}
}

var (
	_ selection.OverlapUser = (*predictedTTFT)(nil)
	_ selection.Learner     = (*predictedTTFT)(nil)
	_ selection.EndLearner  = (*predictedTTFT)(nil)
	_ selection.Predictor   = (*predictedTTFT)(nil)
	_ selection.Explainer   = (*predictedTTFT)(nil)
	_ selection.Forgetter   = (*predictedTTFT)(nil)
	_ selection.Witness     = (*predictedTTFT)(nil)
)
