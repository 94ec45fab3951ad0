package main

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"

	"kvasir/client/workload/trace"
)

var traceUsage = `usage: kvasir trace stats [flags] FILE...
       kvasir trace convert [flags] IN OUT
       kvasir trace head [flags] FILE
       kvasir trace stats|head --workload SPEC [flags]
       kvasir trace convert --workload SPEC [flags] OUT

stats says what is in traces: arrivals, lengths, sessions, and how much of the prompts
caches of several sizes would find again.
convert writes a trace in Kvasir's own format, compressed if OUT ends with .zst or .gz; - is
standard output.
head prints the first sessions.
Files may be compressed with zstd or gzip. docs/traces.md describes the formats.
With --workload a generator's workload stands in place of a file.

formats:
` + trace.Describe() + `
flags:
  --format FORMAT         of stats and head: table or json (default table)
  -n N                    of head: how many sessions (default 5)
  --force                 of convert: overwrite OUT
  --workload SPEC         a generator, for example 'conversations:turns=6' or '3*chat-turn + tool-agent'
                          (kvasir bench --list-workloads prints all of them); 10m of it unless
                          --for or --sessions says it
  --arrivals SPEC         when its sessions come (default poisson:rate=1)

` + traceFlagsUsage + `
example:
  kvasir trace stats conversation_trace.jsonl
  kvasir trace convert --for 10m --rate 4 conversation_trace.jsonl busy.jsonl.zst
  kvasir trace convert --workload '3*chat-turn + tool-agent' --arrivals poisson:rate=2 --for 1h mix.jsonl.zst
`

// traceCommand is what the flags of kvasir trace say.
type traceCommand struct {
	env    environment
	ctx    context.Context
	read   traceFlags
	source workloadOptions // with a spec where a generator stands in place of a file
	format string
	n      int
	force  bool
}

