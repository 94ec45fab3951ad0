package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"kvasir/lab"
)

const labUsage = `usage: kvasir lab list [--format table|json]
       kvasir lab run NAME|all [--set KEY=VALUE]... [--seeds N] [--trace FILE [--in FORMAT]]
                               [--format table|json|markdown]
       kvasir lab export DIR [--force]

list prints the labs with their settings. run plays one lab, or all of them, and prints
its tables and a verdict on every claim of the article that it checks. A claim that does
not hold is a result, not a failure of the command. export writes the page with the labs as
a static site; kvasir lab export -h says more.

flags of run:
  --set KEY=VALUE   a setting of the one lab that is run; may be given many times (default: the article's settings)
  --seeds N         how often a lab with random draws is repeated (default 20, or what
                    kvasir lab list says)
  --trace FILE      a recorded trace for the one lab that is run, where it takes one; zstd or gzip, or neither
  --in FORMAT       the trace's format (default: found out by its first record)
  --format FORMAT   table, json or markdown (default table)

example:
  kvasir lab run knee
  kvasir lab run freshness --set scrape=20 --seeds 50
  kvasir lab run knee --trace conversation_trace.jsonl
  kvasir lab run all --format json > labs.json
`

// labOptions is what the words and flags say.
type labOptions struct {
	words    []string
	settings []lab.Setting
	seeds    int
	seeded   bool // seeds was given
	trace    string
	in       string // the trace's format
	format   string
}

// runLab is kvasir lab: it lists the labs, runs them, or exports them.
func runLab(ctx context.Context, env environment, args []string) int {
	if len(args) > 0 && args[0] == "export" {
		return runLabExport(ctx, env, args[1:])
	}
	o, err := parseLab(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(env.stdout, labUsage)
		return 0
	}
	var print func() error
	if err == nil {
		print, err = o.command(ctx, env.stdout)
	}
	if errors.Is(err, lab.ErrStopped) {
		fmt.Fprintf(env.stderr, "kvasir lab: %v\n", err)
		return 1
	}
	if err != nil {
		for _, e := range flatten(err) {
			fmt.Fprintf(env.stderr, "kvasir lab: %v\n", e)
		}
		fmt.Fprintln(env.stderr, "kvasir lab -h says how it is called.")
		return 2
	}
	if err := print(); err != nil {
		fmt.Fprintf(env.stderr, "kvasir lab: %v\n", err)
		return 1
	}
	return 0
}

func parseLab(args []string) (labOptions, error) {
	o := labOptions{}
	f := flag.NewFlagSet("kvasir lab", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.format, "format", "table", "")
	f.IntVar(&o.seeds, "seeds", lab.DefaultSeeds, "")
	f.StringVar(&o.trace, "trace", "", "")
	f.StringVar(&o.in, "in", "", "")
	f.Func("set", "", func(s string) error {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			return errors.New("expected KEY=VALUE")
		}
		o.settings = append(o.settings, lab.Setting{Key: key, Value: value})
		return nil
	})
	words, err := parseAnywhere(f, args)
	if err != nil {
		return o, err
	}
	f.Visit(func(g *flag.Flag) { o.seeded = o.seeded || g.Name == "seeds" })
	o.words = words
	if o.format != "table" && o.format != "json" && o.format != "markdown" {
		return o, fmt.Errorf("--format is %q; allowed: table, json, markdown", o.format)
	}
	if o.in != "" && o.trace == "" {
		return o, errors.New("--in needs --trace: it is the format of that file")
	}
	return o, nil
}

// command returns what is to be done; the error says how the call is wrong.
func (o *labOptions) command(ctx context.Context, w io.Writer) (func() error, error) {
	switch {
	case len(o.words) == 1 && o.words[0] == "list":
		if o.seeded || len(o.settings) > 0 || o.trace != "" || o.format == "markdown" {
			return nil, errors.New("list takes --format table or json alone")
		}
		return func() error { return o.list(w) }, nil
	case len(o.words) == 2 && o.words[0] == "run":
		results, err := o.run(ctx)
		return func() error { return o.print(w, results) }, err
	case len(o.words) > 0 && o.words[0] == "run":
		return nil, errors.New("run takes one NAME, or all")
	case len(o.words) > 0 && o.words[0] == "list":
		return nil, errors.New("list takes nothing further")
	case len(o.words) > 0:
		return nil, fmt.Errorf("no such command: %q", o.words[0])
	}
	return nil, errors.New("expected list, run or export")
}

