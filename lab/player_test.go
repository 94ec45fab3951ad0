package lab

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestPlayersAndPlots_AreWellFormed with the article's settings. TestRun_AtTheBounds has the others.
func TestPlayersAndPlots_AreWellFormed(t *testing.T) {
	for _, l := range Catalog() {
		wellFormed(t, l.Name, run(t, l.Name))
	}
}

// wellFormed: every board has a frame and a track's value for each step, within the bounds; the
// series of plots are as long as their axes and marks lie on an axis.
func wellFormed(t *testing.T, name string, r *Result) {
	t.Helper()
	names := map[string]bool{}
	for _, p := range r.Players {
		frames, lanes := 0, 0
		if names[p.Name] || p.Name == "" || p.Title == "" || p.Step == "" || p.Steps < 1 || len(p.Boards) == 0 {
			t.Errorf("%s: player %q with %d steps on %d boards", name, p.Name, p.Steps, len(p.Boards))
		}
		names[p.Name] = true
		for _, b := range p.Boards {
			if len(b.Frames) != p.Steps || b.Track != nil && len(b.Track.Values) != p.Steps {
				t.Errorf("%s: board %s has %d frames, %d steps", name, b.Name, len(b.Frames), p.Steps)
			}
			frames += len(b.Frames)
			for i, f := range b.Frames {
				lanes += len(f.Lanes)
				if f.Head != p.Boards[0].Frames[i].Head || f.Head == "" || f.Note == "" || len(f.Lanes) != len(p.Boards[0].Frames[0].Lanes) {
					t.Errorf("%s: board %s, step %d: %q, %q, %d lanes", name, b.Name, i, f.Head, f.Note, len(f.Lanes))
				}
				for _, lane := range f.Lanes {
					if lane.Value > p.Most || lane.Fresh > lane.Value {
						t.Errorf("%s: board %s, step %d: %+v, bars end at %v", name, b.Name, i, lane, p.Most)
					}
				}
				if f.Grid != nil {
					for _, row := range f.Grid.Rows {
						if len(row) != len(f.Grid.Columns) || len(f.Grid.Rows) > 8 || len(row) > 18 {
							t.Errorf("%s: a grid of %d rows with %d cells under %d columns", name, len(f.Grid.Rows), len(row), len(f.Grid.Columns))
						}
					}
				}
			}
			if b.Track != nil {
				for _, at := range b.Track.Flags {
					if at < 0 || at >= p.Steps {
						t.Errorf("%s: board %s flags step %d of %d", name, b.Name, at, p.Steps)
					}
				}
			}
		}
		if frames > maxFrames || lanes > maxLanes {
			t.Errorf("%s: player %s has %d frames and %d lanes", name, p.Name, frames, lanes)
		}
	}
	names = map[string]bool{}
	for _, p := range r.Plots {
		if names[p.Name] || p.Name == "" || p.Title == "" || !strings.HasSuffix(p.Says, ".") || strings.Contains(p.Says, "NaN") || strings.Contains(p.Says, "–") || len(p.Series) == 0 {
			t.Errorf("%s: plot %q, %q, %d series, says %q", name, p.Name, p.Title, len(p.Series), p.Says)
		}
		names[p.Name] = true
		for _, s := range p.Series {
			if len(s.X) != len(s.Y) || len(s.X) == 0 || s.Half != nil && len(s.Half) != len(s.X) || p.X.Names != nil && len(s.X) > len(p.X.Names) || len(s.X) > maxPoints || s.Name == "" || s.Names != nil && len(s.Names) != len(s.X) {
				t.Errorf("%s: plot %s: series %q has %d, %d and %d values, %d names", name, p.Name, s.Name, len(s.X), len(s.Y), len(s.Half), len(p.X.Names))
			}
			for i := range s.X {
				if p.X.Log && !(s.X[i] > 0) || p.Y.Log && !(s.Y[i] > 0) {
					t.Errorf("%s: plot %s: %v, %v on a logarithmic axis", name, p.Name, s.X[i], s.Y[i])
				}
			}
		}
		for _, m := range p.Marks {
			if m.Axis != "x" && m.Axis != "y" || m.Label == "" {
				t.Errorf("%s: plot %s: mark %+v", name, p.Name, m)
			}
		}
	}
	if b, err := json.Marshal(r); err != nil || len(b) > 8<<20 {
		t.Errorf("%s: %d bytes of JSON, %v", name, len(b), err)
	}
}