// runTrace is kvasir trace: it describes, converts and shows traces.
func runTrace(ctx context.Context, env environment, args []string) int {
	c := traceCommand{env: env, ctx: ctx}
	flags := flag.NewFlagSet("kvasir trace", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	c.read.register(flags)
	flags.StringVar(&c.format, "format", "table", "")
	flags.IntVar(&c.n, "n", 5, "")
	flags.BoolVar(&c.force, "force", false, "")
	flags.StringVar(&c.source.spec, "workload", "", "")
	flags.StringVar(&c.source.arrivals, "arrivals", "poisson:rate=1", "")
	words, err := parseAnywhere(flags, args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(env.stdout, traceUsage)
		return 0
	}
	if err == nil {
		err = c.check(flags, words)
	}
	if err != nil {
		return env.misused("trace", err, "commands, formats and flags")
	}
	do := map[string]func([]string) error{"stats": c.stats, "convert": c.convert, "head": c.head}[words[0]]
	if err := do(words[1:]); err != nil {
		fmt.Fprintln(env.stderr, "kvasir trace:", err)
		return 1
	}
	return 0
}

// check returns every mistake of the command line.
func (c *traceCommand) check(flags *flag.FlagSet, words []string) error {
	errs := []error{c.read.validate()}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if given["workload"] {
		errs = c.checkWorkload(given)
	} else if given["arrivals"] {
		errs = append(errs, errors.New("--arrivals is given without --workload"))
	}
	command := ""
	if len(words) > 0 {
		command, words = words[0], words[1:]
	}
	switch {
	case command == "":
		errs = append(errs, errors.New("expected stats, convert or head"))
	case given["workload"] && command == "convert" && len(words) != 1:
		errs = append(errs, errors.New("convert --workload takes one file, OUT"))
	case given["workload"] && command == "convert":
	case given["workload"] && (command == "stats" || command == "head") && len(words) > 0:
		errs = append(errs, fmt.Errorf("%s --workload takes no file", command))
	case given["workload"] && (command == "stats" || command == "head"):
	case command == "stats" && len(words) < 1:
		errs = append(errs, errors.New("stats takes one FILE or several"))
	case command == "convert" && len(words) != 2:
		errs = append(errs, errors.New("convert takes two files, IN and OUT"))
	case command == "head" && len(words) != 1:
		errs = append(errs, errors.New("head takes one FILE"))
	case command != "stats" && command != "convert" && command != "head":
		errs = append(errs, fmt.Errorf("no command %q; allowed: stats, convert, head", command))
	}
	if c.format != "table" && c.format != "json" {
		errs = append(errs, fmt.Errorf("--format is %q; allowed: table, json (--in is the file's format)", c.format))
	}
	if c.n < 1 {
		errs = append(errs, fmt.Errorf("-n is %d; allowed: 1 or more", c.n))
	}
	flags.Visit(func(f *flag.Flag) {
		of := map[string]string{"format": "stats head", "n": "head", "force": "convert"}[f.Name]
		if of != "" && command != "" && !strings.Contains(of, command) {
			errs = append(errs, fmt.Errorf("%s has no flag --%s", command, f.Name))
		}
	})
	return errors.Join(errs...)
}

// checkWorkload returns every mistake of the flags where a generator is given.
func (c *traceCommand) checkWorkload(given map[string]bool) (errs []error) {
	if c.source.spec == "" {
		return []error{errors.New("--workload is empty; allowed: a generator (kvasir bench --list-workloads)")}
	}
	reading := flag.NewFlagSet("", flag.ContinueOnError)
	new(traceFlags).reading(reading, "in")
	reading.VisitAll(func(f *flag.Flag) {
		if given[f.Name] {
			errs = append(errs, fmt.Errorf("--%s is given with --workload; allowed: with files alone", f.Name))
		}
	})
	c.source.read = c.read
	return append(errs, c.source.check()...)
}

// open opens a trace, or the generator in place of one, whose sessions end when the command
// is interrupted.
func (c *traceCommand) open(name string, tally *trace.Tally) (*trace.Trace, error) {
	if c.source.spec != "" {
		s, _, err := c.source.open(c.read.options.Seed, 1, nil)
		return &trace.Trace{Source: interruptible(c.ctx, s), Format: "generated", Timed: true}, err
	}
	t, err := c.read.open(name, func(got trace.Tally) { *tally = got })
	if err != nil {
		return nil, err
	}
	t.Source = interruptible(c.ctx, t.Source)
	return t, nil
}

// names returns what is read: the files, or the generator in place of them.
func (c *traceCommand) names(files []string) []string {
	if c.source.spec != "" {
		return []string{c.source.spec}
	}
	return files
}

// nothing is the error where no session is left. It says how long a file's trace is.
func (c *traceCommand) nothing(name string) error {
	if c.source.spec != "" {
		return fmt.Errorf("%s: no session comes by %s in the time asked for", name, c.source.arrivals)
	}
	whole := traceFlags{options: c.read.options}
	t, err := whole.open(name, nil)
	if err != nil {
		return err
	}
	sessions, last := 0, time.Duration(0)
	for s, err := range interruptible(c.ctx, t.Source).Sessions {
		if err != nil {
			return err
		}
		sessions++
		last = s.At
	}
	if sessions == 0 {
		return fmt.Errorf("%s: there are no sessions in it", name)
	}
	return fmt.Errorf("%s: nothing is left: it has %s, of which the last one comes after %v", name, count(sessions, "session"), last.Round(time.Millisecond))
}

// report says on standard error what was passed over. Nothing is dropped without a word.
func (c *traceCommand) report(name string, t trace.Tally) {
	if t.Bad == 0 {
		return
	}
	for _, err := range t.First {
		fmt.Fprintln(c.env.stderr, "kvasir trace:", err)
	}
	fmt.Fprintf(c.env.stderr, "kvasir trace: %s: passed over %s of %d\n", name, count(t.Bad, "bad record"), t.Records)
}

// described is what stats prints of a file.
type described struct {
	File       string `json:"file"`
	Format     string `json:"format"`
	Records    int    `json:"records"`
	BadRecords int    `json:"bad_records"`
	Estimated  bool   `json:"tokens_estimated"`
	*trace.Stats
	SpreadSeconds    float64         `json:"spread_within_seconds,omitempty"`
	WasSpreadSeconds float64         `json:"was_spread_within_seconds,omitempty"` // before the file was written
	Raw              *trace.Arrivals `json:"call_arrivals_raw,omitempty"`         // where calls were spread
	DrawnRate        float64         `json:"drawn_sessions_per_second,omitempty"`
}

func (c *traceCommand) stats(files []string) error {
	var all []described
	for _, name := range c.names(files) {
		d, err := c.describe(name)
		if err != nil {
			return err
		}
		if c.format == "json" {
			all = append(all, d)
			continue
		}
		if err := d.print(c.env.stdout); err != nil {
			return err
		}
	}
	if c.format == "table" {
		return nil
	}
	return printJSON(c.env.stdout, all)
}

// describe reads a file, twice where its calls were spread within bins.
func (c *traceCommand) describe(name string) (described, error) {
	var tally trace.Tally
	t, err := c.open(name, &tally)
	if err != nil {
		return described{}, err
	}
	s, err := trace.Summarize(t.Source)
	if err != nil {
		return described{}, err
	}
	c.report(name, tally)
	if s.Calls == 0 {
		return described{}, c.nothing(name)
	}
	d := described{
		File: name, Format: string(t.Format), Records: tally.Records, BadRecords: tally.Bad,
		Estimated: t.Estimated, Stats: s, SpreadSeconds: t.Bin.Seconds(), WasSpreadSeconds: t.Spread.Seconds(), DrawnRate: t.SessionRate,
	}
	if t.Bin > 0 {
		raw := *c
		raw.read.options.Bin, raw.read.options.Raw = 0, true
		t, err := raw.open(name, &tally)
		if err != nil {
			return described{}, err
		}
		if d.Raw, err = trace.CallArrivals(t.Source); err != nil {
			return described{}, err
		}
	}
	return d, nil
}

func (c *traceCommand) convert(files []string) error {
	in, out := c.names(files)[0], files[len(files)-1]
	var tally trace.Tally
	t, err := c.open(in, &tally)
	if err != nil {
		return err
	}
	sessions := 0
	write := func(w io.Writer) (err error) {
		if sessions, err = trace.Write(w, t); err == nil && sessions == 0 {
			err = c.nothing(in)
		}
		return err
	}
	if out == "-" {
		err = write(c.env.stdout)
	} else {
		err = writeOver(c.ctx, out, c.force, write)
	}
	c.report(in, tally)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.env.stderr, "kvasir trace: %s: wrote %s to %s\n", in, count(sessions, "session"), out)
	return nil
}

