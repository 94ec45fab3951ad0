package api

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
)

// This file finds, in a whole body at once, where strings end and where escapes begin.
// Text has an escape in every 20 to 40 bytes, at distances that no branch predictor
// guesses: who looks for the next one pays for a misprediction each time, and that costs
// several times what the look does. Here all bytes take the same path; who reads a string
// afterwards counts bits.

// mark describes 64 bytes of a body, one bit a byte; the first byte has the lowest bit.
// What it says of bytes outside of strings means nothing.
type mark struct {
	stops   uint64 // quotes and control characters that are not escaped: a string goes on to the first one
	escapes uint64 // backslashes that begin an escape
}

// marks describe a body. All bytes after its last one are stops.
type marks []mark

const markBytes = 64

// marksOf returns the marks of b in the memory of m.
func marksOf(b []byte, m marks) marks {
	whole := len(b) / markBytes
	m = slices.Grow(m[:0], whole+2)[:whole+2]
	var escaped uint64
	var slashes, stops packed
	for i := 0; i < whole; i += chunkMarks {
		n := min(chunkMarks, whole-i)
		part := b[i*markBytes : (i+n)*markBytes]
		if isClean(part) {
			clear(m[i : i+n])
			escaped = 0
			continue
		}
		compare(part, &slashes, &stops)
		escaped = m[i:i+n].resolve(&slashes, &stops, escaped)
	}
	var rest [markBytes]byte
	copy(rest[:], b[whole*markBytes:])
	compare(rest[:], &slashes, &stops)
	m[whole:whole+1].resolve(&slashes, &stops, escaped)
	m[whole].stops |= ^uint64(0) << (len(b) % markBytes)
	m[whole+1] = mark{stops: ^uint64(0)}
	return m
}

// isClean reports whether b has nothing to mark; it may say no where there is nothing.
// An image has megabytes like that, and then the standard library's search is faster.
func isClean(b []byte) bool {
	if bytes.IndexByte(b, '\\') >= 0 || bytes.IndexByte(b, '"') >= 0 {
		return false
	}
	var controls uint64
	for ; len(b) >= 32; b = b[32:] {
		w, x := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		y, z := binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
		controls |= (w-ones*' ')&^w | (x-ones*' ')&^x | (y-ones*' ')&^y | (z-ones*' ')&^z
	}
	return controls&highs == 0
}

// resolve fills m from what was scanned. escaped is 1 where the first byte is escaped; it
// returns the same for the byte after the last.
func (m marks) resolve(slashes, stops *packed, escaped uint64) uint64 {
	for i := range m {
		slash := binary.LittleEndian.Uint64(slashes[i][packedFrom:])
		stop := binary.LittleEndian.Uint64(stops[i][packedFrom:])
		if slash&(slash<<1|escaped) != 0 { // some stand side by side
			slash = everySecond(slash, escaped)
		}
		m[i] = mark{stops: stop &^ (slash<<1 | escaped), escapes: slash}
		escaped = slash >> 63
	}
	return escaped
}

// everySecond returns the backslashes that begin an escape: the first that is not
// escaped, then the next but for the byte after it, and so on.
func everySecond(slashes, escaped uint64) (begin uint64) {
	for slashes &^= escaped; slashes != 0; {
		first := slashes & -slashes
		begin |= first
		slashes &^= first | first<<1
	}
	return begin
}

// lanes holds the constants of compare64. It is a variable so that they stay in registers:
// the compiler loads a constant of 64 bits anew wherever it is used.
var lanes = struct{ low, high, quote, stop, slash, gather uint64 }{
	low:   ones * 0x7f,
	high:  ones * 0x80,
	quote: ones * ('"' ^ ' '),
	stop:  ones * (0x80 + ' '),
	slash: ones * '\\',
	// Multiplied by it, the highest bits of eight bytes come to stand side by side in the
	// highest byte: bit 8k+7 is moved to 56+k by the factor's bit 49-7k, and no two of the
	// other products meet in one place.
	gather: 0x0002040810204081,
}

// chunkMarks is how many marks are made in one go.
const chunkMarks = 64

