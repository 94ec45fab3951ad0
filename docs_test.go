package kvasir_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCases_AreAllListed keeps docs/cases.md true: every field case that a comment names
// has a row, and every file that a row names exists.
func TestCases_AreAllListed(t *testing.T) {
	text, err := os.ReadFile("docs/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	file := regexp.MustCompile("`([^`]+_test\\.go)`")
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| F") {
			continue
		}
		listed[line[2:5]] = true
		for _, m := range file.FindAllStringSubmatch(line, -1) {
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("%s: %v", line[2:5], err)
			}
		}
	}
	named := regexp.MustCompile(`\bF[0-9]{2}\b`)
	err = filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		source, err := os.ReadFile(path)
		for line := range strings.Lines(string(source)) {
			if _, comment, ok := strings.Cut(line, "//"); ok {
				for _, n := range named.FindAllString(comment, -1) {
					if !listed[n] {
						t.Errorf("%s names %s, which docs/cases.md does not list", path, n)
					}
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(listed) < 30 {
		t.Errorf("%d rows were found", len(listed))
	}
}
