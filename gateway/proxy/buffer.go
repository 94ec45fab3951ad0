package proxy

import "sync"

// Buffers of bodies come in a few sizes, each twice the one before, and each size is
// reused apart from the others: a small call never holds the buffer of a big one.
const (
	firstBuffer = 8 << 10
	bufferSizes = 8
	lastBuffer  = firstBuffer << (bufferSizes - 1) // larger ones are made to measure, and not kept
)

type buffer struct {
	bytes []byte // its capacity is all of it
	size  int    // index into buffers, or -1
}

var buffers [bufferSizes]sync.Pool

// bufferCap returns the capacity of a buffer for n bytes, where no body has more than
// most of them. A size that is none of the pools' is made to measure.
func bufferCap(n, most int64) int64 {
	for c := int64(firstBuffer); c <= lastBuffer && c < most; c *= 2 {
		if n <= c {
			return c
		}
	}
	return min(max(n, firstBuffer), most)
}

// newBuffer returns a buffer of that capacity.
func newBuffer(capacity int64) *buffer {
	for i := range buffers {
		if capacity == firstBuffer<<i {
			if b, ok := buffers[i].Get().(*buffer); ok {
				return b
			}
			return &buffer{bytes: make([]byte, capacity), size: i}
		}
	}
	return &buffer{bytes: make([]byte, capacity), size: -1}
}

// free gives the buffer back; nobody reads it any more.
func (b *buffer) free() {
	if b.size >= 0 {
		buffers[b.size].Put(b)
	}
}
