package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var someCell = cell{Body: 4 * kib}

func someSamples() []sample {
	var out []sample
	for round, cpu := range [][2]int{{100, 150}, {200, 240}, {100, 130}} { // milliseconds of the baseline and of kvasir
		for i, target := range []string{baseline, "kvasir"} {
			out = append(out, sample{
				Round: round, Target: target, Cell: someCell.String(), Calls: 1000,
				CPU: time.Duration(cpu[i]) * time.Millisecond, Wall: time.Second,
				First: [2]float64{1, 2}, Whole: [2]float64{float64(round), 9},
			})
		}
	}
	return out
}

func TestRatiosAreOfTheSameRound(t *testing.T) {
	got := summarise(someSamples(), someCell, "kvasir")
	// 1.5, 1.2 and 1.3; the ratio of the medians would be 1.5.
	want := row{cpu: 150, ratio: [3]float64{1.2, 1.3, 1.5}, first: 1, median: 1, high: 9, rate: 1000}
	if got != want {
		t.Errorf("got %+v, expected %+v", got, want)
	}
}

func TestMedianOfAnEvenNumberIsBetweenTheMiddleTwo(t *testing.T) {
	if got := middle([]float64{9, 1, 3, 4}); got != 3.5 {
		t.Errorf("got %g, expected 3.5", got)
	}
}

func TestTableHasARowForEachCellAndTarget(t *testing.T) {
	var out bytes.Buffer
	targets := []target{{name: baseline, process: &process{}}, {name: "kvasir", process: &process{}}}
	printTables(&out, someSamples(), []cell{someCell}, targets)
	var rows []string
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, someCell.String()) {
			rows = append(rows, strings.Join(strings.Fields(line), " "))
		}
	}
	want := []string{
		"4 KB, plain reverse-proxy 100 1.00 1.00..1.00 1.00 1.00 9.00 1000",
		"4 KB, plain kvasir 150 1.30 1.20..1.50 1.00 1.00 9.00 1000",
	}
	if strings.Join(rows, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nexpected\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
}

func TestResultsAreALineEach(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "results.jsonl")
	if err := writeResults(file, machine{CPU: "one"}, someSamples()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var last sample
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if want := someSamples()[5]; len(lines) != 7 || last != want {
		t.Errorf("%d lines, the last one %+v; expected 7, %+v", len(lines), last, want)
	}
}

func TestCPUTimeCountsWhatAProcessDoes(t *testing.T) {
	self := []int{os.Getpid()}
	before, err := cpuTime(self)
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for { // the scheduler brings its count up to date with every tick
		after, err := cpuTime(self)
		if err != nil {
			t.Fatal(err)
		}
		if after > before {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still %v of CPU time after ten seconds of asking", after)
		}
	}
}

func TestCPUTimeOfNobodyIsAnError(t *testing.T) {
	if _, err := cpuTime([]int{1 << 30}); err == nil {
		t.Error("no error for a process that does not exist")
	}
}

func TestFamilyHasTheChildren(t *testing.T) {
	parent, err := os.Getppid(), error(nil)
	pids, err := family(parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if pid == os.Getpid() {
			return
		}
	}
	t.Errorf("%v are the family of %d; this process, %d, is missing", pids, parent, os.Getpid())
}

func TestBadFlagsAreErrors(t *testing.T) {
	for _, args := range [][]string{{"-rounds", "-1"}, {"-slot", "-1s"}, {"-with", "old"}, {"-cells", "("}, {"-targets", "["}, {"extra"}} {
		if _, err := parseOptions(args); err == nil {
			t.Errorf("no error for %v", args)
		}
	}
	if err := run(context.Background(), []string{"-cells", "nothing"}); err == nil || !strings.Contains(err.Error(), "no cell") {
		t.Errorf("cells that don't exist: %v", err)
	}
}

func TestBodiesOfOthersAreRefused(t *testing.T) {
	for _, body := range []string{"", "{}", `{"model":"bench"}`, `{"model":"bench","stream":true,"max_tokens":x,"user":"pace=0s",`, `{"model":"bench","stream":true,"max_tokens":4,"user":"pace=never",`} {
		if c, err := askedFor([]byte(body)); err == nil {
			t.Errorf("%q asks for %s", body, c)
		}
	}
}

func TestCallsAreRoundedUpToFullRows(t *testing.T) {
	for _, tt := range []struct{ n, step, want int }{{0, 8, 8}, {1, 8, 8}, {8, 8, 8}, {9, 8, 16}} {
		if got := roundUp(tt.n, tt.step); got != tt.want {
			t.Errorf("roundUp(%d, %d) = %d, expected %d", tt.n, tt.step, got, tt.want)
		}
	}
}
