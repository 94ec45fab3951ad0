package main

import (
	"encoding/json"
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

func TestLabRun_PrintsTablesAndVerdicts(t *testing.T) {
	code, out, talk := callLab(t, "run", "knee")
	if code != 0 || talk != "" {
		t.Fatalf("exit code %d, %s", code, talk)
	}
	for _, want := range []string{"knee: how much", "settings: wait=3 heavy_cs2=4", "equals", "article 0.86, 0.75, 0.55; ours 0.86, 0.75, 0.55"} {
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
		"expected list or run":                                                  {},
		`no such command: "walk"`:                                               {"walk"},
		"run takes one NAME, or all":                                            {"run"},
		"list takes nothing further":                                            {"list", "knee"},
		"list takes --format table or json alone":                               {"list", "--seeds", "3"},
		`there is no lab "knees"; there are: `:                                  {"run", "knees"},
		`--format is "csv"`:                                                     {"run", "knee", "--format", "csv"},
		"--seeds: nothing in knee is drawn":                                     {"run", "knee", "--seeds", "3"},
		"seeds is 0; allowed: 1 to 1000":                                        {"run", "capacity", "--seeds", "0"},
		"--set needs one lab's NAME":                                            {"run", "all", "--set", "wait=3"},
		"expected KEY=VALUE":                                                    {"run", "knee", "--set", "wait"},
		`knee: wait is "-1"; allowed: a number from 0.01 to 1000`:               {"run", "knee", "--set", "wait=-1"},
		"--set wat=3: knee has no setting wat; its settings: wait, heavy_cs2\n": {"run", "knee", "--set", "wat=3", "--set", "wait=0"},
		`knee: wait is "0"`:                                                     {"run", "knee", "--set", "wat=3", "--set", "wait=0"},
		"flag provided but not defined":                                         {"run", "knee", "--sets", "wait=3"},
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
