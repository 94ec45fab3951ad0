package main

import (
	"fmt"
	"io"
	"time"

	"kvasir/client/workload"
)

// dataset is a workload for kvasir bench.
type dataset struct {
	workload.Source
	timed  bool // its sessions have instants of their own
	single bool // every session is a single call
}

// datasetNames lists what --dataset-name may be without a file.
const datasetNames = "random, prefix_repetition, generated-shared-prefix, or a workload such as conversations:turns=6 (kvasir bench --list-workloads)"

// chooseDataset is the one place where a workload is chosen, by --dataset-name. What reading
// it leaves out is said on w.
func chooseDataset(o *benchOptions, w io.Writer) (dataset, error) {
	if format, ok := traceFormat(o.datasetName); ok {
		return openTraceDataset(o, format, w)
	}
	if o.datasetPath != "" {
		return dataset{}, fmt.Errorf("--dataset-path is given, but --dataset-name %s reads no file; those that do: %s", o.datasetName, traceDatasets())
	}
	switch o.datasetName {
	case "random":
		return generate(o, workload.Random{
			Prefix: o.random.prefix, Input: workload.Around(o.random.input, o.random.ratio), Output: workload.Around(o.random.output, o.random.ratio),
		}, true)
	case "prefix_repetition":
		r := o.repetition
		return generate(o, workload.PrefixRepetition{Prefixes: r.prefixes, Prefix: r.prefix, Suffix: r.suffix, Output: workload.Fixed(r.output)}, true)
	case "generated-shared-prefix", "gsp":
		g := o.shared
		return generate(o, workload.SharedPrefix{
			Groups: g.groups, Prompts: g.prompts, System: workload.Around(g.system, g.ratio), Question: workload.Around(g.question, g.ratio),
			Output: workload.Around(g.output, g.ratio), Turns: workload.Fixed(g.turns), Zipf: g.zipf,
		}, g.turns == 1)
	}
	mix, err := workload.Parse(o.datasetName)
	if err != nil {
		return dataset{}, fmt.Errorf("--dataset-name: %w; allowed: %s; with --dataset-path %s", err, datasetNames, traceDatasets())
	}
	return generate(o, mix, false)
}

// generate returns a generator's workload. When its sessions begin is the run's matter.
func generate(o *benchOptions, g workload.Generator, single bool) (dataset, error) {
	source, err := workload.Generate(o.datasetName, g, o.seed, func(yield func(time.Duration) bool) {
		for at := time.Duration(0); yield(at); at++ {
		}
	})
	if n := g.Count(); single && n > 0 {
		o.numPrompts = min(o.numPrompts, n)
	}
	return dataset{Source: source, single: single}, err
}

// describe says what is asked, in words.
func (o *benchOptions) describe(d dataset) string {
	if o.datasetPath != "" {
		return o.datasetName + " " + o.datasetPath
	}
	return d.Name
}
