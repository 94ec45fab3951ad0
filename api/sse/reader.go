// Package sse is outside the layers, pure: it reads the framing of server-sent events
// beside a stream whose bytes somebody else passes on. Chunks may be cut anywhere; the
// events are the same for every way of cutting.
//
// The grammar is the one of the WHATWG HTML standard, section 9.2 (server-sent
// events): lines end with LF, CRLF or CR; a blank line ends an event; one leading
// byte order mark is skipped; a line that begins with a colon is a comment; one space
// after a field's colon is dropped; several data fields are joined with LF; an event
// without a data field is none.
package sse

import (
	"bytes"
)

const (
	// DefaultLimit is how many bytes of one event are kept where Reset is given no
	// limit: 1 MiB.
	DefaultLimit = 1 << 20
	// MaxLimit is the highest limit that Reset accepts: 64 MiB.
	MaxLimit = 64 << 20

	// keptBytes is the capacity that a buffer keeps from one event to the next, so that
	// one big event does not make its stream big for good.
	keptBytes = 64 << 10
)

// Event is one event of a stream. Its slices belong to the Reader or to the chunk:
// they are valid until the next call of Next, Feed, Finish or Reset.
type Event struct {
	Type []byte // the event field; empty: none was sent (the standard's "message"); of an Oversize event, none before the limit
	Data []byte // the data fields, joined with LF; nil when Oversize
	ID   []byte // the stream's last id field, this event's or an earlier one's; empty: none
	// End is the offset in the stream just past the line end that ended the event. Where
	// that line end is CRLF, End lies between CR and LF: CR has already ended the event.
	End int64
	// Oversize says that the event's lines are longer than the limit together and were
	// not kept.
	Oversize bool
}

// Reader finds events in a stream. Call Feed with each chunk, then Next until it
// returns false; after the stream's end, Finish. The zero Reader keeps up to
// DefaultLimit bytes an event. It holds no more than the limit, twice while a buffer
// grows, and it allocates nothing while events fit the chunks that bring them. It is
// not safe for concurrent use.
type Reader struct {
	limit int

	chunk  []byte
	pos    int   // into chunk: what is read
	lf, cr int   // into chunk: the first LF and CR at or after pos, len(chunk) for none
	base   int64 // offset in the stream of chunk[0]

	bom     int    // bytes of the byte order mark seen; bomOver: no longer looked for
	skipLF  bool   // the last byte read was a CR that ended a line
	partial bool   // the chunk ended inside a line
	comment bool   // that line is a comment; nothing of it is kept
	line    []byte // what is kept of it

	pending  bool   // the event has a line already
	size     int    // bytes of the event's lines so far
	oversize bool   // size is over the limit
	hasData  bool   // the event has a data field
	data     []byte // the data so far: a piece of chunk, or of buf when owned
	owned    bool
	buf      []byte
	typ      []byte
	id       []byte
}

const bomOver = 3

var bom = [bomOver]byte{0xef, 0xbb, 0xbf}

// Reset makes r ready for another stream and keeps its memory. limit is how many bytes
// of one event's lines are kept: 0 stands for DefaultLimit, more than MaxLimit for
// MaxLimit.
func (r *Reader) Reset(limit int) {
	*r = Reader{limit: min(limit, MaxLimit), line: trim(r.line), buf: trim(r.buf), typ: trim(r.typ), id: trim(r.id)}
}

// Feed hands over the next chunk of the stream, which must not change until Next has
// returned false. Feed panics when the chunk before was not read to its end, which is
// a caller's mistake.
func (r *Reader) Feed(chunk []byte) {
	if r.pos < len(r.chunk) {
		panic("sse: Feed before Next returned false")
	}
	r.base += int64(len(r.chunk))
	r.chunk, r.pos, r.lf, r.cr = chunk, 0, -1, -1
}

// Next returns the next event that ends in the chunk, or false when the chunk is read.
func (r *Reader) Next() (Event, bool) {
	if !r.pending && !r.partial {
		r.startEvent()
	}
	if r.bom < bomOver {
		r.skipBOM()
	}
	for r.pos < len(r.chunk) {
		if r.skipLF {
			r.skipLF = false
			if r.chunk[r.pos] == '\n' {
				r.pos++
				continue
			}
		}
		start, end := r.pos, r.lineEnd()
		if end == len(r.chunk) {
			r.keepPartial(r.chunk[start:])
			r.pos = end
			break
		}
		r.pos = end + 1
		r.skipLF = r.chunk[end] == '\r'
		if r.endLine(r.chunk[start:end]) {
			return r.event(), true
		}
	}
	r.keepData()
	return Event{}, false
}

// lineEnd returns the index of the first LF or CR at or after pos. Each of the two is
// looked for once over every byte of a chunk, however many lines the other one ends.
func (r *Reader) lineEnd() int {
	if r.lf < r.pos {
		r.lf = index(r.chunk, r.pos, '\n')
	}
	if r.cr < r.pos {
		r.cr = index(r.chunk, r.pos, '\r')
	}
	return min(r.lf, r.cr)
}

