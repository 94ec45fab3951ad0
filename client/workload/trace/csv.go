package trace

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// table reads lines of CSV by the names of their columns. A field may stand in quotes; a
// line end within a field is not known here, none of the traces has one.
type table struct {
	columns []string // of the header
	fields  [][]byte // of the line
	quoted  []byte   // room for fields in quotes
}

// split cuts a line into fields, which are valid until the next line.
func (t *table) split(line []byte) error {
	t.fields, t.quoted = t.fields[:0], t.quoted[:0]
	for {
		if len(line) > 0 && line[0] == '"' {
			field, rest, err := t.quotedField(line[1:])
			if err != nil {
				return err
			}
			t.fields = append(t.fields, field)
			if rest == nil {
				return nil
			}
			line = rest
			continue
		}
		field, rest, more := bytes.Cut(line, []byte(","))
		t.fields = append(t.fields, bytes.TrimSpace(field))
		if !more {
			return nil
		}
		line = rest
	}
}

// quotedField reads a field behind its opening quote. rest is nil at the end of the line.
func (t *table) quotedField(b []byte) (field, rest []byte, err error) {
	start := len(t.quoted)
	for {
		inside, behind, ok := bytes.Cut(b, []byte(`"`))
		if !ok {
			return nil, nil, fmt.Errorf("a quote is not closed on its line")
		}
		t.quoted = append(t.quoted, inside...)
		switch {
		case len(behind) == 0:
			return t.quoted[start:], nil, nil
		case behind[0] == ',':
			return t.quoted[start:], behind[1:], nil
		case behind[0] != '"':
			return nil, nil, fmt.Errorf("%s follows a closing quote; allowed: a comma", excerpt(behind))
		}
		t.quoted = append(t.quoted, '"')
		b = behind[1:]
	}
}

// header takes a line as the header if it is one: if it names all of the columns wanted, in
// whatever case. It reports whether the line is to be passed over.
func (t *table) header(line []byte, wanted ...string) (bool, error) {
	if t.columns != nil {
		return false, nil
	}
	if err := t.split(line); err != nil {
		return false, err
	}
	columns := make([]string, 0, len(t.fields))
	for _, f := range t.fields {
		columns = append(columns, strings.ToLower(string(f)))
	}
	for _, w := range wanted {
		if !slices.Contains(columns, w) {
			return false, fmt.Errorf("the header has no column %q: %s", w, excerpt(line))
		}
	}
	t.columns = columns
	return true, nil
}

// read splits a line and makes sure that it has a field for each column.
func (t *table) read(line []byte) error {
	if err := t.split(line); err != nil {
		return err
	}
	if len(t.fields) != len(t.columns) {
		return fmt.Errorf("the line has %d fields; allowed: %d, as the header has", len(t.fields), len(t.columns))
	}
	return nil
}

// field returns the line's field of a column, empty where there is no such column.
func (t *table) field(column string) []byte {
	if i := slices.Index(t.columns, column); i >= 0 {
		return t.fields[i]
	}
	return nil
}

// isHeader returns a detection by the columns of a header.
func isHeader(wanted ...string) func([]byte) bool {
	return func(first []byte) bool {
		ok, err := new(table).header(first, wanted...)
		return ok && err == nil
	}
}
