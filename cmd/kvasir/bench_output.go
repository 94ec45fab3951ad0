package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"kvasir/client/load/report"
	"kvasir/internal/plot"
)

// save writes the files that were asked for.
func (b *bench) save(r *report.Result) error {
	if b.o.saveResult {
		if err := b.saveJSON(r); err != nil {
			return err
		}
	}
	if b.o.csv != "" {
		if err := b.write(b.o.csv, r.CSV); err != nil {
			return err
		}
	}
	if b.o.plot == "" {
		return nil
	}
	return b.saveCharts([]chart{
		{"latency", r.Latency()}, {"calls", r.Rates()}, {"ttft", r.Waits()}, {"in-flight", r.InFlight()},
	})
}

func (b *bench) saveSweep(s *report.Sweep) error {
	if b.o.csv != "" {
		if err := b.write(b.o.csv, s.CSV); err != nil {
			return err
		}
	}
	if b.o.plot == "" {
		return nil
	}
	return b.saveCharts([]chart{{"sweep", s.Curve()}, {"sweep-ttft", s.Waits()}})
}

// chart is a chart and what ends the name of its file.
type chart struct {
	name string
	plot.Chart
}

func (b *bench) chartName(chart string) string { return b.o.plot + "-" + chart + ".svg" }

func (b *bench) saveCharts(charts []chart) error {
	for _, c := range charts {
		if err := b.write(b.chartName(c.name), c.SVG); err != nil {
			return err
		}
	}
	return nil
}

// saveJSON writes or appends a result.
func (b *bench) saveJSON(r *report.Result) error {
	text, err := r.JSON()
	if err != nil {
		return err
	}
	name := b.o.resultPath(r)
	if b.o.appendResult {
		f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		_, err = f.Write(text)
		if closed := f.Close(); err == nil {
			err = closed
		}
		if err == nil {
			fmt.Fprintf(b.env.stderr, "kvasir bench: appended to %s\n", name)
		}
		return err
	}
	return b.write(name, func(w io.Writer) error { _, err := w.Write(text); return err })
}

// resultPath is where a result is kept.
func (o *benchOptions) resultPath(r *report.Result) string {
	name := o.resultFile
	if name == "" {
		name = resultName(r)
	}
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(o.resultDir, name)
}

// tryFiles makes --result-dir, and makes sure that every file that was asked for can be
// written, so that no run is in vain.
func (b *bench) tryFiles() error {
	o := b.o
	var errs []error
	try := func(flag, name string) {
		if err := tryFile(name); err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	if o.saveResult {
		rate := o.rate
		if o.sweep != nil {
			rate = 1 + 1e-15 // no other has more digits
		}
		name := o.resultPath(&report.Result{Run: b.about(rate, time.Now())})
		if _, err := os.Stat(o.resultDir); errors.Is(err, fs.ErrNotExist) && !filepath.IsAbs(o.resultFile) {
			if err := os.MkdirAll(o.resultDir, 0o755); err != nil {
				return fmt.Errorf("--result-dir: %w", err)
			}
			fmt.Fprintf(b.env.stderr, "kvasir bench: made the folder %s\n", o.resultDir)
		}
		flag := "result-filename"
		if o.resultFile == "" {
			flag = "save-result"
		}
		try(flag, name)
	}
	if o.csv != "" {
		try("csv", o.csv)
	}
	if o.plot != "" {
		try("plot", b.chartName("in-flight")) // the longest
	}
	return errors.Join(errs...)
}

// tryFile says why a file cannot be written. It leaves what is there, and nothing else.
func tryFile(name string) error {
	flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("%s is a folder; allowed: a file's name", name)
	case err == nil && !info.Mode().IsRegular():
		return nil // a pipe or a device is opened once
	case err == nil:
		flags = os.O_WRONLY
	}
	if _, err := os.Stat(filepath.Dir(name)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: there is no folder %s", name, filepath.Dir(name))
	}
	if _, there := os.Lstat(name); there == nil && err != nil {
		return nil // a link to a file that is not there yet
	}
	f, err := os.OpenFile(name, flags, 0o644)
	if err != nil {
		return err
	}
	err = f.Close()
	if flags&os.O_EXCL != 0 {
		err = cmp.Or(err, os.Remove(name))
	}
	return err
}

// resultName is vLLM's name for a result's file: label or backend, rate, concurrency, model
// and date.
func resultName(r *report.Result) string {
	label := r.Label
	if label == "" {
		label = r.Backend
	}
	rate := "inf"
	switch {
	case r.Ramp.Strategy != "":
		rate = "ramp-up-" + r.Ramp.Strategy + "-" + shortest(r.Ramp.Start) + "qps-" + shortest(r.Ramp.End)
	case math.IsNaN(r.Rate):
		rate = "self-timed-"
	case !math.IsInf(r.Rate, 1):
		rate = shortest(r.Rate)
	}
	concurrency := ""
	if r.MaxConcurrency > 0 {
		concurrency = fmt.Sprintf("-concurrency%d", r.MaxConcurrency)
	}
	model := r.Model[strings.LastIndexByte(r.Model, '/')+1:]
	name := fmt.Sprintf("%s-%sqps%s-%s-%s.json", label, rate, concurrency, model, r.Date.Format("20060102-150405"))
	return strings.Map(func(c rune) rune {
		if c < ' ' || strings.ContainsRune(`/\:*?"<>|`, c) {
			return '_'
		}
		return c
	}, name)
}

func shortest(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// write writes a file, unless what is to be in it fails.
func (b *bench) write(name string, to func(io.Writer) error) error {
	var text bytes.Buffer
	if err := to(&text); err != nil {
		return err
	}
	if err := os.WriteFile(name, text.Bytes(), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(b.env.stderr, "kvasir bench: wrote %s\n", name)
	return nil
}
