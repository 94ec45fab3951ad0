package lab

import (
	"fmt"
	"slices"
	"strings"

	"kvasir/internal/seed"
)

// schematic is article 7.2: one engine's batch, in whole iterations.
type schematic struct {
	seeding

	slots   int
	jobs    int
	prefill int
	output  int
	gap     int
	shown   string // what the player shows: rebuiltTrace or drawnTrace
	from    int    // the seed of a drawn one
}

// What the player may show.
const (
	rebuiltTrace = "rebuilt"
	drawnTrace   = "drawn"
)

func engineLab() Lab {
	return Lab{
		Name: "engine", Title: "static batching, continuous batching, chunked prefill", Section: "7.2",
		About: "One engine with a few slots, in whole iterations. Static batching forms a batch when the one before has ended whole. Continuous batching " +
			"refills free slots in every iteration, but while one sequence is prefilled none decodes. With chunked prefill the chunks ride along with decode. A slot is " +
			"occupied while its request is unfinished, stalled or not. The article does not publish its trace: ours was found by a search for one that gives every figure that " +
			"it states, and the search is a test. The orders are judged on drawn traces as well, whose prefills and answers are as long in the mean.",
		Look: []string{
			"Step through the iterations: static batching keeps slots empty until the last of the batch has ended, and takes 25 iterations for what continuous batching does in 19 and chunked prefill in 14.",
			"Occupancy is continuous batching's gain, from 57 % to 91 %. But it puts out nothing in 8 iterations, 7 of them with an answer that could have gone on: filling slots means more prefills.",
			"Chunked prefill has one iteration without output, the first, in which nobody is through its prefill. On the drawn traces it never stalls one.",
			"Turn `prefill` to 10 and look at `drawn`: continuous batching now stalls in most of its iterations. Turn `trace` to drawn to step through such a run.",
			"Turn `gap` to 20: where requests come one by one, all three are the same.",
		},
		Seeded: true,
		settings: func() experiment {
			return &schematic{slots: 3, jobs: 30, prefill: 2, output: 9, gap: 2, shown: rebuiltTrace, from: 1}
		},
	}
}

func (x *schematic) params() []Param {
	return []Param{
		count(&x.slots, "slots", "sequences that are in the batch at once", 1, 64),
		count(&x.jobs, "jobs", "requests of a drawn trace", 2, 1000),
		count(&x.prefill, "prefill", "longest prefill of a drawn trace, iterations; the shortest is 1", 1, 100),
		count(&x.output, "output", "longest answer of a drawn trace, tokens; the shortest is 1", 1, 1000),
		count(&x.gap, "gap", "longest time between two arrivals of a drawn trace, iterations; the shortest is 0", 0, 1000),
		choice(&x.shown, "trace", "what is shown iteration by iteration: the rebuilt trace, or a drawn one", []string{rebuiltTrace, drawnTrace}),
		count(&x.from, "draw", "seed of the drawn trace that is shown", 1, MaxSeeds),
	}
}

// schematicTrace is the rebuilt trace. TestSchematicTrace_IsWhatTheSearchFinds finds it.
var schematicTrace = []job{{0, 1, 1}, {0, 1, 6}, {2, 1, 4}, {3, 3, 8}, {4, 1, 6}, {4, 2, 5}}

// draw returns a trace for a seed, each of its numbers evenly from its range.
func (x *schematic) draw(root uint64) []job {
	r := seed.New(root, seed.Workload, 0, 0)
	jobs := make([]job, x.jobs)
	at := 0
	for i := range jobs {
		jobs[i] = job{at, uniform(&r, 1, x.prefill), uniform(&r, 1, x.output)}
		at += uniform(&r, 0, x.gap)
	}
	return jobs
}

// schematicArticle has the article's table, by mode: iterations, of which without output, occupancy.
var schematicArticle = [modes][3]float64{{25, 6, 57}, {19, 8, 91}, {14, 1, 93}}

// drains are a mode's runs over the drawn traces, by seed.
type drains struct{ iterations, silent, stalled, occupancy, longest []float64 }

