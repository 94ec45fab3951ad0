package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"kvasir/client/workload/trace"
)

// traceNames are the datasets of files that have other names in other tools.
var traceNames = map[string]trace.Format{
	"trace":          trace.Auto,
	"timed_trace":    trace.Mooncake, // vLLM
	"mooncake_trace": trace.Mooncake, // AIPerf
	"custom":         trace.Prompts,  // vLLM
}

// traceFormat returns the format that --dataset-name names; false where it names none.
func traceFormat(name string) (trace.Format, bool) {
	if f, ok := traceNames[name]; ok {
		return f, true
	}
	return trace.Format(name), slices.Contains(trace.Names(), name)
}

// traceDatasets lists what --dataset-name may be with --dataset-path.
func traceDatasets() string {
	names := []string{"timed_trace", "mooncake_trace", "custom"}
	return "trace (found out by the file), " + strings.Join(append(names, trace.Names()...), ", ")
}

// openTraceDataset opens --dataset-path. What a pass over the file leaves out is said on w.
func openTraceDataset(o *benchOptions, format trace.Format, w io.Writer) (dataset, error) {
	if o.datasetPath == "" {
		return dataset{}, fmt.Errorf("--dataset-name %s needs --dataset-path", o.datasetName)
	}
	options := trace.Options{
		Format: format, Strict: o.strict, Seed: o.seed, Raw: o.raw,
		BlockTokens: o.hashBlock, TimeUnit: time.Duration(o.timeUnit * 1e9),
		Done: func(t trace.Tally) {
			if t.Bad > 0 {
				fmt.Fprintf(w, "kvasir bench: %d of %d records of the dataset were passed over; the first: %v\n", t.Bad, t.Records, t.First[0])
			}
		},
	}
	t, err := trace.Open(traceFile(o.datasetPath), options)
	if err != nil {
		return dataset{}, err
	}
	change := trace.Transform{Rate: o.speedup}
	if err := change.Validate(); err != nil {
		return dataset{}, err
	}
	return dataset{
		Source: change.Apply(t.Source), timed: t.Timed,
		single: slices.Contains([]trace.Format{trace.Mooncake, trace.Azure, trace.VLLMLog}, t.Format),
	}, nil
}
