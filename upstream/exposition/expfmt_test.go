package exposition

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"slices"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// FuzzExposition never panics, and reads from a page that Prometheus' own parser
// accepts what that parser reads: each gauge, counter and untyped sample.
func FuzzExposition(f *testing.F) {
	for _, seed := range []string{
		"",
		"# HELP vllm:num_requests_running Number of requests in model execution batches.\n# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} 3.0\n",
		"# TYPE b_total counter\nb_total{l=\"a\\\\b\\\"c\\nd\"} 1.234567e+06 1395066363000\n",
		"{\"quoted name\",l=\"x\"} 1\n",
		"# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\na NaN\n",
		"b_total 17 # {trace_id=\"x\"} 0.67\n# EOF\n",
		" a\t{ l = \"x\" , } \t-Inf\nb +Inf 3",
		"a{l=\"x\"} 1\na{l=\"y\"} 2\r\n{} 3",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, page []byte) {
		ours := readAll(page)
		// The parser takes more than the format says: names in quotes without braces, or
		// in braces without quotes, no blank before the value, and so on. What is
		// compared is the format. "# EOF" is a comment to it, and ends our page.
		if bytes.Contains(page, []byte("EOF")) || !isFormat(page) {
			return
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
		if err != nil {
			return
		}
		for name, family := range families {
			for _, m := range family.Metric {
				v, scalar := scalarOf(m)
				if !scalar {
					continue
				}
				want := sampleText(name, labelsOf(m), v)
				if !slices.Contains(ours, want) {
					t.Errorf("page %q: the parser reads %s, we read %q", page, want, ours)
				}
			}
		}
	})
}

// sampleLine is a line of the text format that is neither empty nor a comment.
var sampleLine = regexp.MustCompile(`^[ \t]*` +
	`([a-zA-Z_:][a-zA-Z0-9_:]*[ \t]*(\{` + labelPairs + `\})?|\{[ \t]*` + quotedText + `[ \t]*(,` + labelPairs + `)?\})` +
	`[ \t]+[^ \t]+([ \t]+-?[0-9]+)?[ \t]*$`)

const (
	quotedText = `"([^"\\]|\\["\\n])*"`
	labelPairs = `[ \t]*([a-zA-Z_][a-zA-Z0-9_]*[ \t]*=[ \t]*` + quotedText + `[ \t]*,[ \t]*)*([a-zA-Z_][a-zA-Z0-9_]*[ \t]*=[ \t]*` + quotedText + `[ \t]*)?`
)

// isFormat reports whether every line of a page is as the format says.
func isFormat(page []byte) bool {
	if bytes.ContainsRune(page, '\r') {
		return false
	}
	for line := range bytes.Lines(page) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		text := bytes.TrimLeft(line, " \t")
		if len(text) > 0 && text[0] != '#' && !sampleLine.Match(line) {
			return false
		}
	}
	return true
}

// readAll reads every sample of a page.
func readAll(page []byte) []string {
	var all []string
	s := NewScanner(page, func([]byte) bool { return true })
	for s.Scan() {
		var labels []string
		for rest := s.labels; ; {
			n, v, next, ok := label(rest)
			if !ok || n == nil {
				break
			}
			labels = append(labels, fmt.Sprintf("%q=%q", unescape(n), unescape(v)))
			rest = next
		}
		slices.Sort(labels)
		all = append(all, sampleText(unescape(s.Name()), labels, s.Value()))
	}
	return all
}

func sampleText(name string, labels []string, v float64) string {
	if math.IsNaN(v) {
		return fmt.Sprintf("%q %v NaN", name, labels)
	}
	return fmt.Sprintf("%q %v %x", name, labels, math.Float64bits(v))
}

func scalarOf(m *dto.Metric) (float64, bool) {
	switch {
	case m.Gauge != nil:
		return m.Gauge.GetValue(), true
	case m.Counter != nil:
		return m.Counter.GetValue(), true
	case m.Untyped != nil:
		return m.Untyped.GetValue(), true
	}
	return 0, false
}

func labelsOf(m *dto.Metric) []string {
	var labels []string
	for _, p := range m.Label {
		labels = append(labels, fmt.Sprintf("%q=%q", p.GetName(), p.GetValue()))
	}
	slices.Sort(labels)
	return labels
}