// packed holds a bit for each byte of a chunk, from packedFrom on.
type packed [chunkMarks][16]byte

const packedFrom = 7

// compare finds where b has backslashes, and where quotes and control characters.
func compare(b []byte, slashes, stops *packed) {
	for i := range len(b) / markBytes {
		compare64((*[markBytes]byte)(b[i*markBytes:]), &slashes[i], &stops[i])
	}
}

// compare64 compares 64 bytes. Eight are compared at once: with the highest bits cleared,
// 0x80-(c^'\\') keeps its own for a backslash alone, and no byte borrows from the next
// one. So does 0xa0-(c^2) for control characters, which c^2 leaves below 0x20, and for
// the quote, which it makes 0x20.
//
// The byte that gather makes is stored with the seven below it, which count for nothing:
// they are overwritten with what comes before, which therefore is scanned after. To
// shift and to join the bytes in a register takes a quarter more time.
func compare64(c *[markBytes]byte, slashes, stops *[16]byte) {
	low, high, quote, stop, slash, gather := lanes.low, lanes.high, lanes.quote, lanes.stop, lanes.slash, lanes.gather
	word := func(i int) {
		x := binary.LittleEndian.Uint64(c[8*i:])
		ascii := ^x & high
		x &= low
		binary.LittleEndian.PutUint64(slashes[i:], (high-(x^slash))&ascii*gather)
		binary.LittleEndian.PutUint64(stops[i:], (stop-(x^quote))&ascii*gather)
	}
	word(7)
	word(6)
	word(5)
	word(4)
	word(3)
	word(2)
	word(1)
	word(0)
}

// from returns the marks of the 64 bytes from i on; i is at most the body's length.
func (m marks) from(i int) mark {
	a, b, shift := &m[uint(i)/markBytes], &m[uint(i)/markBytes+1], uint(i)%markBytes
	return mark{
		stops:   a.stops>>shift | b.stops<<(markBytes-shift),
		escapes: a.escapes>>shift | b.escapes<<(markBytes-shift),
	}
}

// stop returns the first stop at or after i, the body's length where there is none.
func (m marks) stop(i int) int {
	if near := m.from(i).stops; near != 0 { // one look for most strings, across marks too
		return i + bits.TrailingZeros64(near)
	}
	k := i/markBytes + 1
	for m[k].stops == 0 {
		k++
	}
	return k*markBytes + bits.TrailingZeros64(m[k].stops)
}

// skipString returns the index just past the string whose opening quote is before i, or
// -1 where it does not end. Without marks it looks at quotes and backslashes only.
func (m marks) skipString(b []byte, i int) int {
	if m == nil {
		return skipString(b, i)
	}
	if i = m.stop(i); i < len(b) && b[i] == '"' {
		return i + 1
	}
	return -1
}

// spanMarks is how many marks are listed at a time.
const spanMarks = 32

// escapeList has room for all escapes of a span, and for the six that are always written.
type escapeList [spanMarks*markBytes/2 + 6]uint16

// list writes into l where escapes begin, counted from the first byte of m, of which
// there are at most spanMarks.
func (m marks) list(l *escapeList) []uint16 {
	n := 0
	for i := range m {
		e, at := m[i].escapes, uint16(i*markBytes)
		count := bits.OnesCount64(e)
		// Few have more than six. These are written without asking how many there are.
		six := (*[6]uint16)(l[n:])
		six[0] = at + uint16(bits.TrailingZeros64(e))
		e &= e - 1
		six[1] = at + uint16(bits.TrailingZeros64(e))
		e &= e - 1
		six[2] = at + uint16(bits.TrailingZeros64(e))
		e &= e - 1
		six[3] = at + uint16(bits.TrailingZeros64(e))
		e &= e - 1
		six[4] = at + uint16(bits.TrailingZeros64(e))
		e &= e - 1
		six[5] = at + uint16(bits.TrailingZeros64(e))
		e &= e - 1
		for k := n + 6; e != 0; k++ {
			l[k] = at + uint16(bits.TrailingZeros64(e))
			e &= e - 1
		}
		n += count
	}
	return l[:n]
}
