package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// machine is where and how a run was made.
type machine struct {
	CPU     string   `json:"cpu"`
	Cores   int      `json:"cores"`
	Workers int      `json:"workers"` // of each target
	Kernel  string   `json:"kernel"`
	Go      string   `json:"go"`
	Nginx   string   `json:"nginx"`
	Load    string   `json:"load"` // averages before the run
	When    string   `json:"when"`
	Args    []string `json:"args"`
}

func describe(ctx context.Context, args []string) machine {
	m := machine{
		CPU: "unknown", Cores: runtime.NumCPU(), Workers: workers, Go: runtime.Version(),
		Kernel: firstLine("/proc/sys/kernel/osrelease"), Load: firstLine("/proc/loadavg"),
		When: time.Now().UTC().Format(time.RFC3339), Args: args,
	}
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	var err error
	if m.Nginx, err = command(ctx, "nginx", "-v"); err != nil {
		m.Nginx = "none"
	}
	m.Nginx = strings.TrimPrefix(m.Nginx, "nginx version: ")
	return m
}

func firstLine(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

func (m machine) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %d cores, %d for each target; Linux %s, %s, %s\nbegun %s, load %s, flags: %s\n\n",
		m.CPU, m.Cores, m.Workers, m.Kernel, m.Go, m.Nginx, m.When, m.Load, strings.Join(m.Args, " "))
}

// row is what all rounds say of one cell of one target.
type row struct {
	cpu                 float64    // milliseconds for 1,000 calls
	ratio               [3]float64 // to the bare proxy in the same round: least, median, most
	first, median, high float64    // milliseconds
	rate                float64    // calls a second
}

func summarise(samples []sample, c cell, target string) row {
	base := map[int]float64{}
	for _, s := range samples {
		if s.Target == baseline && s.Cell == c.String() {
			base[s.Round] = s.cpuPer1000()
		}
	}
	var cpu, ratio, first, median, high, rate []float64
	for _, s := range samples {
		if s.Target != target || s.Cell != c.String() {
			continue
		}
		cpu, ratio = append(cpu, s.cpuPer1000()), append(ratio, s.cpuPer1000()/base[s.Round])
		first, median, high = append(first, s.First[0]), append(median, s.Whole[0]), append(high, s.Whole[1])
		rate = append(rate, float64(s.Calls)/s.Wall.Seconds())
	}
	return row{
		cpu: middle(cpu), ratio: [3]float64{slices.Min(ratio), middle(ratio), slices.Max(ratio)},
		first: middle(first), median: middle(median), high: middle(high), rate: middle(rate),
	}
}

func (s sample) cpuPer1000() float64 { return ms(s.CPU) * 1000 / float64(s.Calls) }

// middle returns the median.
func middle(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// printTables prints a row for each cell and target, then what the aims are about.
func printTables(w io.Writer, samples []sample, cells []cell, targets []target) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "cell\ttarget\tCPU ms/1000\tratio\tleast..most\tfirst p50 ms\tp50 ms\tp99 ms\tcalls/s\t")
	for _, c := range cells {
		for _, target := range targets {
			r := summarise(samples, c, target.name)
			cpu, ratio, spread := "", "", ""
			if target.process != nil {
				cpu = fmt.Sprintf("%.0f", r.cpu)
				ratio, spread = fmt.Sprintf("%.2f", r.ratio[1]), fmt.Sprintf("%.2f..%.2f", r.ratio[0], r.ratio[2])
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%.2f\t%.2f\t%.2f\t%.0f\t\n", c, target.name, cpu, ratio, spread, r.first, r.median, r.high, r.rate)
		}
		fmt.Fprintln(t, "\t\t\t\t\t\t\t\t\t")
	}
	_ = t.Flush()
	printRelay(w, samples, cells, targets)
}

// printRelay prints what an event costs.
func printRelay(w io.Writer, samples []sample, cells []cell, targets []target) {
	for _, c := range cells {
		if c.Events < 512 {
			continue
		}
		fmt.Fprintf(w, "CPU an event, %s:", c)
		for _, target := range targets {
			if target.process != nil {
				r := summarise(samples, c, target.name)
				fmt.Fprintf(w, "  %s %.2f µs", target.name, r.cpu/float64(c.Events))
			}
		}
		fmt.Fprintln(w)
	}
}

func writeResults(file string, m machine, samples []sample) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	e := json.NewEncoder(f)
	err = e.Encode(m)
	for _, s := range samples { // a line each
		if err == nil {
			err = e.Encode(s)
		}
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
