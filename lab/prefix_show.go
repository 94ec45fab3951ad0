package lab

import "fmt"

// prefixArticle has the article's figures beside ours.
func prefixArticle(load, aware, free placed) Table {
	t := Table{Name: "article", Title: "the article's figures beside ours", Columns: []Column{{Name: "router"}, {Name: "figure"}, {Name: "article"}, {Name: "ours"}}}
	row := func(router, figure string, article, ours float64, digits int) {
		t.Rows = append(t.Rows, []Cell{Text(router), Text(figure), Number(article, digits), Number(ours, digits)})
	}
	row("least outstanding only", "hits", 4, float64(load.hits), 0)
	row("least outstanding only", "prefill, tokens", 29_180, float64(load.prefill), 0)
	row("prefix-aware", "hits", 6, float64(aware.hits), 0)
	row("prefix-aware", "prefill, tokens", 21_180, float64(aware.prefill), 0)
	row("prefix-aware", "saved, %", 27.4, saved(load, aware), 1)
	row("prefix-aware", "dropped affinity", 2, float64(aware.dropped), 0)
	row("prefix-aware", "of which missed", 2, float64(aware.missed), 0)
	t.Rows = append(t.Rows, []Cell{Text("prefix-aware, no threshold"), Text("loads"), Text("8, 2, 2"), Text(joined(free.loads))})
	return t
}

// player shows both routers request by request.
func (p *prefix) player() Player {
	pl := Player{Name: "requests", Title: "the same twelve requests under two routers", Step: "request", Steps: len(prefixTrace)}
	base := place(prefixTrace[:], p.replicas, p.threshold, false)
	for _, board := range []struct {
		name  string
		aware bool
	}{{"least outstanding only", false}, {"prefix-aware", true}} {
		run := place(prefixTrace[:], p.replicas, p.threshold, board.aware)
		b := Board{Name: board.name, Track: &Track{Label: "prefilled tokens", Flag: "a hit"}}
		loads, cached := make([]int, p.replicas), make([]int, p.replicas)
		total, baseTotal, hits := 0, 0, 0
		for i, q := range prefixTrace {
			r := run.requests[i]
			frame := Frame{Head: fmt.Sprintf("R%d: prefix P%d, %s + %d tokens", i+1, q.prefix, decimal(float64(q.head), 0), q.tail)}
			frame.Note = p.why(i, r, loads, cached)
			loads[r.replica]++
			cached[r.replica] = q.prefix
			total, baseTotal = total+r.prefill, baseTotal+base.requests[i].prefill
			if r.hit {
				hits++
				b.Track.Flags = append(b.Track.Flags, i)
			}
			for n, load := range loads {
				lane := Lane{Name: fmt.Sprintf("replica %d", n+1), Text: "empty", Value: float64(load)}
				if cached[n] > 0 {
					lane.Text = fmt.Sprintf("P%d", cached[n])
				}
				if n == r.replica {
					lane.Fresh, lane.State = 1, Miss
					if r.hit {
						lane.State = Hit
					}
				}
				frame.Lanes = append(frame.Lanes, lane)
				pl.Most = max(pl.Most, lane.Value)
			}
			frame.Facts = []Fact{{"prefill of this request", tokensText(r.prefill)}, {"prefill so far", tokensText(total)}, {"hits so far", fmt.Sprintf("%d of %d", hits, i+1)}}
			if board.aware {
				frame.Facts = append(frame.Facts, Fact{"less than by load alone", decimal(100*float64(baseTotal-total)/float64(baseTotal), 1) + " %"})
			}
			b.Track.Values = append(b.Track.Values, float64(r.prefill))
			b.Frames = append(b.Frames, frame)
		}
		pl.Boards = append(pl.Boards, b)
	}
	return pl
}

func tokensText(n int) string { return decimal(float64(n), 0) + " tokens" }

// why says in a sentence why request number i goes where it goes, by what was there before it.
func (p *prefix) why(i int, r placement, loads, cached []int) string {
	q := prefixTrace[i]
	to := fmt.Sprintf("Replica %d", r.replica+1)
	switch r.reason {
	case firstSight:
		sight := "First sight: no replica holds"
		for _, before := range prefixTrace[:i] {
			if before.prefix == q.prefix {
				sight = "As at first sight: no replica still holds"
			}
		}
		return fmt.Sprintf("%s P%d. %s has the fewest requests, %d.", sight, q.prefix, to, loads[r.replica])
	case affinity:
		return fmt.Sprintf("Affinity: %s holds P%d, and the loads are %d apart, no more than the threshold of %d.", lower(to), q.prefix, spread(loads), p.threshold)
	case dropped:
		end := ""
		if cached[r.replica] != q.prefix {
			end = fmt.Sprintf(", which does not hold P%d", q.prefix)
		}
		return fmt.Sprintf("Affinity dropped on load gap: the loads are %d apart, more than %d, so it goes to %s%s.", spread(loads), p.threshold, lower(to), end)
	}
	if r.hit {
		return fmt.Sprintf("%s has the fewest requests, %d; by chance it holds P%d.", to, loads[r.replica], q.prefix)
	}
	return fmt.Sprintf("%s has the fewest requests, %d.", to, loads[r.replica])
}

func lower(s string) string { return "r" + s[1:] }

// plots draw hits, prefill and skew by threshold.
func (p *prefix) plots() []Plot {
	axis := Axis{Label: "threshold", Unit: "requests"}
	hits := Plot{Name: "hits", Title: "hits and load gap by threshold", Kind: Steps, X: axis, Y: Axis{Label: "requests"}, Marks: []Mark{{"x", float64(p.threshold), "threshold"}}}
	work := Plot{Name: "prefill", Title: "prefilled tokens by threshold", Kind: Steps, X: axis, Y: Axis{Label: "prefill", Unit: "tokens"}, Marks: hits.Marks}
	var x, n, gap, prefill, without Numbers
	load := place(prefixTrace[:], p.replicas, 0, false)
	for threshold := range 13 {
		r := place(prefixTrace[:], p.replicas, threshold, true)
		x, n, gap = append(x, float64(threshold)), append(n, float64(r.hits)), append(gap, float64(spread(r.loads)))
		prefill, without = append(prefill, float64(r.prefill)), append(without, float64(load.prefill))
	}
	hits.Series = []Series{{Name: "hits", X: x, Y: n}, {Name: "fullest less emptiest replica", X: x, Y: gap}}
	work.Series = []Series{{Name: "prefix-aware", X: x, Y: prefill}, {Name: "least outstanding only", X: x, Y: without}}
	last := len(x) - 1
	hits.Says = fmt.Sprintf("From a threshold of 0 to %s the hits go from %s to %s of 12, and the load gap from %s to %s.", show(x[last]), show(n[0]), show(n[last]), show(gap[0]), show(gap[last]))
	work.Says = fmt.Sprintf("From a threshold of 0 to %s the prefill goes from %s to %s tokens; by load alone it is %s.", show(x[last]), decimal(prefill[0], 0), decimal(prefill[last], 0), decimal(without[0], 0))
	return []Plot{hits, work}
}
