package policy

import (
	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
	"kvasir/selection"
)

// PrefixHash sends calls whose prompts begin alike to the same endpoint, unless that one
// has too many calls (article section 6.2; SGLang's prefix_hash):
//
//	owner = the candidate that the hash of the prompt's first prefix_token_count tokens
//	        meets first on the ring
//	mean  = (all outstanding calls + 1) / candidates
//	load of the owner <= max(mean · load_factor, mean + balance_abs_threshold): the owner
//	else:                                                                       the least load of all
//
// Load is outstanding calls. It is the bounded load of ConsistentHash, but for where a call
// goes that finds its endpoint full: not on round the ring, where it would meet those of
// its kind again, but wherever there is room. The ring is the same.
//
// Tokens are counted in whole blocks of the prompt, estimated; behind the 64th they are
// eight long. A shorter prompt is hashed to its end, and a call without one goes to the
// least load. With a balance_abs_threshold of 0 the bound is the article's. The default of 10 is
// SMG's since August 2026: each of many gateways sees a small part of the calls, and a
// factor alone is then exceeded by chance.
//
// Score: outstanding calls, of the owner or, where it is full, of everyone; NaN for the rest.
type PrefixHash struct {
	PrefixTokenCount    int     `config:"prefix_token_count" doc:"how many of the prompt's first tokens are the key; at least 1"`
	LoadFactor          float64 `config:"load_factor" doc:"factor of the mean load up to which the owner gets the call; at least 1"`
	BalanceAbsThreshold int     `config:"balance_abs_threshold" doc:"calls above the mean load up to which it does as well; at least 0"`
}

// Validate reports a number of tokens below 1, a load factor that is not finite or below 1
// and a negative threshold.
func (c *PrefixHash) Validate() []ParamError {
	var errs []ParamError
	if c.PrefixTokenCount < 1 {
		errs = append(errs, ParamError{"prefix_token_count", c.PrefixTokenCount, "an integer of at least 1"})
	}
	if !finite(c.LoadFactor) || c.LoadFactor < 1 {
		errs = append(errs, ParamError{"load_factor", c.LoadFactor, "a number of at least 1"})
	}
	if c.BalanceAbsThreshold < 0 {
		errs = append(errs, ParamError{"balance_abs_threshold", c.BalanceAbsThreshold, "an integer of at least 0"})
	}
	return errs
}

// New returns the policy.
func (c *PrefixHash) New() selection.Policy { return &prefixHash{config: *c} }

type prefixHash struct {
	config PrefixHash
	ring   ring
}

func (p *prefixHash) Pick(v *selection.View, q *selection.Request, r *seed.Rand) selection.Choice {
	place, ok := p.place(q)
	if !ok {
		outstanding(v)
		return selection.Choice{Index: argmin(v.Scores, r), Reason: ReasonNoKey}
	}
	p.ring.update(v)
	calls := 1
	for _, slot := range v.Candidates {
		calls += int(v.Book[slot].Outstanding)
	}
	mean := float64(calls) / float64(len(v.Candidates))
	bound := max(float64(mean*p.config.LoadFactor), mean+float64(p.config.BalanceAbsThreshold))
	owner := p.owner(v, place)
	if load := float64(v.Book[v.Candidates[owner]].Outstanding); load <= bound {
		unscored(v)
		v.Scores[owner] = load
		return selection.Choice{Index: owner, Reason: ReasonPrompt}
	}
	outstanding(v)
	return selection.Choice{Index: argmin(v.Scores, r), Reason: ReasonPromptOverflow}
}

// place returns where on the ring the call's prompt is, and false where it has none.
func (p *prefixHash) place(q *selection.Request) (uint64, bool) {
	block := q.BlockTokens
	if block == 0 {
		block = fineBlockTokens
	}
	n := kvblock.Within(max(1, p.config.PrefixTokenCount/block))
	if len(q.Blocks) >= n {
		return scatter(q.Blocks[n-1]), true
	}
	return scatter(q.Head), q.Head != 0
}

// owner returns the index of the candidate whose point comes first from place on.
func (p *prefixHash) owner(v *selection.View, place uint64) int {
	at := p.ring.find(place)
	for {
		if i := v.Position[p.ring.points[at].slot]; i != selection.None {
			return int(i)
		}
		if at++; at == len(p.ring.points) {
			at = 0
		}
	}
}
