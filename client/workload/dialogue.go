package workload

import (
	"kvasir/internal/draw"
	"kvasir/internal/seed"
)

// Dialogue is sessions of calls one after the other, each of which sends all that came
// before it: what a chat user and an agent with its tools have in common (article section
// 13). A prompt is, in this order,
//
//	system prompt   shared by many sessions, tools included
//	history         of the session alone: a document, earlier talk, a task
//	user, answer    of each turn so far
//	user            of this turn: a question, or a tool's result
//
// A session whose next turn does not fit into the context is compacted, or ends there.
type Dialogue struct {
	Systems int     `spec:"systems" doc:"different system prompts"`
	Zipf    float64 `spec:"zipf" doc:"how uneven their use is: the k-th is used 1/k^zipf as often as the first; 0: all alike"`
	System  Lengths `spec:"system" doc:"tokens of a system prompt, tools included"`
	History Lengths `spec:"history" doc:"tokens of the session's own before its first turn: a document, earlier talk, a task"`
	Turns   Lengths `spec:"turns" doc:"calls of a session"`
	User    Lengths `spec:"user" doc:"tokens that a turn adds: a question, or a tool's result"`
	Output  Lengths `spec:"output" doc:"tokens of an answer"`
	Gap     Delays  `spec:"gap" doc:"from the end of an answer to the next call: a person's or a tool's time"`
	Context int     `spec:"context" doc:"tokens that a prompt and its answer have at most; in a first call history, user and output are cut, in this order, until it fits"`
	Summary Lengths `spec:"summary" doc:"tokens that all behind the system prompt becomes when the context is full (the call that writes them is not made); 0: the session ends there"`
}

const (
	maxContext = maxLength
	maxTurns   = 1 << 16
	maxShared  = 1 << 30 // different system prompts or documents
	maxZipf    = 100.0

	// maxSession bounds the tokens that one session's hashes are of, 128 MiB of hashes. No
	// session goes on beyond it.
	maxSession = 1 << 28
)

// Validate reports every field outside its range.
func (d Dialogue) Validate() error { return d.check().join() }

func (d Dialogue) check() *check {
	var c check
	c.whole("systems", d.Systems, 1, maxShared)
	c.number("zipf", d.Zipf, 0, maxZipf)
	c.whole("context", d.Context, 2, maxContext)
	c.lengths("system", d.System, 0, max(d.Context-2, 0))
	c.lengths("history", d.History, 0, maxLength)
	c.lengths("turns", d.Turns, 1, maxTurns)
	c.lengths("user", d.User, 1, maxLength)
	c.lengths("output", d.Output, 0, maxLength)
	c.lengths("summary", d.Summary, 0, d.Context/2)
	return &c
}

// Loop says that turns wait.
func (d Dialogue) Loop() string {
	if least, most := d.Turns.Bounds(); least == most && most == 1 {
		return "Each is a single call, so nothing waits for an answer."
	}
	return "Within a session they are closed-loop: a turn is sent when the answer before it has ended and its gap has passed."
}

// Count returns 0: they do not end.
func (Dialogue) Count() int { return 0 }

// Session returns the n-th session.
func (d Dialogue) Session(root uint64, n int) Session {
	r := seed.New(root, seed.Workload, uint64(n), 0)
	system := draw.Zipf(&r, d.Systems, d.Zipf)
	own := ownPieces{root, uint64(n), 0}
	systemTokens := d.systemTokens(root, system)
	history, turns := d.History.Draw(&r), d.Turns.Draw(&r)
	var s Session
	s.Calls = make([]Call, 0, min(turns, 1024))
	numbers := make([]int, 0, min(turns, 1024)) // what After points into
	var g growth
	begun := 0 // the first call of the context g
	hashed := 0
	begin := func(tokens, expected int) {
		g.reveal(s.Calls[begun:])
		hashed += g.tokens
		begun, g = len(s.Calls), growth{}
		g.reserve(min(systemTokens+tokens+expected, d.Context))
		g.add(piece(root, sharedPiece, uint64(system), 0), systemTokens)
		g.add(own.next(), tokens)
	}
	for turn := range turns {
		user, output := d.User.Draw(&r), d.Output.Draw(&r)
		gap := d.Gap.Draw(&r)
		if turn == 0 {
			history, user, output = fit(d.Context-systemTokens, history, user, output)
			begin(history, turns*(user+output))
			s.follow(0, nil, g.tokens+user, output)
		} else {
			if summary := d.Summary.Draw(&r); g.tokens+user+output > d.Context && summary > 0 {
				begin(summary, (turns-turn)*(user+output))
			}
			if g.tokens+user+output > d.Context || hashed+g.tokens+user+output > maxSession {
				break
			}
			numbers = append(numbers, turn-1)
			s.follow(gap, numbers[turn-1:turn:turn], g.tokens+user, output)
		}
		g.add(own.next(), user)
		g.add(own.next(), output)
	}
	g.reveal(s.Calls[begun:])
	return s
}

// systemTokens returns the length of a system prompt, which all its sessions share.
func (d Dialogue) systemTokens(root uint64, system int) int {
	r := seed.New(root, seed.Workload, uint64(system), 1)
	return d.System.Draw(&r)
}

// fit cuts what a first call has until it fits into so many tokens, at least 2: history to
// nothing, then user to one token, then output.
func fit(room, history, user, output int) (int, int, int) {
	history = max(min(history, room-user-output), 0)
	user = max(min(user, room-history-output), 1)
	output = min(output, room-history-user)
	return history, user, output
}

// ownPieces names the pieces of text that only one session has.
type ownPieces struct{ root, session, part uint64 }

func (o *ownPieces) next() uint64 {
	o.part++
	return piece(o.root, ownPiece, o.session, o.part)
}
