package load

import (
	"fmt"

	"kvasir/client/workload"
	"kvasir/internal/kvblock"
)

// Fresh returns a source whose prompts share what those of s share with each other, and
// nothing with those of s or of another salt: what a run leaves in caches is of no use to a
// run on a fresh source. Salt 0 is s itself.
func Fresh(s workload.Source, salt uint64) workload.Source {
	if salt == 0 {
		return s
	}
	sessions := s.Sessions
	s.Sessions = func(yield func(workload.Session, error) bool) {
		for session, err := range sessions {
			session.ID = fmt.Sprintf("%s#%d", session.ID, salt)
			calls := session.Calls
			session.Calls = make([]workload.Call, len(calls))
			for i, c := range calls {
				c.Blocks, c.AnswerBlocks = salted(c.Blocks, salt), salted(c.AnswerBlocks, salt)
				session.Calls[i] = c
			}
			if !yield(session, err) {
				return
			}
		}
	}
	return s
}

// salted returns other hashes in place of those given, one for each.
func salted(blocks []kvblock.Hash, salt uint64) []kvblock.Hash {
	others := make([]kvblock.Hash, len(blocks))
	for i, h := range blocks {
		others[i] = workload.Extend(h, salt)
	}
	return others
}
