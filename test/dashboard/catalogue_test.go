package dashboard

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documented is a series as docs/metrics.md describes it.
type documented struct {
	kind    string
	labels  []string // in alphabetical order
	meaning string
}

// cells returns the cells of a table's row, nil for any other line.
func cells(line string) []string {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "|") || !strings.HasSuffix(line, "|") || strings.HasPrefix(line, "|--") {
		return nil
	}
	parts := strings.Split(line[1:len(line)-1], "|")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

var quoted = regexp.MustCompile("`([^`]+)`")

// unquote returns what stands between backticks.
func unquote(s string) (words []string) {
	for _, m := range quoted.FindAllStringSubmatch(s, -1) {
		words = append(words, m[1])
	}
	return words
}

// catalogue returns the series that docs/metrics.md lists, by name.
func catalogue(t testing.TB) map[string]documented {
	t.Helper()
	all := map[string]documented{}
	for line := range strings.Lines(string(read(t, metricsFile))) {
		if c := cells(line); len(c) == 5 && strings.HasPrefix(c[0], "`kvasir_") {
			names := unquote(c[3])
			slices.Sort(names)
			all[unquote(c[0])[0]] = documented{kind: c[1], labels: names, meaning: c[4]}
		}
	}
	if len(all) < 30 {
		t.Fatalf("%s has %d series; its table has another form than this test knows", metricsFile, len(all))
	}
	return all
}

// labelValues returns the values that docs/metrics.md lists for a label.
func labelValues(t testing.TB, label string) []string {
	t.Helper()
	for line := range strings.Lines(string(read(t, metricsFile))) {
		if c := cells(line); len(c) == 2 && c[0] == "`"+label+"`" {
			return unquote(c[1])
		}
	}
	return nil
}

// checkSeries compares a page with docs/metrics.md, both ways.
func checkSeries(t *testing.T, p page) {
	all := catalogue(t)
	for name, s := range all {
		family := p[name]
		if family == nil {
			t.Errorf("%s is documented and not exported", name)
			continue
		}
		if kind := strings.ToLower(family.GetType().String()); kind != s.kind {
			t.Errorf("%s is a %s, documented as a %s", name, kind, s.kind)
		}
		if got := p.labelsOf(name); !slices.Equal(got, s.labels) {
			t.Errorf("%s has the labels %v, documented are %v", name, got, s.labels)
		}
	}
	for name := range p {
		if _, ok := all[name]; !ok && strings.HasPrefix(name, "kvasir_") {
			t.Errorf("%s is exported and not documented", name)
		}
	}
}
