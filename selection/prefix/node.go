package prefix

import "unsafe"

// node is one block within one group of endpoints.
type node struct {
	key        uint64 // of block and group
	held       uint64 // columns that hold the block
	young, old uint64 // columns that were promised it in the epoch, and in the one before
	prev, next uint32 // neighbours in the list; prev is the more recent one
	epoch      uint32 // in which young and old were true
	group      int32  // vacant while the node is in no list
}

const (
	root   = 0  // the node that closes the list to a ring; root.next is the most recent block
	vacant = -1 // group of a node that waits for use

	chunkNodes = 1024 // 48 KiB a chunk, whole pages
	chunkBytes = chunkNodes * int64(unsafe.Sizeof(node{}))
)

// is says whether the node is in use for a key; the root and vacant nodes never are.
func (n *node) is(key uint64, group int32) bool { return n.key == key && n.group == group }

// age brings the promises to an epoch. Epochs of one driver wrap after 2^32 halves of
// at least 50 ms, which is six years.
func (n *node) age(epoch uint32) {
	switch d := int32(epoch - n.epoch); {
	case d <= 0:
		return
	case d == 1:
		n.old, n.young = n.young, 0
	default:
		n.old, n.young = 0, 0
	}
	n.epoch = epoch
}

// have returns the columns that hold the block, or are promised it, in an epoch.
func (n *node) have(epoch uint32) uint64 {
	switch d := int32(epoch - n.epoch); {
	case d <= 0:
		return n.held | n.young | n.old
	case d == 1:
		return n.held | n.young
	default:
		return n.held
	}
}

// nodes is all nodes: in chunks, so that growing copies nothing, and in one recency
// list, a ring through the root.
type nodes struct {
	chunks []*[chunkNodes]node // len: allocated; cap: as many as there may be
	spare  uint32              // first of the vacant nodes, linked by next; 0: none
	fresh  uint32              // the first node that was never in use
}

// newNodes returns room for up to the given number of chunks. One is allocated at once,
// for the root.
func newNodes(chunks int) nodes {
	s := nodes{chunks: make([]*[chunkNodes]node, 1, chunks), fresh: root + 1}
	s.chunks[0] = new([chunkNodes]node)
	s.at(root).group = vacant
	return s
}

func (s *nodes) bytes() int64 {
	return int64(len(s.chunks))*chunkBytes + int64(cap(s.chunks))*int64(unsafe.Sizeof(s.chunks[0]))
}

func (s *nodes) at(i uint32) *node { return &s.chunks[i/chunkNodes][i%chunkNodes] }

// full is true when all nodes that may be allocated are in use.
func (s *nodes) full() bool { return s.spare == 0 && s.fresh == uint32(cap(s.chunks)*chunkNodes) }

// take returns a vacant node, or 0 when there is none.
func (s *nodes) take() uint32 {
	if i := s.spare; i != 0 {
		s.spare = s.at(i).next
		return i
	}
	if s.full() {
		return 0
	}
	if s.fresh == uint32(len(s.chunks)*chunkNodes) {
		s.chunks = append(s.chunks, new([chunkNodes]node))
	}
	s.fresh++
	return s.fresh - 1
}

// give makes an unlinked node vacant.
func (s *nodes) give(i uint32) {
	*s.at(i) = node{next: s.spare, group: vacant}
	s.spare = i
}

func (s *nodes) link(i, before uint32) {
	n, b := s.at(i), s.at(before)
	n.prev, n.next = before, b.next
	s.at(b.next).prev = i
	b.next = i
}

func (s *nodes) unlink(i uint32) {
	n := s.at(i)
	s.at(n.prev).next = n.next
	s.at(n.next).prev = n.prev
}

// moveBehind makes the nodes from first to last, which follow one another, those that
// follow before, which is none of them.
func (s *nodes) moveBehind(first, last, before uint32) {
	f, l := s.at(first), s.at(last)
	if f.prev == before {
		return
	}
	s.at(f.prev).next, s.at(l.next).prev = l.next, f.prev
	b := s.at(before)
	f.prev, l.next = before, b.next
	s.at(b.next).prev = last
	b.next = first
}
