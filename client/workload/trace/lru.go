package trace

import (
	"fmt"
	"time"

	"kvasir/internal/kvblock"
)

// MaxDistinct bounds the distinct blocks that Summarize looks at. Each takes about 260 bytes,
// the collector's room included, so that all take 4.4 GB.
const MaxDistinct = 1 << 24

// stack is all blocks of a trace, the latest used first (Mattson et al., "Evaluation
// techniques for storage hierarchies", 1970): an LRU cache of n blocks holds the first n of
// them. Where the caches that are asked about end is marked, so a use costs a step for each
// cache and not for each block.
type stack struct {
	index map[kvblock.Hash]int32
	nodes []block
	used  int   // blocks in the stack
	head  int32 // the latest used; none: -1
	tail  int32
	sizes []int   // of the caches in blocks, rising
	edge  []int32 // the last block that each cache holds; -1 while it is not full
}

// block is what is known of one.
type block struct {
	hash       kvblock.Hash
	prev, next int32 // in the stack; -1: none
	parent     int32 // the block before it in its prefix; -1: none
	child      int32 // the block that was last seen behind it; 0: none
	depth      int32 // blocks of the prefix, this one included
	calls      int32 // whose prompts have it
	latest     int32 // number of the call that used it last
	at         time.Duration
	level      uint8 // number of the smallest cache that holds it; len(sizes): none does
	stacked    bool
	prompted   bool // it was in a prompt, not only in an answer
}

func newStack(sizes []int) *stack {
	s := &stack{index: map[kvblock.Hash]int32{}, head: -1, tail: -1, sizes: sizes, edge: make([]int32, len(sizes))}
	for l := range s.edge {
		s.edge[l] = -1
	}
	return s
}

// get returns the number of a block, which may be new.
func (s *stack) get(h kvblock.Hash, parent int32) (int32, error) {
	if parent >= 0 { // most prompts go on as the one before them did
		if c := s.nodes[parent].child; c > 0 && s.nodes[c].hash == h {
			return c, nil
		}
	}
	if i, ok := s.index[h]; ok {
		if parent >= 0 {
			s.nodes[parent].child = i
		}
		return i, nil
	}
	if len(s.nodes) == MaxDistinct {
		return 0, fmt.Errorf("the trace has more than %d distinct blocks; take a part of it", MaxDistinct)
	}
	i := int32(len(s.nodes))
	b := block{hash: h, parent: parent, depth: 1, level: uint8(len(s.sizes))}
	if parent >= 0 {
		b.depth += s.nodes[parent].depth
		s.nodes[parent].child = i
	}
	s.nodes = append(s.nodes, b)
	s.index[h] = i
	return i, nil
}

// use moves a block to the front.
func (s *stack) use(i int32) {
	b := &s.nodes[i]
	for l := range s.sizes {
		switch e := s.edge[l]; {
		case int(b.level) <= l: // the cache holds it
			if e == i && b.prev >= 0 {
				s.edge[l] = b.prev
			}
		case e >= 0: // the cache is full: its last block gives way
			s.nodes[e].level = uint8(l + 1)
			if s.edge[l] = s.nodes[e].prev; s.edge[l] < 0 {
				s.edge[l] = i
			}
		}
	}
	b.level = 0
	if s.head == i {
		return
	}
	if b.stacked {
		s.nodes[b.prev].next = b.next
		if b.next >= 0 {
			s.nodes[b.next].prev = b.prev
		} else {
			s.tail = b.prev
		}
	}
	b.prev, b.next = -1, s.head
	if s.head >= 0 {
		s.nodes[s.head].prev = i
	} else {
		s.tail = i
	}
	s.head = i
	if !b.stacked {
		b.stacked = true
		s.used++
		for l, size := range s.sizes {
			if size == s.used {
				s.edge[l] = s.tail
			}
		}
	}
}
