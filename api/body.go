package api

import (
	"bytes"
	"encoding/binary"
)

// BodyScanner finds usage and error in an answer that is not streamed, while the bytes
// pass, in any grammar and of any size. It keeps at most 4 KiB, and allocates them once.
// The zero BodyScanner is ready to use for a chat. It is not safe for concurrent use.
//
// It looks at fields of the outermost object alone. It does not validate: in what is
// not JSON it finds what looks like them, or nothing.
type BodyScanner struct {
	depth    int
	object   bool // the outermost value is an object
	ended    bool // the outermost value has ended
	inString bool
	escaped  bool // the last byte was a backslash in a string
	wantKey  bool // the next string of the outermost object is a field's name
	keeping  keep
	overflow bool // what is kept is longer than keptValue
	kept     []byte
	key      [keyBytes]byte
	keyLen   int
	found    finding
	id       [MaxResponseID]byte
	idLen    int
}

// keep says what the bytes that are being kept are.
type keep uint8

const (
	nothing keep = iota
	aKey
	aValue
)

const keptValue = 4096

// Reset makes s ready for another answer and keeps its memory.
func (s *BodyScanner) Reset(g Grammar) {
	*s = BodyScanner{kept: s.kept[:0], found: finding{dialect: grammars[g].answer}}
}

// Feed takes in the next bytes of the answer; any borders will do.
func (s *BodyScanner) Feed(chunk []byte) {
	from := 0 // where the bytes to be kept begin
	for i := 0; i < len(chunk); {
		if s.inString {
			if i = s.skipString(chunk, i); s.inString {
				break
			}
			if s.keeping == aKey {
				s.keepBytes(chunk[from : i-1])
				s.endKey()
			}
			continue
		}
		if s.depth > 1 {
			if i = skipNumbers(chunk, i); i == len(chunk) {
				break
			}
		}
		c := chunk[i]
		i++
		switch c {
		case '"':
			s.inString = true
			if s.depth == 1 && s.wantKey {
				s.wantKey = false
				s.start(aKey)
				from = i
			}
		case '{', '[':
			if s.depth++; s.depth == 1 && !s.ended {
				s.object = c == '{'
				s.wantKey = s.object
			}
		case '}', ']':
			if s.depth == 1 {
				s.endValue(chunk[:i-1], from)
				s.ended, s.wantKey = true, false
			}
			s.depth = max(s.depth-1, 0)
		case ':':
			if s.depth == 1 && s.wanted() {
				s.start(aValue)
				from = i
			}
		case ',':
			if s.depth == 1 {
				s.endValue(chunk[:i-1], from)
				s.wantKey = s.object && !s.ended
			}
		}
	}
	if s.keeping != nothing {
		s.keepBytes(chunk[from:])
	}
}

// skipString goes to the end of the string, or of the chunk.
func (s *BodyScanner) skipString(chunk []byte, i int) int {
	for i < len(chunk) {
		end := len(chunk)
		n := bytes.IndexByte(chunk[i:], '"')
		if n >= 0 {
			end = i + n
		}
		slashes := 0
		for j := end - 1; j >= i && chunk[j] == '\\'; j-- {
			slashes++
		}
		escaped := slashes%2 == 1
		if s.escaped && slashes == end-i { // the first of them is escaped itself
			escaped = !escaped
		}
		s.escaped = escaped && n < 0
		if n < 0 {
			break
		}
		i = end + 1
		if !escaped {
			s.inString = false
			return i
		}
	}
	return len(chunk)
}

// skipNumbers goes on while eight bytes hold neither a quote nor a bracket: digits,
// signs, commas and white space all have bit 6 clear.
func skipNumbers(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote := x ^ ones*'"'
		if x&(ones*0x40)|(quote-ones)&^quote&highs != 0 {
			break
		}
	}
	return i
}

func (s *BodyScanner) start(what keep) {
	s.keeping, s.overflow, s.kept = what, false, s.kept[:0]
}

func (s *BodyScanner) keepBytes(b []byte) {
	if len(s.kept)+len(b) > keptValue {
		s.overflow = true
	}
	if !s.overflow {
		s.kept = append(s.kept, b...)
	}
}

func (s *BodyScanner) endKey() {
	s.keeping, s.keyLen = nothing, 0
	if !s.overflow {
		var room [keyBytes]byte
		s.keyLen = copy(s.key[:], decodedKey(s.kept, &room))
	}
}

// wanted reports whether the value of the last key is to be kept.
func (s *BodyScanner) wanted() bool {
	switch string(s.key[:s.keyLen]) {
	case "usage", "error", "object", "code", "type", "error_type":
		return true
	case "id":
		return s.found.dialect == responsesAnswer
	}
	return false
}

// endValue takes in the value that ends where chunk does.
func (s *BodyScanner) endValue(chunk []byte, from int) {
	if s.keeping != aValue {
		return
	}
	s.keepBytes(chunk[from:])
	s.keeping = nothing
	key := s.key[:s.keyLen]
	if s.overflow {
		s.found.failed = s.found.failed || string(key) == "error"
		return
	}
	w := walk{b: s.kept}
	if string(key) == "id" {
		s.idLen = 0
		if id := unquoted(w.value()); len(id) <= MaxResponseID {
			s.idLen = copy(s.id[:], id)
		}
		return
	}
	if string(key) != "usage" && string(key) != "object" {
		w.b = bytes.Clone(w.b) // what is found outlives the buffer; answers that succeed have none of these, or a short type
	}
	s.found.field(key, &w)
}

// Usage returns what the answer said so far. Without input tokens none of it is
// believed: engines that don't count report zeros.
func (s *BodyScanner) Usage() Usage {
	if !s.found.HasUsage {
		return unknownUsage()
	}
	return s.found.Usage.plausible(s.found.Usage.Input == 0)
}

// Fault returns the error that stands in place of an answer, if there is one. Its
// slices are valid until the next Reset.
func (s *BodyScanner) Fault() (Fault, bool) {
	if !s.found.fails() {
		return Fault{}, false
	}
	return s.found.fault(), true
}

// ResponseID returns the id of an answer of Responses, or nil where it gave none or one
// of more than MaxResponseID bytes. It is valid until the next Reset.
func (s *BodyScanner) ResponseID() []byte {
	if s.idLen == 0 {
		return nil
	}
	return s.id[:s.idLen]
}
