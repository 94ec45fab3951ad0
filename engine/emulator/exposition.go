package emulator

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"kvasir/engine"
)

// view is what is shown of one rank.
type view struct {
	stats   engine.Stats
	metrics metrics
	asleep  int          // sleep level, 0 awake
	loras   []loraSeries // of all ranks together
}

// exposition writes metric families into buf as prometheus_client does in its text format:
// labels in alphabetical order, Python's floats, and after a counter or a histogram a
// gauge family that says when each of its series was made.
type exposition struct {
	buf     []byte
	model   string // as a label's value
	ranks   []view
	created string // when the series were made; "" leaves those families out
}

// child is one of a family's children, with the value that its own label has.
type child struct {
	label string
	read  func(*view) float64
}

func (x *exposition) gauge(name, help string, read func(*view) float64) {
	x.children(name, "gauge", help, "", child{read: read})
}

func (x *exposition) gaugeBy(name, help, label string, children ...child) {
	x.children(name, "gauge", help, label, children...)
}

func (x *exposition) counter(name, help string, read func(*view) float64) {
	x.counterBy(name, help, "", child{read: read})
}

func (x *exposition) counterBy(name, help, label string, children ...child) {
	x.children(name+"_total", "counter", help, label, children...)
	if x.created == "" {
		return
	}
	x.family(name+"_created", "gauge", help)
	for _, c := range children {
		for rank := range x.ranks {
			x.name(name+"_created").own(rank, label, c.label).raw(x.created)
		}
	}
}

func (x *exposition) children(name, kind, help, label string, children ...child) {
	x.family(name, kind, help)
	for _, c := range children {
		for rank := range x.ranks {
			x.name(name).own(rank, label, c.label).value(c.read(&x.ranks[rank]))
		}
	}
}

func (x *exposition) histogram(name, help string, of func(*metrics) *histogram) {
	x.family(name, "histogram", help)
	for rank := range x.ranks {
		h, total := of(&x.ranks[rank].metrics), uint64(0)
		for i, bound := range h.bounds {
			total += h.counts[i]
			x.name(name+"_bucket").own(rank, "le", number(bound)).value(float64(total))
		}
		total += h.counts[len(h.bounds)]
		x.name(name+"_bucket").own(rank, "le", "+Inf").value(float64(total))
		x.name(name+"_count").own(rank, "", "").value(float64(total))
		x.name(name+"_sum").own(rank, "", "").value(h.sum)
	}
	if x.created == "" {
		return
	}
	x.family(name+"_created", "gauge", help)
	for rank := range x.ranks {
		x.name(name+"_created").own(rank, "", "").raw(x.created)
	}
}

func (x *exposition) family(name, kind, help string) {
	x.buf = fmt.Appendf(x.buf, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (x *exposition) name(s string) *exposition {
	x.buf = append(x.buf, s...)
	return x
}

// own writes a rank's labels and, where it has a name, one more.
func (x *exposition) own(rank int, label, value string) *exposition {
	extra := func() {
		x.buf = append(append(append(append(x.buf, label...), `="`...), value...), `",`...)
	}
	x.buf = append(x.buf, `{engine="`...)
	x.buf = strconv.AppendInt(x.buf, int64(rank), 10)
	x.buf = append(x.buf, `",`...)
	if label != "" && label < "model_name" {
		extra()
	}
	x.buf = append(append(append(x.buf, `model_name="`...), x.model...), `",`...)
	if label > "model_name" {
		extra()
	}
	x.buf[len(x.buf)-1] = '}'
	return x
}

// labels writes other labels, which are given in pairs of name and value.
func (x *exposition) labels(pairs [][2]string) *exposition {
	slices.SortFunc(pairs, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	x.buf = append(x.buf, '{')
	for i, p := range pairs {
		if i > 0 {
			x.buf = append(x.buf, ',')
		}
		x.buf = append(append(append(append(x.buf, p[0]...), `="`...), labelValue(p[1])...), '"')
	}
	x.buf = append(x.buf, '}')
	return x
}

func (x *exposition) value(v float64) { x.raw(number(v)) }

func (x *exposition) raw(v string) {
	x.buf = append(append(append(x.buf, ' '), v...), '\n')
}

// labelValue escapes a label's value.
func labelValue(s string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(s)
}

// repr formats a value as Python's repr does.
func repr(v float64) string {
	switch {
	case math.IsNaN(v):
		return "nan"
	case math.IsInf(v, 0):
		return strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(v, 'g', -1, 64)), "+")
	case v != 0 && (math.Abs(v) < 1e-4 || math.Abs(v) >= 1e16):
		return strconv.FormatFloat(v, 'e', -1, 64)
	}
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// number formats a value as prometheus_client's floatToGoString does: Python's repr, but
// from a million on in Go's exponent form. Reading it gives the very same float64.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "+Inf"
	case math.IsInf(v, -1):
		return "-Inf"
	}
	s := repr(v)
	dot := strings.IndexByte(s, '.')
	if v <= 0 || dot <= 6 || strings.Contains(s, "e") {
		return s
	}
	mantissa := strings.TrimRight(s[:1]+"."+s[1:dot]+s[dot+1:], "0.")
	return fmt.Sprintf("%se+%02d", mantissa, dot-1)
}
