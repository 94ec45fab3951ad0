package main

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"kvasir/accelerator"
	"kvasir/engine"
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
	example, _, _ = strings.Cut(example, "\n")
	return strings.Fields(example)
}

// A profile stands in for what nobody has measured, by formulas that are said; what is given
// counts.
func TestPlan_ByAProfile(t *testing.T) {
	profile, err := accelerator.Lookup("llama-3.1-8b/h100")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--rate", "20", "--prompt-tokens", "4000", "--output-tokens", "300", "--profile", "llama-3.1-8b/h100"}
	plan := func(more ...string) planned {
		t.Helper()
		code, out, talk := callPlan(t, append(slices.Concat(args, more), "--format", "json")...)
		var got planned
		if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil {
			t.Fatalf("exit code %d, %v: %s", code, err, talk)
		}
		return got
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-6*want {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	got := plan()
	const places = 27132 * 16 / 4300
	if got.Pool.Places != places || len(got.Profile.Assumed) != 3 || got.Profile.Name != "llama-3.1-8b/h100" {
		t.Errorf("%+v, %+v", got.Pool, got.Profile)
	}
	prefill := profile.Step(accelerator.Batch{Tokens: 8192, Prefills: []accelerator.Prefill{{Chunk: 8192}}}) + engine.DefaultOverhead
	near("the prefill rate", got.Pool.PrefillRate, 8192/prefill.Seconds())
	decode := profile.Step(accelerator.Batch{Tokens: places, Decodes: places, DecodeContext: places * 4150}) + engine.DefaultOverhead
	near("TPOT", got.Pool.TPOT, decode.Seconds())

	got = plan("--places", "7", "--tpot", "9ms")
	if got.Pool.Places != 7 || got.Pool.TPOT != 0.009 || len(got.Profile.Assumed) != 1 {
		t.Errorf("%+v, %+v", got.Pool, got.Profile)
	}
	_, out, _ := callPlan(t, args...)
	for _, want := range []string{"assumed by the cost model of llama-3.1-8b/h100, not measured", "--places", "8192 tokens, a step's budget", "prompt + output/2 = 4150 tokens"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing of:\n%s", want, out)
		}
	}
	for want, more := range map[string]string{
		`--profile: accelerator profile "x" is unknown; allowed: `:                             "--profile=x",
		"--profile: llama-3.1-8b/h100 holds 434112 tokens; allowed: prompts and answers of so": "--prompt-tokens=500000",
		"--prompt-tokens is 0; allowed: ":                                                      "--prompt-tokens=0",
	} {
		if code, _, talk := callPlan(t, append(slices.Clone(args), more)...); code != 2 || !strings.Contains(talk, want) || strings.Contains(talk, "--places is") {
			t.Errorf("%s: exit code %d, %s", more, code, talk)
		}
	}
}

func TestPlan_SaysHowADurationIsWritten(t *testing.T) {
	for _, flag := range []string{"-tpot", "-wait"} {
		if code, _, talk := callPlan(t, flag, "25"); code != 2 || !strings.Contains(talk, `invalid value "25" for flag `+flag+`: allowed: a duration with its unit, such as 25ms`) {
			t.Errorf("exit code %d, %s", code, talk)
		}
	}
}

func TestPlan_PrintsFormulasAndWhatTheyAssume(t *testing.T) {
	if _, out, _ := callPlan(t, append(examplePlan(t), "--replicas=1")...); !strings.Contains(out, "the mean wait with 1 replica, and") {
		t.Errorf("of one replica:\n%s", out)
	}
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