func (x *schematic) run(seeds int) Findings {
	columns := []Column{{Name: "mode"}, {Name: "iterations"}, {Name: "without output"}, {Name: "of which stalls"}, {Name: "occupancy", Unit: "%"}}
	article := Table{Name: "article", Title: "the article's table", Columns: []Column{columns[0], columns[1], columns[2], columns[4]}}
	rebuilt := Table{Name: "rebuilt", Title: "the rebuilt trace", Columns: columns}
	trace := Table{Name: "trace", Title: "the rebuilt trace's requests", Columns: []Column{{Name: "request"}, {Name: "arrives before iteration"}, {Name: "prefill", Unit: "iterations"}, {Name: "output", Unit: "tokens"}}}
	for i, j := range schematicTrace {
		trace.Rows = append(trace.Rows, []Cell{Text(string(rune('A' + i))), Number(float64(j.arrival+1), 0), Number(float64(j.prefill), 0), Number(float64(j.output), 0)})
	}
	output := Table{Name: "output", Title: "the rebuilt trace: tokens put out, iteration by iteration", Columns: []Column{{Name: "mode"}, {Name: "tokens"}}}
	drawn := Table{Name: "drawn", Title: fmt.Sprintf("drawn traces of %d requests", x.jobs), Columns: columns}
	var one [modes]drained
	var many [modes]drains
	for mode := range modes {
		d := drain(schematicTrace, x.slots, mode, nil)
		one[mode] = d
		a := schematicArticle[mode]
		article.Rows = append(article.Rows, []Cell{Text(mode.String()), Number(a[0], 0), Number(a[1], 0), Number(a[2], 0)})
		rebuilt.Rows = append(rebuilt.Rows, []Cell{Text(mode.String()), Number(float64(d.iterations), 0), Number(float64(d.silent), 0), Number(float64(d.stalled), 0), Number(d.occupancy(x.slots), 0)})
		output.Rows = append(output.Rows, []Cell{Text(mode.String()), Text(strings.Trim(fmt.Sprint(d.output), "[]"))})
		m := &many[mode]
		for s := range seeds {
			d := drain(x.draw(x.root(s)), x.slots, mode, nil)
			m.iterations, m.silent = append(m.iterations, float64(d.iterations)), append(m.silent, float64(d.silent))
			m.stalled, m.occupancy = append(m.stalled, float64(d.stalled)), append(m.occupancy, d.occupancy(x.slots))
			m.longest = append(m.longest, float64(d.longest))
		}
		drawn.Rows = append(drawn.Rows, []Cell{Text(mode.String()), Mean(m.iterations, 0), Mean(m.silent, 1), Mean(m.stalled, 1), Mean(m.occupancy, 0)})
	}
	player, tokens := x.show()
	verdicts := append(rebuiltVerdicts(one, x.slots), drawnVerdicts(many)...)
	return Findings{
		Tables:   []Table{rebuilt, article, trace, output, drawn},
		Plots:    []Plot{tokens, plotDrawn(many)},
		Players:  []Player{player},
		Verdicts: append(verdicts, waitVerdict()),
	}
}

func rebuiltVerdicts(d [modes]drained, slots int) []Verdict {
	figures := func(of func(drained) float64, unit string, column int) []figure {
		var f []figure
		for mode := range modes {
			f = append(f, figure{schematicArticle[mode][column], of(d[mode]), 0, unit})
		}
		return f
	}
	return []Verdict{
		equals("7.2", "iterations to drain: static 25, continuous 19, chunked 14",
			figures(func(d drained) float64 { return float64(d.iterations) }, "", 0)...),
		equals("7.2", "iterations without output: static 6, continuous 8, chunked 1",
			figures(func(d drained) float64 { return float64(d.silent) }, "", 1)...),
		equals("7.2", "slot occupancy: static 57 %, continuous 91 %, chunked 93 %",
			figures(func(d drained) float64 { return d.occupancy(slots) }, " %", 2)...),
		equals("7.2", "in the first iteration A and B are prefilled and the third slot is idle",
			figure{2, float64(d[continuous].firstLook), 0, ""}, figure{0, float64(d[continuous].output[0]), 0, ""}),
		holds("7.2", "with chunked prefill the one iteration without output is the first", d[chunked].silent == 1 && d[chunked].output[0] == 0,
			fmt.Sprintf("%d tokens in the first", d[chunked].output[0])),
		holds("7.2", "static batching's are mostly its initial prefills, with no decode to stall", 2*d[static].stalled < d[static].silent,
			fmt.Sprintf("%d of %d stall a decode", d[static].stalled, d[static].silent)),
		holds("7.2", "under continuous batching they are decode stalls", 2*d[continuous].stalled > d[continuous].silent,
			fmt.Sprintf("%d of %d stall a decode", d[continuous].stalled, d[continuous].silent)),
	}
}

func drawnVerdicts(d [modes]drains) []Verdict {
	s, c, k := d[static], d[continuous], d[chunked]
	return []Verdict{
		above("7.2", "on drawn traces continuous batching drains sooner than static", s.iterations, c.iterations, 0, ""),
		above("7.2", "on drawn traces chunked prefill drains sooner than continuous", c.iterations, k.iterations, 0, ""),
		near("7.2", "on drawn traces chunked prefill has continuous batching's occupancy", k.occupancy, c.occupancy, 5, 1, " points"),
		above("7.2", "on drawn traces continuous batching raises occupancy", c.occupancy, s.occupancy, 0, " points"),
		above("7.2", "on drawn traces continuous batching stalls decode more than static", c.stalled, s.stalled, 1, ""),
		above("7.2", "on drawn traces continuous batching has more iterations without output than static", c.silent, s.silent, 1, ""),
		above("7.2", "on drawn traces chunked prefill has fewer iterations without output than static", s.silent, k.silent, 1, ""),
		near("7.2", "on drawn traces chunked prefill stalls no decode", k.stalled, make([]float64, len(k.stalled)), 0, 1, ""),
		above("7.2", "on drawn traces a prefill that comes under continuous batching makes a gap in others' answers, and a chunk makes none", c.longest, k.longest, 1, " iterations"),
	}
}

