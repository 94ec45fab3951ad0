package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// profiled is how long a cell is called while perf looks.
const profiled = 5 * time.Second

// profile calls each cell of each target while perf samples the target, and writes to dir
// who was on the CPU: by function (.self), with all that each function called (.total), and
// by the parts of a gateway's work (.parts).
func (r *rounds) profile(ctx context.Context, dir string) error {
	if _, err := exec.LookPath("perf"); err != nil {
		return fmt.Errorf("-profile needs perf (Debian: linux-perf): %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i, c := range r.cells {
		n := roundUp(int(float64(r.calls[i])*float64(profiled)/float64(r.slot)), c.concurrency())
		for _, t := range r.bench.targets {
			if t.process == nil {
				continue
			}
			if err := r.profileOne(ctx, t, c, n, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *rounds) profileOne(ctx context.Context, t target, c cell, n int, dir string) error {
	file := filepath.Join(dir, t.name+"-"+strings.NewReplacer(" ", "-", ",", "").Replace(c.String()))
	var pids []string
	for _, pid := range t.pids {
		pids = append(pids, strconv.Itoa(pid))
	}
	perf := exec.Command("perf", "record", "-q", "-F", "1999", "-e", "cpu-clock", "-g", "-o", file+".data", "-p", strings.Join(pids, ","))
	p, err := start("perf", r.bench.dir, perf)
	if err != nil {
		return err
	}
	_, cpu, err := r.one(ctx, t, c, n)
	_ = perf.Process.Signal(os.Interrupt)
	<-p.ended
	if err != nil {
		return err
	}
	for _, view := range []struct{ suffix, flag string }{{".self", "--no-children"}, {".total", "--children"}} {
		text, err := command(ctx, "perf", "report", "--stdio", "-q", "-g", "none", "--percent-limit", "0.2", "--sort", "symbol", view.flag, "-i", file+".data")
		if err != nil {
			return err
		}
		if err := os.WriteFile(file+view.suffix, []byte(text+"\n"), 0o644); err != nil {
			return err
		}
	}
	return writeParts(file, cpu/time.Duration(n))
}

// writeParts writes where the CPU time of a call goes, and prints it.
func writeParts(file string, call time.Duration) error {
	script := exec.Command("perf", "script", "-F", "comm,ip,sym", "-i", file+".data")
	stacks, err := script.StdoutPipe()
	if err != nil {
		return err
	}
	if err := script.Start(); err != nil {
		return err
	}
	shares, samples := readStacks(stacks)
	if err := script.Wait(); err != nil {
		return fmt.Errorf("perf script: %w", err)
	}
	var text strings.Builder
	printParts(&text, shares, samples, call)
	fmt.Printf("%s: %s\n", file, text.String())
	return os.WriteFile(file+".parts", []byte(text.String()), 0o644)
}
