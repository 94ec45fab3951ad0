// Package kvblock cuts a prompt into blocks and hashes them as a chain: a block's
// hash covers everything before it, so two prompts share a hash exactly when they
// share the whole prefix up to that block's end. It is the one block hash of the
// project: the prefix index, the policies and the emulated engines all use it.
//
// Chains are seeded. Whoever must not share a prefix with another (a tenant with a
// cache salt, another model, text against token ids) starts from another seed.
package kvblock

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// Hash identifies a prefix that ends at a block's end. 64 bits: among 10^7 blocks the
// chance of any collision is about 3 in 10^6, and a collision costs a cache miss,
// never a wrong answer.
type Hash uint64

// TokenBytes is what one token id occupies in a block: ids are hashed as 32-bit
// little-endian numbers, so a block of 256 bytes holds 64 token ids.
const TokenBytes = 4

// Seed returns the head of a chain for the given parts, for example a model's name
// and a tenant's salt. Parts are length-prefixed: ("ab","c") differs from ("a","bc").
func Seed(parts ...string) Hash {
	var d xxhash.Digest
	d.Reset()
	var n [8]byte
	for _, p := range parts {
		binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
		_, _ = d.Write(n[:])
		_, _ = d.WriteString(p)
	}
	return Hash(d.Sum64())
}

// Chain returns the hash of one block's bytes that follow parent.
func Chain(parent Hash, block []byte) Hash {
	// Mixing the parent into the content's hash costs one multiplication instead of a
	// second pass; the finaliser is MurmurHash3's, a bijection, so no entropy is lost.
	h := xxhash.Sum64(block) ^ (uint64(parent)*0x9e3779b97f4a7c15 + 0x632be59bd9b4e019)
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return Hash(h)
}

// Writer cuts what is written to it into blocks and keeps their chained hashes. The
// zero Writer is unusable; call Reset or ResetTapered first. Reusing a Writer reuses its
// memory. It is not safe for concurrent use.
type Writer struct {
	size   int    // bytes of the block that comes next
	coarse int    // bytes of each block after the first FineBlocks
	head   Hash   // chain up to the last full block
	buf    []byte // the block that is not full yet; len < size
	blocks []Hash
	most   int // that blocks may have; 0: any number
	total  int
}

// Reset starts a new chain at seed, all of its blocks of the given size in bytes (> 0).
func (w *Writer) Reset(seed Hash, blockBytes int) { w.reset(seed, blockBytes, blockBytes, 0) }

// ResetTapered starts a new chain at seed whose first FineBlocks blocks have the given
// size in bytes (> 0) and whose others have CoarseFactor times as many. Blocks has the
// first MostBlocks of them: what is written behind those counts for Tail alone.
func (w *Writer) ResetTapered(seed Hash, fineBytes int) {
	w.reset(seed, fineBytes, CoarseFactor*fineBytes, MostBlocks)
}

func (w *Writer) reset(seed Hash, fine, coarse, most int) {
	w.most = most
	w.size, w.coarse, w.head, w.total = fine, coarse, seed, 0
	w.buf, w.blocks = w.buf[:0], w.blocks[:0]
	if cap(w.buf) < coarse {
		w.buf = make([]byte, 0, coarse)
	}
}

// Write adds p to the chain. It never fails; full blocks are hashed in place.
func (w *Writer) Write(p []byte) (int, error) {
	n := len(p)
	w.total += n
	if len(w.buf) > 0 {
		take := min(w.size-len(w.buf), len(p))
		w.buf = append(w.buf, p[:take]...)
		p = p[take:]
		if len(w.buf) < w.size {
			return n, nil
		}
		w.push(w.buf)
		w.buf = w.buf[:0]
	}
	for len(p) >= w.size {
		block := p[:w.size]
		p = p[w.size:]
		w.push(block) // the next one may be longer
	}
	w.buf = append(w.buf, p...)
	return n, nil
}

// WriteToken adds one token id.
func (w *Writer) WriteToken(id uint32) {
	var b [TokenBytes]byte
	binary.LittleEndian.PutUint32(b[:], id)
	_, _ = w.Write(b[:])
}

func (w *Writer) push(block []byte) {
	w.head = Chain(w.head, block)
	if len(w.blocks) == w.most && w.most > 0 {
		return
	}
	if w.blocks = append(w.blocks, w.head); len(w.blocks) == FineBlocks {
		w.size = w.coarse
	}
}

// Blocks returns the hashes of the full blocks so far, first block first. The slice
// is the Writer's own: it is overwritten after the next Reset.
func (w *Writer) Blocks() []Hash { return w.blocks }

// Len returns how many bytes were written since Reset.
func (w *Writer) Len() int { return w.total }

// Tail returns a hash of everything written, the block that is not full included.
func (w *Writer) Tail() Hash {
	if len(w.buf) == 0 {
		return w.head
	}
	return Chain(w.head, w.buf)
}