// TestLabs_SayWhatToLookAt, and have a plot.
func TestLabs_SayWhatToLookAt(t *testing.T) {
	for _, l := range Catalog() {
		r := run(t, l.Name)
		if len(l.Look) < 2 || len(l.Look) > 6 || len(r.Plots) < 1 || len(r.Plots) > 4 {
			t.Errorf("%s: %d things to look at, %d plots", l.Name, len(l.Look), len(r.Plots))
		}
		for _, s := range l.Look {
			if !strings.HasSuffix(s, ".") {
				t.Errorf("%s: %q", l.Name, s)
			}
			for i, word := range strings.Split(s, "`") {
				if i%2 == 1 && !l.has(r, word) {
					t.Errorf("%s: %q: there is no setting, value or table %s", l.Name, s, word)
				}
			}
		}
	}
}

// has reports whether a word names a setting of the lab, a value of one or a table of its result.
func (l Lab) has(r *Result, word string) bool {
	for _, p := range l.Params() {
		if p.Key == word || slices.Contains(p.Choices, word) {
			return true
		}
	}
	for i := range r.Tables {
		if r.Tables[i].Name == word {
			return true
		}
	}
	return false
}

// facts returns the facts of a board's last frame by name.
func facts(t *testing.T, p Player, board int) map[string]string {
	t.Helper()
	got := map[string]string{}
	for _, f := range p.Boards[board].Frames[p.Steps-1].Facts {
		got[f.Name] = f.Text
	}
	return got
}

