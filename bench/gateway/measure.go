package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// sample is one cell of one target in one round.
type sample struct {
	Round  int           `json:"round"`
	Target string        `json:"target"`
	Cell   string        `json:"cell"`
	Calls  int64         `json:"calls"`
	CPU    time.Duration `json:"cpu_ns"` // of the target; 0 for direct calls
	Wall   time.Duration `json:"wall_ns"`
	First  [2]float64    `json:"first_ms"` // to the answer's first byte: median, 99th percentile
	Whole  [2]float64    `json:"whole_ms"`
}

// measure is a run: everything is started, each cell is called as often as fits its slot,
// round by round over all targets, and the table is printed.
func measure(ctx context.Context, o options) error {
	cells := chosenCells(o.quick, o.cells)
	if len(cells) == 0 {
		return fmt.Errorf("-cells leaves no cell")
	}
	dir, err := os.MkdirTemp("", "bench-gateway-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{dir: dir, kvasir: o.kvasir}
	defer b.stop()
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	if b.kvasir == "" {
		if b.kvasir, err = buildKvasir(ctx, dir); err != nil {
			return err
		}
	}
	m := describe(ctx, o.args)
	m.print(os.Stdout)
	if err := b.startAll(ctx, o); err != nil {
		return err
	}
	loader, err := startLoader(b)
	if err != nil {
		return err
	}
	r := &rounds{bench: b, loader: loader, cells: cells, slot: o.slot}
	if err := r.calibrate(ctx); err != nil {
		return err
	}
	if o.profile != "" {
		return r.profile(ctx, o.profile)
	}
	for i := range o.rounds {
		if err := r.round(ctx, i); err != nil {
			return err
		}
	}
	printTables(os.Stdout, r.samples, cells, b.targets)
	if o.out == "" {
		return nil
	}
	return writeResults(o.out, m, r.samples)
}

// rounds is the measuring itself.
type rounds struct {
	bench   *bench
	loader  *loader
	cells   []cell
	slot    time.Duration
	calls   []int // of each cell, the same for every target
	samples []sample
}

// calibrate finds out how many calls of each cell fit a slot before the bare proxy, and
// warms every target up. It believes the fastest of a few tries: on a shared machine the
// others say more about the neighbours.
func (r *rounds) calibrate(ctx context.Context) error {
	for _, c := range r.cells {
		n, rate := 2*c.concurrency(), 0.0
		for range 4 {
			got, _, err := r.one(ctx, r.bench.targets[1], c, n)
			if err != nil {
				return err
			}
			rate = max(rate, float64(n)/got.Wall.Seconds())
			n = roundUp(int(rate*r.slot.Seconds()/4), c.concurrency())
		}
		for _, t := range r.bench.targets {
			if _, _, err := r.one(ctx, t, c, n); err != nil {
				return err
			}
		}
		r.calls = append(r.calls, roundUp(int(rate*r.slot.Seconds()), c.concurrency()))
	}
	return nil
}

// roundUp returns the least multiple of step that is at least n and above 0: the last
// calls of a slot should end together.
func roundUp(n, step int) int { return max((n+step-1)/step, 1) * step }

// round measures every cell of every target once. Who comes first moves on from round to
// round and from cell to cell.
func (r *rounds) round(ctx context.Context, round int) error {
	for i, c := range r.cells {
		for j := range r.bench.targets {
			t := r.bench.targets[(round+i+j)%len(r.bench.targets)]
			got, cpu, err := r.one(ctx, t, c, r.calls[i])
			if err != nil {
				return err
			}
			r.samples = append(r.samples, sample{
				Round: round, Target: t.name, Cell: c.String(), Calls: got.Calls, CPU: cpu, Wall: got.Wall,
				First: [2]float64{ms(got.First50), ms(got.First99)}, Whole: [2]float64{ms(got.Median), ms(got.Percent99)},
			})
		}
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// settle is how long a target gets after the last answer for what it does afterwards,
// such as its log: it is part of the cost.
const settle = 20 * time.Millisecond

// one makes n calls of a cell to a target and returns what they took, and the CPU time
// that the target used for them.
func (r *rounds) one(ctx context.Context, t target, c cell, n int) (report, time.Duration, error) {
	got, before, after := report{}, time.Duration(0), time.Duration(0)
	err := ctx.Err()
	if err == nil {
		err = r.loader.prepare(order{Addr: t.addr, Cell: c, Calls: n})
	}
	if err == nil && t.process != nil {
		time.Sleep(settle)
		before, err = cpuTime(t.pids)
	}
	if err == nil {
		got, err = r.loader.run()
	}
	if err == nil && t.process != nil {
		time.Sleep(settle)
		after, err = cpuTime(t.pids)
	}
	if err == nil && t.process != nil && after <= before {
		err = fmt.Errorf("used no CPU time: %v before, %v after", before, after)
	}
	if err != nil {
		err = fmt.Errorf("%s, %s: %w", t.name, c, err)
	}
	return got, after - before, err
}

// loader is the client's process; see load.go.
type loader struct {
	orders  *json.Encoder
	word    io.Writer
	reports *bufio.Scanner
}

func startLoader(b *bench) (*loader, error) {
	cmd := exec.Command(b.self, "load")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p, err := start("load", b.dir, cmd)
	if err != nil {
		return nil, err
	}
	b.processes = append(b.processes, p)
	return &loader{json.NewEncoder(in), in, bufio.NewScanner(out)}, nil
}

// prepare has the client connect to the target and warm the connections up.
func (l *loader) prepare(o order) error {
	if err := l.orders.Encode(o); err != nil {
		return err
	}
	_, err := l.report()
	return err
}

// run has the client make the calls.
func (l *loader) run() (report, error) {
	if _, err := io.WriteString(l.word, "go\n"); err != nil {
		return report{}, err
	}
	return l.report()
}

func (l *loader) report() (report, error) {
	var r report
	if !l.reports.Scan() {
		return r, fmt.Errorf("the client's process has ended: %v", l.reports.Err())
	}
	if err := json.Unmarshal(l.reports.Bytes(), &r); err != nil {
		return r, err
	}
	if r.Error != "" {
		return r, fmt.Errorf("%s", r.Error)
	}
	return r, nil
}
