package prefix

import "kvasir/internal/kvblock"

// A cell is 128 bytes, two lines of the processor's caches, and is a node, a link or
// vacant. A node is a run of up to runBlocks blocks that follow one another in a chain,
// and the first of what is believed of them; a link holds more beliefs of a node. One
// size for both keeps the budget simple: what one gives back another can take.
//
//	node: 0…10 hashes · 11 neighbours in the recency list · 12…14 beliefs · 15 header
//	link: 0…14 beliefs · 15 header
//
// The header has the position of the next link in its upper half, or of the next vacant
// cell, then the number of blocks, which is 0 where the cell is no node, and the number
// of beliefs in this cell. Of cells that are linked all but the last are full of beliefs.
//
// A node with many holders is wide: the next cell is its directory, which has a chain of
// links for each of 30 groups of columns, two positions a word. So finding one holder's
// belief reads a cell or two, and reading all of them waits for no cell to know the next.
type cell [cellWords]uint64

const (
	cellWords = 16
	cellBytes = cellWords * 8

	runBlocks = 11 // blocks of a node
	listed    = 11 // the word with the neighbours, the more recent one in the upper half
	own       = 12 // a node's first belief
	header    = 15

	linkBeliefs = 15
	buckets     = 30 // of a directory
	narrow      = 6  // links of a node that isn't wide, at most

	root = 0 // the cell that closes the list to a ring; its next is the most recent node

	chunkCells = 256 // 32 KiB a chunk, whole pages
	chunkBytes = chunkCells * cellBytes
)

func (c *cell) length() int  { return int(c[header] >> 8 & 0xff) }
func (c *cell) count() int   { return int(c[header] & 0xff) }
func (c *cell) wide() bool   { return c[header]&(1<<16) != 0 }
func (c *cell) more() uint32 { return uint32(c[header] >> 32) }
func (c *cell) prev() uint32 { return uint32(c[listed] >> 32) }
func (c *cell) next() uint32 { return uint32(c[listed]) }

func (c *cell) setLength(n int)    { c[header] = c[header]&^0xff00 | uint64(n)<<8 }
func (c *cell) setCount(n int)     { c[header] = c[header]&^0xff | uint64(n) }
func (c *cell) setWide()           { c[header] |= 1 << 16 }
func (c *cell) setMore(i uint32)   { c[header] = c[header]&0xffffffff | uint64(i)<<32 }
func (c *cell) setPrev(i uint32)   { c[listed] = c[listed]&0xffffffff | uint64(i)<<32 }
func (c *cell) setNext(i uint32)   { c[listed] = c[listed]&^0xffffffff | uint64(i) }
func (c *cell) first() int         { return min(c.length(), 1) * own } // word of the first belief
func (c *cell) room() int          { return header - c.first() - c.count() }
func (c *cell) head() kvblock.Hash { return kvblock.Hash(c[0]) }

// bucketOf returns the group of a column. Fifteen columns that follow one another are in
// one, so that their beliefs fill a link.
func bucketOf(column int32) int { return int(column) / linkBeliefs % buckets }

// bucket returns the first link of a directory's group.
func (c *cell) bucket(k int) uint32 { return uint32(c[k/2] >> (k % 2 * 32)) }

func (c *cell) setBucket(k int, i uint32) {
	shift := k % 2 * 32
	c[k/2] = c[k/2]&^(0xffffffff<<shift) | uint64(i)<<shift
}

// beliefs returns what the cell itself holds.
func (c *cell) beliefs() []uint64 {
	at := c.first()
	return c[at : at+c.count()]
}

// is says whether the cell is the node that begins with a block; the root never is.
func (c *cell) is(h kvblock.Hash) bool { return c.head() == h && c.length() > 0 }

// shares returns how many of the blocks, from the first on, are those of the node.
func (c *cell) shares(blocks []kvblock.Hash) int {
	n := min(c.length(), len(blocks))
	for i, h := range blocks[:n] {
		if kvblock.Hash(c[i]) != h {
			return i
		}
	}
	return n
}

// append adds blocks to the node as far as there is room, and returns how many.
func (c *cell) append(blocks []kvblock.Hash) int {
	n := c.length()
	added := min(runBlocks-n, len(blocks))
	for i, h := range blocks[:added] {
		c[n+i] = uint64(h)
	}
	c.setLength(n + added)
	return added
}

// behead removes the node's first n blocks.
func (c *cell) behead(n int) {
	copy(c[:runBlocks], c[n:c.length()])
	c.setLength(c.length() - n)
}

// cells is all cells: in chunks, so that growing copies nothing. The nodes among them
// are in one recency list, a ring through the root.
type cells struct {
	chunks []*[chunkCells]cell // len: allocated; cap: as many as there may be
	spare  uint32              // first of the vacant cells, linked by more; 0: none
	fresh  uint32              // the first cell that was never in use
}

// newCells returns room for up to the given number of chunks. One is allocated at once,
// for the root.
func newCells(chunks int) cells {
	s := cells{chunks: make([]*[chunkCells]cell, 1, chunks), fresh: root + 1}
	s.chunks[0] = new([chunkCells]cell)
	return s
}

func (s *cells) bytes() int64 { return int64(len(s.chunks))*chunkBytes + int64(cap(s.chunks))*8 }

func (s *cells) at(i uint32) *cell { return &s.chunks[i/chunkCells][i%chunkCells] }

// full is true when all cells that may be allocated are in use.
func (s *cells) full() bool { return s.spare == 0 && s.fresh == uint32(cap(s.chunks)*chunkCells) }

// take returns an empty cell, or 0 when there is none.
func (s *cells) take() uint32 {
	if i := s.spare; i != 0 {
		c := s.at(i)
		s.spare = c.more()
		*c = cell{}
		return i
	}
	if s.full() {
		return 0
	}
	if s.fresh == uint32(len(s.chunks)*chunkCells) {
		s.chunks = append(s.chunks, new([chunkCells]cell))
	}
	s.fresh++
	return s.fresh - 1
}

// give makes a cell vacant.
func (s *cells) give(i uint32) {
	c := s.at(i)
	c[header] = 0
	c.setMore(s.spare)
	s.spare = i
}

// giveBeliefs makes vacant the cells of a node but the node itself.
func (s *cells) giveBeliefs(c *cell) {
	if c.wide() {
		d := s.at(c.more())
		for k := range buckets {
			s.giveLinks(d.bucket(k))
		}
		s.give(c.more())
		return
	}
	s.giveLinks(c.more())
}

// giveLinks makes vacant all links from i on.
func (s *cells) giveLinks(i uint32) {
	for i != 0 {
		more := s.at(i).more()
		s.give(i)
		i = more
	}
}

func (s *cells) link(i, before uint32) {
	n, b := s.at(i), s.at(before)
	n.setPrev(before)
	n.setNext(b.next())
	s.at(b.next()).setPrev(i)
	b.setNext(i)
}

func (s *cells) unlink(i uint32) {
	n := s.at(i)
	s.at(n.prev()).setNext(n.next())
	s.at(n.next()).setPrev(n.prev())
}

// moveBehind makes a node the one that follows before, which it is not itself.
func (s *cells) moveBehind(i, before uint32) {
	if s.at(i).prev() != before {
		s.unlink(i)
		s.link(i, before)
	}
}
