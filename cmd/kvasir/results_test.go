package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// results runs kvasir results; traces is what KVASIR_TRACES says.
func results(t *testing.T, traces string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	env := environment{stdout: &out, stderr: &err, getenv: func(name string) string {
		if name == "KVASIR_TRACES" {
			return traces
		}
		return ""
	}}
	code = run(context.Background(), env, append([]string{"results"}, args...))
	return code, out.String(), err.String()
}

// fast is the one workload that needs no trace, as short as it may be.
var fast = []string{"--cells", "fan-out-small-8", "--seeds", "2", "--share", "0.05", "--tolerance", "0.2", "--policies", "least-outstanding,cache-aware,round-robin"}

func TestResults_SetsPoliciesBesideEachOther(t *testing.T) {
	code, out, errs := results(t, t.TempDir(), append(fast, "--tuned=false", "--sensitivity=false")...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, want := range []string{"fan-out-small-8", "least-outstanding", "pooled (bound)", "of best peer", "TTFT P50", "took"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in\n%s", want, out)
		}
	}
	if !strings.Contains(errs, "1 of 1: fan-out-small-8") {
		t.Errorf("no progress in %q", errs)
	}
}

func TestResults_TheSameWhateverRunsAtTheSameTime(t *testing.T) {
	var reports [2]map[string]any
	for i, jobs := range []string{"1", "3"} {
		code, out, errs := results(t, t.TempDir(), append(fast, "--jobs", jobs, "--format", "json")...)
		if err := json.Unmarshal([]byte(out), &reports[i]); code != 0 || err != nil {
			t.Fatalf("exit %d: %s, %v", code, errs, err)
		}
	}
	for i := range reports {
		cell := reports[i]["results"].([]any)[0].(map[string]any)
		if len(cell["entries"].([]any)) != 3 || len(cell["orders"].([]any)) != 6 || len(cell["tuned_peers"].([]any)) != 1 {
			t.Errorf("%v", cell)
		}
		delete(cell, "took_s")
	}
	a, _ := json.Marshal(reports[0]["results"])
	b, _ := json.Marshal(reports[1]["results"])
	if !bytes.Equal(a, b) {
		t.Errorf("one job at a time:\n%s\nthree:\n%s", a, b)
	}
}

func TestResults_WritesAPage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.md")
	code, out, errs := results(t, t.TempDir(), append(fast, "--sensitivity=false", "--format", "md", "--out", file, "--machine", "a test")...)
	if code != 0 || out != "" {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# Results", "kvasir results --cells=fan-out-small-8", "a test", "## What holds", "took no part", "## fan-out-small-8", "| least-outstanding |", "tuned parameters"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("there is no %q in\n%s", want, page)
		}
	}
	if strings.Contains(string(page), file) {
		t.Error("the page says where it was written to")
	}
	if strings.Contains(string(page), "NaN") {
		t.Errorf("NaN in\n%s", page)
	}
}

func TestResults_SaysWhatIsWrong(t *testing.T) {
	folder := t.TempDir()
	for want, args := range map[string][]string{
		"KVASIR_TRACES":                 {"--traces", ""},
		"no such file":                  {"--traces", filepath.Join(folder, "nowhere")},
		"no cell is called \"fan-in\"":  {"--cells", "fan-in"},
		"--cells: \"[\"":                {"--cells", "["},
		"policy \"fastest\" is unknown": {"--policies", "fastest"},
		"is there twice":                {"--policies", "random,random"},
		"--seeds: 0":                    {"--seeds", "0"},
		"--share: 2":                    {"--share", "2"},
		"--tolerance: 0":                {"--tolerance", "0"},
		"table, json or md":             {"--format", "csv"},
		"reported, tuning or both":      {"--half", "left"},
		"goes with --half reported":     {"--half", "both", "--tuned"},
		"unexpected \"now\"":            {"now"},
		"--jobs: 0":                     {"--jobs", "0"},
	} {
		if code, _, errs := results(t, folder, args...); code != 2 || !strings.Contains(errs, want) {
			t.Errorf("%v: exit %d, %s; want 2 and %q", args, code, errs, want)
		}
	}
	code, _, errs := results(t, folder, "--cells", "conversation-small-8", "--seeds", "1", "--policies", "random")
	if code != 1 || !strings.Contains(errs, "conversation_trace.jsonl") {
		t.Errorf("a folder without the trace: exit %d, %s", code, errs)
	}
	if code, out, _ := results(t, "", "--cells", "list"); code != 0 || !strings.Contains(out, "conversation-mixed-8") {
		t.Errorf("list: exit %d, %s", code, out)
	}
}

// TestResults_FiguresOfAPage: the page that is committed gives the file that is committed, with
// no traces, and what else is asked for beside that is refused.
func TestResults_FiguresOfAPage(t *testing.T) {
	kept, err := os.ReadFile("../../lab/results.json")
	if err != nil {
		t.Fatal(err)
	}
	code, out, errs := results(t, "", "--figures", "../../docs/results.md")
	if code != 0 || out != string(kept) {
		t.Errorf("exit %d, %d bytes for %d: %s", code, len(out), len(kept), errs)
	}
	file := filepath.Join(t.TempDir(), "figures.json")
	if code, out, errs := results(t, "", "--figures", "../../docs/results.md", "--out", file); code != 0 || out != "" {
		t.Errorf("exit %d: %s", code, errs)
	}
	if written, err := os.ReadFile(file); err != nil || !bytes.Equal(written, kept) {
		t.Errorf("%v", err)
	}
	for want, args := range map[string][]string{
		"--seeds: with --figures nothing is played": {"--figures", "../../docs/results.md", "--seeds", "3"},
		"there is no cell's table in it":            {"--figures", "../../docs/labs.md"},
		"no such file":                              {"--figures", "none.md"},
	} {
		if code, _, errs := results(t, "", args...); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}
}
