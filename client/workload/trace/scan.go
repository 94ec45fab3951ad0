package trace

import (
	"bytes"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"kvasir/internal/mono"
)

// maxDepth is how deep a record may be nested.
const maxDepth = 64

var errDeep = fmt.Errorf("brackets are nested more than %d deep", maxDepth)

// scanner reads one JSON record without a tree and without allocating. The first mistake
// sticks: every method does nothing after it and returns nothing, so a parser looks at err
// once, at its end. It is as strict as RFC 8259.
type scanner struct {
	b     []byte
	i     int
	err   error
	depth int
	first bool   // no member of the innermost object or array was read yet
	name  []byte // the member's that more has read
	text  []byte // room for strings with escapes
}

func (s *scanner) reset(b []byte) { s.b, s.i, s.err, s.depth = b, 0, nil, 0 }

func (s *scanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

func (s *scanner) want(what string) {
	if s.i >= len(s.b) {
		s.fail("the record ends where %s should stand", what)
		return
	}
	s.fail("byte %d is %q where %s should stand", s.i+1, s.b[s.i], what)
}

func (s *scanner) space() {
	for s.i < len(s.b) && isSpace(s.b[s.i]) {
		s.i++
	}
}

// peek returns the first byte of the next value, 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.err != nil || s.i >= len(s.b) {
		return 0
	}
	return s.b[s.i]
}

// open begins an object ('{') or an array ('[').
func (s *scanner) open(bracket byte) {
	if s.peek() != bracket {
		s.want(map[byte]string{'{': "an object", '[': "an array"}[bracket])
		return
	}
	s.i++
	if s.depth++; s.depth > maxDepth && s.err == nil {
		s.err = errDeep
	}
	s.first = true
}

// more reads up to the next value of the innermost object or array, in an object its name
// as well. It reports whether there is one; where there is none it has read the bracket.
func (s *scanner) more(closing byte) bool {
	c := s.peek()
	if s.err != nil {
		return false
	}
	if c == closing {
		s.i++
		s.depth--
		s.first = false
		return false
	}
	if !s.first {
		if c != ',' {
			s.want("',' or '" + string(closing) + "'")
			return false
		}
		s.i++
	}
	s.first = false
	if closing == '}' {
		s.space()
		s.name = s.str()
		if s.peek() != ':' {
			s.want("':'")
			return false
		}
		s.i++
	}
	s.space()
	return s.err == nil
}

// end makes sure that nothing follows the record.
func (s *scanner) end() {
	if s.space(); s.err == nil && s.i < len(s.b) {
		s.want("the end")
	}
}

// null reads a null, if one comes next.
func (s *scanner) null() bool {
	if s.peek() != 'n' {
		return false
	}
	s.word("null")
	return s.err == nil
}

func (s *scanner) word(w string) {
	if !bytes.HasPrefix(s.b[s.i:], []byte(w)) {
		s.want(w)
		return
	}
	s.i += len(w)
}

// skip reads a value of any kind.
func (s *scanner) skip() {
	switch c := s.peek(); c {
	case '{':
		for s.open('{'); s.more('}'); {
			s.skip()
		}
	case '[':
		for s.open('['); s.more(']'); {
			s.skip()
		}
	case '"':
		_ = s.str()
	case 't':
		s.word("true")
	case 'f':
		s.word("false")
	case 'n':
		s.word("null")
	default:
		_ = s.number("a value")
	}
}

