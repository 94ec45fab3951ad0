package api

import (
	"math/bits"
	"unicode/utf8"
)

// This file reads strings by their marks.

// plain returns how long the string is that begins with m, and whether it ends there and
// has no escape.
func (m mark) plain() (length int, ok bool) {
	length = bits.TrailingZeros64(m.stops)
	return length, m.stops != 0 && m.escapes&(1<<length-1) == 0
}

// quoted reads a string, whose quote stands at p.i, and writes nothing. It reports whether
// it is short and has no escape.
func (p *parser) quoted() bool {
	from := p.i + 1
	length, plain := p.marks.from(from).plain()
	if plain {
		p.i = from + length
	} else {
		p.i = p.checkEscapes(from, p.marks.stop(from))
	}
	p.endString()
	return plain
}

// text reads a string, whose quote stands at p.i, and writes what it stands for.
func (p *parser) text() {
	if p.mute {
		p.quoted()
		return
	}
	from := p.i + 1
	length, ok := p.marks.from(from).plain()
	switch {
	case !ok:
		p.i = p.decode(from, p.marks.stop(from))
	case from <= len(p.b)-stride && p.n <= len(p.buf)-stride:
		copied := [stride]byte(p.b[from : from+stride])
		*(*[stride]byte)(p.buf[p.n : p.n+stride]) = copied
		p.n += length
		p.i = from + length
	default:
		p.i = from + length
		p.bytes(p.b[from:p.i])
	}
	p.endString()
}

// checkEscapes returns the first malformed escape between from and end, or end.
func (p *parser) checkEscapes(from, end int) int {
	for k := from / markBytes; k*markBytes < end; k++ {
		for e := p.marks[k].escapes; e != 0; e &= e - 1 {
			i := k*markBytes + bits.TrailingZeros64(e)
			if i < from || i >= end {
				continue
			}
			if _, next := escape(p.b, i); next < 0 {
				return i
			}
		}
	}
	return end
}

// decode writes what the inside of a string stands for. It returns the first malformed
// escape, or end.
func (p *parser) decode(from, end int) int {
	last := (end + markBytes - 1) / markBytes
	for k := from / markBytes; k < last; {
		if p.marks[k].escapes == 0 {
			k++
			continue
		}
		span := p.marks[k:min(k+spanMarks, last)]
		base := k * markBytes
		list := span.list(&p.list)
		for len(list) > 0 && base+int(list[len(list)-1]) >= end {
			list = list[:len(list)-1]
		}
		var ok bool
		if from, ok = p.unescape(from, base, list); !ok {
			return from
		}
		k += len(span)
	}
	p.bytes(p.b[from:end])
	return end
}

// unescape writes the text from from on up to the last escape of list and those escapes,
// counted from base. It returns how far it came, and whether all were well formed.
func (p *parser) unescape(from, base int, list []uint16) (int, bool) {
	for {
		var done int
		done, from, p.n = shortEscapes(&p.buf, p.n, p.b, from, base, list)
		if done == len(list) {
			return from, true
		}
		var ok bool
		if from, ok = p.unescapeOne(from, base+int(list[done])); !ok {
			return from, false
		}
		list = list[done+1:]
	}
}

// unescapeOne writes the text from from on and the escape at i, of any kind.
func (p *parser) unescapeOne(from, i int) (int, bool) {
	if i < from { // it stands before the string, or is the other half of a pair
		return from, true
	}
	r, next := escape(p.b, i)
	if next < 0 {
		return i, false
	}
	p.bytes(p.b[from:i])
	p.reserve()
	p.n += utf8.EncodeRune(p.buf[p.n:], r)
	return next, true
}

// stride is how many bytes are copied at once, of which as many count as there are before
// the next escape: to copy as many as there are takes a branch that is mispredicted.
const stride = 64

// shortEscapes does what unescapeOne does, for as many escapes of list as are of two
// bytes and have room all round. It writes into buf from n on, and returns how many
// escapes it did, how far in b it came, and the new n.
func shortEscapes(buf *[sinkBytes]byte, n int, b []byte, from, base int, list []uint16) (done, now, length int) {
	for k, at := range list {
		i := base + int(at)
		for i-from > stride && n <= len(buf)-stride && from <= len(b)-stride {
			copied := [stride]byte(b[from : from+stride])
			*(*[stride]byte)(buf[n : n+stride]) = copied
			from += stride
			n += stride
		}
		gap := i - from
		if uint(gap) > stride || from >= len(b)-stride-1 || n >= len(buf)-stride {
			return k, from, n
		}
		copied := [stride]byte(b[from : from+stride])
		*(*[stride]byte)(buf[n : n+stride]) = copied
		c := escapes[b[i+1]]
		if c == 0 {
			return k, from, n
		}
		n += gap
		buf[n] = c
		n++
		from = i + 2
	}
	return len(list), from, n
}
