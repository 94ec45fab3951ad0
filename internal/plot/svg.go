package plot

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"strconv"
)

// The chart's measures, in the SVG's user units: pixels where nobody scales it.
const (
	width, height     = 880, 480
	left, top, bottom = 76, 68, 60 // margins, for titles and labels
	margin            = 28         // right, where there is no legend
	sample            = 34         // a legend's piece of line
	letter            = 6.7        // of a legend's text, about
	legendMost        = 260        // width of a legend; a longer name is cut by the picture's edge
	row               = 20         // of the legend
	dotted            = 24         // a series of at most so many points shows each of them
	dot               = 3          // how far such a point reaches
)

// Each colour has a lightness that stands out on light and on dark paper alike (after Okabe
// and Ito's palette, which the colour-blind can tell apart); on dark paper the paler ones of
// the second row are used.
var (
	onLight = [colours]string{"#0072b2", "#d55e00", "#00825a", "#b0478a", "#8a6d00", "#2f8fc4", "#7a5cc4", "#5f6b76"}
	onDark  = [colours]string{"#56b4e9", "#ff8c42", "#2fc795", "#e58fc4", "#e6c229", "#9ad1f0", "#b59cf0", "#a8b3bd"}
)

// strokes are the dashes, in pixels of line and gap.
var strokes = [dashes]string{"", "7 4", "2 3", "10 3 2 3", "14 4", "6 3 2 3 2 3", "4 2", "1 4 6 4"}

const colours, dashes = 8, 8

// SVG writes the chart. It returns what Validate reports, or the writer's error.
func (c Chart) SVG(w io.Writer) error {
	if err := c.Validate(); err != nil {
		return err
	}
	p := picture{Chart: c, right: width - margin}
	if legend := p.legendWidth(); legend > 0 {
		p.right = width - legend
	}
	var xs, ys []float64
	for _, s := range c.Series {
		for _, point := range s.Points {
			xs = append(xs, point.X)
			ys = append(ys, point.Y, point.Y-whole(point.Half), point.Y+whole(point.Half))
		}
	}
	for _, m := range c.Marks {
		if m.Vertical {
			xs = append(xs, m.At)
		} else {
			ys = append(ys, m.At)
		}
	}
	p.x, p.y = newScale(c.X, xs), newScale(c.Y, ys)
	p.open()
	p.axes()
	for _, m := range c.Marks {
		p.mark(m)
	}
	for i, s := range c.Series {
		p.series(i, s)
	}
	p.legend()
	p.add("</svg>\n")
	_, err := w.Write(p.svg.Bytes())
	return err
}

// whole returns v, or 0 where it is no number.
func whole(v float64) float64 {
	if finite(v) {
		return v
	}
	return 0
}

// picture is a chart that is being drawn.
type picture struct {
	Chart
	x, y  scale
	right float64 // end of the plotting area
	svg   bytes.Buffer
}

// add writes a piece of the picture. Texts come escaped, numbers as px gives them.
func (p *picture) add(format string, args ...any) { fmt.Fprintf(&p.svg, format, args...) }

// px writes a coordinate, to a tenth of a pixel.
func px(v float64) string {
	text := strconv.FormatFloat(v, 'f', 1, 64)
	if text == "-0.0" {
		return "0.0"
	}
	return text
}

// clean makes a text fit for XML.
func clean(s string) string {
	var kept []rune
	for _, r := range s { // what is no UTF-8 becomes U+FFFD here
		if r < ' ' || r == 0xfffe || r == 0xffff {
			r = ' ' // XML 1.0 has no place for these
		}
		kept = append(kept, r)
	}
	return html.EscapeString(string(kept))
}

