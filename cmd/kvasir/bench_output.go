package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

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

func (b *bench) saveCharts(charts []chart) error {
	for _, c := range charts {
		if err := b.write(b.o.plot+"-"+c.name+".svg", c.SVG); err != nil {
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
	name := b.o.resultFile
	if name == "" {
		name = resultName(r)
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(b.o.resultDir, name)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
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
