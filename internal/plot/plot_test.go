package plot

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite testdata")

// goodput is a chart as the simulator draws it.
func goodput() Chart {
	c := Chart{
		Title: "Goodput", Subtitle: "8 replicas, TTFT ≤ 4 s & TPOT ≤ 100 ms",
		X: Axis{Label: "rate", Unit: "req/s"}, Y: Axis{Label: "goodput", Unit: "req/s"},
		Marks: []Mark{{At: 9, Label: "pooled <bound>"}, {Vertical: true, At: 7.5, Label: "knee"}},
	}
	for i, name := range []string{"round-robin", "cache-aware", "kv-cost"} {
		s := Series{Name: name}
		for x := 1.0; x <= 12; x++ {
			y := min(x, 5+float64(i)*1.7-max(0, x-8)*0.4)
			s.Points = append(s.Points, Point{X: x, Y: y, Half: 0.1 * float64(i) * x / 4})
		}
		c.Series = append(c.Series, s)
	}
	return c
}

// latency is a distribution function over a logarithmic axis.
func latency() Chart {
	c := Chart{Title: "TTFT", X: Axis{Label: "TTFT", Unit: "s", Log: true}, Y: Axis{Label: "share of calls", Min: 0, Max: 1}}
	s := Series{Steps: true}
	for i := range 100 {
		s.Points = append(s.Points, Point{X: 0.02 * math.Exp2(float64(i)/12), Y: float64(i+1) / 100})
	}
	c.Series = []Series{s}
	return c
}

func svg(t testing.TB, c Chart) string {
	var out bytes.Buffer
	if err := c.SVG(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestSVG_Golden(t *testing.T) {
	for name, c := range map[string]Chart{"goodput": goodput(), "latency": latency(), "empty": {Title: "nothing"}} {
		file, got := "testdata/"+name+".svg", svg(t, c)
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs; look at the picture and rewrite it with -update", file)
		}
	}
}

var coordinates = regexp.MustCompile(` (?:x|y|cx|cy|d)="([^"]*)"`)

// sound checks that the picture is XML whose numbers are numbers.
func sound(t interface{ Fatalf(string, ...any) }, picture string) {
	d := xml.NewDecoder(strings.NewReader(picture))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("not XML: %v\n%s", err, picture)
		}
	}
	for _, m := range coordinates.FindAllStringSubmatch(picture, -1) {
		for _, n := range strings.FieldsFunc(m[1], func(r rune) bool { return strings.ContainsRune("MLHVhZ ", r) }) {
			if v, err := strconv.ParseFloat(n, 64); err != nil || math.IsNaN(v) || math.Abs(v) > 10*width {
				t.Fatalf("%q in %q", n, m[0])
			}
		}
	}
}

func TestSVG_IsSoundWhateverTheNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.Float64(), rapid.Float64Range(-10, 1000), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, 5e-324, math.MaxFloat64, -math.MaxFloat64}))
		axis := func(name string) Axis {
			return Axis{Label: rapid.String().Draw(t, name), Log: rapid.Bool().Draw(t, name+" log"), Unit: "<&\"\x01\xff"}
		}
		c := Chart{Title: rapid.String().Draw(t, "title"), X: axis("x"), Y: axis("y")}
		for i := range rapid.IntRange(0, MaxSeries).Draw(t, "series") {
			s := Series{Name: rapid.String().Draw(t, "name"), Steps: i%2 == 0}
			for range rapid.IntRange(0, 5).Draw(t, "points") {
				s.Points = append(s.Points, Point{value.Draw(t, "px"), value.Draw(t, "py"), value.Draw(t, "half")})
			}
			c.Series = append(c.Series, s)
		}
		c.Marks = []Mark{{At: value.Draw(t, "mark")}, {Vertical: true, At: value.Draw(t, "mark")}}
		sound(t, svg(&testing.T{}, c))
	})
}

func TestScale_ShowsAllValuesBetweenRoundTicks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1e9, 1e9), 1, 20).Draw(t, "values")
		s := newScale(Axis{}, values)
		for _, v := range values {
			if f, ok := s.at(v); !ok || f < -slack || f > 1+slack {
				t.Fatalf("%v is at %v of %v to %v", v, f, s.lo, s.hi)
			}
		}
		if n := len(s.ticks); n < 2 || n > most+2 {
			t.Fatalf("%d ticks of %v to %v", n, s.lo, s.hi)
		}
		if s.ticks[0].at != s.lo || s.ticks[len(s.ticks)-1].at != s.hi {
			t.Fatalf("ticks %v of %v to %v", s.ticks, s.lo, s.hi)
		}
	})
}

func TestScale_Ticks(t *testing.T) {
	for _, x := range []struct {
		axis   Axis
		values []float64
		want   string
	}{
		{Axis{}, []float64{0, 1}, "0.0 0.2 0.4 0.6 0.8 1.0"},
		{Axis{}, []float64{3, 12}, "0 2 4 6 8 10 12"},
		{Axis{}, []float64{0.3, 0.31}, "0.00 0.05 0.10 0.15 0.20 0.25 0.30 0.35"},
		{Axis{}, []float64{-3, 2}, "-3 -2 -1 0 1 2"},
		{Axis{}, []float64{45000}, "0 10k 20k 30k 40k 50k"},
		{Axis{}, []float64{0}, "0.0 0.2 0.4 0.6 0.8 1.0"},
		{Axis{Min: 0.25, Max: 0.75}, nil, "0.3 0.4 0.5 0.6 0.7"},
		{Axis{Log: true}, []float64{0.02, 3}, "0.02 0.05 0.1 0.2 0.5 1 2"},
		{Axis{Log: true}, []float64{1e-3, 1e3}, "0.001 0.01 0.1 1 10 100 1000"},
		{Axis{Log: true}, []float64{1e-9, 1e12}, "1e-09 0.000001 0.001 1 1000 1M 1G 1000G"},
		{Axis{Log: true}, []float64{0, -1}, "1 2 5 10"},
	} {
		var got []string
		for _, tick := range newScale(x.axis, x.values).ticks {
			got = append(got, tick.text)
		}
		if strings.Join(got, " ") != x.want {
			t.Errorf("%+v of %v: %v, want %s", x.axis, x.values, got, x.want)
		}
	}
}

