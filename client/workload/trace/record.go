package trace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

var errTooLong = fmt.Errorf("the record is longer than %d MiB", MaxRecord>>20)

// records cuts a stream into records: the lines of JSONL and CSV, or the elements of a
// JSON array, or one object over several lines where that is what the stream holds.
type records struct {
	r     *bufio.Reader
	line  int // that the next byte is on, from 1
	start int // that the record begins on
	begun bool
	array bool // the elements of an array, not lines
	whole bool // one object over several lines
	buf   []byte
}

func newRecords(r io.Reader) *records {
	return &records{r: bufio.NewReaderSize(r, 64<<10), line: 1}
}

// next returns the next record, which is valid until the one after it, without its line
// end. The error is io.EOF at the end, errTooLong for a record that was passed over, and
// anything else where the stream cannot be read further.
func (s *records) next() ([]byte, error) {
	if !s.begun {
		s.begun = true
		if err := s.begin(); err != nil {
			return nil, err
		}
	}
	if s.array || s.whole {
		return s.element()
	}
	for {
		s.start = s.line
		b, err := s.readLine()
		if err != nil || len(b) > 0 {
			return b, err
		}
	}
}

// begin passes over a byte order mark and finds out what the stream holds.
func (s *records) begin() error {
	if b, _ := s.r.Peek(3); bytes.Equal(b, []byte("\xef\xbb\xbf")) {
		_, _ = s.r.Discard(3)
	}
	for {
		b, err := s.r.Peek(2)
		if len(b) == 0 {
			return err
		}
		if !isSpace(b[0]) {
			s.array = b[0] == '['
			s.whole = b[0] == '{' && len(b) > 1 && (b[1] == '\n' || b[1] == '\r')
			break
		}
		_, _ = s.r.Discard(1)
		s.count(b[0])
	}
	if s.array {
		_, _ = s.r.Discard(1)
	}
	return nil
}

func (s *records) count(c byte) {
	if c == '\n' {
		s.line++
	}
}

// readLine returns the next line, also the last one without a line end.
func (s *records) readLine() ([]byte, error) {
	s.buf = s.buf[:0]
	long := false
	for {
		piece, err := s.r.ReadSlice('\n')
		switch {
		case len(s.buf)+len(piece) > MaxRecord:
			long = true
		case err == nil && len(s.buf) == 0:
			s.line++
			return trimLine(piece), nil // the common case, without a copy
		}
		if !long {
			s.buf = append(s.buf, piece...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err == nil {
			s.line++
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if long {
			return nil, errTooLong
		}
		if b := trimLine(s.buf); err == nil || len(b) > 0 {
			return b, nil
		}
		return nil, io.EOF
	}
}

func trimLine(b []byte) []byte { return bytes.Trim(b, " \t\r\n") }

// element returns the next element of the array. It follows brackets and strings only; what
// is between them is the parser's to judge.
func (s *records) element() ([]byte, error) {
	c, err := s.gap()
	if err != nil {
		if s.whole && errors.Is(err, errCutOff) {
			err = io.EOF // behind the object
		}
		return nil, err
	}
	s.start = s.line
	s.buf = s.buf[:0]
	var depth int
	var text, escaped, long bool
	for {
		if len(s.buf) < MaxRecord {
			s.buf = append(s.buf, c)
		} else {
			long = true
		}
		s.count(c)
		switch {
		case escaped:
			escaped = false
		case text:
			escaped = c == '\\'
			text = c != '"'
		case c == '"':
			text = true
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		}
		next, err := s.r.Peek(1)
		ends := depth == 0 && !text
		if err != nil && !(ends && s.whole) {
			return nil, unexpectedEnd(err)
		}
		if ends && (s.whole || next[0] == ',' || next[0] == ']') {
			if long {
				return nil, errTooLong
			}
			return trimLine(s.buf), nil
		}
		c, _ = s.r.ReadByte()
	}
}

// gap passes over what separates elements and returns the first byte of the next; io.EOF
// behind the last.
func (s *records) gap() (byte, error) {
	for {
		c, err := s.r.ReadByte()
		switch {
		case err != nil:
			return 0, unexpectedEnd(err)
		case c == ']' && s.array:
			return 0, s.after()
		case c != ',' && !isSpace(c):
			return c, nil
		}
		s.count(c)
	}
}

// after makes sure that nothing follows the array.
func (s *records) after() error {
	for {
		c, err := s.r.ReadByte()
		if err != nil {
			return err
		}
		if !isSpace(c) {
			return fmt.Errorf("line %d: text follows the end of the array", s.line)
		}
		s.count(c)
	}
}

var errCutOff = errors.New("the file ends within an array or an object")

func unexpectedEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return errCutOff
	}
	return err
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
