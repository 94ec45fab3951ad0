package main

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"kvasir/client/workload"
	"kvasir/client/workload/trace"
)

// workloadOptions are the flags that choose a workload.
type workloadOptions struct {
	trace string
	read  traceFlags
}

func (o *workloadOptions) flags(f *flag.FlagSet) {
	f.StringVar(&o.trace, "trace", "", "")
	o.read.reading(f, "trace-format")
	o.read.changing(f)
}

// check returns every mistake of the flags.
func (o *workloadOptions) check() []error {
	var errs []error
	if o.trace == "" {
		errs = append(errs, errors.New("--trace is needed"))
	}
	return append(errs, flatten(o.read.validate())...)
}

// loadedWorkload is a workload that runs may play as often as they like, several at once.
type loadedWorkload struct {
	name            string
	blockTokens     int
	sessions, calls int
	length          time.Duration // until the last session comes
	notes           []string      // what a reader of the result must know

	open func(seed uint64) (workload.Source, error)
	kept sync.Map // seed → *keptSessions
}

// keptSessions is a workload in memory.
type keptSessions struct {
	once   sync.Once
	source workload.Source
	err    error
}

// mostKept is how many calls and block hashes of one seed are kept in memory, so that runs
// need not read them again; a longer workload is read anew by every run.
const mostKept = 4 << 20

// load opens the workload and looks through it once.
func (o *workloadOptions) load(env environment, seed uint64) (*loadedWorkload, error) {
	w := &loadedWorkload{name: filepath.Base(o.trace)}
	var tally trace.Tally
	t, err := o.open(seed, func(read trace.Tally) { tally = read })
	if err != nil {
		return nil, err
	}
	w.blockTokens = t.BlockTokens
	size := 0
	for s, err := range t.Sessions {
		if err != nil {
			return nil, err
		}
		w.sessions++
		w.calls += len(s.Calls)
		w.length = s.At
		for i := range s.Calls {
			size += 16 + len(s.Calls[i].Blocks) + len(s.Calls[i].AnswerBlocks)
		}
	}
	if w.calls == 0 {
		return nil, fmt.Errorf("%s: there are no calls in it", o.trace)
	}
	if tally.Bad > 0 {
		w.notes = append(w.notes, fmt.Sprintf("%d of %d records are bad and were passed over; the first: %v", tally.Bad, tally.Records, tally.First[0]))
	}
	if t.Bin > 0 {
		w.notes = append(w.notes, fmt.Sprintf("calls of one timestamp are spread over the %v that it stands for (--raw leaves them)", t.Bin))
	}
	if !t.Timed {
		w.notes = append(w.notes, fmt.Sprintf("the file has no times: sessions come at %g a second, as a Poisson process", t.SessionRate))
	}
	if t.Estimated {
		w.notes = append(w.notes, "token counts are estimates, at four bytes a token")
	}
	w.open = func(seed uint64) (workload.Source, error) {
		t, err := o.open(seed, nil)
		if err != nil {
			return workload.Source{}, err
		}
		return t.Source, nil
	}
	if size > mostKept {
		return w, nil
	}
	again := w.open
	w.open = func(seed uint64) (workload.Source, error) {
		k, _ := w.kept.LoadOrStore(seed, &keptSessions{})
		kept := k.(*keptSessions)
		kept.once.Do(func() { kept.source, kept.err = keep(again(seed)) })
		return kept.source, kept.err
	}
	return w, nil
}

// open returns the trace with the changes made, all draws by the seed.
func (o *workloadOptions) open(seed uint64, tally func(trace.Tally)) (*trace.Trace, error) {
	read := o.read
	read.options.Seed, read.change.Seed = seed, seed
	return read.open(o.trace, tally)
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