// number reads a number and returns it as it is written.
func (s *scanner) number(field string) []byte {
	s.space()
	if s.err != nil {
		return nil
	}
	start, b, i := s.i, s.b, s.i
	digits := func() bool {
		from := i
		for i < len(b) && b[i]-'0' <= 9 {
			i++
		}
		return i > from
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	switch zero := i < len(b) && b[i] == '0'; {
	case zero:
		i++
	case !digits():
		if field == "a value" {
			s.want(field)
		} else {
			s.fail("%s is %s; it must be a number", field, s.excerpt(start))
		}
		return nil
	}
	if i < len(b) && b[i] == '.' {
		if i++; !digits() {
			s.i = i
			s.want("a digit")
			return nil
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			s.i = i
			s.want("a digit")
			return nil
		}
	}
	s.i = i
	return b[start:i]
}

// excerpt returns the beginning of the value that stands at i, for messages.
func (s *scanner) excerpt(i int) string {
	return excerpt(value(s.b[i:min(len(s.b), i+mostExcerpt+1)]))
}

// mostExcerpt is how many bytes of a value a message has.
const mostExcerpt = 24

func excerpt(b []byte) string {
	if len(b) == 0 {
		return "missing"
	}
	if len(b) > mostExcerpt {
		return strconv.Quote(string(b[:mostExcerpt])) + "…"
	}
	return strconv.Quote(string(b))
}

// value returns the JSON value with which b begins, right or wrong, as far as it is there.
func value(b []byte) []byte {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			if quoted = !quoted; !quoted && depth == 0 {
				return b[:i+1]
			}
		case quoted:
		case c == '{' || c == '[':
			depth++
		case depth == 0 && (c == ',' || c == '}' || c == ']' || isSpace(c)):
			return b[:i]
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return b[:i+1]
			}
		}
	}
	return b
}

// integer reads a whole number within bounds.
func (s *scanner) integer(field string, low, high int64) int64 {
	start := s.i
	b := s.number(field)
	if s.err != nil {
		return 0
	}
	n, err := wholeNumber(field, b, low, high)
	if err != nil {
		s.i, s.err = start, err
		return 0
	}
	return n
}

// wholeNumber reads a whole number within bounds. A fraction of zeros is none: 7.0 is 7.
func wholeNumber(field string, b []byte, low, high int64) (int64, error) {
	whole, fraction, _ := bytes.Cut(b, []byte("."))
	if len(bytes.Trim(fraction, "0")) > 0 {
		whole = nil
	}
	// Short numbers, nearly all of them, are read without a string.
	var n int64
	ok := len(whole) > 0 && len(whole) <= 18
	for _, c := range whole {
		n = n*10 + int64(c-'0')
		ok = ok && c-'0' <= 9
	}
	if !ok {
		var err error
		if n, err = strconv.ParseInt(string(whole), 10, 64); err != nil {
			n = low - 1
			if low == math.MinInt64 {
				return 0, notWhole(field, b, low, high)
			}
		}
	}
	if n < low || n > high {
		return 0, notWhole(field, b, low, high)
	}
	return n, nil
}

func notWhole(field string, b []byte, low, high int64) error {
	if len(b) == 0 {
		return fmt.Errorf("%s is missing; allowed: whole numbers from %d to %d", field, low, high)
	}
	if len(b) > 24 {
		b = append(b[:24:24], "…"...)
	}
	return fmt.Errorf("%s is %s; allowed: whole numbers from %d to %d", field, b, low, high)
}

// unsigned reads a whole number of 64 bits.
func (s *scanner) unsigned(field string) uint64 {
	b := s.number(field)
	if s.err != nil {
		return 0
	}
	if n, ok := shortNumber(b); ok {
		return n
	}
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil {
		s.fail("%s is %s; allowed: whole numbers from 0 to %d", field, b, uint64(math.MaxUint64))
	}
	return n
}

// shortNumber reads a whole number of at most 19 digits, which always fits.
func shortNumber(b []byte) (n uint64, ok bool) {
	for _, c := range b {
		if c -= '0'; c > 9 {
			return 0, false
		}
		n = n*10 + uint64(c)
	}
	return n, len(b) > 0 && len(b) <= 19
}

// duration reads a number of units.
func (s *scanner) duration(field string, unit time.Duration) time.Duration {
	b := s.number(field)
	if s.err != nil {
		return 0
	}
	d, err := duration(field, b, unit)
	if err != nil {
		s.err = err
	}
	return d
}