func index(b []byte, from int, c byte) int {
	if i := bytes.IndexByte(b[from:], c); i >= 0 {
		return from + i
	}
	return len(b)
}

// skipBOM drops a byte order mark at the stream's start, which may come in pieces.
func (r *Reader) skipBOM() {
	for r.pos < len(r.chunk) {
		if r.bom < bomOver && r.chunk[r.pos] == bom[r.bom] {
			r.pos++
			if r.bom++; r.bom == bomOver {
				return
			}
			continue
		}
		r.notBOM()
		return
	}
}

// notBOM gives what began like a byte order mark to the first line.
func (r *Reader) notBOM() {
	if r.bom > 0 && r.bom < bomOver {
		r.keepPartial(bom[:r.bom])
	}
	r.bom = bomOver
}

// keepPartial keeps a piece of a line whose end is not here.
func (r *Reader) keepPartial(piece []byte) {
	if !r.partial {
		r.partial = true
		r.comment = piece[0] == ':'
		r.line = r.line[:0]
	}
	if r.comment {
		return
	}
	r.grow(len(piece))
	if !r.oversize {
		r.line = append(r.line, piece...)
	}
}

// grow counts n more bytes of the event's lines and gives up keeping the event where
// they are too many.
func (r *Reader) grow(n int) {
	limit := r.limit
	if limit <= 0 {
		limit = DefaultLimit
	}
	if r.size += n; r.size > limit && !r.oversize {
		r.oversize = true
		r.data, r.owned = nil, false
		r.line, r.buf = trim(r.line), trim(r.buf)
	}
}

// endLine takes in a line, of which tail is what the present chunk holds, and reports
// whether it ended an event.
func (r *Reader) endLine(tail []byte) bool {
	line, assembled := tail, r.partial
	if assembled {
		if len(tail) > 0 {
			r.keepPartial(tail)
		}
		line, r.partial = r.line, false
		if r.comment {
			return false
		}
	} else if len(line) == 0 {
		if r.hasData || r.oversize {
			return true
		}
		r.startEvent()
		return false
	} else if line[0] == ':' {
		return false
	} else {
		r.grow(len(line))
	}
	r.pending = true
	if !r.oversize {
		r.field(line, assembled)
	}
	return false
}

// field takes in one field. assembled says that line is r.line, not a piece of chunk.
func (r *Reader) field(line []byte, assembled bool) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	switch string(name) {
	case "data":
		r.addData(value, assembled)
	case "event":
		r.typ = append(r.typ[:0], value...)
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			r.id = append(r.id[:0], value...)
		}
	}
}

// addData appends a data field. The first one is not copied: it stays in the chunk, or
// the buffer in which its line was assembled becomes the data's.
func (r *Reader) addData(value []byte, assembled bool) {
	if !r.hasData {
		r.hasData, r.data, r.owned = true, value, assembled
		if assembled {
			r.line, r.buf = r.buf, r.line
		}
		return
	}
	if !r.owned {
		r.own()
	}
	r.data = append(append(r.data, '\n'), value...)
}

// own moves the data out of the chunk, into r's memory.
func (r *Reader) own() {
	r.data = append(r.buf[:0], r.data...)
	r.buf, r.owned = r.data, true
}

// keepData saves what an unfinished event has in the chunk before the chunk goes away.
func (r *Reader) keepData() {
	if r.hasData && !r.owned && !r.oversize {
		r.own()
	}
}

// event returns the event that has ended and leaves r between events; its memory is
// given back when the next one starts.
func (r *Reader) event() Event {
	e := Event{Type: r.typ, Data: r.data, ID: r.id, End: r.base + int64(r.pos), Oversize: r.oversize}
	r.pending = false
	return e
}

// startEvent forgets the event before.
func (r *Reader) startEvent() {
	if cap(r.data) > cap(r.buf) && r.owned {
		r.buf = r.data // it grew while lines were appended
	}
	r.line, r.buf, r.typ = trim(r.line), trim(r.buf), trim(r.typ)
	r.pending, r.size, r.oversize = false, 0, false
	r.hasData, r.data, r.owned = false, nil, false
}

// trim empties a buffer, and lets it go where it is big.
func trim(b []byte) []byte {
	if cap(b) > keptBytes {
		return nil
	}
	return b[:0]
}

// MidEvent reports whether the bytes read so far end inside a line or inside an event
// that has fields. Where they do not, a whole event may be written after them.
func (r *Reader) MidEvent() bool {
	return r.partial || r.pending || r.bom > 0 && r.bom < bomOver
}

// Offset returns how many bytes of the stream were read.
func (r *Reader) Offset() int64 { return r.base + int64(r.pos) }

// Finish ends the stream. It returns the event that the stream's end cut off, whose
// blank line, and perhaps more, is missing. The standard drops such an event; some
// servers leave out the last blank line, so whoever reads it must judge by its data.
func (r *Reader) Finish() (Event, bool) {
	r.notBOM()
	if r.partial {
		r.endLine(nil)
	}
	if !r.pending || !r.hasData && !r.oversize {
		return Event{}, false
	}
	return r.event(), true
}
