package policy

import (
	"math"
	"strings"

	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
	"kvasir/selection"
)

// The reasons of consistent-hash and prefix-hash: what the key was, and whether an endpoint nearer on
// the ring was passed over because it was full.
const (
	ReasonPrompt                 selection.Reason = "prompt"
	ReasonPromptOverflow         selection.Reason = "prompt-overflow"
	ReasonHeader                 selection.Reason = "header"
	ReasonHeaderOverflow         selection.Reason = "header-overflow"
	ReasonHeaderAbsent           selection.Reason = "header-absent" // keyed by the prompt instead
	ReasonHeaderAbsentOverflow   selection.Reason = "header-absent-overflow"
	ReasonConversation           selection.Reason = "conversation"
	ReasonConversationOverflow   selection.Reason = "conversation-overflow"
	ReasonNoConversation         selection.Reason = "no-conversation" // keyed by the prompt instead
	ReasonNoConversationOverflow selection.Reason = "no-conversation-overflow"
	ReasonNoKey                  selection.Reason = "no-key" // nothing to go by: drawn, or the least load
	ReasonNoKeyOverflow          selection.Reason = "no-key-overflow"
)

// ConsistentHash sends calls with the same key to the same endpoint, unless that one is
// above its share: consistent hashing with bounded loads (article section 4.1;
// Mirrokni, Thorup and Zadimoghaddam 2016). Of n candidates with m outstanding calls,
// this one included, none gets above
//
//	⌈load_factor · m / n⌉    or, with weights: ⌈load_factor · m · weight / total weight⌉
//
// calls; what is full is passed over and the walk round the ring goes on. There always
// is one that isn't full, because the bounds add up to more than m.
//
// An endpoint owns points on the ring in proportion to its weight, placed by its name
// alone: when the n+1st endpoint joins, about 1/(n+1) of the keys move, all of them to
// it. The ring is rebuilt when View.Version changes.
//
// With key: prompt, the key is the hash of the prompt's first blocks. Too few, and all
// conversations that share a long system prompt are one key, whose calls only spill
// over; too many, and a conversation that is shorter has another key at every turn,
// because all of a prompt that doesn't reach that far is hashed to its end. The
// default of 16 blocks of 256 bytes, about 1,000 tokens, leaves out only prompts whose
// prefill is cheap anyway. Where system prompt and tools are longer than that, raise
// it, or use key: conversation, which is what the client names, or how its messages begin, or
// key: header with a session's id. Blocks behind the 64th are hashed in eights,
// so of more than 64 the key is as many whole eights as there are in what is asked for.
//
// Score: outstanding calls per unit of weight, for the endpoints that the walk met; NaN
// for the rest. The one chosen is the first that has room.
type ConsistentHash struct {
	Key        string  `config:"key" doc:"what is hashed: prompt, header or conversation"`
	Header     string  `config:"header" doc:"the request header whose value is the key, with key: header; without it the prompt is"`
	Blocks     int     `config:"blocks" doc:"how many of the prompt's first blocks are the key; at least 1, above 64 in steps of 8"`
	LoadFactor float64 `config:"load_factor" doc:"how far above an equal share an endpoint may be; above 1"`
}

// Validate reports an unknown key, a header that can't be one, a number of blocks
// below 1 and a load factor that is not finite or not above 1.
func (c *ConsistentHash) Validate() []ParamError {
	var errs []ParamError
	if c.Key != "prompt" && c.Key != "header" && c.Key != "conversation" {
		errs = append(errs, ParamError{"key", c.Key, "prompt, header or conversation"})
	}
	if !isHeaderName(c.Header) {
		errs = append(errs, ParamError{"header", c.Header, "a header's name: letters, digits and hyphens"})
	}
	if c.Blocks < 1 {
		errs = append(errs, ParamError{"blocks", c.Blocks, "an integer of at least 1"})
	}
	if !finite(c.LoadFactor) || c.LoadFactor <= 1 {
		errs = append(errs, ParamError{"load_factor", c.LoadFactor, "a number above 1"})
	}
	return errs
}

// isHeaderName reports whether s is a field name (RFC 9110 section 5.1).
func isHeaderName(s string) bool {
	const others = "!#$%&'*+-.^_`|~"
	for _, c := range []byte(s) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		digit := '0' <= c && c <= '9'
		if !letter && !digit && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return s != ""
}

// New returns the policy.
func (c *ConsistentHash) New() selection.Policy { return &consistentHash{config: *c} }

type consistentHash struct {
	config ConsistentHash
	ring   ring
}

// KeyHeader returns the header that is the key, "" where the prompt is.
func (p *consistentHash) KeyHeader() string {
	if p.config.Key == "header" {
		return p.config.Header
	}
	return ""
}

func (p *consistentHash) Pick(v *selection.View, q *selection.Request, r *seed.Rand) selection.Choice {
	p.ring.update(v)
	unscored(v)
	calls, weights := 1, 0.0
	for _, slot := range v.Candidates {
		calls += int(v.Book[slot].Outstanding)
		weights += v.Endpoints[slot].Weight
	}
	// An endpoint has room when outstanding + 1 <= ⌈bound · weight⌉; without rounding
	// that is outstanding / weight < bound.
	bound := p.config.LoadFactor * float64(calls) / weights

	key, reason, overflow := p.key(q, r)
	at := p.ring.find(key)
	for range p.ring.points {
		slot := p.ring.points[at].slot
		if at++; at == len(p.ring.points) {
			at = 0
		}
		i := v.Position[slot]
		if i == selection.None || !math.IsNaN(v.Scores[i]) {
			continue
		}
		v.Scores[i] = float64(v.Book[slot].Outstanding) / v.Endpoints[slot].Weight
		if v.Scores[i] < bound {
			return selection.Choice{Index: int(i), Reason: reason}
		}
		reason = overflow
	}
	// Not reached with weights above 0: the bounds add up to more than the calls.
	return selection.Choice{Index: argmin(v.Scores, r), Reason: overflow}
}

// key returns the call's place on the ring, and the reasons to give for a call that
// stays with the first endpoint there and for one that doesn't.
func (p *consistentHash) key(q *selection.Request, r *seed.Rand) (place uint64, reason, overflow selection.Reason) {
	reason, overflow = ReasonPrompt, ReasonPromptOverflow
	switch p.config.Key {
	case "conversation":
		if q.Conversation != 0 {
			return scatter(q.Conversation), ReasonConversation, ReasonConversationOverflow
		}
		reason, overflow = ReasonNoConversation, ReasonNoConversationOverflow
	case "header":
		if q.Key != 0 {
			return scatter(q.Key), ReasonHeader, ReasonHeaderOverflow
		}
		reason, overflow = ReasonHeaderAbsent, ReasonHeaderAbsentOverflow
	}
	n := kvblock.Within(p.config.Blocks)
	switch {
	case len(q.Blocks) >= n:
		return scatter(q.Blocks[n-1]), reason, overflow
	case q.Head != 0:
		return scatter(q.Head), reason, overflow
	}
	return r.Uint64(), ReasonNoKey, ReasonNoKeyOverflow
}

var _ selection.KeyUser = (*consistentHash)(nil)
