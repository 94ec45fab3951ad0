package workload

import (
	"iter"
	"time"

	"kvasir/internal/kvblock"
)

// Source is a workload: sessions one after the other, so that memory is bounded by the
// sessions in flight and not by the workload.
type Source struct {
	Name        string
	BlockTokens int // tokens a block of Call.Blocks; 0: nothing is known of prefixes

	// Loop says, in a sentence for a run's output, what in the workload waits for answers
	// and is therefore closed-loop; empty where nobody said.
	Loop string

	// Sessions yields the sessions in the order of their At. An error ends them. It may be
	// called again, and then begins anew.
	Sessions iter.Seq2[Session, error]
}

// Session is a unit of work that one user or one agent set off: a single call, a
// conversation, an agent with its tools and its subagents. Sessions come open-loop; within
// one a call may wait for the end of others (article section 13).
type Session struct {
	ID    string        // of the trace; for messages
	At    time.Duration // since the workload's start
	Class string        // what kind of work it is, for results by class; may be empty
	Terms               // of all its calls
	Calls []Call        // in the order of their Offset
}

// Call is one call of a session, in numbers alone: a workload holds no text.
type Call struct {
	// After has the calls of the session, all before this one, that must have ended. Gap is
	// the time from the end of the last of them, or from the session's At where After is
	// empty, until the call is sent: a person's or a tool's time.
	After []int
	Gap   time.Duration

	// Offset is when the call was sent, since the session's At, by the clock of who recorded
	// the workload or made it. A run that follows that clock ignores After and Gap.
	Offset time.Duration

	Adapter string // the LoRA adapter that is asked for, by name; empty: the base model

	PromptTokens int // ≥ 1
	OutputTokens int // ≥ 0; 0: no answer tokens, an embedding

	// Blocks has the chained hashes of the prompt's full blocks of Source.BlockTokens
	// tokens, first block first: two prompts share a hash exactly when they share all up to
	// that block's end, whatever adapters they ask for: RouterBlocks and EngineBlocks tell
	// these apart. Shared between calls; it must not be changed.
	Blocks []kvblock.Hash

	// AnswerBlocks continues Blocks with the full blocks that prompt and answer fill
	// together, where it is known what comes after them: a next turn finds these.
	AnswerBlocks []kvblock.Hash
}
