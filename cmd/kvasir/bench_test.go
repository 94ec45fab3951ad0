package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kvasir/client/workload"
	"kvasir/internal/kvblock"
)

// benchOn runs kvasir bench against an address and returns what it prints.
func benchOn(t *testing.T, base string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, bad bytes.Buffer
	code = run(t.Context(), environment{&out, &bad, func(string) string { return "" }}, append([]string{"bench", "--base-url", base}, args...))
	return code, out.String(), bad.String()
}

// The demo without traffic, and a bench of each grammar against it.
func TestBench_MeasuresTheDemo(t *testing.T) {
	stdout, _, end := start(t, "demo", "--no-traffic", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--engines", "2")
	defer end()
	base := stdout.find(t, `OpenAI base URL +(http://\S+)/v1`)
	admin := stdout.find(t, `admin +(http://\S+/metrics)`)
	for _, backend := range []string{"openai", "openai-chat", "openai-responses", "anthropic"} {
		dir := t.TempDir()
		code, out, bad := benchOn(t, base, "--backend", backend, "--request-rate", "50", "--num-prompts", "25", "--random-input-len", "64", "--random-output-len", "5",
			"--ignore-eos", "--goodput", "ttft:5000", "tpot:5000", "--save-detailed", "--result-dir", dir, "--result-filename", "r.json",
			"--metadata", "card=none", "run=1", "--csv", filepath.Join(dir, "r.csv"), "--plot", filepath.Join(dir, "r"), "--lag-bound", "10s", "--metrics-url", admin)
		if code != 0 || !strings.Contains(out, "kvasir_time_to_first_token_seconds (ms):") || !strings.Contains(out, "Successful requests:") || strings.Contains(out, "FAILURES") {
			t.Errorf("%s: exit %d\n%s%s", backend, code, out, bad)
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, "r.json"))
		if err != nil {
			t.Fatal(err)
		}
		var r struct {
			Completed, Failed int
			Total             int       `json:"total_output_tokens"`
			Lens              []int     `json:"output_lens"`
			TTFTs             []float64 `json:"ttfts"`
			Texts             []string  `json:"generated_texts"`
			Card              string
			Endpoints         map[string]struct{ Completed int }
			Goodput           *float64 `json:"request_goodput"`
		}
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		if r.Completed != 25 || r.Failed != 0 || r.Total != 125 || len(r.Lens) != 25 || len(r.TTFTs) != 25 || r.Card != "none" || r.Goodput == nil {
			t.Errorf("%s: %s", backend, text)
		}
		if len(r.Texts) != 25 || len(r.Texts[0]) < 15 {
			t.Errorf("%s: texts %q", backend, r.Texts)
		}
		if r.Endpoints["engine-1"].Completed+r.Endpoints["engine-2"].Completed != 25 {
			t.Errorf("%s: endpoints %v", backend, r.Endpoints)
		}
		for _, name := range []string{"r.csv", "r-latency.svg", "r-calls.svg", "r-ttft.svg", "r-in-flight.svg"} {
			if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
				t.Errorf("%s: %s: %v", backend, name, err)
			}
		}
	}
	code, out, bad := benchOn(t, base+"/v1/", "--sweep", "20,40", "--num-prompts", "10", "--osl", "2", "--isl", "16", "--lag-bound", "10s")
	if code != 0 || !strings.Contains(out, "knee: 40.00 req/s") {
		t.Errorf("sweep: exit %d\n%s%s", code, out, bad)
	}
	code, out, bad = benchOn(t, base, "--request-rate", "inf", "--max-concurrency", "3", "--num-prompts", "12", "--dataset-name", "generated-shared-prefix",
		"--gsp-num-groups", "2", "--gsp-num-turns", "3", "--gsp-prompts-per-group", "2", "--gsp-output-len", "3", "--lag-bound", "10s")
	if code != 0 || !strings.Contains(out, "CLOSED LOOP: 3 sessions at once") || !strings.Contains(out, "Completed, failed:") || !strings.Contains(out, "Cached input tokens:") {
		t.Errorf("closed loop: exit %d\n%s%s", code, out, bad)
	}
	code, out, bad = benchOn(t, base, "--ramp-up-strategy", "linear", "--ramp-up-start-rps", "10", "--ramp-up-end-rps", "30", "--num-prompts", "20", "--osl", "2", "--isl", "16", "--lag-bound", "10s")
	if code != 0 || !strings.Contains(out, "10.00 to 30.00") {
		t.Errorf("ramp: exit %d\n%s%s", code, out, bad)
	}
}

