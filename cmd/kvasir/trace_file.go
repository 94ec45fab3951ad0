package main

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"

	"kvasir/client/workload"
	"kvasir/client/workload/trace"
)

// traceFlags are the flags of all commands that read a trace.
const traceFlagsUsage = `flags of reading:
  --in FORMAT             the file's format (default: found out by its first record)
  --strict                end at the first bad record; otherwise they are passed over and counted
  --seed N                of all draws: times within a bin, arrivals, samples (default 0)
  --block-tokens N        tokens a hash id stands for, or text is cut in (default: the format's)
  --time-unit DURATION    what a timestamp of 1 means (default: the format's)
  --bin DURATION          the resolution of timestamps (default: found out by the first calls)
  --raw                   leave timestamps as they are: calls of one bin come at one instant
  --session-rate RATE     sessions a second, where the file has no times (default 1; agents 1/60)
  --token-time DURATION   what an answer's token took, where the file does not say (default 25ms)
  --think-time DURATION   from an answer to the next call, where the file does not say (default 0s)
  --answer-tokens N       length of answers that the file does not tell (default 256)
  --idle DURATION         the pause that ends a session, where sessions are mixed (default 30m)

flags of changing, which apply in this order:
  --sample SHARE          keep each session with this probability
  --from DURATION         begin here
  --for DURATION          and end so much later
  --sessions N            keep the first N sessions
  --loops N               play it N times
  --fresh                 each loop has prefixes of its own
  --rate FACTOR           so many times as many sessions a second
  --adapters SPEC         each session asks for a LoRA adapter, drawn as in zipf:n=16,exponent=1,share=1
                          (these are the defaults), of which the share is that of the sessions that do
`

// traceFlags say how a trace is read and changed.
type traceFlags struct {
	options  trace.Options
	change   trace.Transform
	adapters string // a mix of them; empty: as the trace has them
}

// register adds all flags.
func (t *traceFlags) register(f *flag.FlagSet) {
	t.reading(f, "in")
	f.Uint64Var(&t.options.Seed, "seed", 0, "")
	t.changing(f)
	f.Float64Var(&t.change.Rate, "rate", 0, "")
}

// reading adds the flags of reading but the seed's; the format's has the name given.
func (t *traceFlags) reading(f *flag.FlagSet, format string) {
	o := &t.options
	f.Func(format, "", func(s string) error { o.Format = trace.Format(s); return nil })
	f.BoolVar(&o.Strict, "strict", false, "")
	f.IntVar(&o.BlockTokens, "block-tokens", 0, "")
	durationFlag(f, &o.TimeUnit, "time-unit", 0)
	durationFlag(f, &o.Bin, "bin", 0)
	f.BoolVar(&o.Raw, "raw", false, "")
	f.Float64Var(&o.SessionRate, "session-rate", 0, "")
	durationFlag(f, &o.TokenTime, "token-time", 0)
	durationFlag(f, &o.ThinkTime, "think-time", 0)
	f.IntVar(&o.AnswerTokens, "answer-tokens", 0, "")
	durationFlag(f, &o.Idle, "idle", 0)
}

// changing adds the flags of changing but the rate's.
func (t *traceFlags) changing(f *flag.FlagSet) {
	c := &t.change
	f.Float64Var(&c.Sample, "sample", 0, "")
	durationFlag(f, &c.From, "from", 0)
	durationFlag(f, &c.For, "for", 0)
	f.IntVar(&c.Sessions, "sessions", 0, "")
	f.IntVar(&c.Loops, "loops", 0, "")
	f.BoolVar(&c.Fresh, "fresh", false, "")
	f.StringVar(&t.adapters, "adapters", "", "")
}

// validate returns every mistake.
func (t *traceFlags) validate() error {
	t.change.Seed = t.options.Seed
	errs := []error{t.options.Validate(), t.change.Validate()}
	if t.adapters != "" {
		if _, err := workload.ParseAdapters(t.adapters); err != nil {
			errs = append(errs, prefixed("--adapters: ", err)...)
		}
	}
	return errors.Join(errs...)
}

// apply makes the changes to a source, which validate has accepted.
func (t *traceFlags) apply(s workload.Source) workload.Source {
	return t.adapt(t.change.Apply(s))
}

// adapt lets the sessions ask for the adapters that --adapters says.
func (t *traceFlags) adapt(s workload.Source) workload.Source {
	if t.adapters == "" {
		return s
	}
	a, _ := workload.ParseAdapters(t.adapters)
	return a.Apply(s, t.options.Seed)
}

// open returns the trace of a file with the changes made, also in what is said of it. tally,
// unless nil, hears how each pass went.
func (t *traceFlags) open(name string, tally func(trace.Tally)) (*trace.Trace, error) {
	o := t.options
	o.Done = tally
	tr, err := trace.Open(traceFile(name), o)
	if err != nil {
		return nil, err
	}
	t.change.Change(tr)
	tr.Source = t.adapt(tr.Source)
	return tr, nil
}

// interruptible returns the source with an end, an error, when the command is interrupted.
func interruptible(ctx context.Context, s workload.Source) workload.Source {
	all := s.Sessions
	s.Sessions = func(yield func(workload.Session, error) bool) {
		for session, err := range all {
			if ctx.Err() != nil {
				yield(workload.Session{}, fmt.Errorf("%s: interrupted", s.Name))
				return
			}
			if !yield(session, err) {
				return
			}
		}
	}
	return s
}

// traceFile is a file on disk, decompressed if its first bytes are those of zstd or gzip.
func traceFile(name string) trace.File {
	return trace.File{Name: name, Open: func() (io.ReadCloser, error) {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		r, err := decompress(f)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
		}
		return r, nil
	}}
}

// maxWindow bounds the memory that decompressing takes: zstd's --long writes windows of it.
const maxWindow = 128 << 20

// decompress returns what a file holds; closing it closes the file.
func decompress(f io.ReadCloser) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(f, 64<<10)
	head, err := b.Peek(4)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case bytes.Equal(head, []byte("\x28\xb5\x2f\xfd")):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return readCloser{z, func() error { z.Close(); return f.Close() }}, nil
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, err
		}
		return readCloser{z, func() error { return cmp.Or(z.Close(), f.Close()) }}, nil
	}
	return readCloser{b, f.Close}, nil
}

type readCloser struct {
	io.Reader
	close func() error
}

// Close closes what the reader reads from.
func (r readCloser) Close() error { return r.close() }
