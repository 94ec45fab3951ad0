// Package selection is layer 3 (endpoint selection), pure: the nouns of a decision.
// A Request is what routing knows of a call, a View is what is known of a pool when
// the call must be placed, a Policy picks, and a Decision says what was picked and
// why. The package holds no state; gateway/flow owns the state and calls the policies.
package selection

import (
	"math"
	"time"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection/signal"
)

// CallID identifies a client's call within one machine. Ids come from the driver (a
// counter in the gateway, the trace in the simulator), never from the client.
type CallID uint64

// Kind says which work a call asks of an engine.
type Kind uint8

// The kinds of work.
const (
	Generate Kind = iota // prefill, then decode token by token
	Embed                // prefill only
)

// Request is what routing knows of a call: hashes and counts, never text. It must not
// change after it was handed to the machine.
type Request struct {
	ID           CallID
	Kind         Kind
	Stream       bool
	Explain      bool           // attach a full Decision to each dispatch
	InputTokens  int            // estimated where not known
	OutputTokens int            // the caller's bound; 0: not given
	Blocks       []kvblock.Hash // hashes of the prompt's full blocks, a tapered chain (kvblock.FineBlocks)
	BlockTokens  int            // estimated tokens a fine block, see Tokens; 0 where Blocks is empty
	Head         kvblock.Hash   // hash of the whole prompt, the part after the last full block included
	Key          kvblock.Hash   // hash of the routing header's value; 0: header absent
	Conversation kvblock.Hash   // of the calls that grow one prefix, the client's own; 0: not known
	Adapter      kvblock.Hash   // of the LoRA adapter that is asked for (signal.Adapter); 0: the base model
	Bytes        int64          // of the body, which is kept while the call waits
	Deadline     time.Duration  // the first token is wanted within that of the arrival; 0: the model's SLO says
	Firm         bool           // Deadline is the caller's own: after it the answer is worth nothing
	Tenant       kvblock.Hash   // of who pays; 0: not known
	Share        float64        // of a pool's service that its principal has, relative to others; 0: 1
	Priority     int32          // higher first; below 0 the call is shed first (GIE's InferenceObjective)
	Retry        bool           // its client has sent it before and tries again
	Once         bool           // it may have effects beyond its answer: no second attempt runs beside the first

	// Owner, where Owned is set, is the only endpoint that can answer: it holds what the
	// call goes on from. One that is gone is as good as none.
	Owned           bool
	Owner           Slot
	OwnerGeneration uint32
}

// Tokens returns the estimated tokens of the first n of Blocks, for example of an overlap.
// Behind the first ones blocks are longer, so this is not n times BlockTokens.
func (q *Request) Tokens(n int) int { return kvblock.Span(n) * q.BlockTokens }

// Work returns what an engine must compute for the call's first token where it holds the
// first n of Blocks. One token is always computed: the last one's logits are the answer's
// beginning.
func (q *Request) Work(n int32) Work {
	return Prefill(int64(q.InputTokens), int64(q.Tokens(int(n))))
}

// Prefill returns the work of a prompt of so many tokens of which so many are cached.
func Prefill(input, cached int64) Work {
	tokens := max(input-cached, 1)
	return Work{Tokens: tokens, Attention: tokens * (2*input - tokens) / 2}
}

// Work is prefill: what engines compute of prompts before the first tokens of answers.
type Work struct {
	Tokens    int64 // that are not in the prefix cache, as far as is known
	Attention int64 // summed over these tokens, how many tokens come before each; token²
}

// Plus returns the sum.
func (w Work) Plus(o Work) Work { return Work{w.Tokens + o.Tokens, w.Attention + o.Attention} }

// Minus returns the difference.
func (w Work) Minus(o Work) Work { return Work{w.Tokens - o.Tokens, w.Attention - o.Attention} }

// Slot is an endpoint's dense index in its machine. It is stable while the endpoint
// lives and may be given to another one, with another generation, afterwards.
type Slot int32

// None is no slot, or no position.
const None = -1

// Endpoint is what is known of one address that can answer.
type Endpoint struct {
	Name       string  // unique within the model, shown in explanations and metrics
	Weight     float64 // relative capacity, > 0; default 1; less while a WeightUser's endpoint is new
	Generation uint32  // how many endpoints had this slot before
	Load       signal.Load
}

// Book is the load book's entry of one endpoint: this router's own dispatches, exact and
// without age, and those of other gateways as far as these have told and are believed. Unseen
// are only its own: the others do not tell which of their calls a Load has seen. A policy
// reads it and never writes it.
type Book struct {
	Outstanding       int32 // calls accepted and not finished
	Unseen            int32 // of those, dispatched after the endpoint's Load was true
	OutstandingTokens int64 // input tokens of the outstanding calls
	PendingTokens     int64 // input tokens of the outstanding calls that have no first token yet
	UnseenTokens      int64 // input tokens of the unseen calls

	Pending     int32     // of the outstanding calls, those that have no first token yet
	PendingWork Work      // of the pending calls; overlap as it was believed when each was sent
	Head        Work      // of the oldest pending call
	HeadSince   mono.Time // since when the endpoint can have worked on it: its dispatch, or the first token of one before it
	HeadSilent  bool      // it is not streamed, so it may be prefilled already, and those after it

	ActiveBlocks int64 // length in fine blocks (kvblock.Span) of the prompts of the outstanding calls, where a block that several share counts once (for each gateway); 0 unless the policy is an ActiveUser
}