func TestBench_RefusesBadFlags(t *testing.T) {
	for _, x := range []struct{ args, want string }{
		{"", "nothing says when calls are sent; allowed: one of --request-rate RATE, --ramp-up-strategy NAME, --self-timed and --sweep RATES\n"},
		{"--request-rate 1 --timeout 5", "invalid value \"5\" for flag -timeout: allowed: a duration with its unit, such as 25ms"},
		{"--request-rate inf", "--max-concurrency"},
		{"--request-rate 0", `--request-rate is "0"`},
		{"--request-rate 1 --self-timed", "--request-rate and --self-timed are given; allowed: one of --request-rate RATE, "},
		{"--self-timed", "has no times"},
		{"--request-rate 1 --backend tgi", `--backend is "tgi"; allowed: openai, vllm`},
		{"--request-rate 1 --dataset-name c4", "--dataset-name: "},
		{"--request-rate 1 --dataset-name conversations:turns=x", "turns"},
		{"--request-rate 1 --dataset-path x", "reads no file"},
		{"--request-rate 1 --dataset-name mooncake", "--dataset-name mooncake needs --dataset-path"},
		{"--request-rate 1 --dataset-name trace --dataset-path nowhere.jsonl", "nowhere.jsonl"},
		{"--request-rate 1 --random-input-len 0", "input"},
		{"--request-rate 1 --gsp-range-ratio 2", "--gsp-range-ratio is 2; allowed: 0 to 1"},
		{"--request-rate 1 --burstiness 0", "--burstiness"},
		{"--request-rate 1 --goodput ttft:1 itl:2", "ITL"},
		{"--request-rate 1 --goodput ttft:1 --percentile-metrics all", "--percentile-metrics"},
		{"--request-rate 1 --metric-percentiles 99,101", "--metric-percentiles"},
		{"--request-rate 1 --header x", `--header is "x"`},
		{"--request-rate 1 --header bad(header=x", `--header is "bad(header=x"; allowed: NAME=VALUE, where NAME is a header's name`},
		{"--request-rate 1 --header x=\x01", "allowed: values without control characters"},
		{"--request-rate 1 --header content-length=3", "allowed: names of headers that do not frame the body"},
		{"--request-rate 1 --header Transfer-Encoding=chunked", "allowed: names of headers that do not frame the body"},
		{"--request-rate 1 --header Host=a/b", "allowed: a host"},
		{"--request-rate 1 --header Host=a host=b", "allowed: one Host"},
		{"--sweep 1e308", "1e-9 to 1e6"},
		{"--sweep auto --request-rate 1 --sweep 1,1e7", "1e-9 to 1e6"},
		{"--request-rate 1 --metadata x", `--metadata is "x"`},
		{"--request-rate 1 --extra-body [1]", "--extra-body"},
		{"--request-rate 1 --append-result", "--append-result"},
		{"--request-rate 1 --sweep 1,2", "none beside --sweep"},
		{"--sweep 2,1", "ascending"},
		{"--sweep auto", "--sweep"},
		{"--ramp-up-strategy cubic", "linear or exponential"},
		{"--ramp-up-strategy linear --ramp-up-start-rps 1", "--ramp-up-end-rps"},
		{"--request-rate 1 --speedup 2", "without --self-timed"},
		{"--request-rate 1 --num-prompts 0", "--num-prompts is 0"},
		{"now", `"now" is not a flag`},
	} {
		code, out, bad := benchOn(t, "http://127.0.0.1:1", strings.Fields(x.args)...)
		if code != 2 || !strings.Contains(bad, x.want) || out != "" {
			t.Errorf("%s: exit %d, %q", x.args, code, bad)
		}
	}
	if code, out, _ := benchOn(t, "", "-h"); code != 0 || !strings.HasPrefix(out, "usage: kvasir bench") {
		t.Errorf("help: exit %d", code)
	}
	if code, out, _ := benchOn(t, "", "--list-workloads"); code != 0 || !strings.Contains(out, "conversations") {
		t.Errorf("list: exit %d", code)
	}
}

