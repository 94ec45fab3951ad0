package load

import (
	"bytes"
	"unicode/utf8"
)

// deepest is how deep an event's data may be nested.
const deepest = 1000

// malformed reports whether the data of an event is no JSON object (RFC 8259) in UTF-8, as
// every chunk of every grammar is. An event without data is judged by its name. It is asked
// of every token, and takes half as long as encoding/json's Valid (BenchmarkMalformed).
func malformed(data []byte) bool {
	if len(data) == 0 {
		return false
	}
	c := checker{b: data}
	return c.space() != '{' || !c.value(0) || c.space() != 0 || c.i < len(data) || !utf8.Valid(data)
}

// checker follows JSON text; i is where it stands.
type checker struct {
	b []byte
	i int
}

// at returns the byte it stands at, 0 at the end.
func (c *checker) at() byte {
	if c.i < len(c.b) {
		return c.b[c.i]
	}
	return 0
}

// space passes over white space and returns the byte behind it.
func (c *checker) space() byte {
	for {
		switch b := c.at(); b {
		case ' ', '\t', '\r', '\n':
			c.i++
		default:
			return b
		}
	}
}

// skip passes over a byte, if it comes next.
func (c *checker) skip(b byte) bool {
	if c.at() != b {
		return false
	}
	c.i++
	return true
}

// value passes over a value that begins here. It reports whether there is one.
func (c *checker) value(depth int) bool {
	switch b := c.at(); b {
	case '"':
		return c.text()
	case '{', '[':
		return depth < deepest && c.members(b+2, depth+1) // ']' and '}' stand two behind
	case 't':
		return c.word("true")
	case 'f':
		return c.word("false")
	case 'n':
		return c.word("null")
	}
	return c.number()
}

// members passes over an object or an array.
func (c *checker) members(closing byte, depth int) bool {
	c.i++
	if c.space() == closing {
		c.i++
		return true
	}
	for {
		if closing == '}' {
			if c.space() != '"' || !c.text() || c.space() != ':' {
				return false
			}
			c.i++
		}
		c.space()
		if !c.value(depth) {
			return false
		}
		if c.space() == closing {
			c.i++
			return true
		}
		if !c.skip(',') {
			return false
		}
	}
}

func (c *checker) word(w string) bool {
	if !bytes.HasPrefix(c.b[c.i:], []byte(w)) {
		return false
	}
	c.i += len(w)
	return true
}

// text passes over a string.
func (c *checker) text() bool {
	for c.i++; c.i < len(c.b); c.i++ {
		i := c.i // nearly all bytes are plain
		for i < len(c.b) && c.b[i] >= ' ' && c.b[i] != '"' && c.b[i] != '\\' {
			i++
		}
		if c.i = i; i == len(c.b) {
			return false
		}
		switch b := c.b[i]; {
		case b == '"':
			c.i++
			return true
		case b < ' ':
			return false
		case b == '\\':
			c.i++
			switch c.at() {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					c.i++
					if b := c.at() | 0x20; (b < '0' || b > '9') && (b < 'a' || b > 'f') || c.at() < '0' {
						return false
					}
				}
			default:
				return false
			}
		}
	}
	return false
}

func (c *checker) number() bool {
	c.skip('-')
	if !c.skip('0') && !c.digits() {
		return false
	}
	if c.skip('.') && !c.digits() {
		return false
	}
	if c.at()|0x20 == 'e' {
		if c.i++; !c.skip('+') {
			c.skip('-')
		}
		return c.digits()
	}
	return true
}

func (c *checker) digits() bool {
	from := c.i
	for b := c.at(); b >= '0' && b <= '9'; b = c.at() {
		c.i++
	}
	return c.i > from
}
