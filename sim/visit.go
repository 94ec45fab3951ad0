package sim

import (
	"time"

	"kvasir/engine"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// visit is an attempt of a call at an engine.
type visit struct {
	life    *life
	number  int // of the attempt in its call
	engine  int
	running bool      // the machine was not told of its end
	replica *replica  // that works on it; nil: none does
	id      engine.ID // at that replica
	lent    bool      // an engine may still read its prompt

	reports bool // the router wants to know how far its answer is

	begun   bool      // its content has come
	told    mono.Time // when the router last heard how far it is, or content came
	first   mono.Time
	tokens  int // of the answer
	cached  int // of the prompt
	outcome attempt.Outcome
}

// abort takes the attempt from its engine. What that has computed of the prompt is wasted where
// another attempt has won.
func (x *visit) abort(now mono.Time) {
	p := x.replica
	if p == nil {
		return
	}
	if l := x.life; l.winner != nil && l.winner != x {
		l.record.Wasted += p.eng.Prefilled(x.id)
	}
	p.abort(now, x)
	x.replica = nil
}

// output is what an engine's step brought for the attempt.
func (x *visit) output(now mono.Time, out *engine.Output) {
	l := x.life
	x.tokens += out.Tokens
	if l.winner == x {
		l.record.Tokens = x.tokens
	}
	stream := l.call.Request.Stream
	if x.begun && stream { // what a gateway sees of an answer
		l.router.alive(now, x.replica.index)
		x.progress(now, x.tokens)
	}
	// An answer that is not streamed is content only once it is whole.
	if !x.begun && (stream || out.Finished) {
		x.begun, x.first, x.told, x.cached = true, now, now, out.Cached
		if l.other(x) == nil { // else the machine says which of the two goes on
			l.win(x)
		}
		l.router.step(now, flow.FirstToken(l.ticket, x.number))
	}
	if !out.Finished {
		return
	}
	p := &l.call.Prompt
	x.end(now, attempt.Success, flow.Usage{
		Known: true, CachedKnown: l.call.Request.Kind == selection.Generate,
		Prompt: p.PromptTokens, Cached: out.Cached, Output: p.OutputTokens,
	})
}

// progress reports how many tokens of the answer have come, as often as a gateway does.
func (x *visit) progress(now mono.Time, tokens int) {
	if x.reports && now.Sub(x.told) >= flow.AliveEvery {
		x.told = now
		x.life.router.step(now, flow.Progress(x.life.ticket, x.number, tokens))
	}
}

// end tells the machine how the attempt ended, and ends the call with it where no other attempt
// runs or may follow.
func (x *visit) end(now mono.Time, o attempt.Outcome, u flow.Usage) {
	x.over(now, o, flow.Done(x.life.ticket, x.number, o, u))
}

// refuse is end where the engine refuses the attempt, and says for how long it wants to be left
// alone, or not (attempt.NoWait).
func (x *visit) refuse(now mono.Time, o attempt.Outcome, wait time.Duration) {
	x.over(now, o, flow.Pushed(x.life.ticket, x.number, o, wait))
}

func (x *visit) over(now mono.Time, o attempt.Outcome, e flow.Event) {
	l := x.life
	r := l.router
	x.replica, x.running, x.outcome = nil, false, o
	l.final = l.final || !o.Retryable()
	final := l.winner == x || !x.begun && l.other(x) == nil && l.final
	if final {
		l.end(now, o)
	} else {
		l.record.Outcome = o
	}
	r.step(now, e)
	if final {
		l.close(now)
	}
}