// writeOver writes a file, compressed if its name ends with .zst or .gz. What is there already is
// overwritten on demand alone: a file is replaced, and that which a link leads to; a pipe or
// a device stays what it is and is written to, until ctx ends.
func writeOver(ctx context.Context, name string, overwrite bool, write func(io.Writer) error) error {
	ending := filepath.Ext(name)
	_, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return writeWhole(name, ending, write)
	case err != nil:
		return err
	case !overwrite:
		return fmt.Errorf("%s is there already; --force overwrites it", name)
	}
	if target, err := os.Stat(name); err == nil && target.Mode().IsRegular() {
		if name, err = filepath.EvalSymlinks(name); err != nil {
			return err
		}
		return writeWhole(name, ending, write)
	}
	f, err := openPatiently(ctx, name)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = f.Close() })() // so that a write does not wait for ever
	err = compressed(f, ending, write)
	if err = cmp.Or(err, f.Close()); err != nil && ctx.Err() != nil {
		return fmt.Errorf("%s: interrupted", name)
	}
	return err
}

// openPatiently opens what may have to be waited for: a pipe, until somebody reads it.
func openPatiently(ctx context.Context, name string) (*os.File, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		// Without blocking a pipe that nobody reads is an error.
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|syscall.O_NONBLOCK, 0o644)
		if !errors.Is(err, syscall.ENXIO) {
			return f, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: interrupted", name)
		}
	}
}

// writeWhole makes a file, or replaces one, that is there whole or not at all.
func writeWhole(name, ending string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err := compressed(f, ending, write); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// compressed writes as the end of a file's name says.
func compressed(w io.Writer, ending string, write func(io.Writer) error) error {
	var z io.WriteCloser
	var err error
	switch ending {
	case ".zst":
		z, err = zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	case ".gz":
		z, err = gzip.NewWriterLevel(w, gzip.BestCompression)
	default:
		return write(w)
	}
	if err != nil {
		return err
	}
	if err := write(z); err != nil {
		_ = z.Close()
		return err
	}
	return z.Close()
}

func (c *traceCommand) head(files []string) error {
	name := c.names(files)[0]
	var tally trace.Tally
	t, err := c.open(name, &tally)
	if err != nil {
		return err
	}
	t.Source = trace.Transform{Sessions: c.n}.Apply(t.Source)
	defer func() { c.report(name, tally) }()
	write := printHead
	if c.format == "json" {
		write = trace.Write
	}
	sessions, err := write(c.env.stdout, t)
	if err == nil && sessions == 0 {
		err = c.nothing(name)
	}
	return err
}