// duration returns how long a decimal number of units is, to the nearest nanosecond, half
// up. It must not be negative, nor above forever.
func duration(field string, b []byte, unit time.Duration) (time.Duration, error) {
	var digits, scale uint64 = 0, 1
	exact, dot := len(b) > 0, false
	for _, c := range b {
		switch {
		case c == '.' && !dot:
			dot = true
		case c-'0' <= 9 && digits < math.MaxUint64/10-10 && (!dot || scale < 1e18):
			digits = digits*10 + uint64(c-'0')
			if dot {
				scale *= 10
			}
		default:
			exact = false
		}
	}
	if exact {
		high, low := bits.Mul64(digits, uint64(unit))
		low, carry := bits.Add64(low, scale/2, 0)
		if high += carry; high < scale {
			if ns, _ := bits.Div64(high, low, scale); ns <= uint64(forever) {
				return time.Duration(ns), nil
			}
		}
	} else if f, err := strconv.ParseFloat(string(b), 64); err == nil {
		if f = float64(f * unit.Seconds()); f >= 0 && f <= forever.Seconds() {
			return mono.FromSeconds(f), nil
		}
	}
	if len(b) == 0 {
		return 0, fmt.Errorf("%s is missing; allowed: numbers from 0", field)
	}
	return 0, fmt.Errorf("%s is %s; allowed: numbers from 0, and at most 146 years", field, excerpt(b))
}

// str reads a string and returns what it stands for, valid until the next string is read.
func (s *scanner) str() []byte {
	if s.peek() != '"' {
		s.want("a string")
		return nil
	}
	s.i++
	start := s.i
	for i := s.i; i < len(s.b); i++ {
		switch c := s.b[i]; {
		case c == '"':
			s.i = i + 1
			return s.b[start:i]
		case c == '\\':
			return s.escaped(start, i)
		case c < ' ':
			s.i = i
			s.want("no control character, in a string,")
			return nil
		}
	}
	s.fail("a string does not end")
	return nil
}

// escaped is str from the first backslash, at i, on.
func (s *scanner) escaped(start, i int) []byte {
	s.text = append(s.text[:0], s.b[start:i]...)
	for i < len(s.b) {
		switch c := s.b[i]; {
		case c == '"':
			s.i = i + 1
			return s.text
		case c < ' ':
			s.i = i
			s.want("no control character, in a string,")
			return nil
		case c != '\\':
			s.text = append(s.text, c)
			i++
		default:
			r, next := unescape(s.b, i+1)
			if next < 0 {
				s.i = i
				s.fail("byte %d begins an escape that JSON does not have", i+1)
				return nil
			}
			s.text = utf8.AppendRune(s.text, r)
			i = next
		}
	}
	s.fail("a string does not end")
	return nil
}

// unescape returns what the escape behind the backslash before i stands for, and where it
// ends; -1 where there is no such escape. Half a pair of surrogates is U+FFFD.
func unescape(b []byte, i int) (rune, int) {
	if i >= len(b) {
		return 0, -1
	}
	const plain, meant = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if at := bytes.IndexByte([]byte(plain), b[i]); at >= 0 {
		return rune(meant[at]), i + 1
	}
	r := fourHex(b, i)
	if r < 0 {
		return 0, -1
	}
	i += 5
	if !utf16.IsSurrogate(r) {
		return r, i
	}
	if i < len(b) && b[i] == '\\' {
		if pair := utf16.DecodeRune(r, fourHex(b, i+1)); pair != utf8.RuneError {
			return pair, i + 6
		}
	}
	return utf8.RuneError, i
}

// fourHex reads u and four hexadecimal digits at i; -1 where they do not stand there.
func fourHex(b []byte, i int) rune {
	if i+5 > len(b) || b[i] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(b[i+1:i+5]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}
