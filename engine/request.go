package engine

import (
	"errors"
	"fmt"
	"math"
	"time"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
)

// ID is the submitter's name of a request, unique among the requests that the engine
// holds. It also orders commands of one instant.
type ID uint64

// Request is what an engine is asked to compute. The engine keeps the slices until the
// request has ended; they must not change before that.
type Request struct {
	ID           ID
	PromptTokens int // ≥ 1
	OutputTokens int // the answer's true length; 0: an embedding, which ends with its prefill

	Adapter kvblock.Hash // of the LoRA adapter's name; 0: the base model, the only one without Config.LoRA

	// Blocks has the chained hashes of the prompt's full KV blocks, of BlockTokens
	// tokens each, first block first. Fewer than the prompt fills is allowed: the blocks
	// without a hash are never shared.
	Blocks []kvblock.Hash

	// AnswerBlocks continues Blocks with the full blocks that prompt and answer fill
	// together, so that a next turn finds them. It must be empty unless Blocks is whole.
	AnswerBlocks []kvblock.Hash

	// Reason is how the answer ends once OutputTokens are out: Stop or Length.
	Reason FinishReason
}

// FinishReason says why a request ended.
type FinishReason uint8

// The reasons.
const (
	Stop    FinishReason = iota // the answer is complete
	Length                      // the answer reached its bound
	Abort                       // the submitter took the request back
	reasons                     // how many there are
)

// String returns vLLM's finished_reason label.
func (r FinishReason) String() string {
	switch r {
	case Stop:
		return "stop"
	case Length:
		return "length"
	case Abort:
		return "abort"
	}
	return fmt.Sprintf("FinishReason(%d)", uint8(r))
}

// Output is what one request gets from a step: from every one that has something for it,
// where Config.EveryToken is set, else from the first and the last such step alone. A step
// has one token for a request, with speculative decoding one or more.
type Output struct {
	ID       ID
	At       mono.Time    // end of the step, rounded down to whole nanoseconds
	Tokens   int          // answer tokens since the output before; 0 for an embedding
	First    bool         // this is the request's first output
	Finished bool         // this is the request's last output; its ID is free again
	Cached   int          // prompt tokens that were found in the prefix cache, or at the host, when the request was first scheduled
	Reason   FinishReason // meaningful when Finished; never Abort, an aborted request has no last output

	// The start of the first step that knew the request, and of the first that computed
	// some of it. Between them it waited for a place, for budget or for blocks.
	Queued, Scheduled mono.Time
}

// Gap is times between two outputs of one request each, as Config.EveryToken would show
// them: for each of so many sequences so many gaps, which grow evenly from First to Last.
type Gap struct {
	First, Last      time.Duration // rounded down to whole nanoseconds
	Steps, Sequences int64
}

// Why Submit refuses a request; see RequestError.
var (
	ErrField         = errors.New("field out of range")
	ErrContextLength = errors.New("prompt and answer exceed the model's length")
	ErrNeverFits     = errors.New("request needs more KV blocks than there are")
	ErrDuplicate     = errors.New("a request with this id is held already")
	ErrFull          = errors.New("engine holds as many requests as it may")
	ErrPast          = errors.New("instant is before the latest Advance")
)

// RequestError is a request that Submit refused. It unwraps to one of the Err values
// of this package.
type RequestError struct {
	ID      ID
	Field   string // what is wrong: a field of Request, or a quantity derived from it
	Value   int64
	Allowed string
	Err     error
}

func (e *RequestError) Error() string {
	return fmt.Sprintf("engine: request %d: %v: %s is %d; allowed: %s", e.ID, e.Err, e.Field, e.Value, e.Allowed)
}

// Unwrap returns the kind of the mistake.
func (e *RequestError) Unwrap() error { return e.Err }