func TestLog10_AgreesWithMath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64Range(1e-300, 1e300).Draw(t, "x")
		if got, want := log10(x), math.Log10(x); math.Abs(got-want) > 1e-13*max(1, math.Abs(want)) {
			t.Fatalf("log10(%v) is %v, want %v", x, got, want)
		}
	})
}

func TestSVG_EverySeriesHasALookOfItsOwn(t *testing.T) {
	c := Chart{}
	for i := range MaxSeries {
		c.Series = append(c.Series, Series{Name: fmt.Sprint("policy ", i), Points: []Point{{X: 1, Y: float64(i)}, {X: 2, Y: 3}}})
	}
	looks := map[string]bool{}
	for _, m := range regexp.MustCompile(`<path class="line (s\d)"( stroke-dasharray="[^"]*")? d="[^"]*"/><text`).FindAllStringSubmatch(svg(t, c), -1) {
		looks[m[1]+m[2]] = true
	}
	if len(looks) != MaxSeries {
		t.Errorf("%d series have %d looks", MaxSeries, len(looks))
	}
	dashesOfFirst := map[string]bool{}
	for i := range dashes {
		dashesOfFirst[dash(i)] = true
	}
	if len(dashesOfFirst) != dashes {
		t.Error("the first series differ by colour alone")
	}
}

func TestSVG_WhatCannotBeDrawnInterruptsTheLine(t *testing.T) {
	nan := math.NaN()
	c := Chart{Series: []Series{{Points: []Point{{X: 1, Y: 1}, {X: 2, Y: 2}, {X: 3, Y: nan}, {X: 4, Y: 2}, {X: 5, Y: 2}}}}}
	if n := strings.Count(svg(t, c), `<path class="line`); n != 2 {
		t.Errorf("%d lines", n)
	}
	c.Y.Log = true
	c.Series[0].Points[2].Y = 0
	if n := strings.Count(svg(t, c), `<path class="line`); n != 2 {
		t.Errorf("0 on a logarithmic axis: %d lines", n)
	}
}

func TestSVG_StepsHold(t *testing.T) {
	c := Chart{X: Axis{Min: 0, Max: 2}, Y: Axis{Min: 0, Max: 1}, Series: []Series{{Steps: true, Points: []Point{{X: 0, Y: 0.5}, {X: 1, Y: 1}}}}}
	mid, end := float64(left+width-margin)/2, float64(height-bottom)
	want := fmt.Sprintf(`d="M%d.0 %sH%sV%d.0"`, left, px((top+end)/2), px(mid), top)
	if got := svg(t, c); !strings.Contains(got, want) {
		t.Errorf("no %s in\n%s", want, got)
	}
}

func TestValidate_NamesFieldValueAndWhatIsAllowed(t *testing.T) {
	many := Chart{Series: make([]Series, MaxSeries+1)}
	for want, c := range map[string]Chart{
		"Series has 65; allowed: at most 64":            many,
		"X.Min to X.Max is 2 to 1":                      {X: Axis{Min: 2, Max: 1}},
		"Y.Min to Y.Max is 0 to NaN":                    {Y: Axis{Max: math.NaN()}},
		"Y.Min is 0; allowed on a logarithmic axis: ab": {Y: Axis{Log: true, Max: 1}},
	} {
		err := c.SVG(io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestCSV_ReadsBackToTheBit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Series{Name: rapid.StringMatching(`[a-z ",\n]*`).Draw(t, "name")}
		for range rapid.IntRange(0, 6).Draw(t, "points") {
			s.Points = append(s.Points, Point{X: rapid.Float64().Draw(t, "x"), Y: rapid.Float64().Draw(t, "y"), Half: math.NaN()})
		}
		c := Chart{X: Axis{Label: "rate", Unit: "req/s"}, Y: Axis{Label: "goodput"}, Series: []Series{s}}
		var out bytes.Buffer
		if err := c.CSV(&out); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&out).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) != 1+len(s.Points) || rows[0][1] != "rate (req/s)" || rows[0][2] != "goodput" {
			t.Fatalf("%q", rows)
		}
		for i, p := range s.Points {
			x, errX := strconv.ParseFloat(rows[i+1][1], 64)
			y, errY := strconv.ParseFloat(rows[i+1][2], 64)
			if errX != nil || errY != nil || x != p.X || y != p.Y || rows[i+1][0] != s.Name || rows[i+1][3] != "" {
				t.Fatalf("%q of %+v", rows[i+1], p)
			}
		}
	})
}

func BenchmarkSVG(b *testing.B) {
	c := latency()
	for i := range 7000 {
		c.Series[0].Points = append(c.Series[0].Points, Point{X: 6 + float64(i)/1000, Y: 1})
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := c.SVG(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