// open writes what comes before the drawing: the titles and the looks of it all.
func (p *picture) open() {
	p.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif" font-size="12" role="img" aria-labelledby="t d">`+"\n", width, height, width, height)
	p.add("<title id=\"t\">%s</title>\n<desc id=\"d\">%s over %s</desc>\n", clean(p.Title), clean(p.Y.name()), clean(p.X.name()))
	p.add("<style>\n")
	p.add("text{fill:#24292f}\n")
	p.add(".title{font-size:16px;font-weight:600}.faint{fill:#57606a}.end{text-anchor:end}.mid{text-anchor:middle}\n")
	p.add(".paper{fill:#fff}.grid{stroke:#d8dee4}.axis{stroke:#8c959f}.mark{stroke:#57606a;stroke-dasharray:3 3}\n")
	p.add(".line{stroke-width:1.9;stroke-linejoin:round}.band{fill-opacity:.16}\n")
	used := min(len(p.Series), colours)
	for i := range used {
		p.add(".s%d{stroke:%s;fill:%s}\n", i, onLight[i], onLight[i])
	}
	p.add("@media (prefers-color-scheme:dark){text{fill:#e6edf3}.faint{fill:#9198a1}.paper{fill:#0d1117}.grid{stroke:#262c36}.axis{stroke:#656c76}.mark{stroke:#9198a1}\n")
	for i := range used {
		p.add(".s%d{stroke:%s;fill:%s}\n", i, onDark[i], onDark[i])
	}
	p.add("}\n.line{fill:none}.band{stroke:none}\n</style>\n")
	// A point on the border is drawn whole.
	p.add("<clipPath id=\"c\"><rect x=\"%d\" y=\"%d\" width=\"%s\" height=\"%d\"/></clipPath>\n", left-dot, top-dot, px(p.right-left+2*dot), height-top-bottom+2*dot)
	p.add("<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n", width, height)
	p.add("<text class=\"title\" x=\"%d\" y=\"28\">%s</text>\n", left, clean(p.Title))
	p.add("<text class=\"faint\" x=\"%d\" y=\"48\">%s</text>\n", left, clean(p.Subtitle))
}

// axes draws the grid, the ticks' values and the axes' names.
func (p *picture) axes() {
	for _, t := range p.x.ticks {
		x, _ := p.across(t.at)
		p.add("<path class=\"grid\" d=\"M%s %dV%d\"/><text class=\"faint mid\" x=\"%s\" y=\"%d\">%s</text>\n", px(x), top, height-bottom, px(x), height-bottom+18, t.text)
	}
	for _, t := range p.y.ticks {
		y, _ := p.down(t.at)
		p.add("<path class=\"grid\" d=\"M%d %sH%s\"/><text class=\"faint end\" x=\"%d\" y=\"%s\">%s</text>\n", left, px(y), px(p.right), left-8, px(y+4), t.text)
	}
	p.add("<path class=\"axis\" fill=\"none\" d=\"M%d %dV%dH%s\"/>\n", left, top, height-bottom, px(p.right))
	p.add("<text class=\"mid\" x=\"%s\" y=\"%d\">%s</text>\n", px((left+p.right)/2), height-14, clean(p.X.name()))
	p.add("<text class=\"mid\" transform=\"translate(20 %d) rotate(-90)\">%s</text>\n", (top+height-bottom)/2, clean(p.Y.name()))
}

// across returns where a value of X is, down where one of Y is.
func (p *picture) across(v float64) (float64, bool) {
	f, ok := p.x.at(v)
	return left + float64(f*(p.right-left)), ok
}

func (p *picture) down(v float64) (float64, bool) {
	f, ok := p.y.at(v)
	return height - bottom - float64(f*(height-top-bottom)), ok
}

// mark draws a mark that lies within the axes.
func (p *picture) mark(m Mark) {
	at, ok := p.y.at(m.At)
	if m.Vertical {
		at, ok = p.x.at(m.At)
	}
	if !ok || at < 0 || at > 1 {
		return
	}
	if m.Vertical {
		x, _ := p.across(m.At)
		p.add("<path class=\"mark\" d=\"M%s %dV%d\"/><text class=\"faint\" transform=\"translate(%s %d) rotate(90)\">%s</text>\n", px(x), top, height-bottom, px(x+4), top+6, clean(m.Label))
		return
	}
	y, _ := p.down(m.At)
	p.add("<path class=\"mark\" d=\"M%d %sH%s\"/><text class=\"faint end\" x=\"%s\" y=\"%s\">%s</text>\n", left, px(y), px(p.right), px(p.right-6), px(y-5), clean(m.Label))
}