// TestPlayers_EndAtTheTablesFigures: where a run is shown to its end, the player's totals are
// those of the tables.
func TestPlayers_EndAtTheTablesFigures(t *testing.T) {
	one := func(name string, settings ...Setting) *Result {
		l, _ := Lookup(name)
		r, err := l.Run(Options{Settings: settings, Seeds: 1})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	want := func(what, got, want string) {
		if got != want {
			t.Errorf("%s: the player ends with %q, the table has %q", what, got, want)
		}
	}
	for _, threshold := range []string{"0", "2", "12"} {
		r := one("prefix", Setting{"threshold", threshold})
		for board := range 2 {
			f, row := facts(t, r.Players[0], board), r.Tables[0].Rows[board]
			want("hits", f["hits so far"], row[1].String()+" of 12")
			want("prefill", f["prefill so far"], row[4].String()+" tokens")
			if board == 1 {
				want("saved", f["less than by load alone"], row[5].String()+" %")
			}
			var loads []string
			for _, lane := range r.Players[0].Boards[board].Frames[11].Lanes {
				loads = append(loads, show(lane.Value))
			}
			want("loads", strings.Join(loads, ", "), row[6].String())
		}
	}
	for _, settings := range [][]Setting{nil, {{"stagger", "true"}}, {{"choices", "3"}, {"routers", "9"}}} {
		r := one("freshness", settings...)
		for board := range 4 {
			f, row := facts(t, r.Players[0], board), r.Tables[0].Rows[board]
			want("peak skew", f["peak skew so far"]+".0", row[1].String())
			want("mean skew", f["mean skew so far"], row[2].String())
			want("pile-up", f["piled up so far"], row[4].String()+" %")
			if grid := r.Players[0].Boards[board].Frames[0].Grid; (grid == nil) != (len(settings) == 2) {
				t.Errorf("%v: grid %v", settings, grid)
			}
		}
	}
	r := one("engine")
	for board := range 3 {
		f, row := facts(t, r.Players[0], board), r.Tables[0].Rows[board]
		want("iterations without output", strings.Fields(f["without output so far"])[0], row[2].String())
		want("output", f["output so far"], "30 tokens")
		want("waiting", f["waiting"], "none")
		if n := len(r.Players[0].Boards[board].Track.Flags); fmt.Sprint(n) != row[2].String() {
			t.Errorf("%d flags, %s iterations without output", n, row[2])
		}
	}
	r = one("engine", Setting{"trace", "drawn"})
	for board := range 3 {
		want("a drawn trace's iterations without output", strings.Fields(facts(t, r.Players[0], board)["without output so far"])[0]+".0", r.Tables[4].Rows[board][2].String())
	}
}

// TestFreshness_TheGridIsWhatRoutersSee: without the correction that is what was outstanding at the
// last scrape.
func TestFreshness_TheGridIsWhatRoutersSee(t *testing.T) {
	l, _ := Lookup("freshness")
	r, err := l.Run(Options{Seeds: 1})
	if err != nil {
		t.Fatal(err)
	}
	var scraped []string
	frames := r.Players[0].Boards[staleView].Frames
	for tick, f := range frames {
		if strings.HasSuffix(f.Head, "every router scrapes") != (tick%10 == 0) {
			t.Errorf("tick %d: %s", tick, f.Head)
		}
		if tick%10 == 0 {
			scraped = nil
			for _, lane := range f.Lanes {
				scraped = append(scraped, show(lane.Value-lane.Fresh))
			}
		}
		for _, row := range f.Grid.Rows {
			if got := strings.Join(row[1:6], " "); got != strings.Join(scraped, " ") {
				t.Errorf("tick %d: router %s sees %s, the scrape had %v", tick, row[0], got, scraped)
			}
		}
	}
}

// TestPrefix_ThePlayerShowsTheCaches: the replica that gets a request holds its prefix from then on,
// the others what they held, and it is a hit where the prefix was there before.
func TestPrefix_ThePlayerShowsTheCaches(t *testing.T) {
	for _, b := range run(t, "prefix").Players[0].Boards {
		held := []string{"empty", "empty", "empty"}
		for i, f := range b.Frames {
			prefix := fmt.Sprintf("P%d", prefixTrace[i].prefix)
			for n, lane := range f.Lanes {
				switch lane.State {
				case Hit, Miss:
					if (lane.State == Hit) != (held[n] == prefix) || lane.Fresh != 1 {
						t.Errorf("%s, %s: %s held %s, and it is a %s", b.Name, f.Head, lane.Name, held[n], lane.State)
					}
					held[n] = prefix
				}
				if lane.Text != held[n] {
					t.Errorf("%s, %s: %s shows %s, it holds %s", b.Name, f.Head, lane.Name, lane.Text, held[n])
				}
			}
		}
	}
}

// TestEngine_ThePlayerShowsTheSlots: an iteration is flagged where no slot decodes before all is done,
// and puts out a token for each slot that does.
func TestEngine_ThePlayerShowsTheSlots(t *testing.T) {
	for _, b := range run(t, "engine").Players[0].Boards {
		var flags []int
		for i, f := range b.Frames {
			decoding := 0
			for _, lane := range f.Lanes {
				if (lane.Text == "") != (lane.State == Idle) {
					t.Errorf("%s, iteration %d: %+v", b.Name, i+1, lane)
				}
				if lane.State == Decode {
					decoding++
				}
			}
			if b.Track.Values[i] != float64(decoding) {
				t.Errorf("%s, iteration %d: %v tokens, %d slots decode", b.Name, i+1, b.Track.Values[i], decoding)
			}
			if decoding == 0 && f.Note != "All is done." {
				flags = append(flags, i)
			}
		}
		if !slices.Equal(flags, b.Track.Flags) {
			t.Errorf("%s: flags %v, want %v", b.Name, b.Track.Flags, flags)
		}
	}
}
