package exposition

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// render reads a page for the names a, b_total and c:d, and writes down what it found.
func render(page string) (samples []string, bad int) {
	s := NewScanner([]byte(page), func(name []byte) bool {
		return slices.Contains([]string{"a", "b_total", "c:d"}, string(name))
	})
	for s.Scan() {
		var line strings.Builder
		line.Write(s.Name())
		for _, l := range []string{"l", "m", "quo ted"} {
			if v, ok := s.Label(l); ok {
				fmt.Fprintf(&line, " %s=%q", l, v)
			}
		}
		samples = append(samples, fmt.Sprintf("%s %v", line.String(), s.Value()))
	}
	return samples, s.Bad()
}

func TestScan_ReadsEveryFormat(t *testing.T) {
	for _, c := range []struct {
		name, page string
		want       []string
		bad        int
	}{
		{"empty", "", nil, 0},
		{"0.0.4", "# HELP a Text.\n# TYPE a gauge\na{l=\"x\"} 3.0\na 1.234567e+06\n", []string{`a l="x" 3`, "a 1.234567e+06"}, 0},
		{"timestamps", "a 1 1395066363000\na{l=\"x\"} 2 -5\n", []string{"a 1", `a l="x" 2`}, 0},
		{"OpenMetrics", "# TYPE b counter\nb_total{l=\"x\"} 17 1520879607.789 # {trace_id=\"o}\"} 0.67 1520879606\nb_created 5\na 2 # {} 1\n# EOF\na 9\n",
			[]string{`b_total l="x" 17`, "a 2"}, 0},
		{"1.0.0 quoted names", "{\"a\",\"quo ted\"=\"x\",m=\"y\"} 1\n{\"c:d\"} 2\n{ \"a\" , } 3\n{\"other\",=} 4\n",
			[]string{`a m="y" quo ted="x" 1`, "c:d 2", "a 3"}, 0},
		{"blanks", "  a\t{ l = \"x\" , m=\"y\", }\t 4 \t7 \n\n\t\n a  5 \n", []string{`a l="x" m="y" 4`, "a 5"}, 0},
		{"no blank after the braces", "a{}1\na{l=\"x\"}2\n", []string{"a 1", `a l="x" 2`}, 0},
		{"carriage returns", "a 1\r\na{l=\"x\"} 2\r\n# EOF\r\n", []string{"a 1", `a l="x" 2`}, 0},
		{"no newline at the end", "a 1\na 2", []string{"a 1", "a 2"}, 0},
		{"escapes", `a{l="q\"}{,=\\",m="\n\t"} 1` + "\n", []string{`a l="q\"}{,=\\" m="\n\\t" 1`}, 0},
		{"values", "a NaN\na +Inf\na -Inf\na -0.5\na .5\na 1e3\n", []string{"a NaN", "a +Inf", "a -Inf", "a -0.5", "a 0.5", "a 1000"}, 0},
		{"unwanted and broken", "x{l=\"} 1\nxx 1 2 3 4\nx{ y\nb 4\nb_total_created 3\nc:dd 4\n", nil, 0},
		{"no name", "1a 2\n{} 3\n\"a\" 4\n{l=\"x\"} 5\n{\"a\" l=\"x\"} 6\n= 1\na\nab\n", nil, 8},
		{"bad values", "a one\na 0x1p4\na 1_000\na 1e999\na\t\na{} \na 1 x\na 1 2 3\na 1 2 x # {} 1\n", nil, 9},
		{"bad labels", "a{l=x} 1\na{l=\"x} 1\na{l \"x\"} 1\na{l=\"x\"m=\"y\"} 1\na{,} 1\na{l=\"x\",,} 1\na{l=\"x\"\na{l=\"x\\\"} 1\na{2=\"x\"} 1\na 1\n",
			[]string{"a 1"}, 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, bad := render(c.page)
			if !slices.Equal(got, c.want) || bad != c.bad {
				t.Errorf("got %q and %d bad lines, want %q and %d", got, bad, c.want, c.bad)
			}
		})
	}
}

// TestScan_WhenLinesAreBad_ReadsTheOthers puts garbage between the lines of a page.
func TestScan_WhenLinesAreBad_ReadsTheOthers(t *testing.T) {
	good := []string{`a{l="x"} 1`, "b_total 2", "c:d 3 4"}
	want, _ := render(strings.Join(good, "\n"))
	for _, garbage := range []string{"<html>", "\x00\xff", `a{l="`, "a{", "{", "\"", "a 1 2 3", "#", "# TYPE", strings.Repeat("a{", 1000)} {
		page := garbage + "\n" + strings.Join(good, "\n"+garbage+"\n") + "\n" + garbage
		if got, _ := render(page); !slices.Equal(got, want) {
			t.Errorf("with %q between: %q, want %q", garbage, got, want)
		}
	}
}

func TestScan_WhenPageIsLong_AllocatesLittle(t *testing.T) {
	page := []byte(strings.Repeat("x_bucket{engine=\"0\",le=\"0.5\"} 3.0\n", 10000) + "a{l=\"x\"} 1\n")
	allocs := testing.AllocsPerRun(10, func() {
		s := NewScanner(page, func(name []byte) bool { return string(name) == "a" })
		for s.Scan() {
			if math.IsNaN(s.Value()) {
				t.Fatal("NaN")
			}
		}
	})
	if allocs > 2 {
		t.Errorf("%v allocations a page", allocs)
	}
}