// series draws one line, its points where they are few, and its confidence band.
func (p *picture) series(i int, s Series) {
	p.add("<g clip-path=\"url(#c)\">\n")
	for _, run := range p.runs(s.Points) {
		if band := run.band(); band != "" {
			p.add("<path class=\"band s%d\" d=\"%s\"/>\n", i%colours, band)
		}
		p.add("<path class=\"line s%d\"%s d=\"%s\"/>\n", i%colours, dash(i), run.line(s.Steps))
		if len(s.Points) <= dotted {
			for _, at := range run {
				p.add("<circle class=\"s%d\" cx=\"%s\" cy=\"%s\" r=\"2.5\"/>\n", i%colours, px(at.x), px(at.y))
			}
		}
	}
	p.add("</g>\n")
}

// dash returns the attribute of the i-th series' dash. The first eight series differ in
// colour and dash, the next eight have the same colours with other dashes, and so on.
func dash(i int) string {
	if d := strokes[(i+i/colours)%dashes]; d != "" {
		return ` stroke-dasharray="` + d + `"`
	}
	return ""
}

// spot is a point in the picture; low and high end its confidence interval.
type spot struct{ x, y, low, high float64 }

// run is a part of a series without an interruption.
type run []spot

// runs returns the parts of a series. Points that fall on the one before are left out.
func (p *picture) runs(points []Point) []run {
	var all []run
	interrupted := true
	for _, point := range points {
		x, okX := p.across(point.X)
		y, okY := p.down(point.Y)
		if !okX || !okY {
			interrupted = true
			continue
		}
		at := spot{near(x), near(y), near(y), near(y)}
		if half := whole(point.Half); half > 0 {
			at.high, _ = p.down(point.Y + half)
			if low, ok := p.down(point.Y - half); ok {
				at.low = low
			} else { // below what a logarithmic axis can show
				at.low = height - bottom
			}
		}
		if interrupted {
			all, interrupted = append(all, nil), false
		}
		last := &all[len(all)-1]
		if n := len(*last); n == 0 || px((*last)[n-1].x) != px(at.x) || px((*last)[n-1].y) != px(at.y) {
			*last = append(*last, at)
		}
	}
	return all
}

// near keeps a coordinate within what drawing programs can count to.
func near(v float64) float64 { return min(max(v, -10*width), 10*width) }

// line returns the path along the run.
func (r run) line(steps bool) string {
	var d []byte
	for i, at := range r {
		switch {
		case i == 0:
			d = append(d, 'M')
		case steps:
			d = append(append(append(d, 'H'), px(at.x)...), 'V')
			d = append(d, px(at.y)...)
			continue
		default:
			d = append(d, 'L')
		}
		d = append(append(append(d, px(at.x)...), ' '), px(at.y)...)
	}
	if len(r) == 1 {
		d = append(d, "h0"...) // so that a lone point shows
	}
	return string(d)
}

// band returns the outline of the run's confidence intervals, or "" where there are none.
func (r run) band() string {
	var d []byte
	known := false
	for i, at := range r {
		known = known || at.low != at.high
		d = append(d, "ML"[min(i, 1)])
		d = append(append(append(d, px(at.x)...), ' '), px(near(at.high))...)
	}
	if !known {
		return ""
	}
	for i := len(r) - 1; i >= 0; i-- {
		d = append(append(append(append(d, 'L'), px(r[i].x)...), ' '), px(near(r[i].low))...)
	}
	return string(append(d, 'Z'))
}

// legendWidth returns the room for the legend; 0 where the chart needs none.
func (p *picture) legendWidth() float64 {
	longest := 0
	for _, s := range p.Series {
		longest = max(longest, len([]rune(s.Name)))
	}
	if longest == 0 {
		return 0
	}
	return min(24+sample+8+float64(letter*float64(longest))+10, legendMost)
}

// legend names the series, in their order, with a piece of each line.
func (p *picture) legend() {
	if p.legendWidth() == 0 {
		return
	}
	x := p.right + 24
	// Many series share the height.
	high := min(row, float64(height-top-bottom+40)/float64(len(p.Series)))
	for i, s := range p.Series {
		y := top + 6 + float64(high*float64(i))
		p.add("<path class=\"line s%d\"%s d=\"M%s %sh%d\"/><text x=\"%s\" y=\"%s\">%s</text>\n", i%colours, dash(i), px(x), px(y), sample, px(x+sample+8), px(y+4), clean(s.Name))
	}
}
