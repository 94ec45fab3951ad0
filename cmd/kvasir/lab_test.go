package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kvasir/lab"
)

// callLab runs kvasir lab with args and returns its exit code and what it printed.
func callLab(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, talk strings.Builder
	code = runLab(t.Context(), environment{stdout: &out, stderr: &talk, getenv: noVariables}, args)
	return code, out.String(), talk.String()
}

// TestLabRun_EndsWithItsContext, as the first Ctrl-C ends that.
func TestLabRun_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{{"run", "all"}, {"run", "results", "--seeds", "1000"}} {
		var out, talk strings.Builder
		code := runLab(ctx, environment{stdout: &out, stderr: &talk, getenv: noVariables}, args)
		if code != 1 || out.String() != "" || talk.String() != "kvasir lab: the lab was stopped\n" {
			t.Errorf("%v: exit code %d, %s%s", args, code, out.String(), talk.String())
		}
	}
}

func TestLabRun_PrintsTablesAndVerdicts(t *testing.T) {
	code, out, talk := callLab(t, "run", "knee")
	if code != 0 || talk != "" {
		t.Fatalf("exit code %d, %s", code, talk)
	}
	for _, want := range []string{"knee: how much", "settings: wait=3 heavy_cs2=4 prefill_rate=20000 tpot=0.025\n", "equals", "article 0.86, 0.75, 0.55; ours 0.86, 0.75, 0.55"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing of:\n%s", want, out)
		}
	}
	_, out, _ = callLab(t, "run", "--set", "wait=5", "knee")
	if !strings.Contains(out, "wait is 5 service times") || !strings.Contains(out, "no verdict") {
		t.Errorf("with a setting:\n%s", out)
	}
}

func TestLabRun_JSON(t *testing.T) {
	code, out, _ := callLab(t, "run", "capacity", "--seeds", "3", "--set", "calls=100", "--format", "json")
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	var got struct {
		Results []struct {
			Lab      string
			Seeds    int
			Settings map[string]float64
			Tables   []struct {
				Name    string
				Columns []struct{ Name, Unit string }
				Rows    [][]any
			}
			Verdicts []any
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Results) != 1 {
		t.Fatalf("%d results", len(got.Results))
	}
	r := got.Results[0]
	if r.Lab != "capacity" || r.Seeds != 3 || r.Settings["calls"] != 100 || r.Verdicts == nil || len(r.Verdicts) != 0 || r.Tables[0].Rows[0][0] != 100.0 {
		t.Errorf("%+v", r)
	}
}

// TestLabRun_OnATrace: a compressed trace gives the same as a plain one, whichever way its
// format is known.
func TestLabRun_OnATrace(t *testing.T) {
	const azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,1000,8\n2023-11-16 18:15:50.9951690,1000,8\n"
	dir := t.TempDir()
	plain, packed := filepath.Join(dir, "plain.csv"), filepath.Join(dir, "packed.csv.gz")
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(azure))
	z.Close()
	for name, data := range map[string][]byte{plain: []byte(azure), packed: b.Bytes()} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{}, {"--in", "azure"}} {
			code, out, talk := callLab(t, append([]string{"run", "knee", "--trace", name}, args...)...)
			for _, want := range []string{"trace=" + filepath.Base(name), "\n2 calls of " + filepath.Base(name) + "\n", "service time, s   0.25  0.00", "no verdict"} {
				if code != 0 || talk != "" || !strings.Contains(out, want) {
					t.Errorf("%s %v: exit code %d, %q is missing of:\n%s%s", name, args, code, want, out, talk)
				}
			}
		}
	}
}

func TestLabRunAll_HasEveryLab(t *testing.T) {
	code, out, _ := callLab(t, "run", "all", "--seeds", "2", "--format", "json")
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	for _, l := range lab.Catalog() {
		if !strings.Contains(out, `"lab": "`+l.Name+`"`) {
			t.Errorf("%s is missing", l.Name)
		}
	}
}

func TestLabList(t *testing.T) {
	code, out, _ := callLab(t, "list")
	if code != 0 || !strings.Contains(out, "knee: how much utilization variability costs (article 1.2)\n  wait ") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	code, out, _ = callLab(t, "list", "--format", "json")
	var got struct{ Labs []lab.Listed }
	if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil || len(got.Labs) != len(lab.Catalog()) || got.Labs[0].Params[0].Key != "wait" {
		t.Errorf("exit code %d, %v:\n%s", code, err, out)
	}
}

func TestLab_WhenCalledWrongly_SaysHow(t *testing.T) {
	for want, args := range map[string][]string{
		"expected list, run or export":                            {},
		`no such command: "walk"`:                                 {"walk"},
		"run takes one NAME, or all":                              {"run"},
		"list takes nothing further":                              {"list", "knee"},
		"list takes --format table or json alone":                 {"list", "--seeds", "3"},
		`there is no lab "knees"; there are: `:                    {"run", "knees"},
		`--format is "csv"`:                                       {"run", "knee", "--format", "csv"},
		"--seeds: nothing in knee is drawn":                       {"run", "knee", "--seeds", "3"},
		"seeds is 0; allowed: 1 to 1000":                          {"run", "capacity", "--seeds", "0"},
		"--set and --trace need one lab's NAME":                   {"run", "all", "--set", "wait=3"},
		"--trace: capacity takes no trace; these do: knee":        {"run", "capacity", "--trace", "x.jsonl"},
		"--trace: open nobody.jsonl: ":                            {"run", "knee", "--trace", "nobody.jsonl"},
		"--in needs --trace":                                      {"run", "knee", "--in", "azure"},
		"trace: Format is csv; allowed: kvasir, ":                 {"run", "knee", "--trace", "lab_test.go", "--in", "csv"},
		"lab_test.go: the format is not known":                    {"run", "knee", "--trace", "lab_test.go"},
		"expected KEY=VALUE":                                      {"run", "knee", "--set", "wait"},
		`knee: wait is "-1"; allowed: a number from 0.01 to 1000`: {"run", "knee", "--set", "wait=-1"},
		"--set wat=3: knee has no setting wat; its settings: wait, heavy_cs2, prefill_rate, tpot\n": {"run", "knee", "--set", "wat=3", "--set", "wait=0"},
		`knee: wait is "0"`:             {"run", "knee", "--set", "wat=3", "--set", "wait=0"},
		"flag provided but not defined": {"run", "knee", "--sets", "wait=3"},
	} {
		code, out, talk := callLab(t, args...)
		if code != 2 || out != "" || !strings.Contains(talk, want) {
			t.Errorf("kvasir lab %s: exit code %d, printed %q and %q, want 2 and %q", strings.Join(args, " "), code, out, talk, want)
		}
	}
	if code, out, _ := callLab(t, "-h"); code != 0 || out != labUsage {
		t.Errorf("-h: exit code %d, %q", code, out)
	}
}
