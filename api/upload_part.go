package api

import "bytes"

// formPart is what the header of a part of an upload says.
type formPart struct {
	name     []byte // of the field; nil: none
	file     bool   // it has a filename
	encoded  bool   // its content is not the bytes that stand there
	disposed bool   // it has a Content-Disposition
}

// describe describes a part's content for an error.
func (p formPart) describe(text []byte) string {
	switch {
	case p.file:
		return "a file"
	case p.encoded:
		return "an encoded value"
	default:
		return `"` + short(text) + `"`
	}
}

// header reads the header of the part that begins at u.i, and the blank line after it.
func (u *upload) header() formPart {
	var p formPart
	for limit := min(u.i+maxPartHeader, len(u.body)); u.want == ""; {
		n := bytes.Index(u.body[u.i:limit], []byte("\r\n"))
		if n < 0 {
			u.fail(u.i, "a part's header of at most 16 KiB, with a blank line after it")
			break
		}
		at := u.i
		u.i += n + len("\r\n")
		if n == 0 {
			break
		}
		u.headerLine(&p, u.body[at:at+n], at)
	}
	return p
}

// headerLine reads a line of a part's header, which stands at offset at.
func (u *upload) headerLine(p *formPart, line []byte, at int) {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || len(token(name)) != len(name) || len(name) == 0 {
		u.fail(at, "the name of a part's header and ':'")
		return
	}
	for _, c := range value {
		if c < 0x20 && c != '\t' || c == 0x7f {
			u.fail(at, "a header of a part without control characters")
			return
		}
	}
	switch {
	case bytes.EqualFold(name, []byte("Content-Disposition")):
		if p.disposed || !p.dispose(value) {
			u.fail(at, `one Content-Disposition with a plain name and perhaps a filename`)
		}
		p.disposed = true
	case bytes.EqualFold(name, []byte("Content-Transfer-Encoding")):
		value = bytes.TrimSpace(value)
		p.encoded = p.encoded || !bytes.EqualFold(value, []byte("7bit")) && !bytes.EqualFold(value, []byte("8bit")) && !bytes.EqualFold(value, []byte("binary"))
	}
}

// dispose reads a Content-Disposition. It reports false where readers might find different
// names in it.
func (p *formPart) dispose(value []byte) bool {
	kind, rest, _ := bytes.Cut(value, []byte(";"))
	if !bytes.EqualFold(bytes.Trim(kind, " \t"), []byte("form-data")) {
		return true
	}
	params := parameters{rest: rest}
	for params.next() {
		name, _, extended := bytes.Cut(params.name, []byte("*")) // RFC 2231
		switch {
		case bytes.EqualFold(name, []byte("filename")):
			p.file = true
		case !bytes.EqualFold(name, []byte("name")):
		case extended || params.escaped || p.name != nil:
			return false
		default:
			p.name = params.value
		}
	}
	return !params.bad
}

// parameters reads the parameters of a header's value: name=token or name="text", divided
// by semicolons.
type parameters struct {
	rest        []byte // what stands after the first semicolon
	name, value []byte
	escaped     bool // the value has backslashes, which are not resolved
	bad         bool // rest is not parameters
}

// next reads the next parameter. It reports false after the last one.
func (p *parameters) next() bool {
	p.skipBlanks()
	if p.bad || len(p.rest) == 0 {
		return false
	}
	p.name = token(p.rest)
	p.rest = p.rest[len(p.name):]
	p.skipBlanks()
	p.bad = len(p.name) == 0 || !p.skip('=')
	p.skipBlanks()
	if !p.bad {
		p.readValue()
	}
	p.skipBlanks()
	p.bad = p.bad || len(p.rest) > 0 && !p.skip(';')
	return !p.bad
}

func (p *parameters) readValue() {
	p.escaped = false
	if !p.skip('"') {
		p.value = token(p.rest)
		p.rest = p.rest[len(p.value):]
		p.bad = len(p.value) == 0
		return
	}
	for i := 0; i < len(p.rest); i++ {
		switch p.rest[i] {
		case '\\':
			p.escaped = true
			i++
		case '"':
			p.value, p.rest = p.rest[:i], p.rest[i+1:]
			return
		}
	}
	p.bad = true
}

func (p *parameters) skip(c byte) bool {
	if len(p.rest) == 0 || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *parameters) skipBlanks() { p.rest = bytes.TrimLeft(p.rest, " \t") }

// token returns the token (RFC 9110, section 5.6.2) that b begins with.
func token(b []byte) []byte {
	for i, c := range b {
		if !isAlphanumeric(c) && bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), c) < 0 {
			return b[:i]
		}
	}
	return b
}