// Whatever the arguments are, they are taken or refused, each word with its flag.
func FuzzParseBench(f *testing.F) {
	f.Add("--request-rate 1 --goodput ttft:1 tpot:2 --header a=b --sweep 1,2")
	f.Add("--ramp-up-strategy linear --ramp-up-start-rps 0 --ramp-up-end-rps 3")
	f.Add("--request-rate inf --max-concurrency 4 --dataset-name gsp --metadata a=b c=d")
	f.Fuzz(func(t *testing.T, args string) {
		o, err := parseBench(strings.Fields(args))
		if err != nil {
			return
		}
		if o.list {
			return
		}
		if o.target.Backend.Name == "" || o.numPrompts < 1 || o.lagBound <= 0 || len(o.percentiles) == 0 || math.IsInf(o.rate, 1) && o.concurrency == 0 {
			t.Errorf("%s: %+v", args, o)
		}
		for c, i := o.rateChanges(), 1; i < len(c); i++ {
			if c[i].At < c[i-1].At || c[i].At < 0 {
				t.Fatalf("%s: the ramp goes back: %v", args, c[i-1:i+1])
			}
		}
	})
}

// Every flag that is read is in the usage.
func TestBench_UsageNamesItsFlags(t *testing.T) {
	for _, name := range []string{"base-url", "goodput", "sweep", "request-rate", "self-timed", "gsp-num-groups", "isl", "osl", "warmup-request-count"} {
		if newBenchFlags(&benchOptions{}).Lookup(name) == nil || !strings.Contains(benchUsage, "--"+name) {
			t.Errorf("--%s is not a flag or not in the usage", name)
		}
	}
}

func TestBench_AnEndpointThatIsNotThere(t *testing.T) {
	code, _, bad := benchOn(t, "http://127.0.0.1:1", "--request-rate", "1", "--ready-check-timeout-sec", "0.2")
	if code != 1 || !strings.Contains(bad, "no model is given, and asking http://127.0.0.1:1 for one failed: it does not answer within 200ms") || !strings.Contains(bad, "connection refused") {
		t.Errorf("exit %d, %s", code, bad)
	}
	code, _, bad = benchOn(t, "http://127.0.0.1:1", "--request-rate", "1", "--ready-check-timeout-sec", "0")
	if code != 1 || !strings.Contains(bad, "for one failed: Get") {
		t.Errorf("exit %d, %s", code, bad)
	}
	code, _, bad = benchOn(t, "http://127.0.0.1:1", "--request-rate", "1", "--model", "m", "--ready-check-timeout-sec", "0.2")
	if code != 1 || !strings.Contains(bad, "is not ready: it does not answer within 200ms") {
		t.Errorf("exit %d, %s", code, bad)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "who are you", http.StatusUnauthorized)
	}))
	defer server.Close()
	begin := time.Now()
	code, _, bad = benchOn(t, server.URL, "--request-rate", "1", "--model", "m")
	if code != 1 || !strings.Contains(bad, "http_401: who are you") || time.Since(begin) > 10*time.Second {
		t.Errorf("exit %d, %s", code, bad)
	}
	code, out, _ := benchOn(t, server.URL, "--request-rate", "100", "--model", "m", "--num-prompts", "3", "--ready-check-timeout-sec", "0")
	if code != 1 || !strings.Contains(out, "INVALID: no call was answered") || !strings.Contains(out, "http_401:") {
		t.Errorf("exit %d, %s", code, out)
	}
}

