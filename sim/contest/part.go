package contest

import (
	"time"

	"kvasir/client/workload"
	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
)

// Half is one half of a workload's sessions.
type Half uint8

// The halves: parameters are tuned on one and compared on the other.
const (
	BothHalves Half = iota
	TuningHalf
	ReportedHalf
)

// String returns the half's name on the command line.
func (h Half) String() string { return [...]string{"both", "tuning", "reported"}[h] }

// Of returns the half's sessions.
func (h Half) Of(s workload.Source) workload.Source {
	if h == BothHalves {
		return s
	}
	return filter(s, func(x *workload.Session) bool {
		r := draws(x, 0, halves)
		return r.Uint64()>>63 == uint64(h-TuningHalf)
	})
}

// Sample keeps a share of the sessions, which the seed draws; what shares prefixes stays together.
func Sample(s workload.Source, seed uint64, share float64) workload.Source {
	return filter(s, func(x *workload.Session) bool {
		r := draws(x, seed, samples)
		return r.Float64() < share
	})
}

// Which draws of a seed are meant, beside the numbers that generators and traces use.
const (
	halves = 1<<41 + iota // of 0, not of a seed: a half is always the same
	samples
)

// draws returns what decides about a session: the same for all sessions that share prefixes.
func draws(x *workload.Session, root, what uint64) seed.Rand {
	return seed.New(root, seed.Workload, uint64(kindred(x)), what)
}

// kindred names what a session belongs to: itself, or, where it is a single call, all that
// share its first two blocks. A trace without session ids has the turns of one conversation
// as sessions of their own; torn apart they would find nothing of each other in a cache. The
// first block alone would not do: in Mooncake's conversations all calls share that.
func kindred(x *workload.Session) kvblock.Hash {
	if len(x.Calls) == 1 {
		if b := x.Calls[0].Blocks; len(b) > 0 {
			return b[min(len(b), 2)-1]
		}
	}
	return kvblock.Seed(x.ID)
}

// clip cuts sessions short: at the first call that is sent later than after so much time by
// the recorded clock, or whose prompt and answer are longer than so many tokens. Sessions of
// which nothing is left are left out.
func clip(s workload.Source, length time.Duration, tokens int) workload.Source {
	all := s.Sessions
	s.Sessions = func(yield func(workload.Session, error) bool) {
		for x, err := range all {
			n := 0
			for n < len(x.Calls) && x.Calls[n].Offset <= length && x.Calls[n].PromptTokens+x.Calls[n].OutputTokens <= tokens {
				n++
			}
			x.Calls = x.Calls[:n]
			if (n > 0 || err != nil) && !yield(x, err) {
				return
			}
		}
	}
	return s
}

// coarsen gives a workload longer blocks, a multiple of its own, so that it takes less memory.
func coarsen(s workload.Source, tokens int) workload.Source {
	all, own := s.Sessions, s.BlockTokens
	s.BlockTokens = tokens
	s.Sessions = func(yield func(workload.Session, error) bool) {
		for x, err := range all {
			for i := range x.Calls {
				c := &x.Calls[i]
				chain, n := workload.EngineBlocks(nil, c, own, tokens)
				c.Blocks, c.AnswerBlocks = chain[:n:n], chain[n:]
			}
			if !yield(x, err) {
				return
			}
		}
	}
	return s
}

// filter keeps sessions.
func filter(s workload.Source, keep func(*workload.Session) bool) workload.Source {
	all := s.Sessions
	s.Sessions = func(yield func(workload.Session, error) bool) {
		for x, err := range all {
			if (err != nil || keep(&x)) && !yield(x, err) {
				return
			}
		}
	}
	return s
}
