package api

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// This file holds what every reader of JSON here shares: finding the end of a string or
// of a value, and what an escape stands for. A Reader's strings end where its marks say.

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// delimiter returns the index of the first quote or backslash of b in the words from i
// to limit, or -1 where there is none.
func delimiter(b []byte, i, limit int) int {
	for limit = min(limit, len(b)-8); i <= limit; i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote := x ^ ones*'"'
		slash := x ^ ones*'\\'
		if m := ((quote - ones) | (slash - ones)) &^ x & highs; m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	return -1
}

// skipString returns the index just past the string whose opening quote is before i, or
// -1 where b ends first. It looks at quotes and backslashes only.
func skipString(b []byte, i int) int {
	// Names and most values are short: two words cost less than a call.
	if end := delimiter(b, i, i+8); end >= 0 && b[end] == '"' {
		return end + 1
	}
	for start := i; ; {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		slashes := 0
		for j := i - 1; j >= start && b[j] == '\\'; j-- {
			slashes++
		}
		i++
		if slashes%2 == 0 {
			return i
		}
	}
}

// skipValue returns the index just past the value that begins at i, or -1 where it does
// not end. m are the marks of b, or nil. It trusts the value to be well formed: where it is not, some index is
// returned, and whoever relies on it must validate the piece.
func skipValue(b []byte, i int, m marks) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return m.skipString(b, i+1)
	case '{', '[':
		return skipNested(b, i, m)
	}
	for i < len(b) && !endsScalar[b[i]] {
		i++
	}
	return i
}

func skipNested(b []byte, i int, m marks) int {
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			if i = m.skipString(b, i+1); i < 0 {
				return -1
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		case ',':
			i = skipNumbers(b, i+1) // token ids, thousands of them
			continue
		}
		i++
	}
	return -1
}

var endsScalar = [256]bool{' ': true, '\t': true, '\n': true, '\r': true, ',': true, ':': true, '}': true, ']': true, '{': true, '[': true, '"': true}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// escapes maps the byte after a backslash to what it stands for; zero: not an escape.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape decodes the escape whose backslash is b[i]. It returns the rune and the index
// just past the escape, or -1 where it is malformed. A pair of surrogates is one rune;
// a surrogate without its other half is U+FFFD, as in encoding/json.
func escape(b []byte, i int) (rune, int) {
	if i+1 >= len(b) {
		return 0, -1
	}
	if b[i+1] != 'u' {
		if c := escapes[b[i+1]]; c != 0 {
			return rune(c), i + 2
		}
		return 0, -1
	}
	r := hex4(b, i+2)
	if r < 0 {
		return 0, -1
	}
	i += 6
	if !utf16.IsSurrogate(r) {
		return r, i
	}
	if i+1 < len(b) && b[i] == '\\' && b[i+1] == 'u' {
		if pair := utf16.DecodeRune(r, hex4(b, i+2)); pair != utf8.RuneError {
			return pair, i + 6
		}
	}
	return utf8.RuneError, i
}

// hex4 returns the number that four hexadecimal digits at i stand for, or -1.
func hex4(b []byte, i int) rune {
	if i+4 > len(b) {
		return -1
	}
	var r rune
	for _, c := range b[i : i+4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// appendDecoded appends what the inside of a JSON string stands for. A malformed escape
// is copied as it is.
func appendDecoded(dst, inside []byte) []byte {
	for {
		i := bytes.IndexByte(inside, '\\')
		if i < 0 {
			return append(dst, inside...)
		}
		dst = append(dst, inside[:i]...)
		r, next := escape(inside, i)
		if next < 0 {
			return append(dst, inside[i:]...)
		}
		dst = utf8.AppendRune(dst, r)
		inside = inside[next:]
	}
}

// keyBytes is the room for a field's name: longer than every name that is looked for.
const keyBytes = 32

// decodedKey returns a field's name without escapes. A name that has some and is too
// long to be looked for is returned as it is.
func decodedKey(key []byte, room *[keyBytes]byte) []byte {
	if bytes.IndexByte(key, '\\') < 0 {
		return key
	}
	if len(key) > 6*keyBytes { // six bytes an escape at most
		return key
	}
	var long [6 * keyBytes]byte
	name := appendDecoded(long[:0], key)
	if len(name) > keyBytes {
		return key
	}
	return room[:copy(room[:], name)]
}
