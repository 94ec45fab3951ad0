package lab

import (
	"fmt"
	"strings"
)

// The player shows what routers see only where that is a small table.
const (
	shownRouters  = 8
	shownReplicas = 16
)

// watch plays each rule on the first seed, and returns the ticks for the player and the skew over
// all of them.
func (f *freshness) watch() (Player, Plot) {
	steps := f.ticks
	if bound := stepsWithin(herdRules, f.replicas); steps > bound {
		steps = bound
	}
	p := Player{Name: "ticks", Title: "outstanding requests, tick by tick, on the first seed", Step: "tick", Steps: steps}
	if steps < f.ticks {
		p.Title += fmt.Sprintf(": the first %d of %d ticks", steps, f.ticks)
	}
	skews := Plot{Name: "skew", Title: "skew, tick by tick, on the first seed", Kind: Lines,
		X: Axis{Label: "time", Unit: "ticks"}, Y: Axis{Label: "skew", Unit: "requests"}}
	var says []string
	for rule, name := range f.names() {
		b := Board{Name: name, Track: &Track{Label: "skew"}}
		var skew thinner
		tick := 0
		var peak int
		var sum, piles float64
		f.play(f.herdOf(rule), f.root(0), f.stagger, func(t *herdTick) {
			skew.add(float64(t.skew))
			tick++
			peak, sum = max(peak, t.skew), sum+float64(t.skew)
			if one(t.sent) {
				piles++
			}
			if tick > steps {
				return
			}
			frame := f.frame(t, tick-1)
			frame.Facts = []Fact{{"skew", fmt.Sprint(t.skew)}, {"peak skew so far", fmt.Sprint(peak)}, {"mean skew so far", decimal(sum/float64(tick), 1)},
				{"piled up so far", decimal(100*piles/float64(tick), 0) + " %"}}
			b.Frames = append(b.Frames, frame)
			b.Track.Values = append(b.Track.Values, float64(t.skew))
			for _, n := range t.outstanding {
				p.Most = max(p.Most, float64(n))
			}
		})
		skews.Series = append(skews.Series, skew.series(name))
		p.Boards = append(p.Boards, b)
		says = append(says, fmt.Sprintf("%s %s (peak %d)", name, decimal(sum/float64(f.ticks), 1), peak))
	}
	skews.Says = "Mean skew of the run: " + strings.Join(says, "; ") + "."
	return p, skews
}

// one reports whether every dispatch of a tick went to the same replica.
func one(sent [][2]int) bool {
	for _, s := range sent {
		if s[1] != sent[0][1] {
			return false
		}
	}
	return true
}

// frame shows one tick, but for the totals.
func (f *freshness) frame(t *herdTick, tick int) Frame {
	frame := Frame{Head: fmt.Sprintf("%s; %s", counted(f.arrivals, "request arrives", "requests arrive"), scrapes(t.scraped, f.routers)), Note: f.note(t)}
	got := make([]int, f.replicas)
	for _, s := range t.sent {
		got[s[1]]++
	}
	for i, n := range t.outstanding {
		lane := Lane{Name: fmt.Sprintf("replica %d", i+1), Value: float64(n), Fresh: float64(got[i])}
		if got[i] > 0 {
			lane.State = Chosen
		}
		frame.Lanes = append(frame.Lanes, lane)
	}
	if f.routers <= shownRouters && f.replicas <= shownReplicas {
		frame.Grid = f.grid(t)
	}
	return frame
}

// grid shows what each router believed when the tick's requests came, and where it sent them.
func (f *freshness) grid(t *herdTick) *Grid {
	g := Grid{Title: "what the routers see", Columns: []string{"router"}}
	for i := range f.replicas {
		g.Columns = append(g.Columns, fmt.Sprintf("replica %d", i+1))
	}
	g.Columns = append(g.Columns, "sent to")
	for n, seen := range t.seen {
		row := []string{fmt.Sprint(n + 1)}
		for _, v := range seen {
			row = append(row, fmt.Sprint(v))
		}
		to := make([]int, f.replicas)
		for _, s := range t.sent {
			if s[0] == n {
				to[s[1]]++
			}
		}
		g.Rows = append(g.Rows, append(row, destinations(to)))
	}
	return &g
}