// SLO is what the callers of a model want of it; zero: nothing is said.
type SLO struct {
	TTFT time.Duration // time to first token
	TPOT time.Duration // mean time between the tokens that follow
}

// View is what a policy sees of its pool when a call must be placed. All slices are
// the machine's own: a policy writes Scores and nothing else, and keeps no reference.
type View struct {
	Now         mono.Time
	MaxAge      time.Duration // a signal older than this is unknown; 0: any age counts
	Version     uint64        // changes whenever Members does, and with nothing else
	Members     []Slot        // every endpoint of the pool, ascending, in rotation or not
	Candidates  []Slot        // those that may be picked now, ascending; never empty
	Position    []int32       // by slot: index into Candidates, or None
	Endpoints   []Endpoint    // by slot
	Book        []Book        // by slot
	Overlap     []int32       // by slot: how many of the request's Blocks, from the first on, are believed to be there (blocks differ in length: kvblock.Span); nil unless the policy uses overlap
	Held        []int32       // by slot: of Overlap, how many are believed to be there already and not only on their way; nil where Overlap is
	HostOverlap []int32       // by slot: likewise in device or host memory, at least Overlap; nil where nothing is known of host memory
	DiskOverlap []int32       // by slot: likewise on any of device, host and disk, at least HostOverlap; nil where nothing is known of disks
	Active      []int32       // by slot: how many of the request's Blocks, from the first on, are of the prompts of outstanding calls there; nil unless the policy is an ActiveUser
	SLO         SLO           // of the model

	AdapterCalls []int32 // by slot: this router's outstanding calls of the request's adapter, 0 for the base model; nil unless the policy uses adapters
	Adapters     []int32 // by slot: different adapters among this router's outstanding calls; likewise

	Scores []float64 // parallel to Candidates; what the policy computed. Lower is better unless the policy says otherwise; NaN: not looked at
}

// Oldest returns the instant before which a signal is stale (see signal.Gauge.Fresh, which
// would look at the view for every gauge).
func (v *View) Oldest() mono.Time {
	if v.MaxAge <= 0 {
		return math.MinInt64
	}
	return v.Now.Add(-v.MaxAge)
}

// OverlapAt returns how many blocks overlap, a View's, has for the slot; 0 where it is nil.
func OverlapAt(overlap []int32, slot Slot) int32 {
	if int(slot) < len(overlap) {
		return overlap[slot]
	}
	return 0
}

// Reason says in a word which branch of its rule a policy took. Each policy lists its
// reasons; they are constants, so the set is bounded.
type Reason string

// Choice is a policy's answer.
type Choice struct {
	Index     int // into View.Candidates
	Reason    Reason
	Predicted time.Duration // of the time to first token; 0: the policy predicts none
}

// Policy ranks a pool's endpoints for a call. It owns its state, is called under its
// machine's lock by flow alone, and must be deterministic: same state, view, request
// and r give the same choice. Pick must not allocate once its state is grown. It must
// set every element of v.Scores.
type Policy interface {
	Pick(v *View, q *Request, r *seed.Rand) Choice
}

// Learner is a Policy that learns from the time to first token of a streamed answer
// (or to the answer of an Embed call). Reports arrive in the order of their instants.
type Learner interface {
	Learn(s *Sample)
}

// Sample is what came of an attempt's prefill. Work is as it was believed at the dispatch.
type Sample struct {
	Slot    Slot
	At      mono.Time     // of the first content
	TTFT    time.Duration // from the dispatch
	Input   int           // tokens of the prompt
	Own     Work          // of the call itself
	Ahead   Work          // of the calls that were pending at the endpoint
	Context int64         // prompt tokens of the calls there that had their first token already
}

// EndLearner is a Policy that learns from answers as a whole.
type EndLearner interface {
	LearnEnd(e *End)
}

// Predictor is a Policy that knows how long endpoints take for prefill.
type Predictor interface {
	// PrefillTime returns how long the slot's endpoint takes for the work while it has no
	// other prefill to do; false where it is not known yet.
	PrefillTime(slot Slot, w Work) (time.Duration, bool)
}

// Witness is a Policy that takes account of the prefill of other gateways' calls.
type Witness interface {
	// Witness tells of work that a first token has shown to be done, as far as it is to count, at
	// an instant that may be before the newest Pick.
	Witness(at mono.Time, slot Slot, w Work)
}

