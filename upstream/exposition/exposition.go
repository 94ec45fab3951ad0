// Package exposition has no layer, pure: it reads the few samples that someone wants
// out of a page of metrics in Prometheus' text formats 0.0.4 and 1.0.0 or in
// OpenMetrics text, as engines serve them.
//
// It is not the usual library's parser because that one rejects a whole page for one
// bad line, keeps every series of it in memory, and reads 0.0.4 alone. An endpoint
// whose page has a malformed histogram must not lose its load signal, and a scrape a
// second of 500 endpoints must cost little. So lines stand for themselves here: of a
// line that isn't wanted no more is read than its name, and a bad line is counted and
// skipped.
//
// Grammar: https://prometheus.io/docs/instrumenting/exposition_formats/ and
// https://prometheus.io/docs/specs/om/open_metrics_spec/.
package exposition

import (
	"bytes"
	"strconv"
)

// Scanner goes through a page sample by sample. It reads the page in place and never
// writes to it; what it returns is valid while the page is. Not safe for concurrent use.
type Scanner struct {
	page   []byte
	wanted func(name []byte) bool

	name   []byte
	labels []byte // what is between the braces, without a quoted metric name
	value  float64
	bad    int
}

// NewScanner returns a Scanner for the samples of a page whose name is wanted.
func NewScanner(page []byte, wanted func(name []byte) bool) *Scanner {
	return &Scanner{page: page, wanted: wanted}
}

// Scan goes on to the next sample that is wanted and well formed. It returns false at
// the page's end, which is also where OpenMetrics' "# EOF" is.
func (s *Scanner) Scan() bool {
	for len(s.page) > 0 {
		line := s.page
		if end := bytes.IndexByte(line, '\n'); end >= 0 {
			line, s.page = line[:end], s.page[end+1:]
		} else {
			s.page = nil
		}
		line = skipBlanks(bytes.TrimSuffix(line, []byte("\r")))
		if len(line) == 0 {
			continue
		}
		if line[0] == '#' {
			if string(line) == "# EOF" {
				s.page = nil
			}
			continue
		}
		ok, found := s.sample(line)
		if !ok {
			s.bad++
		}
		if found {
			return true
		}
	}
	return false
}

// Name returns the sample's name, suffixes such as _total included.
func (s *Scanner) Name() []byte { return s.name }

// Value returns the sample's value, which may be NaN or an infinity.
func (s *Scanner) Value() float64 { return s.value }

// Bad returns how many lines were skipped so far because they have no name, or have a
// name that is wanted and are malformed in the rest.
func (s *Scanner) Bad() int { return s.bad }

// Label returns the value of the sample's label, escapes resolved, and false when the
// sample has no such label.
func (s *Scanner) Label(name string) (string, bool) {
	rest := s.labels
	for {
		var n, v []byte
		var ok bool
		if n, v, rest, ok = label(rest); !ok || n == nil {
			return "", false
		}
		if string(n) == name || bytes.IndexByte(n, '\\') >= 0 && unescape(n) == name {
			return unescape(v), true
		}
	}
}

// sample reads a line. It is ok when it isn't bad, and found when it is wanted too.
func (s *Scanner) sample(line []byte) (ok, found bool) {
	n := nameLen(line)
	name, rest := line[:n], skipBlanks(line[n:])
	var labels []byte
	if len(rest) > 0 && rest[0] == '{' {
		inner := skipBlanks(rest[1:])
		if n == 0 { // {"the name", label="value"}: format 1.0.0
			if name, inner, ok = quoted(inner); !ok {
				return false, false
			}
			if inner = skipBlanks(inner); len(inner) > 0 && inner[0] == ',' {
				inner = inner[1:]
			} else if len(inner) == 0 || inner[0] != '}' {
				return false, false
			}
		}
		if len(name) == 0 {
			return false, false
		}
		if !s.wanted(name) {
			return true, false
		}
		labels = inner
		if rest, ok = skipLabels(inner); !ok {
			return false, false
		}
		labels = labels[:len(labels)-len(rest)-1]
	} else if len(name) == 0 || len(rest) == len(line)-n {
		return false, false // no name, or nothing between it and what should be the value
	} else if !s.wanted(name) {
		return true, false
	}
	v, ok := value(skipBlanks(rest))
	if !ok {
		return false, false
	}
	s.name, s.labels, s.value = name, labels, v
	return true, true
}