// Where a result cannot be kept no run is made.
func TestBench_ARunIsNotInVain(t *testing.T) {
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		sayA(w)
	}))
	defer server.Close()
	folder := t.TempDir()
	nowhere := filepath.Join(folder, "nowhere", "x")
	for _, x := range []struct{ args, want string }{
		{"--save-result --result-dir " + folder + " --label " + strings.Repeat("l", 300), "--save-result: "},
		{"--sweep 1 --save-result --result-dir " + folder + " --label " + strings.Repeat("l", 230), "--save-result: "},
		{"--csv " + nowhere, "--csv: " + nowhere + ": there is no folder "},
		{"--csv " + folder, "--csv: " + folder + " is a folder"},
		{"--plot " + nowhere, "--plot: " + nowhere + "-in-flight.svg: there is no folder "},
		{"--result-filename " + nowhere, "--result-filename: " + nowhere + ": there is no folder "},
	} {
		args := append([]string{"--model", "m", "--num-prompts", "1", "--ready-check-timeout-sec", "0"}, strings.Fields(x.args)...)
		if !strings.Contains(x.args, "--sweep") {
			args = append(args, "--request-rate", "100")
		}
		code, out, bad := benchOn(t, server.URL, args...)
		if code != 1 || !strings.Contains(bad, x.want) || out != "" {
			t.Errorf("%s: exit %d, %s%s", x.args, code, out, bad)
		}
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 || calls.Load() > 0 {
		t.Errorf("%d calls, left %v (%v)", calls.Load(), left, err)
	}

	// --result-dir is made, and says so; what is there is kept until the run's end.
	made := filepath.Join(folder, "results", "today")
	csv := filepath.Join(folder, "r.csv")
	if err := os.WriteFile(csv, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tryFile(csv); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(csv); err != nil || string(text) != "old" {
		t.Errorf("%q, %v", text, err)
	}
	code, _, bad := benchOn(t, server.URL, "--model", "m", "--num-prompts", "1", "--request-rate", "100", "--ready-check-timeout-sec", "0", "--save-result",
		"--result-dir", made, "--csv", csv, "--lag-bound", "10s")
	if left, _ := os.ReadDir(made); code != 0 || len(left) != 1 || !strings.Contains(bad, "made the folder "+made) {
		t.Errorf("exit %d, %v, %s", code, left, bad)
	}
}

// A page of metrics that does not come keeps what was measured from nobody.
func TestBench_MetricsThatStall(t *testing.T) {
	for _, x := range []struct {
		at   int64 // which reading stalls
		pace []string
		code int
		want []string
	}{
		{2, []string{"--request-rate", "100"}, 0, []string{"Successful requests:", "the result has nothing of it"}},
		{3, []string{"--sweep", "auto", "--request-rate", "100"}, 1, []string{"INCOMPLETE: interrupted before ", "\n    100.00 "}}, // whether that rate holds or not
	} {
		var reads atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/metrics" {
				sayA(w)
			} else if reads.Add(1) == x.at {
				cancel()
				<-r.Context().Done()
			}
		}))
		var out bytes.Buffer
		begin := time.Now()
		code := run(ctx, environment{&out, &out, func(string) string { return "" }}, append([]string{"bench", "--base-url", server.URL, "--model", "m",
			"--num-prompts", "1", "--ready-check-timeout-sec", "0", "--lag-bound", "10s", "--metrics-url", server.URL + "/metrics"}, x.pace...))
		for _, want := range x.want {
			if code != x.code || !strings.Contains(out.String(), want) || time.Since(begin) > 4*time.Second {
				t.Errorf("exit %d after %v, want %s\n%s", code, time.Since(begin), want, out.String())
			}
		}
		cancel()
		server.Close()
	}
}

// sayA answers with one piece of content.
func sayA(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n")
}