// run plays what is asked for, until ctx ends.
func (o *labOptions) run(ctx context.Context) ([]*lab.Result, error) {
	labs := lab.Catalog()
	if name := o.words[1]; name != "all" {
		l, err := lab.Lookup(name)
		if err != nil {
			return nil, err
		}
		if o.seeded && !l.Seeded {
			return nil, fmt.Errorf("--seeds: nothing in %s is drawn at random", l.Name)
		}
		if o.trace != "" && !l.Traced {
			return nil, fmt.Errorf("--trace: %s takes no trace; these do: %s", l.Name, strings.Join(traced(), ", "))
		}
		labs = []lab.Lab{l}
	} else if len(o.settings) > 0 || o.trace != "" {
		return nil, errors.New("--set and --trace need one lab's NAME: each lab has settings of its own")
	}
	given, err := o.read()
	if err != nil {
		return nil, err
	}
	var results []*lab.Result
	for _, l := range labs {
		if ctx.Err() != nil {
			return nil, lab.ErrStopped
		}
		seeds := o.seeds
		if !o.seeded {
			seeds = l.DefaultSeeds()
		}
		r, err := l.Run(lab.Options{Settings: o.settings, Seeds: seeds, Trace: given, Stopped: func() bool { return ctx.Err() != nil }})
		if err != nil {
			return nil, unknownSettings(l, err)
		}
		results = append(results, r)
	}
	return results, nil
}

// read returns the trace that was given, or nil.
func (o *labOptions) read() (t *lab.Trace, err error) {
	if o.trace == "" {
		return nil, nil
	}
	f, err := traceFile(o.trace).Open()
	if err != nil {
		return nil, fmt.Errorf("--trace: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return lab.ReadTrace(filepath.Base(o.trace), o.in, f)
}

// traced lists the labs that take a trace.
func traced() []string {
	var names []string
	for _, l := range lab.Catalog() {
		if l.Traced {
			names = append(names, l.Name)
		}
	}
	return names
}

// unknownSettings says of settings that the lab does not have which ones it has.
func unknownSettings(l lab.Lab, err error) error {
	var keys []string
	for _, p := range l.Params() {
		keys = append(keys, p.Key)
	}
	var errs []error
	for _, e := range flatten(err) {
		if s, ok := errors.AsType[*lab.SettingError](e); ok && !slices.Contains(keys, s.Key) {
			e = fmt.Errorf("--set %s=%s: %s has no setting %s; its settings: %s", s.Key, s.Value, l.Name, s.Key, strings.Join(keys, ", "))
		}
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

func (o *labOptions) print(w io.Writer, results []*lab.Result) error {
	if o.format == "json" {
		return printJSON(w, struct {
			Results []*lab.Result `json:"results"`
		}{results})
	}
	var texts []string
	for _, r := range results {
		if o.format == "markdown" {
			texts = append(texts, r.Markdown())
		} else {
			texts = append(texts, r.Text())
		}
	}
	_, err := io.WriteString(w, strings.Join(texts, "\n\n"))
	return err
}

func (o *labOptions) list(w io.Writer) error {
	if o.format == "json" {
		return printJSON(w, struct {
			Labs []lab.Listed `json:"labs"`
		}{lab.List()})
	}
	var b strings.Builder
	for i, l := range lab.Catalog() {
		if i > 0 {
			b.WriteString("\n")
		}
		repeats := ""
		if n := l.DefaultSeeds(); n > 0 && n != lab.DefaultSeeds {
			repeats = fmt.Sprintf("; %d seeds", n)
		}
		fmt.Fprintf(&b, "%s: %s (article %s%s)\n", l.Name, l.Title, l.Section, repeats)
		for _, p := range l.Params() {
			fmt.Fprintf(&b, "  %-16s %s (default %s; %s)\n", p.Key, p.Doc, p.Default, p.Allowed())
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printJSON prints a value for people and programs alike.
func printJSON(w io.Writer, value any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(value)
}
