package config

import (
	"bytes"
	"io"
	"regexp"
)

// The YAML library names at most a line for a syntax error, often the wrong one. What
// follows finds the place by reading beginnings of the file.

var (
	libraryPlace  = regexp.MustCompile(`^yaml: (line \d+: )?`)
	unknownAnchor = regexp.MustCompile(`^unknown anchor .*`)
)

// syntaxMessage is the library's message without its line and without any word of the
// file, which might be a secret.
func syntaxMessage(err error) string {
	m := libraryPlace.ReplaceAllString(err.Error(), "")
	return unknownAnchor.ReplaceAllString(m, noAliases)
}

// dropwise gives its data byte by byte, so that what was taken of it when a reader
// fails is little more than what the reader needed to fail.
type dropwise struct {
	data  []byte
	taken int
}

func (d *dropwise) Read(p []byte) (int, error) {
	if d.taken == len(d.data) {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	p[0] = d.data[d.taken]
	d.taken++
	return 1, nil
}

// search looks for the longest readable beginning of data within a budget of bytes.
type search struct {
	data   []byte
	budget int
}

// readable tells whether the first n bytes are YAML. It is false once the budget is
// spent, which makes the place less exact and the search end.
func (s *search) readable(n int) bool {
	if s.budget <= 0 {
		return false
	}
	s.budget -= n
	_, err := readDocuments(bytes.NewReader(s.data[:n]))
	return err == nil
}

// locateSyntaxError returns the offset at which data stops being YAML: after the
// longest readable beginning that ends with a line, and then the longest readable
// beginning of the next line. An open bracket or quote is thus found where it opens.
func locateSyntaxError(data []byte) int {
	reader := &dropwise{data: data}
	_, _ = readDocuments(reader) // fails, or there were nothing to locate
	s := &search{data, int(MiB) + len(data)}

	ends := []int{0} // of the lines, up to the one that the library did not get beyond
	for i, b := range data[:reader.taken] {
		if b == '\n' && i+1 < reader.taken {
			ends = append(ends, i+1)
		}
	}
	line := s.lastReadable(ends)
	after := reader.taken
	if line+1 < len(ends) {
		after = ends[line+1]
	}
	s.budget = max(s.budget, 0) + int(MiB)
	for n := after; n > ends[line]; n-- {
		if s.readable(n) {
			return n
		}
	}
	return ends[line]
}

// lastReadable returns the index of the last of ends up to which data is readable.
// The first always is: it is the empty beginning.
func (s *search) lastReadable(ends []int) int {
	good, bad := len(ends)-1, len(ends)
	for step := 1; good > 0 && !s.readable(ends[good]); step *= 2 {
		good, bad = max(0, good-step), good
	}
	for {
		for bad-good > 1 {
			if middle := (good + bad) / 2; s.readable(ends[middle]) {
				good = middle
			} else {
				bad = middle
			}
		}
		// Within brackets or a quoted text that span lines no beginning is readable,
		// so a line further on may be good again.
		const longest = 100
		again := bad + 1
		for again < len(ends) && again <= bad+longest && !s.readable(ends[again]) {
			again++
		}
		if again >= len(ends) || again > bad+longest {
			return good
		}
		good, bad = again, len(ends)
	}
}
