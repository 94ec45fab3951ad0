package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// callPlan runs kvasir plan with args and returns its exit code and what it printed.
func callPlan(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, talk strings.Builder
	code = runPlan(t.Context(), environment{stdout: &out, stderr: &talk, getenv: noVariables}, args)
	return code, out.String(), talk.String()
}

// examplePlan is the example of the usage text.
func examplePlan(t *testing.T) []string {
	t.Helper()
	_, example, ok := strings.Cut(planUsage, "example:\n  kvasir plan ")
	if !ok {
		t.Fatal("the usage text has no example")
	}
	return strings.Fields(example)
}

func TestPlan_PrintsFormulasAndWhatTheyAssume(t *testing.T) {
	code, out, talk := callPlan(t, examplePlan(t)...)
	if code != 0 || talk != "" {
		t.Fatalf("exit code %d, %s", code, talk)
	}
	for _, want := range []string{"λ_max = L_max/W", "between (m/n)² = 56.2 % and m/n = 75 %", "Pollaczek–Khinchine: each replica", "Kingman", "Erlang C", "Allen–Cunneen", "steady state"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing of:\n%s", want, out)
		}
	}
}

func TestPlan_JSON(t *testing.T) {
	code, out, _ := callPlan(t, append(examplePlan(t), "--format=json", "--replicas=2")...)
	var got planned
	if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil {
		t.Fatalf("exit code %d: %v", code, err)
	}
	if got.Pool.TPOT != 0.025 || got.Replicas != 2 || len(got.Waits) != 5 || got.Waits[0].MeanS != nil || *got.Waits[0].Replicas < 3 {
		t.Errorf("%s", out)
	}
}

func TestPlan_WhenCalledWrongly_ReportsEveryMistake(t *testing.T) {
	code, out, talk := callPlan(t, "--rate", "0", "--places", "5000", "--cached-tokens", "10", "--prompt-tokens", "5", "--tpot", "2h", "--replicas", "0", "--format", "csv", "more")
	if code != 2 || out != "" {
		t.Fatalf("exit code %d, printed %q", code, out)
	}
	for _, want := range []string{"--output-tokens is missing", "--prefill-rate is missing", "--rate is 0; allowed: a number from 1e-06 to 1e+06",
		"--places is 5000; allowed: 1 to 4096", "--cached-tokens is 10; allowed: a number from 0 to 5", "--tpot is 7200; allowed: a number from 1e-06 to 3600 seconds",
		"--replicas is 0; allowed: 1 to 1000", `--format is "csv"; allowed: table, json`, `unexpected "more"`} {
		if !strings.Contains(talk, "kvasir plan: "+want) {
			t.Errorf("%q is missing of:\n%s", want, talk)
		}
	}
	if strings.Contains(talk, "--output-tokens is 0") {
		t.Errorf("what is missing is called wrong as well:\n%s", talk)
	}
	if code, out, _ := callPlan(t, "-h"); code != 0 || out != planUsage {
		t.Errorf("-h: exit code %d", code)
	}
	if code, _, talk := callPlan(t, "--rate", "fast"); code != 2 || !strings.Contains(talk, "rate") {
		t.Errorf("exit code %d, %s", code, talk)
	}
}