// End is what came of a call whose answer is complete.
type End struct {
	Sample
	Ended      mono.Time // the answer after its first content took Ended - At
	ShowsStart bool      // At is when the prefill was over: the answer was streamed, or is an embedding; else when it was whole
	Usage      Usage
}

// Usage is what an answer said that it cost, in tokens. Known is false where the answer
// said nothing, or where it could not be believed.
type Usage struct {
	Known                  bool
	CachedKnown            bool // it said how many were cached; else Cached is 0
	Prompt, Cached, Output int
}

// CachedOf returns how many of input tokens, the router's own count or estimate of the
// prompt, were cached, by the share that the answer tells. CachedKnown must be set and Prompt
// above 0.
func (u Usage) CachedOf(input int) int {
	return int(float64(input) * float64(u.Cached) / float64(u.Prompt))
}

// Forgetter is a Policy that keeps state by slot: Forget is called before the slot is
// used by another endpoint or by the same one after a restart.
type Forgetter interface {
	Forget(slot Slot)
}

// WeightUser is a Policy that gives an endpoint calls in proportion to its Weight at the
// moment of each Pick. An endpoint that is new has less of it for a while; for other
// policies it is less often a candidate.
type WeightUser interface {
	UsesWeight()
}

// Explainer is a Policy that can say what a score is made of.
type Explainer interface {
	// Explain returns, parallel to v.Candidates, the parts of the scores that Pick, called
	// next with the same view and request, gives them. It is called only where a decision
	// was asked for, and changes nothing that Pick goes by.
	Explain(v *View, q *Request) [][]Part
}

// OverlapUser is a Policy that needs View.Overlap; for others it isn't computed.
type OverlapUser interface {
	UsesOverlap()
}

// ActiveUser is a Policy that needs View.Active and Book.ActiveBlocks; for others the blocks
// in use aren't counted.
type ActiveUser interface {
	UsesActive()
}

// AdapterUser is a Policy that needs View.AdapterCalls and View.Adapters; for others no book
// of adapters is kept.
type AdapterUser interface {
	UsesAdapters()
}

// Composite is a Policy that lets another one rank. Then returns that one.
type Composite interface {
	Then() Policy
}

// As returns the policy as a T, one of the interfaces above and below: itself, or the first
// that is one of those that it lets rank.
func As[T any](p Policy) (T, bool) {
	for {
		if t, ok := p.(T); ok {
			return t, true
		}
		c, ok := p.(Composite)
		if !ok {
			var none T
			return none, false
		}
		p = c.Then()
	}
}

// KeyUser is a Policy that reads Request.Key, the hash of a request header's value.
// KeyHeader returns that header's name, or "" when the policy is set to use none.
type KeyUser interface {
	KeyHeader() string
}

// Decision says what was picked and why. It is built only where someone asked.
type Decision struct {
	Call       CallID
	Attempt    int // 0 is the first
	At         mono.Time
	Pool       string
	Policy     string
	Reason     Reason
	Chosen     int           // into Candidates
	Predicted  time.Duration // Choice.Predicted
	Candidates []Candidate

	Conversation kvblock.Hash // the call's; 0: not known

	Shadow *Shadow // nil: no other policy ranks the pool's calls beside its own
}

// Shadow says what another policy would have picked, from the same candidates.
type Shadow struct {
	Policy    string
	Reason    Reason
	Chosen    int  // into Candidates
	Agrees    bool // that is the decision's, or as good: they are alike in score, overlap and outstanding calls
	Predicted time.Duration

	// Parallel to Candidates.
	Scores        []float64
	OverlapTokens []int    // as Candidate's; 0 unless one of the two policies uses overlap
	Parts         [][]Part // nil unless the policy is an Explainer
}

// Candidate is one endpoint of a Decision.
type Candidate struct {
	Endpoint      string
	Score         float64       // NaN: not looked at
	Overlap       int           // blocks; 0 where the policy does not use overlap
	OverlapTokens int           // their estimated tokens
	Outstanding   int           // before this call
	SignalAge     time.Duration // of its newest load signal; -1: none
	Trust         string        // in what it is believed to hold, a signal.Trust; "" where the policy does not use overlap
	Parts         []Part        // that its score is made of; nil unless the policy is an Explainer
	Signals       []Reading     // what is known of its load, what it reported first
}

// Part is one part of a score, or of what led to it.
type Part struct {
	Name  string // a constant; its last word is the unit: seconds, share (0 to 1) or cost (as the score)
	Value float64
}

// Reading is one number that says how loaded an endpoint is.
type Reading struct {
	Name   string // a constant
	Value  float64
	Source Source
	Age    time.Duration
}

// Source says where a Reading comes from.
type Source string

// The sources.
const (
	FromReport     Source = "report"     // the endpoint says so: a scrape of its metrics, for example
	FromDispatches Source = "dispatches" // this router's own load book, exact
	FromPeers      Source = "peers"      // what other gateways have told of theirs, as far as it is believed
)