// sessionsOf returns the first n sessions of a dataset.
func sessionsOf(t *testing.T, n int, args ...string) (dataset, []workload.Session) {
	t.Helper()
	o, err := parseBench(append([]string{"--request-rate", "1"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	d, err := chooseDataset(o, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	var all []workload.Session
	for s, err := range d.Sessions {
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, s); len(all) == n {
			break
		}
	}
	return d, all
}

// What the flags say is what the workload has.
func TestDataset_Flags(t *testing.T) {
	d, all := sessionsOf(t, 300, "--isl", "100", "--osl", "40", "--random-range-ratio", "0.5", "--random-prefix-len", "48")
	for _, s := range all {
		if c := s.Calls[0]; len(s.Calls) != 1 || c.PromptTokens < 98 || c.PromptTokens > 198 || c.OutputTokens < 20 || c.OutputTokens > 60 || c.Blocks[0] != all[0].Calls[0].Blocks[0] {
			t.Fatalf("%+v", c)
		}
	}
	if !d.single || len(all) != 300 {
		t.Errorf("%d calls, single %v", len(all), d.single)
	}

	heads := map[kvblock.Hash]int{}
	_, all = sessionsOf(t, 300, "--dataset-name", "prefix_repetition", "--prefix-repetition-num-prefixes", "5", "--prefix-repetition-suffix-len", "20")
	for _, s := range all {
		if s.Calls[0].PromptTokens != 276 || s.Calls[0].OutputTokens != 128 {
			t.Fatalf("%+v", s.Calls[0])
		}
		heads[s.Calls[0].Blocks[0]]++
	}
	if len(heads) != 5 {
		t.Errorf("%d prefixes of 5", len(heads))
	}

	d, all = sessionsOf(t, 1000, "--dataset-name", "gsp", "--gsp-num-groups", "3", "--gsp-prompts-per-group", "4", "--gsp-num-turns", "3")
	if len(all) != 12 || len(all[0].Calls) != 3 || d.single {
		t.Errorf("%d sessions of %d turns, single %v", len(all), len(all[0].Calls), d.single)
	}
	_, all = sessionsOf(t, 1000, "--dataset-name", "gsp", "--gsp-group-distribution", "zipf", "--gsp-zipf-alpha", "2")
	clear(heads)
	most := 0
	for _, s := range all {
		heads[s.Calls[0].Blocks[0]]++
		most = max(most, heads[s.Calls[0].Blocks[0]])
	}
	// Of 64 groups by 1/k² the first has 61.5 %.
	if share := float64(most) / float64(len(all)); share < 0.55 || share > 0.68 {
		t.Errorf("the first group has %.3f of the calls", share)
	}
	_, all = sessionsOf(t, 10, "--dataset-name", "3*chat-turn + 1*tool-agent:turns=4")
	if len(all) != 10 {
		t.Errorf("%d sessions of a mix", len(all))
	}
}

// A trace is sent at its own clock or at another rate, with its prefixes.
func TestDataset_ATrace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace.jsonl")
	lines := `{"timestamp": 0, "input_length": 1100, "output_length": 2, "hash_ids": [1, 2, 3]}
{"timestamp": 1000, "input_length": 1030, "output_length": 3, "hash_ids": [1, 2, 4]}
nonsense
{"timestamp": 2500, "input_length": 600, "output_length": 1, "hash_ids": [5, 6]}
`
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	d, all := sessionsOf(t, 10, "--dataset-name", "timed_trace", "--dataset-path", file, "--raw-timestamps")
	if !d.timed || !d.single || d.BlockTokens != 512 || len(all) != 3 || all[2].At-all[0].At != 2500*time.Millisecond {
		t.Fatalf("%+v, %+v", d, all)
	}
	if _, fast := sessionsOf(t, 10, "--dataset-name", "timed_trace", "--dataset-path", file, "--raw-timestamps", "--speedup", "5"); fast[2].At-fast[0].At != 500*time.Millisecond {
		t.Errorf("five times as fast: %v", fast[2].At)
	}
	stdout, _, end := start(t, "demo", "--no-traffic", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--engines", "1")
	defer end()
	base := stdout.find(t, `OpenAI base URL +(http://\S+)/v1`)
	code, out, bad := benchOn(t, base, "--dataset-name", "trace", "--dataset-path", file, "--self-timed", "--speedup", "5", "--raw-timestamps", "--ignore-eos", "--lag-bound", "10s")
	if code != 0 || !regexp.MustCompile(`Successful requests: +3\n`).MatchString(out) || !regexp.MustCompile(`Total generated tokens: +6\n`).MatchString(out) || !strings.Contains(bad, "1 of 4 records of the dataset were passed over") {
		t.Errorf("exit %d\n%s%s", code, out, bad)
	}
	if !regexp.MustCompile(`Cached input tokens: +[1-9]`).MatchString(out) {
		t.Errorf("the second call shares nothing:\n%s", out)
	}
	code, out, bad = benchOn(t, base, "--dataset-name", "trace", "--dataset-path", file, "--self-timed", "--strict")
	if code != 1 || !strings.Contains(out, "INCOMPLETE:") || !strings.Contains(out, "trace.jsonl:3:") {
		t.Errorf("strict: exit %d\n%s%s", code, out, bad)
	}
}
