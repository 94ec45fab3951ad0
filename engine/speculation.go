package engine

import (
	"fmt"
	"math"
	"time"

	"kvasir/internal/seed"
)

// Speculation is speculative decoding (Leviathan, Kalman and Matias, ICML 2023; the
// article's section 7.4). In every step a cheap drafter proposes tokens for each decode;
// the model verifies them at once, keeps them up to the first that it rejects, and adds one
// of its own. So an Output may have several tokens, and the gaps between outputs (ITL) and
// the time a token (TPOT) part. Every drafted token is computed: it takes a token of the
// step's budget, its share of the matrix products, and room in the KV cache.
//
// Whether a drafted token is accepted depends on the seed, the request's ID and the token's
// place in the answer alone, not on what else the engine does. A request that was preempted
// drafts from its second step on, one whose answer ends sooner no more than it has left.
type Speculation struct {
	Drafted    int           // tokens drafted for a decode in a step (num_speculative_tokens); 0: none, and all else must be 0
	Acceptance float64       // mean probability, 0 to 1, that a drafted token is accepted where those before it were
	Spread     float64       // a request's own is drawn evenly from Acceptance ± Spread, because it depends on the content; both ends must be 0 to 1
	Overhead   time.Duration // of drafting, added to every step that drafts
	Seed       uint64        // of what is accepted
}

// maxDrafted bounds Speculation.Drafted; in practice it is below ten.
const maxDrafted = 64

// Tokens returns how many tokens a step has for a decode on average, when no answer ends
// and Spread is 0: 1 + α + α² + … + α^Drafted, for an acceptance of α.
func (s Speculation) Tokens() float64 {
	sum, power := 1.0, 1.0
	for range s.Drafted {
		power = float64(power * s.Acceptance)
		sum += power
	}
	return sum
}

func (s *Speculation) validate(c *Config, bad func(field string, value any, allowed string)) {
	if s.Drafted == 0 && *s != (Speculation{}) {
		bad("Speculation.Drafted", 0, "1 or more where another field of Speculation is set")
		return
	}
	if s.Drafted < 0 || s.Drafted > maxDrafted {
		bad("Speculation.Drafted", s.Drafted, fmt.Sprintf("0 to %d", maxDrafted))
	} else if most := c.MaxBatchedTokens / (1 + s.Drafted); s.Drafted > 0 && c.MaxBatchedTokens >= 1 && c.MaxSeqs > most {
		bad("MaxSeqs", c.MaxSeqs, fmt.Sprintf("at most %d: every running request takes %d of %d tokens a step",
			most, 1+s.Drafted, c.MaxBatchedTokens))
	}
	if !(s.Acceptance >= 0 && s.Acceptance <= 1) {
		bad("Speculation.Acceptance", s.Acceptance, "0 to 1")
	} else if most := math.Min(s.Acceptance, 1-s.Acceptance); !(s.Spread >= 0 && s.Spread <= most) {
		bad("Speculation.Spread", s.Spread, fmt.Sprintf("0 to %g, so that Acceptance ± Spread is 0 to 1", most))
	}
	if s.Overhead < 0 || s.Overhead > maxOverhead {
		bad("Speculation.Overhead", s.Overhead, fmt.Sprintf("0 to %v", maxOverhead))
	}
}

// ofRequest is the place in an answer, never reached, that stands for the whole request.
const ofRequest = math.MaxUint64

// acceptance returns the request's own.
func (s *Speculation) acceptance(id ID) float64 {
	if s.Spread == 0 {
		return s.Acceptance
	}
	r := seed.New(s.Seed, seed.Speculation, uint64(id), ofRequest)
	return s.Acceptance + float64(s.Spread*(2*r.Float64()-1))
}

// accepted returns how many of the tokens drafted from a place in the answer on are.
func (s *Speculation) accepted(id ID, acceptance float64, from, drafted int) int {
	for i := range drafted {
		r := seed.New(s.Seed, seed.Speculation, uint64(id), uint64(from+i))
		if r.Float64() >= acceptance {
			return i
		}
	}
	return drafted
}

func (e *Engine) speculates() bool { return e.cfg.Speculation.Drafted > 0 }

// draft is grow for engines that speculate: every decode needs room for the tokens drafted
// for it in this step.
func (e *Engine) draft() bool {
	settled := true
	for r := e.running.head; r != nil && r.phase == decoding; r = r.next {
		left := r.OutputTokens - e.generated(r)
		drafted := min(e.cfg.Speculation.Drafted, left-1) // one comes without
		preempted, in := e.lengthen(r, drafted)
		settled = settled && !preempted
		if !in {
			break
		}
		r.drafted = drafted
		e.drafted += drafted
	}
	return settled
}

// verify adds the accepted ones of the tokens that were drafted for a decode in the step
// that ends.
func (e *Engine) verify(r *request) {
	if r.drafted == 0 {
		return
	}
	from := e.generated(r) - 1 // the token that comes without them is counted already
	n := e.cfg.Speculation.accepted(r.ID, r.acceptance, from, r.drafted)
	e.counters.DraftTokens += int64(r.drafted)
	e.counters.AcceptedTokens += int64(n)
	e.counters.GenerationTokens += int64(n)
	e.drafted -= r.drafted
	r.drafted = 0
	r.lead += int64(n)
	e.lead += int64(n)
}