// skipLabels returns what follows the closing brace.
func skipLabels(b []byte) (rest []byte, ok bool) {
	for {
		n, _, next, ok := label(b)
		if !ok {
			return nil, false
		}
		if n == nil {
			if next = skipBlanks(next); len(next) == 0 || next[0] != '}' {
				return nil, false
			}
			return next[1:], true
		}
		b = next
	}
}

// label reads one label and the comma after it. Name and value are as they stand in
// the page, without the quotes; the name is nil where no label begins.
func label(b []byte) (name, value, rest []byte, ok bool) {
	b = skipBlanks(b)
	if len(b) == 0 || b[0] == '}' {
		return nil, nil, b, true
	}
	if b[0] == '"' {
		if name, b, ok = quoted(b); !ok {
			return nil, nil, nil, false
		}
	} else {
		n := nameLen(b)
		if n == 0 {
			return nil, nil, nil, false
		}
		name, b = b[:n], b[n:]
	}
	if b = skipBlanks(b); len(b) == 0 || b[0] != '=' {
		return nil, nil, nil, false
	}
	if value, b, ok = quoted(skipBlanks(b[1:])); !ok {
		return nil, nil, nil, false
	}
	if b = skipBlanks(b); len(b) > 0 && b[0] == ',' {
		b = b[1:]
	} else if len(b) > 0 && b[0] != '}' {
		return nil, nil, nil, false
	}
	return name, value, b, true
}

// quoted reads a string in double quotes, in which a backslash escapes what follows.
func quoted(b []byte) (inside, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return nil, nil, false
	}
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return b[1:i:i], b[i+1:], true
		}
	}
	return nil, nil, false
}

// unescape resolves \\, \" and \n; another escape stays as it is.
func unescape(b []byte) string {
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b)
	}
	plain := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c == '\\' && i+1 < len(b) {
			switch b[i+1] {
			case '\\', '"':
				i, c = i+1, b[i+1]
			case 'n':
				i, c = i+1, '\n'
			}
		}
		plain = append(plain, c)
	}
	return string(plain)
}

// value reads the value, and looks at what may follow: a timestamp, an exemplar.
func value(b []byte) (v float64, ok bool) {
	first, rest := word(b)
	if v, ok = number(first); !ok {
		return 0, false
	}
	if len(rest) > 0 && rest[0] != '#' {
		var stamp []byte
		if stamp, rest = word(rest); len(stamp) > 0 {
			if _, ok = number(stamp); !ok {
				return 0, false
			}
		}
	}
	return v, len(rest) == 0 || rest[0] == '#'
}

// number reads a decimal number, NaN or an infinity. The formats have none of the
// hexadecimal digits and underscores that Go allows.
func number(b []byte) (float64, bool) {
	if bytes.ContainsAny(b, "pPxX_") {
		return 0, false
	}
	v, err := strconv.ParseFloat(string(b), 64)
	return v, err == nil
}

// word cuts b at the first blank, and what follows at the next word.
func word(b []byte) (first, rest []byte) {
	n := 0
	for n < len(b) && !blank(b[n]) {
		n++
	}
	return b[:n], skipBlanks(b[n:])
}

func skipBlanks(b []byte) []byte {
	for len(b) > 0 && blank(b[0]) {
		b = b[1:]
	}
	return b
}

func blank(c byte) bool { return c == ' ' || c == '\t' }

// nameLen returns how many bytes of b make a name of a metric or a label.
func nameLen(b []byte) int {
	for i, c := range b {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_', c == ':':
		case '0' <= c && c <= '9' && i > 0:
		default:
			return i
		}
	}
	return len(b)
}