// waitVerdict judges what the article says of static batching: a request that waits behind one of
// 10 tokens and one of 1,000.
func waitVerdict() Verdict {
	jobs := []job{{0, 1, 10}, {0, 1, 1000}, {0, 1, 1}}
	var started [modes]int
	for mode := range modes {
		drain(jobs, 2, mode, func(f *iteration) {
			for _, s := range f.batch {
				if s.number == 2 {
					started[mode] = f.number
				}
			}
		})
	}
	return holds("7.1", "with static batching no slot is free until the longest answer has ended: a request that stops after 10 tokens waits for one of 1,000",
		started[static] > 1000 && started[continuous] < 20, fmt.Sprintf("the next one is in a slot until iteration %s, with continuous batching until %d",
			decimal(float64(started[static]), 0), started[continuous]))
}

// job is a request of the schematic.
type job struct {
	arrival int // the iteration before which it is there, from 0
	prefill int // iterations that its prompt takes, a chunk each
	output  int // tokens
}

// batching is one of the three modes.
type batching int

const (
	static     batching = iota // a batch is formed when the one before has ended whole
	continuous                 // free slots are refilled every iteration; a prefill takes the iteration
	chunked                    // prefill chunks ride along with decode
	modes
)

func (b batching) String() string {
	return [...]string{"static batching", "continuous batching", "chunked prefill"}[b]
}

// drained is what is counted of a run.
type drained struct {
	iterations int
	silent     int   // iterations without output
	stalled    int   // of these, those in which a sequence could have been decoded
	longest    int   // most of these one after the other
	output     []int // tokens, by iteration
	occupied   int   // slots with an unfinished request, summed over the iterations
	firstLook  int   // jobs in slots in the first iteration
}

func (d drained) occupancy(slots int) float64 {
	return 100 * float64(d.occupied) / float64(d.iterations*slots)
}

// sequence is a job in a slot.
type sequence struct {
	number          int // of the job
	slot            int
	prefill, output int // what is left
	state           LaneState
}

// iteration is what is to be seen of one. Its slice is used again.
type iteration struct {
	number  int        // from 1
	batch   []sequence // those that were in it, in no particular order
	started int        // jobs that are in a slot or were
	emitted int        // tokens
	ready   bool       // a sequence could have been decoded
}

// drain runs the jobs, which are in the order of their arrival, to the end. watch, unless nil,
// sees each iteration.
func drain(jobs []job, slots int, mode batching, watch func(*iteration)) drained {
	var d drained
	var batch []sequence
	taken := make([]bool, slots)
	next, stalls := 0, 0
	for left := len(jobs); left > 0; {
		if mode != static || len(batch) == 0 {
			for len(batch) < slots && next < len(jobs) && jobs[next].arrival <= d.iterations {
				slot := slices.Index(taken, false)
				taken[slot] = true
				batch = append(batch, sequence{number: next, slot: slot, prefill: jobs[next].prefill, output: jobs[next].output})
				next++
			}
		}
		if d.iterations == 0 {
			d.firstLook = len(batch)
		}
		d.iterations++
		now := iteration{number: d.iterations, batch: batch, started: next}
		now.ready = slices.ContainsFunc(batch, func(s sequence) bool { return s.prefill == 0 })
		now.emitted = step(batch, mode)
		d.occupied += len(batch)
		d.output = append(d.output, now.emitted)
		if now.emitted == 0 {
			d.silent++
		}
		if now.emitted == 0 && now.ready {
			d.stalled++
			stalls++
			d.longest = max(d.longest, stalls)
		} else {
			stalls = 0
		}
		if watch != nil {
			watch(&now)
		}
		before := len(batch)
		batch = slices.DeleteFunc(batch, func(s sequence) bool {
			taken[s.slot] = taken[s.slot] && s.output > 0
			return s.output == 0
		})
		left -= before - len(batch)
	}
	return d
}

// step runs one iteration of the batch and returns the tokens that were put out.
func step(batch []sequence, mode batching) (emitted int) {
	prefilling := false
	for _, s := range batch {
		prefilling = prefilling || s.prefill > 0
	}
	for i := range batch {
		s := &batch[i]
		switch {
		case s.prefill > 0:
			s.prefill--
			s.state = Prefill
		case !prefilling || mode == chunked:
			s.output--
			emitted++
			s.state = Decode
		default:
			s.state = Stalled
		}
	}
	return emitted
}

// uniform draws a whole number from low to high, both included.
func uniform(r *seed.Rand, low, high int) int { return low + r.Intn(high-low+1) }
