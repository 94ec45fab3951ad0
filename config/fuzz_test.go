package config

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzConfig(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "example.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("testdata/x.yaml", data, testEnv())
		var shown string
		if err == nil {
			if err := c.Validate(); err != nil {
				t.Errorf("accepted, but Validate says:\n%v", err)
			}
			// The schema doesn't know negative zeros.
			if err := againstSchema(t, data); err != nil && !bytes.Contains(data, []byte("-0")) {
				t.Errorf("accepted, but the schema says:\n%v", err)
			}
			shown = fmt.Sprintf("%+v %s", c, dump(c))
		} else {
			ps, ok := err.(Problems)
			if c != nil || !ok || len(ps) == 0 {
				t.Fatalf("got %v and %v, want a configuration or problems", c, err)
			}
			checkProblems(t, ps, data)
			shown = err.Error()
		}
		if !bytes.Contains(data, []byte(canary)) && strings.Contains(shown, canary) {
			t.Errorf("a secret is shown:\n%s", shown)
		}
	})
}

// checkProblems holds what is true of every report.
func checkProblems(t *testing.T, ps Problems, data []byte) {
	t.Helper()
	lines := strings.Split(string(data), "\n")
	for _, p := range ps {
		if p.File != "testdata/x.yaml" && p.Line > 0 && p.Message != "" {
			continue // of a file that data names
		}
		if p.Line < 1 || p.Line > len(lines) {
			t.Errorf("%v: the file has %d lines", p, len(lines))
			continue
		}
		if most := utf8.RuneCountInString(lines[p.Line-1]) + 1; p.Column < 1 || p.Column > most {
			t.Errorf("%v: the line has %d columns", p, most)
		}
		if p.File != "testdata/x.yaml" || p.Message == "" || strings.ContainsAny(p.String(), "\n\r") {
			t.Errorf("%q: want a file, a message and one line", p.String())
		}
	}
	if !slices.IsSortedFunc(ps, func(a, b Problem) int {
		if a.File != b.File {
			return strings.Compare(a.File, b.File)
		}
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	}) {
		t.Errorf("not sorted by position:\n%v", ps)
	}
}