// check returns why the engine can never compute r, or nil.
func (c *Config) check(r *Request) error {
	bad := func(err error, field string, value int, allowed string) error {
		return &RequestError{ID: r.ID, Field: field, Value: int64(value), Allowed: allowed, Err: err}
	}
	switch {
	case r.PromptTokens < 1 || r.PromptTokens > math.MaxInt32:
		return bad(ErrField, "PromptTokens", r.PromptTokens, fmt.Sprintf("1 to %d", math.MaxInt32))
	case r.OutputTokens < 0 || r.OutputTokens > math.MaxInt32:
		return bad(ErrField, "OutputTokens", r.OutputTokens, fmt.Sprintf("0 to %d", math.MaxInt32))
	case r.Reason != Stop && r.Reason != Length:
		return bad(ErrField, "Reason", int(r.Reason), "Stop or Length")
	case r.Adapter != 0 && c.LoRA.MaxLoRAs == 0:
		return &RequestError{ID: r.ID, Field: "Adapter", Value: int64(r.Adapter), Allowed: "0: the engine has no slots for adapters", Err: ErrField}
	}
	tokens := r.PromptTokens + r.OutputTokens
	promptBlocks := r.PromptTokens / c.BlockTokens
	answerBlocks := 0
	if len(r.Blocks) == promptBlocks {
		answerBlocks = tokens/c.BlockTokens - promptBlocks
	}
	// The last token is never fed back, so its KV is never computed.
	blocks := ceilDiv(r.PromptTokens+max(r.OutputTokens-1, 0), c.BlockTokens)
	switch {
	case tokens > c.MaxModelLen:
		return bad(ErrContextLength, "PromptTokens + OutputTokens", tokens, fmt.Sprintf("at most %d", c.MaxModelLen))
	case len(r.Blocks) > promptBlocks:
		return bad(ErrField, "len(Blocks)", len(r.Blocks), fmt.Sprintf("at most %d, the prompt's full blocks", promptBlocks))
	case len(r.AnswerBlocks) > answerBlocks:
		return bad(ErrField, "len(AnswerBlocks)", len(r.AnswerBlocks), fmt.Sprintf("at most %d, the full blocks after Blocks", answerBlocks))
	case blocks > c.NumBlocks:
		return bad(ErrNeverFits, "KV blocks", blocks, fmt.Sprintf("at most %d", c.NumBlocks))
	}
	return nil
}

// request is a Request in the engine.
type request struct {
	Request

	phase     phase
	generated int  // answer tokens so far; while decoding see Engine.generated
	told      int  // of those, the ones in outputs
	computed  int  // tokens whose KV is there, or will be when the running step ends; not kept while decoding
	cached    int  // Output.Cached
	started   bool // was scheduled before: its prefix lookup is counted
	aborting  bool // an Abort is queued

	queued, first mono.Time // Output.Queued and Output.Scheduled
	last          mono.Time // of a preempted one: when it had its latest token

	blocks []blockID // KV blocks, first tokens first
	hashed int       // of those, the leading ones that were offered to the prefix cache

	order      int64   // of its admission
	drafted    int     // tokens drafted for it in the running step
	acceptance float64 // share of such tokens that is accepted

	lead  int64 // while decoding: its known tokens, less the number of the step
	due   int64 // while decoding: when it next needs attention, as atStart or atEnd
	place int   // in the agenda, from 1; 0: not there

	prev, next *request // in the waiting queue, or among the running
}

// phase is where in the engine a request is.
type phase uint8

const (
	queued   phase = iota // its Submit has not taken effect
	waiting               // not scheduled, or preempted
	filling               // in the batch, its known tokens not all computed before
	decoding              // in the batch, a token a step
	ended                 // held only by a queued abort that came too late
)

// known returns the tokens that exist, unless the request decodes: the prompt and the
// answer so far.
func (r *request) known() int { return r.PromptTokens + r.generated }

// missing returns the known tokens whose KV is not there, unless the request decodes.
func (r *request) missing() int { return r.known() - r.computed }

// hash returns the hash of the request's i-th full block, if it has one.
func (r *request) hash(i int) (kvblock.Hash, bool) {
	if i < len(r.Blocks) {
		return r.Blocks[i], true
	}
	if i -= len(r.Blocks); i < len(r.AnswerBlocks) {
		return r.AnswerBlocks[i], true
	}
	return 0, false
}

// reset makes the object ready for another request, keeping its block slice.
func (r *request) reset(q Request) {
	*r = request{Request: q, blocks: r.blocks[:0]}
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
