package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"kvasir/client/arrival"
	"kvasir/client/workload"
	"kvasir/client/workload/trace"
	"kvasir/internal/mono"
)

// workloadOptions are the flags that choose a workload: a trace or a generator.
type workloadOptions struct {
	trace          string
	read           traceFlags
	spec, arrivals string // of a generator

	mix     workload.Mix // parsed by check
	process arrival.Process
}

// generatedFor is how much of a generator's workload there is, unless --for says it.
const generatedFor = 10 * time.Minute

func (o *workloadOptions) flags(f *flag.FlagSet) {
	f.StringVar(&o.trace, "trace", "", "")
	f.StringVar(&o.spec, "workload", "", "")
	f.StringVar(&o.arrivals, "arrivals", "poisson:rate=1", "")
	o.read.reading(f, "trace-format")
	o.read.changing(f)
}

// check returns every mistake of the flags, and parses what they have.
func (o *workloadOptions) check() []error {
	errs := flatten(o.read.validate())
	switch {
	case o.trace == "" && o.spec == "":
		errs = append(errs, errors.New("one of --trace and --workload is needed"))
	case o.trace != "" && o.spec != "":
		errs = append(errs, errors.New("--trace and --workload are given; allowed: one of them"))
	}
	if o.spec == "" {
		return errs
	}
	var err error
	if o.mix, err = workload.Parse(o.spec); err != nil {
		errs = append(errs, prefixed("--workload: ", err)...)
	}
	if o.process, err = arrival.Parse(o.arrivals); err != nil {
		errs = append(errs, prefixed("--arrivals: ", err)...)
	}
	if o.read.change.For == 0 && o.read.change.Sessions == 0 {
		o.read.change.For = generatedFor
	}
	return errs
}

// prefixed returns the errors that were joined, each behind the text.
func prefixed(text string, err error) []error {
	var out []error
	for _, e := range flatten(err) {
		out = append(out, fmt.Errorf("%s%w", text, e))
	}
	return out
}

// open returns the workload with the changes made, all draws by the seed, and what a reader
// of its results must know. Of a generator it has so many times as many sessions, which a run
// at that rate plays in the same time. tally, unless nil, hears how each pass over a file
// went.
func (o *workloadOptions) open(seed uint64, rate float64, tally func(trace.Tally)) (workload.Source, []string, error) {
	read := o.read
	read.options.Seed, read.change.Seed = seed, seed
	if o.spec != "" {
		read.change.From = stretch(read.change.From, rate)
		read.change.For = stretch(read.change.For, rate)
		s, err := workload.Generate(o.spec, o.mix, seed, o.process.Instants(seed))
		if err != nil {
			return s, nil, err
		}
		return read.apply(s), []string{"sessions arrive by " + o.arrivals}, nil
	}
	t, err := read.open(o.trace, tally)
	if err != nil {
		return workload.Source{}, nil, err
	}
	var notes []string
	if t.Bin > 0 && t.Format != trace.Kvasir {
		notes = append(notes, fmt.Sprintf("calls of one timestamp are spread over the %v that it stands for (--raw leaves them)", t.Bin))
	}
	if !t.Timed {
		notes = append(notes, fmt.Sprintf("the file has no times: sessions come at %.4g a second, as a Poisson process", t.SessionRate))
	}
	if t.Estimated {
		notes = append(notes, "token counts are estimates, at four bytes a token")
	}
	return t.Source, notes, nil
}

// stretch returns the duration times the factor, at most the longest there is.
func stretch(d time.Duration, factor float64) time.Duration {
	return mono.FromSeconds(min(d.Seconds()*factor, longest.Seconds()))
}

// loadedWorkload is a workload that runs may play as often as they like, several at once.
type loadedWorkload struct {
	name            string
	blockTokens     int
	sessions, calls int
	length          time.Duration // until the last session comes, by the workload's own clock
	rate            float64       // for which that holds
	generated       bool          // at another rate, a run lasts as long
	loop            string        // what waits for answers
	adapted         bool          // some calls ask for an adapter
	notes           []string      // what a reader of the result must know

	open func(seed uint64, rate float64) (workload.Source, error)
	kept sync.Map // seed → *keptSessions
}

// lasts returns how long a run at the rate takes until its last session comes.
func (w *loadedWorkload) lasts(rate float64) time.Duration {
	if w.generated {
		rate = w.rate
	}
	return mono.FromSeconds(w.length.Seconds() / rate)
}

// keptSessions is a workload in memory.
type keptSessions struct {
	once   sync.Once
	source workload.Source
	err    error
}

// mostKept is how many calls and block hashes of all seeds are kept in memory, so that runs
// need not read them again; a longer workload is read anew by every run.
const mostKept = 16 << 20

// load opens the workload and looks through it once, for runs at the rate. They will play it
// with so many seeds.
func (o *workloadOptions) load(ctx context.Context, seed uint64, seeds int, rate float64) (*loadedWorkload, error) {
	w := &loadedWorkload{name: cmp.Or(o.spec, filepath.Base(o.trace)), generated: o.spec != "", rate: rate}
	var tally trace.Tally
	source, notes, err := o.open(seed, rate, func(read trace.Tally) { tally = read })
	if err != nil {
		return nil, err
	}
	w.blockTokens, w.loop, w.notes = source.BlockTokens, source.Loop, notes
	if o.read.adapters != "" {
		w.notes = append(w.notes, "sessions ask for adapters by "+o.read.adapters)
	}
	size := 0
	for s, err := range interruptible(ctx, source).Sessions {
		if err != nil {
			return nil, err
		}
		w.sessions++
		w.calls += len(s.Calls)
		w.length = s.At
		for i := range s.Calls {
			w.adapted = w.adapted || s.Calls[i].Adapter != ""
			size += 16 + len(s.Calls[i].Blocks) + len(s.Calls[i].AnswerBlocks)
		}
	}
	badRecords := ""
	if tally.Bad > 0 {
		badRecords = fmt.Sprintf("%d of %d records are bad and were passed over; the first: %v", tally.Bad, tally.Records, tally.First[0])
		w.notes = append(w.notes, badRecords)
	}
	if w.calls == 0 {
		return nil, fmt.Errorf("%s: there are no calls in it; %s", w.name, cmp.Or(badRecords, "what --from, --for, --sessions and --sample leave is empty"))
	}
	read := func(seed uint64, rate float64) (workload.Source, error) {
		s, _, err := o.open(seed, rate, nil)
		return s, err
	}
	if w.open = read; w.generated || size > mostKept/seeds {
		return w, nil
	}
	w.open = func(seed uint64, rate float64) (workload.Source, error) {
		k, _ := w.kept.LoadOrStore(seed, &keptSessions{})
		kept := k.(*keptSessions)
		kept.once.Do(func() { kept.source, kept.err = keep(read(seed, rate)) })
		return kept.source, kept.err
	}
	return w, nil
}

// keep reads a source into memory.
func keep(s workload.Source, err error) (workload.Source, error) {
	if err != nil {
		return s, err
	}
	var all []workload.Session
	for x, err := range s.Sessions {
		if err != nil {
			return s, err
		}
		all = append(all, x)
	}
	s.Sessions = func(yield func(workload.Session, error) bool) {
		for _, x := range all {
			if !yield(x, nil) {
				return
			}
		}
	}
	return s, nil
}
