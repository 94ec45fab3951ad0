package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// errTooLarge and errNoRoom say which bound a body met.
var (
	errTooLarge = errors.New("larger than limits.body")
	errNoRoom   = errors.New("limits.buffered is used up")
)

// room is the bound on bytes that all calls together hold. The zero room has none left.
type room struct {
	limit atomic.Int64
	used  atomic.Int64
}

// take reserves n bytes and reports whether there was room.
func (r *room) take(n int64) bool {
	if r.used.Add(n) > r.limit.Load() {
		r.used.Add(-n)
		return false
	}
	return true
}

func (r *room) give(n int64) { r.used.Add(-n) }

var bodies = sync.Pool{New: func() any { return new(body) }}

// body is a request's bytes, read once and sent by every attempt. An attempt's transport
// may still be reading after the answer has begun, so the memory is counted by its
// readers and reused when the last one has closed.
type body struct {
	data   []byte // lies in buffer
	buffer *buffer
	room   *room
	refs   atomic.Int32
	mu     sync.Mutex
	lost   bool // somebody may still read the buffer: it must not be used again
}

// readBody reads a request's body, bounded per call and over all calls, and takes its
// codings off; the bound holds for what is sent and for what that becomes. What is booked
// follows the bytes that come, not those that are announced: a client that only announces
// a large body takes no room from others.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, all *room, codings []string) (*body, error) {
	if r.ContentLength > limit {
		return nil, errTooLarge
	}
	src, length := io.Reader(http.MaxBytesReader(w, r.Body, limit)), r.ContentLength
	b := bodies.Get().(*body)
	b.room = all
	b.refs.Store(1)
	var err error
	if len(codings) == 0 {
		err = b.fill(src, length, limit)
	} else {
		d := decode(src, codings, limit)
		if err = b.fill(d, -1, limit); err == nil {
			err = d.rest()
		}
		switch {
		case err == nil:
		case d.source.err != nil:
			err = d.source.err
		case errors.Is(err, errTooLarge):
			err = errTooLarge
		}
		d.close()
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		err = errTooLarge
	}
	if err != nil {
		b.release()
		return nil, err
	}
	return b, nil
}

// fill reads src, which has length bytes where that is not negative, and never more than
// limit without an error. One byte more than can come shows the end.
func (b *body) fill(src io.Reader, length, limit int64) error {
	// A buffer grows twofold; towards an announced length eightfold, which leaves less
	// behind, once the client has sent that much.
	most, factor := limit+1, int64(2)
	if length >= 0 {
		most, factor = length+1, 8
	}
	if !b.grow(bufferCap(min(most, firstBuffer), limit+1)) {
		return errNoRoom
	}
	for {
		space := b.buffer.bytes[len(b.data):]
		if len(space) == 0 {
			if !b.grow(bufferCap(min(most, factor*int64(len(b.data))), limit+1)) {
				return errNoRoom
			}
			continue
		}
		n, err := src.Read(space)
		b.data = b.buffer.bytes[:len(b.data)+n]
		switch {
		case int64(len(b.data)) > limit:
			return errTooLarge
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// grow moves the body into a buffer of that capacity, and books what that one has more
// than the one before: a body fits where limits.buffered is no larger than limits.body.
func (b *body) grow(capacity int64) bool {
	var before int64
	if b.buffer != nil {
		before = int64(len(b.buffer.bytes))
	}
	if !b.room.take(capacity - before) {
		return false
	}
	bigger := newBuffer(capacity)
	b.data = bigger.bytes[:copy(bigger.bytes, b.data)]
	if b.buffer != nil {
		b.buffer.free()
	}
	b.buffer = bigger
	return true
}

// release gives one reference back.
func (b *body) release() {
	if b.refs.Add(-1) > 0 {
		return
	}
	if b.buffer != nil {
		b.room.give(int64(len(b.buffer.bytes)))
		b.mu.Lock()
		if !b.lost {
			b.buffer.free()
		}
		b.lost = false
		b.mu.Unlock()
	}
	b.data, b.buffer = nil, nil
	bodies.Put(b)
}

// reader returns a reader of the pieces, which must lie in b or live on their own. It
// holds a reference until it is closed.
func (b *body) reader(pieces ...[]byte) *bodyReader {
	b.refs.Add(1)
	return &bodyReader{body: b, rest: pieces}
}

// lend returns a reader of the whole body of the kind that net/http knows to lie in memory:
// with another one it sends the header in a packet of its own. Such a reader is not told
// when it is done with, so the body is lent out until giveBack; where nobody can say that
// it is, keep leaves its memory to the collector.
func (b *body) lend() io.ReadCloser {
	b.refs.Add(1)
	return io.NopCloser(bytes.NewReader(b.data))
}

func (b *body) giveBack() { b.release() }

// keep ends a loan whose reader may still read: the memory is not used again, but booked
// no longer.
func (b *body) keep() {
	b.mu.Lock()
	b.lost = true
	b.mu.Unlock()
	b.release()
}

// bodyReader reads a body's pieces one after the other. It offers the transport no way to
// rewind: another attempt is the machine's decision alone. It may be closed while it is
// being read.
type bodyReader struct {
	mu     sync.Mutex
	body   *body
	rest   [][]byte
	closed bool
}

// Read implements io.Reader.
func (r *bodyReader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	for len(r.rest) > 0 && len(r.rest[0]) == 0 {
		r.rest = r.rest[1:]
	}
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest[0])
	r.rest[0] = r.rest[0][n:]
	return n, nil
}

// Close implements io.Closer; the transport calls it once it reads no more.
func (r *bodyReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.closed = true
		r.body.release()
	}
	return nil
}

// A transport begins a body anew where the stream was refused, and where another call took
// the place on the connection that was meant for this one. Both happen over and over where
// many calls meet new connections that take fewer streams than they are (field case F42);
// each time one of the calls comes through. What is refused for longer is the machine's to
// decide: net/http waits a second before it begins a refused stream a third time, then two,
// and so on up to 32.
const (
	mostReaders   = 64          // of one attempt
	longestReopen = time.Second // after the first
)

var errRefusedAgain = errors.New("the endpoint refused the stream again")

// rereader makes readers of the same pieces for a transport that may have to begin anew,
// and closes them all in the end: one that was superseded is nobody's.
type rereader struct {
	body    *body
	pieces  [][]byte
	mu      sync.Mutex
	readers []*bodyReader
	first   time.Time // when the first was opened
	ended   bool
}

func (r *rereader) open() (io.ReadCloser, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil, http.ErrBodyReadAfterClose
	}
	switch {
	case len(r.readers) == 0:
		r.first = time.Now()
	case len(r.readers) == mostReaders || time.Since(r.first) > longestReopen:
		return nil, errRefusedAgain
	}
	reader := r.body.reader(slices.Clone(r.pieces)...)
	r.readers = append(r.readers, reader)
	return reader, nil
}

func (r *rereader) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	for _, reader := range r.readers {
		_ = reader.Close() // it has no error to tell
	}
}
