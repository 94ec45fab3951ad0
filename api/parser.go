package api

import "kvasir/internal/kvblock"

// MaxDepth is how deep arrays and objects of a request may be nested.
const MaxDepth = 256

// How many brackets are open round the values that are read one by one.
const (
	topDepth     = 1 // a field of the body
	messageDepth = 2 // an element of messages, or of a batch of inputs
	fieldDepth   = 3 // a field of a message
	itemDepth    = 4 // a part of a message's content
)

// parser reads JSON strictly and, unless it is muted, writes what it reads in canonical
// form into a chain of blocks. Its verdict is encoding/json's (Valid), but for nesting
// deeper than MaxDepth. Bytes that are not UTF-8 pass as they are, as they do there.
//
// The first mistake sticks: every method does nothing after it, and want is not empty.
type parser struct {
	b    []byte
	i    int
	want string // what should have stood at b[i]; empty: no mistake yet
	mute bool   // read only; write nothing
	sink
	marks marks      // of b; Read makes them
	list  escapeList // of one string
}

// begin starts at the first byte of b that is not white space and writes to out.
func (p *parser) begin(b []byte, out *kvblock.Writer) {
	p.b, p.i, p.want, p.mute = b, 0, "", false
	p.out, p.total, p.n = out, 0, 0
	p.space()
}

// end reads white space up to the end of b.
func (p *parser) end() {
	if p.failed() {
		return
	}
	if p.space(); p.i < len(p.b) {
		p.fail("nothing after the object")
	}
}

// until fails unless the value that was just read ends at end, where skipping it ended.
func (p *parser) until(end int) {
	if !p.failed() && p.i != end {
		p.fail("',' or a closing bracket")
	}
}

func (p *parser) fail(want string) {
	if p.want == "" {
		p.want = want
	}
}

func (p *parser) failed() bool { return p.want != "" }

func (p *parser) space() {
	if p.peek() <= ' ' { // most bodies have none
		p.i = skipSpace(p.b, p.i)
	}
}

func (p *parser) peek() byte {
	if p.i < len(p.b) {
		return p.b[p.i]
	}
	return 0
}

// open steps into an object or array, whose bracket stands at p.i, and reports whether
// there is a first member. Together with next it makes a loop:
//
//	for more := p.open('}'); more; more = p.next('}') { … }
func (p *parser) open(end byte) bool {
	p.i++
	p.space()
	if p.peek() == end {
		p.i++
		return false
	}
	return true
}

// next steps over what follows a member and reports whether another one comes.
func (p *parser) next(end byte) bool {
	if p.failed() {
		return false
	}
	p.space()
	switch {
	case p.i >= len(p.b):
	case p.b[p.i] == ',':
		p.i++
		p.space()
		return true
	case p.b[p.i] == end:
		p.i++
		return false
	}
	if end == '}' {
		p.fail("',' or '}'")
	} else {
		p.fail("',' or ']'")
	}
	return false
}

// name reads a member's name and the colon, and returns the name without escapes. One
// that has some and is too long to be looked for is returned as it is.
func (p *parser) name(room *[keyBytes]byte) []byte {
	start := p.i + 1
	if p.peek() != '"' {
		p.fail(fieldName)
		return nil
	}
	plain := p.quoted()
	end := p.i - 1
	if p.colon(); p.failed() {
		return nil
	}
	if plain {
		return p.b[start:end]
	}
	return decodedKey(p.b[start:end], room)
}

const fieldName = "a field's name"

func (p *parser) colon() {
	if p.failed() {
		return
	}
	if p.space(); p.peek() != ':' {
		p.fail("':'")
		return
	}
	p.i++
	p.space()
}

// endString steps over the quote at p.i, or says what is wrong where there is none.
func (p *parser) endString() {
	switch {
	case p.i >= len(p.b):
		p.fail("the end of a string")
	case p.b[p.i] == '"':
		p.i++
	case p.b[p.i] == '\\':
		p.fail("a valid escape")
	default:
		p.fail("no control character in a string")
	}
}

// fenced reads a string and writes it between marks, so that where it ends is part of
// what is written.
func (p *parser) fenced() {
	p.mark('s')
	p.text()
	p.mark('e')
}

// value reads any value at depth and writes it canonically: without white space, with
// strings decoded and fenced, numbers and the order of fields as they stand.
func (p *parser) value(depth int) {
	if p.failed() {
		return
	}
	switch c := p.peek(); {
	case c == '"':
		p.fenced()
	case c == '{':
		p.object(depth + 1)
	case c == '[':
		p.array(depth + 1)
	case c == '-' || '0' <= c && c <= '9':
		p.number()
	case c == 't':
		p.literal("true")
	case c == 'f':
		p.literal("false")
	case c == 'n':
		p.literal("null")
	default:
		p.fail("a value")
	}
}

func (p *parser) object(depth int) {
	if depth > MaxDepth {
		p.fail(deep)
		return
	}
	p.put('{')
	for more := p.open('}'); more; more = p.next('}') {
		if p.peek() != '"' {
			p.fail(fieldName)
			return
		}
		p.fenced()
		p.colon()
		p.value(depth)
	}
	p.put('}')
}

func (p *parser) array(depth int) {
	if depth > MaxDepth {
		p.fail(deep)
		return
	}
	p.put('[')
	for more := p.open(']'); more; more = p.next(']') {
		p.value(depth)
		p.put(',')
	}
	p.put(']')
}

const deep = "no deeper nesting than 256 levels"

func (p *parser) literal(word string) {
	if end := p.i + len(word); end <= len(p.b) && string(p.b[p.i:end]) == word {
		p.bytes(p.b[p.i:end])
		p.i = end
		return
	}
	p.fail("a value")
}

func (p *parser) number() {
	start := p.i
	if p.peek() == '-' {
		p.i++
	}
	if p.peek() == '0' {
		p.i++
	} else {
		p.digits()
	}
	if p.peek() == '.' {
		p.i++
		p.digits()
	}
	if c := p.peek(); c == 'e' || c == 'E' {
		p.i++
		if c := p.peek(); c == '+' || c == '-' {
			p.i++
		}
		p.digits()
	}
	if !p.failed() {
		p.bytes(p.b[start:p.i])
	}
}

func (p *parser) digits() {
	start := p.i
	for p.i < len(p.b) && '0' <= p.b[p.i] && p.b[p.i] <= '9' {
		p.i++
	}
	if p.i == start {
		p.fail("a digit")
	}
}
