// Package limit is layer 2 (gateway), pure: what clients may use. A Book knows, for every
// scope that the configuration names (a tenant, a key, a model, a tenant's use of a model),
// how many of its calls run and how much of its rates is left, and for every conversation
// how many of its calls run and which ones wait.
//
// Rates are token buckets that refill continuously. A call's cost is not known when it
// comes: Take reserves an estimate, and Settle replaces it by what was used, so that a
// burst can't pass a limit which none of its calls exceeds alone (field case F57;
// TensorZero and LiteLLM's third limiter reserve likewise). Taking is all or nothing: who is
// refused by one limit has taken nothing of any other.
//
// A conversation that fans out is not refused but slowed: what is beyond its bound waits
// its turn, first come, first served, and the end of a sibling lets the next one go.
//
// A Book has no clock and no lock: now is a value, and one caller at a time uses it.
package limit

import (
	"time"

	"kvasir/internal/kvblock"
)

// Kind says whose use a scope bounds.
type Kind uint8

// The kinds of scopes.
const (
	Tenant       Kind = iota // who pays
	Key                      // one client's key of a tenant
	Model                    // all calls of a model
	TenantModel              // a tenant's calls of a model
	Conversation             // the calls that grow one prefix; it has no Caps but FanOut
	kinds                    // how many there are
)

var kindNames = [kinds]string{"tenant", "key", "model", "tenant_model", "conversation"}

// String returns the kind as metrics and messages name it.
func (k Kind) String() string { return kindNames[k] }

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{Tenant, Key, Model, TenantModel, Conversation} }

// Limit is one of the bounds of a scope.
type Limit uint8

// The limits.
const (
	NoLimit     Limit = iota
	Concurrency       // calls at a time
	Requests          // calls a minute
	Tokens            // tokens a minute
	Waiting           // calls of a conversation that wait
	limits            // how many there are
)

var limitNames = [limits]string{"", "concurrency", "rpm", "tpm", "waiting"}

// String returns the limit as the configuration, metrics and messages name it.
func (l Limit) String() string { return limitNames[l] }

// Limits returns all limits.
func Limits() []Limit { return []Limit{Concurrency, Requests, Tokens, Waiting} }

// Bounds of Caps: within them the arithmetic of a Book is exact.
const (
	MostRequests = 1e7 // a minute
	MostTokens   = 1e9 // a minute
	MostBurst    = 10 * time.Minute
	MostWeight   = 100
)

// Caps bounds the use of a scope. The zero Caps bound nothing.
type Caps struct {
	Concurrency int           // calls that run at a time; 0: no bound
	RPM         int           // requests a minute; 0: no bound
	TPM         int           // weighted tokens a minute; 0: no bound
	Burst       time.Duration // how much of the rates can be saved up; 0: one minute's worth
	Weights     Weights       // of tokens in TPM; the zero Weights are DefaultWeights
}

// Weights says how much a token counts, to a thousandth; 0 counts nothing.
type Weights struct {
	Input  float64 // of the prompt, computed anew
	Cached float64 // of the prompt, found in a prefix cache
	Output float64 // of the answer
}

// DefaultWeights count every token once, as OpenAI's limits and the usage that clients see
// do. To go by an engine's work, cached tokens count about a tenth, as their usual price
// does, and output twice, as the fair queue has it (Sheng et al., OSDI '24).
func DefaultWeights() Weights { return Weights{Input: 1, Cached: 1, Output: 1} }

// FanOut bounds the calls of one conversation.
type FanOut struct {
	Concurrency int // calls that run at a time; 0: no bound
	Waiting     int // calls that wait beside them; a further one is refused
}

// Scope is what a Caps bounds.
type Scope struct {
	Kind  Kind
	Name  string // the tenant's, key's or model's
	Model string // of a TenantModel
}

// Rule bounds a scope.
type Rule struct {
	Scope Scope
	Caps  Caps
}

// Config is what a Book goes by. Each scope occurs once.
type Config struct {
	Rules  []Rule
	FanOut FanOut
}

// Caller says whose call it is. What has no Rule has no bound. An empty name, and a zero
// Conversation, belong to no scope.
type Caller struct {
	Tenant, Key, Model string
	Conversation       kvblock.Hash
}

// Estimate is what is known of a call's tokens before it is sent.
type Estimate struct {
	Input     int  // of the prompt
	MaxOutput int  // the caller's bound; 0: none is given
	NoOutput  bool // it has none, such as an embedding
}

// Usage is what a call turned out to have used.
type Usage struct {
	Input, Cached, Output int  // tokens; Cached is a part of Input
	Unsent                bool // no attempt was made: the call counts as no request either
	Whole                 bool // the answer is whole, so that its Output tells what answers are like
	Estimated             bool // it is counted, not reported
}

// Outcome is what becomes of a call that wants to be let in.
type Outcome uint8

// The outcomes.
const (
	Granted Outcome = iota
	Wait            // for its siblings; a Word follows
	Refused
)

// Grant is the right to run a call, or a place in its conversation's line. It is settled
// once. The zero Grant is none.
type Grant struct {
	index      int32
	generation uint32 // 0: none
}

// Index returns a small number that no other held grant has.
func (g Grant) Index() int { return int(g.index) }

// Held reports whether there is something to settle.
func (g Grant) Held() bool { return g.generation != 0 }

// Verdict answers a call.
type Verdict struct {
	Outcome Outcome
	Grant   Grant // to settle; none where Refused

	// Of a refusal: the limit that holds longest.
	Scope   Scope
	Limit   Limit
	Allowed int           // its bound
	Used    int           // of that, tokens or requests or calls, this one not included
	Asked   int           // what the call would have added
	Retry   time.Duration // until it would be let in if nobody else came; of Concurrency and Waiting nothing is known, and it is a second

	// What is left to the caller by its tenant's and key's own rates, after this call; of the
	// two the one with the smaller part left.
	Requests, Tokens Meter
}

// Word is what becomes of a call that has waited.
type Word struct {
	Grant   Grant   // that its Take gave; settled already where Refused
	Verdict Verdict // Granted or Refused
}

// Meter shows how a rate is used.
type Meter struct {
	Limit     int           // 0: there is no such bound
	Remaining int           // whole ones, never below 0
	Reset     time.Duration // until it is whole again
}

// unknownRetry is when those come back of whom nobody knows when there is room.
const unknownRetry = time.Second
