package proxy

import "sync"

// Buffers of bodies come in a few sizes, each twice the one before, and each size is
// reused apart from the others: a small call never holds the buffer of a big one.
const (
	firstBuffer = 64 << 10
	bufferSizes = 5
	lastBuffer  = firstBuffer << (bufferSizes - 1) // larger ones are made to measure, and not kept
)

type buffer struct {
	bytes []byte // its capacity is all of it
	size  int    // index into buffers, or -1
}

var buffers [bufferSizes]sync.Pool

// bufferCap returns the capacity of the buffer that newBuffer makes for n bytes.
func bufferCap(n int64) int64 {
	for c := int64(firstBuffer); c <= lastBuffer; c *= 2 {
		if n <= c {
			return c
		}
	}
	return n
}

// newBuffer returns a buffer for n bytes.
func newBuffer(n int64) *buffer {
	c := int64(firstBuffer)
	for i := range buffers {
		if n <= c {
			if b, ok := buffers[i].Get().(*buffer); ok {
				return b
			}
			return &buffer{bytes: make([]byte, c), size: i}
		}
		c *= 2
	}
	return &buffer{bytes: make([]byte, n), size: -1}
}

// free gives the buffer back; nobody reads it any more.
func (b *buffer) free() {
	if b.size >= 0 {
		buffers[b.size].Put(b)
	}
}
