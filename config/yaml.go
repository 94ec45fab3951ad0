package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxFile bounds a configuration file.
const maxFile = 1 * MiB

// parseYAML returns the tree of the one document in data, or what keeps it from being
// one.
func parseYAML(data []byte) (*yaml.Node, Problems) {
	if Size(len(data)) > maxFile {
		return nil, Problems{{Line: 1, Column: 1, Message: fmt.Sprintf("the file is larger than %v", maxFile)}}
	}
	if at, message := foreign(data); message != "" {
		line, column := position(data, at)
		return nil, Problems{{Line: line, Column: column, Message: message}}
	}
	if at, deep := tooDeep(data); deep {
		line, column := position(data, at)
		return nil, Problems{{Line: line, Column: column, Message: fmt.Sprintf("brackets are nested deeper than %d levels", maxDepth)}}
	}
	documents, err := readDocuments(bytes.NewReader(data))
	switch {
	case err != nil:
		line, column := position(data, locateSyntaxError(data))
		return nil, Problems{{Line: line, Column: column, Message: "YAML: " + syntaxMessage(err)}}
	case len(documents) == 0:
		return nil, Problems{{Line: 1, Column: 1, Message: "the file is empty; `kvasir config example` prints a start"}}
	case len(documents) > 1:
		second := documents[1]
		return nil, Problems{{Line: second.Line, Column: second.Column, Message: "a second document starts here; a configuration is one document"}}
	}
	root := documents[0].Content[0]
	if root.Kind == yaml.ScalarNode && root.Value == "" && root.Style == 0 {
		root.Line, root.Column = 1, 1 // the library places what isn't there behind the end
	}
	return root, nil
}

// readDocuments returns the first documents of a stream, two at most.
func readDocuments(r io.Reader) (documents []*yaml.Node, err error) {
	// The library panics on event sequences that its authors hold to be impossible.
	// What it can't read is a file's mistake, not the program's.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	d := yaml.NewDecoder(r)
	for len(documents) < 2 {
		var n yaml.Node
		switch err := d.Decode(&n); {
		case errors.Is(err, io.EOF):
			return documents, nil
		case err != nil:
			return nil, err
		}
		documents = append(documents, &n)
	}
	return documents, nil
}

// foreign returns the first byte or character that isn't the text of a file with lines
// as editors count them. YAML ends a line at more characters than editors do.
func foreign(data []byte) (at int, message string) {
	for at < len(data) {
		r, n := utf8.DecodeRune(data[at:])
		switch {
		case r == utf8.RuneError && n == 1:
			return at, fmt.Sprintf("the byte 0x%02x is not UTF-8", data[at])
		case r == '\u0085' || r == '\u2028' || r == '\u2029',
			r == '\r' && !bytes.HasPrefix(data[at:], []byte("\r\n")):
			return at, fmt.Sprintf("the line break %U is not accepted; lines end with LF or CR LF", r)
		}
		at += n
	}
	return 0, ""
}

// maxDepth bounds how deep brackets may nest. A configuration needs a quarter of it.
const maxDepth = 32

// tooDeep returns the first bracket that is nested too deep. The library takes time that
// grows with the product of a file's depth and length, most of all to fail. Brackets in
// quotes and comments don't count; where YAML's finer rules would say that more of them
// don't, a file has to open as many in vain to be refused for it.
func tooDeep(data []byte) (at int, deep bool) {
	depth := 0
	starts := true // whether a quote or a comment can begin here
	for i := 0; i < len(data); i++ {
		switch c := data[i]; c {
		case '[', '{':
			if depth++; depth > maxDepth {
				return i, true
			}
			starts = true
		case ']', '}':
			depth = max(0, depth-1)
			starts = true
		case ' ', '\t', '\n', '\r', ',', ':':
			starts = true
		case '\'', '"':
			if starts {
				i = closingQuote(data, i)
			}
			starts = false
		case '#':
			if n := bytes.IndexByte(data[i:], '\n'); starts && n >= 0 {
				i += n
			} else if starts {
				return 0, false
			}
		default:
			starts = false
		}
	}
	return 0, false
}

// closingQuote returns the index of the quote that closes the one at open, or the end.
func closingQuote(data []byte, open int) int {
	quote := data[open]
	for i := open + 1; i < len(data); i++ {
		switch {
		case data[i] == '\\' && quote == '"':
			i++
		case data[i] == quote && quote == '\'' && i+1 < len(data) && data[i+1] == quote:
			i++
		case data[i] == quote:
			return i
		}
	}
	return len(data)
}

// position turns an offset into a line and a column in characters, both from 1.
func position(data []byte, offset int) (line, column int) {
	before := data[:offset]
	start := bytes.LastIndexByte(before, '\n') + 1
	return bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[start:]) + 1
}

const (
	noAliases = "anchors, aliases and merge keys are not accepted; write the value out"
	noTags    = "tags are not accepted; put a text in quotes instead"
)

// refuse reports every use of a part of YAML that a configuration may not use. It
// never follows an alias, so its work is bounded by the file's size.
func (d *decoder) refuse(n *yaml.Node) {
	switch {
	case n.Kind == yaml.AliasNode, n.Anchor != "", isMerge(n):
		d.reportAt(n.Line, n.Column, nil, noAliases)
	case n.Style&yaml.TaggedStyle != 0:
		d.reportAt(n.Line, n.Column, nil, noTags)
	}
	for _, c := range n.Content {
		d.refuse(c)
	}
}

func isMerge(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Value == "<<" && n.Style == 0
}
