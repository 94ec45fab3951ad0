package workload

import "kvasir/internal/kvblock"

// mix turns a word into one that differs from it in about half of the bits. It is
// MurmurHash3's finaliser, a bijection.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return x
}

// unmix undoes mix: the shifts undo themselves, the factors are the inverses modulo 2^64.
func unmix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0x9cb4b2f8129337db
	x ^= x >> 33
	x *= 0x4f74430c22a54005
	x ^= x >> 33
	return x
}

func entered(parent kvblock.Hash) uint64 {
	return uint64(parent)*0x9e3779b97f4a7c15 + 0x632be59bd9b4e019
}

// Extend returns the hash of the prefix in which a block with the given id follows the
// prefix parent; 0 is the parent of a first block. It is how a trace that numbers its
// blocks becomes a chain: two calls share a hash exactly when they share the ids of all
// blocks up to that one's end.
func Extend(parent kvblock.Hash, id uint64) kvblock.Hash {
	return kvblock.Hash(mix(id ^ entered(parent)))
}

// Added undoes Extend: it returns the id with which Extend(parent, id) is h. Every hash has
// one, whoever made it.
func Added(parent, h kvblock.Hash) uint64 {
	return unmix(uint64(h)) ^ entered(parent)
}

// within returns the hash of the part of a block that ends so many tokens behind its start,
// with all that is before it. Nothing that Extend returns is meant by it.
func within(block kvblock.Hash, tokens int) kvblock.Hash {
	return kvblock.Hash(mix(uint64(block)+uint64(tokens)*0xd6e8feb86659fd93) ^ 0xa0761d6478bd642f)
}

// RouterBlockTokens is the length of a router's fine blocks. With text it is an estimate, at
// four bytes a token: a router's fine blocks have 256 bytes.
const RouterBlockTokens = 64

// RouterBlocks appends to dst the chain of a call's prompt as a router hashes it: tapered
// (see kvblock.FineBlocks), with fine blocks of RouterBlockTokens tokens. blockTokens is the
// length of the blocks that the call has, Source.BlockTokens.
//
// Two calls share a block of the result exactly when they share the blocks of the workload
// that cover it, and all before it. So where a workload's blocks are the longer ones, a
// prefix that ends within one counts as not shared there: more is not known. What lies
// behind the blocks that the call has is left out. Where they do not end together, a block
// is named after the block of the workload in which it ends. Calls of different adapters
// share none.
func RouterBlocks(dst []kvblock.Hash, c *Call, blockTokens int) []kvblock.Hash {
	salt := c.Salt()
	for n := 1; n <= kvblock.MostBlocks; n++ {
		end := RouterBlockTokens * kvblock.Span(n)
		h, ok := c.prefix(end, blockTokens)
		if end > c.PromptTokens || !ok {
			break
		}
		dst = append(dst, Salted(h, salt))
	}
	return dst
}

// EngineBlocks appends to dst the chain of a call's prompt and answer in blocks of
// engineTokens tokens each, as an engine's KV blocks are, and returns how many of the blocks
// appended are the prompt's; the others are the answer's, and there are some only where the
// prompt's are all known. blockTokens is the length of the blocks that the call has,
// Source.BlockTokens. What RouterBlocks says of sharing holds here.
func EngineBlocks(dst []kvblock.Hash, c *Call, blockTokens, engineTokens int) (chain []kvblock.Hash, prompt int) {
	if engineTokens < 1 {
		return dst, 0
	}
	salt := c.Salt()
	for end := engineTokens; end <= c.PromptTokens+c.OutputTokens; end += engineTokens {
		h, ok := c.prefix(end, blockTokens)
		if !ok {
			break
		}
		if end <= c.PromptTokens {
			prompt++
		}
		dst = append(dst, Salted(h, salt))
	}
	return dst, prompt
}

// prefix returns the hash of the call's first so many tokens, where they are known.
func (c *Call) prefix(tokens, blockTokens int) (kvblock.Hash, bool) {
	if blockTokens < 1 {
		return 0, false
	}
	i := (tokens - 1) / blockTokens
	var h kvblock.Hash
	switch rest := i - len(c.Blocks); {
	case rest < 0:
		h = c.Blocks[i]
	case rest < len(c.AnswerBlocks):
		h = c.AnswerBlocks[rest]
	default:
		return 0, false
	}
	if part := tokens - i*blockTokens; part < blockTokens {
		h = within(h, part)
	}
	return h, true
}
