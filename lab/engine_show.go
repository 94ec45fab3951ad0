package lab

import (
	"fmt"
	"slices"
	"strings"
)

// show plays the trace that was asked for in each mode, and returns the iterations for the player
// and the tokens of all of them.
func (x *schematic) show() (Player, Plot) {
	jobs, of := schematicTrace, "the rebuilt trace"
	if x.shown == drawnTrace {
		jobs, of = x.draw(uint64(x.from)), fmt.Sprintf("the trace drawn from seed %d", x.from)
	}
	p := Player{Name: "iterations", Title: of + ", iteration by iteration", Step: "iteration"}
	tokens := Plot{Name: "tokens", Title: of + ": tokens put out, iteration by iteration", Kind: Steps, X: Axis{Label: "iteration"}, Y: Axis{Label: "output", Unit: "tokens"}}
	bound := stepsWithin(int(modes), x.slots)
	var says []string
	longest := 0
	for mode := range modes {
		b := Board{Name: mode.String(), Track: &Track{Label: "output tokens", Flag: "no output"}}
		var output thinner
		silent := 0
		ended := map[int]bool{}
		var done []string
		put := 0
		d := drain(jobs, x.slots, mode, func(now *iteration) {
			output.add(float64(now.emitted))
			if now.emitted == 0 {
				silent++
			}
			put += now.emitted
			for _, s := range now.batch {
				if s.output == 0 && !ended[s.number] {
					ended[s.number] = true
					done = append(done, letter(s.number))
				}
			}
			if now.number > bound {
				return
			}
			f := Frame{Head: heads(jobs, now.number), Note: noteOf(now), Lanes: x.lanes(now.batch)}
			var waiting []string
			for n := now.started; n < len(jobs) && jobs[n].arrival < now.number; n++ {
				waiting = append(waiting, letter(n))
			}
			f.Facts = []Fact{{"waiting", listed(waiting)}, {"completed", listed(done)}, {"output so far", counted(put, "token", "tokens")},
				{"without output so far", counted(silent, "iteration", "iterations")}}
			b.Frames = append(b.Frames, f)
			b.Track.Values = append(b.Track.Values, float64(now.emitted))
			if now.emitted == 0 {
				b.Track.Flags = append(b.Track.Flags, now.number-1)
			}
		})
		longest = max(longest, d.iterations)
		tokens.Series = append(tokens.Series, output.series(mode.String()))
		says = append(says, fmt.Sprintf("%s %d iterations, %d of them without output", mode, d.iterations, d.silent))
		p.Boards = append(p.Boards, b)
	}
	p.Steps = min(longest, bound)
	if longest > bound {
		p.Title += fmt.Sprintf(": the first %d of %d", bound, longest)
	}
	for i := range p.Boards {
		x.pad(&p.Boards[i], jobs, p.Steps)
	}
	tokens.Says = "Until the last token: " + strings.Join(says, "; ") + "."
	return p, tokens
}

// pad adds the iterations in which a mode has nothing left to do while another one has.
func (x *schematic) pad(b *Board, jobs []job, steps int) {
	for n := len(b.Frames); n < steps; n++ {
		b.Frames = append(b.Frames, Frame{Head: heads(jobs, n+1), Note: "All is done.", Lanes: x.lanes(nil), Facts: b.Frames[n-1].Facts})
		b.Track.Values = append(b.Track.Values, 0)
	}
}

// lanes shows the slots.
func (x *schematic) lanes(batch []sequence) []Lane {
	lanes := make([]Lane, x.slots)
	for i := range lanes {
		lanes[i] = Lane{Name: fmt.Sprintf("slot %d", i+1), State: Idle}
	}
	for _, s := range batch {
		lanes[s.slot].Text, lanes[s.slot].State = letter(s.number), s.state
	}
	return lanes
}

// heads says what comes before an iteration, numbered from 1.
func heads(jobs []job, number int) string {
	var arrived []string
	for i, j := range jobs {
		if j.arrival == number-1 {
			arrived = append(arrived, letter(i))
		}
	}
	if len(arrived) == 0 {
		return "nobody arrives"
	}
	return listed(arrived) + " " + map[bool]string{true: "arrives", false: "arrive"}[len(arrived) == 1]
}

// noteOf says what an iteration does.
func noteOf(now *iteration) string {
	var prefilled, decoded, stalled []string
	batch := slices.SortedFunc(slices.Values(now.batch), func(a, b sequence) int { return a.slot - b.slot })
	for _, s := range batch {
		switch s.state {
		case Prefill:
			prefilled = append(prefilled, letter(s.number))
		case Decode:
			decoded = append(decoded, letter(s.number))
		case Stalled:
			stalled = append(stalled, letter(s.number))
		}
	}
	var parts []string
	if len(prefilled) > 0 {
		parts = append(parts, "prefill of "+listed(prefilled))
	}
	if len(decoded) > 0 {
		parts = append(parts, "a token each of "+listed(decoded))
	}
	if len(stalled) > 0 {
		parts = append(parts, listed(stalled)+" could go on and must wait")
	}
	if len(parts) == 0 {
		return "The batch is empty."
	}
	text := strings.Join(parts, "; ")
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// letter names a job.
func letter(number int) string {
	if number < 26 {
		return string(rune('A' + number))
	}
	return fmt.Sprintf("R%d", number+1)
}

// mostListed bounds how many names a list has.
const mostListed = 12

func listed(names []string) string {
	switch n := len(names); {
	case n == 0:
		return "none"
	case n > mostListed:
		return strings.Join(names[:mostListed], ", ") + fmt.Sprintf(" and %d more", n-mostListed)
	}
	return strings.Join(names, ", ")
}

// plotDrawn draws what the modes make of the drawn traces.
func plotDrawn(d [modes]drains) Plot {
	p := Plot{Name: "drawn", Title: "drawn traces: iterations, and those of them that stall a decode", Kind: Bars, Y: Axis{Label: "iterations"}}
	var iterations, stalled [][]float64
	for mode := range modes {
		p.X.Names = append(p.X.Names, mode.String())
		iterations, stalled = append(iterations, d[mode].iterations), append(stalled, d[mode].stalled)
	}
	p.Series = []Series{bars("until the last token", iterations...), bars("of which stall a decode", stalled...)}
	y := p.Series
	p.Says = fmt.Sprintf("Static batching takes %s iterations and stalls a decode in %s, continuous batching %s and %s, chunked prefill %s and %s.",
		decimal(y[0].Y[static], 0), decimal(y[1].Y[static], 0), decimal(y[0].Y[continuous], 0), decimal(y[1].Y[continuous], 0), decimal(y[0].Y[chunked], 0), decimal(y[1].Y[chunked], 0))
	return p
}
