package lab

import (
	"slices"

	"kvasir/client/workload"
	"kvasir/internal/kvblock"
)

// A trace says in a few bytes that a prompt has millions of KV blocks, of which each takes a hash.

const (
	// mostRead bounds the hashes of all sessions that are read, also of those that are not
	// played. A file of MaxTrace that names every block has fewer.
	mostRead = 1 << 26

	// mostKept bounds the hashes of the calls that are played: as many as 2,000 prompts of the
	// longest context have in blocks of 16 tokens. They take 128 MiB.
	mostKept = 1 << 24
)

// chains are the blocks of a session's calls. Prompts that begin alike may share their memory.
type chains map[*kvblock.Hash][]kvblock.Hash // by the first one, the longest

func chainsOf(calls []workload.Call) chains {
	all := chains{}
	for i := range calls {
		for _, c := range [][]kvblock.Hash{calls[i].Blocks, calls[i].AnswerBlocks} {
			if len(c) > 0 && len(c) > len(all[&c[0]]) {
				all[&c[0]] = c
			}
		}
	}
	return all
}

// hashes returns how many they are, those in shared memory once.
func (c chains) hashes() int {
	n := 0
	for _, chain := range c {
		n += len(chain)
	}
	return n
}

// copied returns the first calls of a session so that nothing holds the others.
func copied(calls []workload.Call) []workload.Call {
	calls = slices.Clone(calls)
	all := chainsOf(calls)
	for first, chain := range all {
		all[first] = slices.Clone(chain)
	}
	own := func(c []kvblock.Hash) []kvblock.Hash {
		if len(c) == 0 {
			return nil
		}
		return all[&c[0]][:len(c):len(c)]
	}
	for i := range calls {
		calls[i].Blocks, calls[i].AnswerBlocks = own(calls[i].Blocks), own(calls[i].AnswerBlocks)
	}
	return calls
}