// note says where the tick's requests went.
func (f *freshness) note(t *herdTick) string {
	to := make([]int, f.replicas)
	for _, s := range t.sent {
		to[s[1]]++
	}
	switch {
	case len(t.sent) == 1:
		return "It goes to replica " + destinations(to) + "."
	case one(t.sent):
		return "All of them go to replica " + fmt.Sprint(t.sent[0][1]+1) + "."
	}
	return "They go to the replicas " + destinations(to) + "."
}

// destinations lists the replicas that got something, with how much where that is more than one
// request.
func destinations(to []int) string {
	var texts []string
	for i, n := range to {
		switch {
		case n == 1:
			texts = append(texts, fmt.Sprint(i+1))
		case n > 1:
			texts = append(texts, fmt.Sprintf("%d (×%d)", i+1, n))
		}
	}
	return strings.Join(texts, ", ")
}

// scrapes says who scraped.
func scrapes(scraped []int, routers int) string {
	switch {
	case len(scraped) == 0:
		return "nobody scrapes"
	case len(scraped) == routers && routers > 1:
		return "every router scrapes"
	}
	var texts []string
	for _, n := range scraped {
		texts = append(texts, fmt.Sprint(n+1))
	}
	if len(scraped) == 1 {
		return "router " + texts[0] + " scrapes"
	}
	return "routers " + strings.Join(texts, ", ") + " scrape"
}

// counted returns a number with the words for one or for several.
func counted(n int, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return decimal(float64(n), 0) + " " + plural
}

// plotRouters draws the table by routers.
func (f *freshness) plotRouters(runs [2][]herdings) Plot {
	p := Plot{Name: "routers", Title: "mean skew by number of routers", Kind: Lines, X: Axis{Label: "routers", Log: true}, Y: Axis{Label: "mean skew", Unit: "requests"}}
	var x Numbers
	for _, n := range routerCounts {
		x = append(x, float64(n))
	}
	names := f.names()
	for rule, rows := range runs {
		var means [][]float64
		for _, r := range rows {
			means = append(means, r.mean)
		}
		p.Series = append(p.Series, meansAt(names[rule], x, means))
	}
	last := len(x) - 1
	stale, own := p.Series[staleView].Y, p.Series[ownDispatches].Y
	p.Says = fmt.Sprintf("From 1 router to %s the stale view's mean skew goes from %s to %s, that of routers that count their own dispatches from %s to %s.",
		show(x[last]), decimal(stale[0], 1), decimal(stale[last], 1), decimal(own[0], 1), decimal(own[last], 1))
	return p
}

// plotScrapes draws the table by scrape interval.
func (f *freshness) plotScrapes(runs []scrapeRun) Plot {
	p := Plot{Name: "scrapes", Title: "the stale view's skew by scrape interval", Kind: Lines, X: Axis{Label: "scrape interval", Unit: "ticks", Log: true},
		Y: Axis{Label: "skew", Unit: "requests"}}
	var x, bound Numbers
	var peaks, means [][]float64
	for i, r := range runs {
		x, bound = append(x, float64(scrapeIntervals[i])), append(bound, r.bound)
		peaks, means = append(peaks, r.peak), append(means, r.mean)
	}
	p.Series = []Series{meansAt("peak", x, peaks), meansAt("mean", x, means), {Name: "min(λT, L)", X: x, Y: bound}}
	last := len(x) - 1
	p.Says = fmt.Sprintf("The peak skew grows from %s at a scrape every tick to %s at one every %s ticks, where min(λT, L) goes from %s to %s.",
		decimal(p.Series[0].Y[0], 1), decimal(p.Series[0].Y[last], 1), show(x[last]), decimal(bound[0], 0), decimal(bound[last], 0))
	return p
}
