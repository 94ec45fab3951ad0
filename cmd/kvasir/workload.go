package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"kvasir/client/workload"
	"kvasir/client/workload/trace"
)

// workloadOptions are the flags that choose a workload: a trace or a generator.
type workloadOptions struct {
	trace, format string
	strict, raw   bool
}

func (o *workloadOptions) flags(f *flag.FlagSet) {
	f.StringVar(&o.trace, "trace", "", "")
	f.StringVar(&o.format, "trace-format", "", "")
	f.BoolVar(&o.strict, "strict", false, "")
	f.BoolVar(&o.raw, "raw-times", false, "")
}

// check returns every mistake of the flags.
func (o *workloadOptions) check() []error {
	var errs []error
	if o.trace == "" {
		errs = append(errs, errors.New("--trace is needed"))
	}
	t := trace.Options{Format: trace.Format(o.format), Strict: o.strict, Raw: o.raw}
	return append(errs, flatten(t.Validate())...)
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
	open := func(seed uint64, done func(trace.Tally)) (*trace.Trace, error) {
		return trace.Open(traceFile(o.trace), trace.Options{Format: trace.Format(o.format), Strict: o.strict, Raw: o.raw, Seed: seed, Done: done})
	}
	t, err := open(seed, func(read trace.Tally) { tally = read })
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
		w.notes = append(w.notes, fmt.Sprintf("calls of one timestamp are spread over the %v that it stands for (--raw-times leaves them)", t.Bin))
	}
	if !t.Timed {
		w.notes = append(w.notes, fmt.Sprintf("the file has no times: sessions come at %g a second, as a Poisson process", t.SessionRate))
	}
	if t.Estimated {
		w.notes = append(w.notes, "token counts are estimates, at four bytes a token")
	}
	w.open = func(seed uint64) (workload.Source, error) {
		t, err := open(seed, nil)
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

// traceFile opens a trace as text: what begins as a zstd or gzip file is decompressed.
func traceFile(name string) trace.File {
	return trace.File{Name: name, Open: func() (io.ReadCloser, error) {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		r := bufio.NewReaderSize(f, 1<<16)
		head, _ := r.Peek(4) // a shorter file is no compressed one
		switch {
		case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
			z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<28))
			if err != nil {
				_ = f.Close() // err says more
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			return decompressed{z, func() error { z.Close(); return f.Close() }}, nil
		case len(head) > 1 && head[0] == 0x1f && head[1] == 0x8b:
			z, err := gzip.NewReader(r)
			if err != nil {
				_ = f.Close() // likewise
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			return decompressed{z, f.Close}, nil
		}
		return decompressed{r, f.Close}, nil
	}}
}

type decompressed struct {
	io.Reader
	end func() error
}

func (d decompressed) Close() error { return d.end() }
