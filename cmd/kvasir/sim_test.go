package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const excerpt = "../../testdata/traces/mooncake-conversation-10min.jsonl.zst"

// simulate runs kvasir sim.
func simulate(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(context.Background(), environment{stdout: &out, stderr: &err, getenv: os.Getenv}, append([]string{"sim"}, args...))
	return code, out.String(), err.String()
}

func TestSim_PrintsATableOfAllPolicies(t *testing.T) {
	code, out, errs := simulate(t, "--trace", excerpt, "--policy", "all", "--replicas", "8", "--slo-ttft", "4s")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, want := range []string{"1750 calls", "round-robin", "cache-aware", "TTFT P95", "are spread over"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in\n%s", want, out)
		}
	}
}

// What the issue tracker of every benchmark is full of: keys that a script reads must stay.
func TestSim_JSONHasItsKeys(t *testing.T) {
	args := []string{"--trace", excerpt, "--policy", "round-robin,cache-aware:cache_threshold=0.7", "--seeds", "2", "--slo-ttft", "4s", "--slo-tpot", "100ms", "--format", "json"}
	code, out, errs := simulate(t, args...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var report struct {
		Config  map[string]any
		Results []map[string]any
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Config) == 0 || len(report.Results) != 2 || report.Results[1]["policy"] != "cache-aware:cache_threshold=0.7" {
		t.Fatalf("config %v, %d results", report.Config, len(report.Results))
	}
	for _, key := range []string{
		"policy", "calls", "ttft_s", "tpot_s", "itl_s", "e2e_s", "normalized_latency_s", "slo_attainment", "goodput_rps", "output_tokens_per_s",
		"cached_token_ratio", "assignment_gap", "queue_peak", "preemptions", "kv_utilization", "retries", "session_completion_s", "ci95_half_width",
	} {
		v, ok := report.Results[0][key]
		if !ok {
			t.Errorf("there is no %s", key)
		}
		if q, is := v.(map[string]any); is && strings.HasSuffix(key, "_s") {
			for _, p := range []string{"p50", "p95", "p99", "max"} {
				if _, is := q[p].(float64); !is {
					t.Errorf("%s.%s is %v", key, p, q[p])
				}
			}
		}
	}
	if _, again, _ := simulate(t, append(args, "--jobs", "1")...); again != out {
		t.Error("the same seeds gave other bytes when run one after the other")
	}
	if _, other, _ := simulate(t, append(args, "--seed", "9")...); other == out {
		t.Error("other seeds gave the same bytes")
	}
}

func TestSim_GeneratesWorkloads(t *testing.T) {
	args := []string{"--workload", "3*conversations:turns=3 + 1*tool-agent", "--arrivals", "gamma:rate=2,burstiness=0.5", "--for", "2m", "--policy", "round-robin,cache-aware"}
	code, out, errs := simulate(t, args...)
	if code != 0 || !strings.Contains(out, "closed-loop: a turn is sent when") || !strings.Contains(out, "arrive by gamma") {
		t.Errorf("exit %d: %s\n%s", code, errs, out)
	}
	for _, help := range []string{"--workload", "--arrivals"} {
		if code, out, _ := simulate(t, help, "help"); code != 0 || len(out) < 500 {
			t.Errorf("%s help: exit %d, %s", help, code, out)
		}
	}
}

func TestSim_Goodput(t *testing.T) {
	dir := t.TempDir()
	svg, list := filepath.Join(dir, "curve.svg"), filepath.Join(dir, "curve.csv")
	code, out, errs := simulate(t, "--trace", excerpt, "--policy", "round-robin,least-outstanding", "--replicas", "2", "--sessions", "400",
		"--slo-ttft", "4s", "--goodput", "--tolerance", "0.2", "--svg", svg, "--csv", list)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, want := range []string{"round-robin", "least-outstanding", pooled, "goodput/s"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in\n%s", want, out)
		}
	}
	if picture, err := os.ReadFile(svg); err != nil || !bytes.Contains(picture, []byte("<svg")) || !bytes.Contains(picture, []byte("least-outstanding")) {
		t.Errorf("the drawing: %v", err)
	}
	f, err := os.Open(list)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) < 10 || rows[0][0] != "policy" {
		t.Errorf("%d rows, %v", len(rows), err)
	}
}

func TestSim_Sensitivity(t *testing.T) {
	code, out, errs := simulate(t, "--trace", excerpt, "--policy", "round-robin,least-outstanding", "--replicas", "2", "--sessions", "300", "--slo-ttft", "4s", "--sensitivity", "--tolerance", "0.3")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	if n := strings.Count(out, " > "); n != 7 {
		t.Errorf("%d orders; want 7:\n%s", n, out)
	}
}

func TestSim_Timeline(t *testing.T) {
	file, list := filepath.Join(t.TempDir(), "timeline.csv"), filepath.Join(t.TempDir(), "calls.csv")
	code, _, errs := simulate(t, "--trace", excerpt, "--policy", "round-robin", "--replicas", "2", "--sessions", "100", "--timeline", file, "--calls", list,
		"--down", "1@5s-9s", "--slow", "2@3s=2", "--gateways", "2", "--scrape-loss", "0.5", "--stagger")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(text), "time_s,engine,running") || strings.Count(string(text), "\n") < 40 {
		t.Errorf("%v: %s", err, text)
	}
	text, err = os.ReadFile(list)
	if err != nil || !strings.HasPrefix(string(text), "session,class,call,came_s") || strings.Count(string(text), "\n") != 101 {
		t.Errorf("%v: %s", err, text)
	}
}

func TestSim_SaysWhatIsWrong(t *testing.T) {
	for want, args := range map[string][]string{
		"one of --trace and --workload":          {},
		"\"dance\" is not a workload":            {"--workload", "dance"},
		"--arrivals: \"never\"":                  {"--workload", "chat-turn", "--arrivals", "never"},
		"policy \"fastest\" is unknown":          {"--trace", excerpt, "--policy", "fastest"},
		"cache_threshold":                        {"--trace", excerpt, "--policy", "cache-aware:cache_threshold=2"},
		"--replicas: 0":                          {"--trace", excerpt, "--replicas", "0"},
		"--down: \"9@1s-2s\"":                    {"--trace", excerpt, "--down", "9@1s-2s"},
		"--slow: \"1@1s\"":                       {"--trace", excerpt, "--slow", "1@1s"},
		"--goodput needs":                        {"--trace", excerpt, "--goodput"},
		"allowed: table, json or csv":            {"--trace", excerpt, "--format", "xml"},
		"--clock: yesterday":                     {"--trace", excerpt, "--clock", "yesterday"},
		"abacus":                                 {"--trace", excerpt, "--device", "abacus"},
		"--host-blocks is -1":                    {"--trace", excerpt, "--host-blocks", "-1"},
		"--max-cpu-loras is 1":                   {"--trace", excerpt, "--max-loras", "2", "--max-cpu-loras", "1"},
		"--max-loras is 0":                       {"--trace", excerpt, "--max-cpu-loras", "2"},
		"need --max-loras":                       {"--trace", excerpt, "--lora-host-load", "2ms"},
		"--adapters: n is 0":                     {"--trace", excerpt, "--adapters", "zipf:n=0"},
		"--speculative-acceptance is 2":          {"--trace", excerpt, "--speculative-tokens", "2", "--speculative-acceptance", "2"},
		"continuous or static":                   {"--trace", excerpt, "--batching", "no"},
		"one of them":                            {"--trace", excerpt, "--workload", "chat-turn"},
		"are the same file":                      {"--trace", excerpt, "--calls", excerpt},
		"which say how many":                     {"--trace", excerpt, "--device", "h100*3", "--replicas", "8"},
		"--goodput searches":                     {"--trace", excerpt, "--goodput", "--load", "0.5", "--slo-ttft", "1s"},
		"durations like 4s":                      {"--trace", excerpt, "--slo-ttft", "4"},
		"KV blocks; allowed":                     {"--trace", excerpt, "--num-gpu-blocks", "2147483646"},
		"--gateways: \"x\"":                      {"--trace", excerpt, "--gateways", "1,x"},
		"--gateways: \"2\"":                      {"--trace", excerpt, "--gateways", "2,2"},
		"--sharing: \"2m\" is not":               {"--trace", excerpt, "--gateways", "2", "--sharing", "none,2m"},
		"--sharing: \"5ms/1.5\" is not":          {"--trace", excerpt, "--gateways", "2", "--sharing", "5ms/1.5"},
		"--sharing: \"none\" is not":             {"--trace", excerpt, "--gateways", "2", "--sharing", "none,none"},
		"--sharing: \"\" is not":                 {"--trace", excerpt, "--gateways", "2", "--sharing", ""},
		"--gateways or --sharing is a list":      {"--trace", excerpt, "--gateways", "1,2", "--format", "csv"},
		"as in 3x":                               {"--trace", excerpt, "--slo-ttft", "2s,0x"},
		"times --scrape":                         {"--trace", excerpt, "--scrape", "1ms", "--scrape-delay", "1000h"},
		"--warmup: -5s":                          {"--trace", excerpt, "--warmup", "-5s"},
		"expected FROM-TO":                       {"--trace", excerpt, "--down", "1@x"},
		"--rate-scale: NaN":                      {"--trace", excerpt, "--rate-scale", "NaN"},
		"--queue: is empty":                      {"--trace", excerpt, "--queue", ""},
		"neither work, tokens nor limit":         {"--trace", excerpt, "--queue", "length=5"},
		"unknown key \"depth\"":                  {"--trace", excerpt, "--queue", "work=1s,depth=3"},
		"work: \"1\" is not allowed":             {"--trace", excerpt, "--queue", "work=1"},
		"work: \"11m\" is not":                   {"--trace", excerpt, "--queue", "work=11m"},
		"tokens: \"0\" is not":                   {"--trace", excerpt, "--queue", "tokens=0"},
		"length: \"-1\" is not":                  {"--trace", excerpt, "--queue", "tokens=1,length=-1"},
		"max-wait: \"9ms\" is not":               {"--trace", excerpt, "--queue", "tokens=1,max-wait=9ms"},
		"fifo, least-slack, deadline, fair":      {"--trace", excerpt, "--queue", "tokens=1,order=lifo"},
		"--single-flight: is empty":              {"--trace", excerpt, "--single-flight", ""},
		"has no min-tokens":                      {"--trace", excerpt, "--single-flight", "max-wait=1s"},
		"min-tokens: \"0\" is not":               {"--trace", excerpt, "--single-flight", "min-tokens=0"},
		"max-siblings: \"0\" is not":             {"--trace", excerpt, "--single-flight", "min-tokens=1,max-siblings=0"},
		"max-wait: \"1h\" is not":                {"--trace", excerpt, "--single-flight", "min-tokens=1,max-wait=1h"},
		"unknown key \"tokens\"":                 {"--trace", excerpt, "--single-flight", "tokens=1"},
		"tokens is given twice":                  {"--trace", excerpt, "--queue", "tokens=1,tokens=2"},
		"--slow-start: 500ms":                    {"--trace", excerpt, "--slow-start", "500ms"},
		"--overload: \"x\" is not allowed":       {"--trace", excerpt, "--overload", "1,x", "--slo-ttft", "2s"},
		"--overload: \"1\" is not":               {"--trace", excerpt, "--overload", "2,1", "--slo-ttft", "2s"},
		"--overload: \"1e-300\" is not":          {"--trace", excerpt, "--overload", "1e-300,1", "--slo-ttft", "2s"},
		"--overload needs --slo-ttft":            {"--trace", excerpt, "--overload", "1,2", "--slo-tpot", "1s"},
		"--overload finds its rates":             {"--trace", excerpt, "--overload", "1,2", "--slo-ttft", "2s", "--goodput"},
		"--overload sets --queue":                {"--trace", excerpt, "--overload", "1,2", "--slo-ttft", "2s", "--deadline", "1s"},
		"--client-retries: 11":                   {"--trace", excerpt, "--client-retries", "11"},
		"--patience: -1s":                        {"--trace", excerpt, "--patience", "-1s"},
		"limit: \"x\" is not allowed":            {"--trace", excerpt, "--queue", "limit=x"},
		"limit-min: \"0\" is not":                {"--trace", excerpt, "--queue", "limit=gradient,limit-min=0"},
		"limit-min: 9 is not allowed":            {"--trace", excerpt, "--queue", "limit=gradient,limit-min=9,limit-max=8"},
		"limit-tolerance: \"0.5\" is not":        {"--trace", excerpt, "--queue", "limit=gradient,limit-tolerance=0.5"},
		"limit-max has no effect without limit":  {"--trace", excerpt, "--queue", "work=1s,limit-max=8"},
		"--blackout: 500ms":                      {"--trace", excerpt, "--blackout", "500ms"},
		"--slow-start: 2h":                       {"--trace", excerpt, "--slow-start", "2h"},
		"--hedge: is empty":                      {"--trace", excerpt, "--hedge", ""},
		"--hedge: \"p49\" is not allowed":        {"--trace", excerpt, "--hedge", "p49"},
		"p50 to p99.9":                           {"--trace", excerpt, "--hedge", "5"},
		"budget: \"5\" is not allowed":           {"--trace", excerpt, "--hedge", "p95,budget=5"},
		"budget: \"0%\" is not allowed":          {"--trace", excerpt, "--hedge", "p95,budget=0%"},
		"budget is given twice":                  {"--trace", excerpt, "--hedge", "p95,budget=1%,budget=2%"},
		"whole: \"1\" is not allowed":            {"--trace", excerpt, "--hedge", "p95,whole=1"},
		"unknown key \"ratio\"; allowed: budget": {"--trace", excerpt, "--hedge", "400ms,ratio=1%"},
		"--fan-out: is empty":                    {"--trace", excerpt, "--fan-out", ""},
		"has no concurrency":                     {"--trace", excerpt, "--fan-out", "waiting=1"},
		"concurrency: \"0\" is not":              {"--trace", excerpt, "--fan-out", "concurrency=0"},
		"waiting: \"x\" is not":                  {"--trace", excerpt, "--fan-out", "concurrency=1,waiting=x"},
		"allowed: 10ms to 1h":                    {"--trace", excerpt, "--fan-out", "concurrency=1,max-wait=2h"},
		"unknown key \"calls\"":                  {"--trace", excerpt, "--fan-out", "calls=1"},
		"concurrency is given twice":             {"--trace", excerpt, "--fan-out", "concurrency=1,concurrency=2"},
	} {
		if code, _, errs := simulate(t, args...); code != 2 || !strings.Contains(errs, want) {
			t.Errorf("%v: exit %d, %s; want 2 and %q", args, code, errs, want)
		}
	}
	if code, _, errs := simulate(t, "--trace", excerpt, "--warmup", "1000h"); code != 1 || !strings.Contains(errs, "nothing is left to measure") {
		t.Errorf("exit %d, %s", code, errs)
	}
	if code, _, errs := simulate(t, "--trace", "nowhere.jsonl"); code != 1 || !strings.Contains(errs, "nowhere.jsonl") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// A generator's goodput does not depend on how long its run is: at a higher rate it has more
// sessions, not the same ones in less time.
func TestSim_GeneratorsLastAsLongAtEveryRate(t *testing.T) {
	calls := func(rate string) (n int, last float64) {
		file := filepath.Join(t.TempDir(), "calls.csv")
		code, _, errs := simulate(t, "--workload", "chat-turn", "--for", "5m", "--policy", "round-robin", "--rate-scale", rate, "--calls", file)
		if code != 0 {
			t.Fatal(errs)
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		rows, err := csv.NewReader(f).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows[1:] {
			came, err := strconv.ParseFloat(row[3], 64)
			if err != nil {
				t.Fatal(err)
			}
			last = max(last, came)
		}
		return len(rows) - 1, last
	}
	n1, last1 := calls("1")
	n4, last4 := calls("4")
	if n4 < 3*n1 || last4 < 250 || last1 < 250 || last4 > 300 {
		t.Errorf("%d calls until %g s, at four times the rate %d until %g s", n1, last1, n4, last4)
	}
}

// The bound stands for equal engines alone, and is one.
func TestSim_PooledBound(t *testing.T) {
	args := []string{"--trace", excerpt, "--policy", "least-outstanding", "--goodput", "--slo-ttft", "4s", "--tolerance", "0.2", "--sessions", "300", "--format", "json"}
	for _, mixed := range [][]string{{"--device", "a100*1,h100*1"}, {"--replicas", "2", "--slow", "1@0s=0.5"}} {
		if code, out, errs := simulate(t, append(mixed, args...)...); code != 0 || strings.Contains(out, pooled) || !strings.Contains(out, "no pooled bound") {
			t.Errorf("%v: exit %d: %s%s", mixed, code, out, errs)
		}
	}
	code, out, errs := simulate(t, append(args, "--replicas", "2")...)
	var report struct{ Goodput []goodputCurve }
	if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil || len(report.Goodput) != 2 {
		t.Fatalf("exit %d: %s%v", code, errs, err)
	}
	if a, b := report.Goodput[0], report.Goodput[1]; b.Policy != pooled || a.RateScale > b.RateScale {
		t.Errorf("%s %v, %s %v", a.Policy, a.RateScale, b.Policy, b.RateScale)
	}
}

// With a queue calls wait at the gateway in place of the engines, and the report says so.
func TestSim_HoldsCalls(t *testing.T) {
	type report struct {
		Config  struct{ Queue string }
		Results []struct {
			Calls     float64
			QueuePeak float64               `json:"queue_peak"`
			Held      struct{ Max float64 } `json:"held_s"`
		}
	}
	ask := func(more ...string) report {
		args := []string{"--trace", excerpt, "--policy", "least-outstanding", "--replicas", "2", "--rate-scale", "20", "--format", "json"}
		code, out, errs := simulate(t, append(args, more...)...)
		var r report
		if err := json.Unmarshal([]byte(out), &r); code != 0 || err != nil {
			t.Fatalf("exit %d: %s%v", code, errs, err)
		}
		return r
	}
	for _, order := range []string{"deadline,turn=2", "fair,principal=conversation,input=1,output=3,cached=0.5", "fair-local,quantum=1000,max-wait-ratio=50"} {
		ask("--queue", "tokens=1,max-wait=5m,order="+order)
	}
	without, with := ask(), ask("--queue", "tokens=1,order=least-slack,max-wait=5m")
	if without.Config.Queue != "" || without.Results[0].Held.Max != 0 || without.Results[0].QueuePeak < 2 {
		t.Errorf("without a queue: %+v", without)
	}
	if !strings.Contains(with.Config.Queue, "1 tokens unstarted, least-slack") || with.Results[0].Held.Max == 0 || with.Results[0].QueuePeak*4 > without.Results[0].QueuePeak {
		t.Errorf("with one: %+v", with)
	}
	code, out, _ := simulate(t, "--trace", excerpt, "--policy", "least-outstanding", "--replicas", "2", "--rate-scale", "50", "--queue", "work=1ms,length=2")
	if code != 0 || !strings.Contains(out, "calls ended with queue_full") || !strings.Contains(out, "1ms unstarted, fifo, at most 2 for 30s") {
		t.Errorf("a short queue: exit %d: %s", code, out)
	}
}

// Blocks of the host's tier become as many fewer as the device's, where they become longer.
func TestSim_ResizesTheHostTier(t *testing.T) {
	cached := func(more ...string) float64 {
		code, out, errs := simulate(t, append([]string{"--trace", excerpt, "--policy", "cache-aware", "--num-gpu-blocks", "8000", "--format", "json"}, more...)...)
		var report struct {
			Results []struct {
				Cached float64 `json:"cached_token_ratio"`
			}
		}
		if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil {
			t.Fatalf("exit %d: %s%v", code, errs, err)
		}
		return report.Results[0].Cached
	}
	none, small := cached(), cached("--host-blocks", "400", "--host-bandwidth", "5e10")
	if small > none+0.01 {
		t.Errorf("a tier of 6,400 tokens finds %v, none %v", small, none)
	}
}

// Adapters need slots; with slots each row is of calls that were answered.
func TestSim_PlaysAdapters(t *testing.T) {
	args := []string{"--trace", excerpt, "--policy", "least-outstanding,lora-affinity", "--adapters", "zipf:n=6", "--format", "json"}
	if code, _, errs := simulate(t, args...); code != 1 || !strings.Contains(errs, "--max-loras is needed") {
		t.Errorf("without slots: exit %d, %s", code, errs)
	}
	code, out, errs := simulate(t, append(args, "--max-loras", "2")...)
	var report struct {
		Config  struct{ Notes []string }
		Results []struct {
			Calls float64
			TTFT  struct{ P95 float64 } `json:"ttft_s"`
		}
	}
	if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil {
		t.Fatalf("exit %d: %s%v", code, errs, err)
	}
	if !strings.Contains(strings.Join(report.Config.Notes, "; "), "zipf:n=6") {
		t.Errorf("the notes do not tell the adapters: %q", report.Config.Notes)
	}
	least, affine := report.Results[0], report.Results[1]
	if least.Calls < 1000 || affine.Calls < 1000 || affine.TTFT.P95 >= least.TTFT.P95 {
		t.Errorf("least-outstanding %+v, lora-affinity %+v", least, affine)
	}
}

func TestSim_EndsWhenInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errs bytes.Buffer
	if code := run(ctx, environment{stdout: &out, stderr: &errs, getenv: os.Getenv}, []string{"sim", "--trace", excerpt}); code != 1 || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("exit %d: %s%s", code, out.String(), errs.String())
	}
}

func TestSim_GatewaysShareDispatches(t *testing.T) {
	args := []string{"--trace", excerpt, "--policy", "cache-aware", "--sessions", "600", "--gateways", "4", "--rate-scale", "4", "--format", "json"}
	cached := func(sharing string) (ratio float64, text string) {
		t.Helper()
		var report struct {
			Config  struct{ Sharing string }
			Results []struct {
				Cached float64 `json:"cached_token_ratio"`
			}
		}
		code, out, errs := simulate(t, append(slices.Clone(args), "--sharing", sharing)...)
		if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil || len(report.Results) != 1 {
			t.Fatalf("exit %d: %s, %v", code, errs, err)
		}
		return report.Results[0].Cached, report.Config.Sharing
	}
	alone, none := cached("none")
	shared, text := cached("5ms/0.01")
	lost, _ := cached("5ms/1")
	if shared <= alone {
		t.Errorf("%.4f of the tokens were cached with what others told, %.4f without", shared, alone)
	}
	if lost != alone {
		t.Errorf("%.4f of the tokens were cached where all that others told was lost, %.4f without", lost, alone)
	}
	if none != "alone" || text != "told in 5ms, 1 % lost" {
		t.Errorf("described as %q and %q", none, text)
	}
}

func TestSim_AListOfGatewaysComparesWhatTheyShare(t *testing.T) {
	args := []string{"--trace", excerpt, "--policy", "least-outstanding,cache-aware", "--sessions", "300", "--gateways", "1,2,4", "--slo-ttft", "2s,3x"}
	code, out, errs := simulate(t, args...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, row := range []string{"1 gateway", "2 gateways, alone", "4 gateways, alone", "4 gateways, told in 5ms", "2 gateways, told in 100ms, 30 % lost", "4 gateways, told in 2s"} {
		if n := strings.Count(out, row+"  "); n != 2 { // for each policy
			t.Errorf("%d rows of %q, want 2, in\n%s", n, row, out)
		}
	}
	if want := 2 + 2*(3+1+2*5); strings.Count(out, "\n") < want {
		t.Errorf("fewer than %d lines in\n%s", want, out)
	}
	if code, out, errs = simulate(t, append(args, "--sharing", "none")...); code != 0 || strings.Contains(out, "told") {
		t.Errorf("exit %d: %s\n%s", code, errs, out)
	}
}

func TestSim_AListOfGatewaysHasARowForEach(t *testing.T) {
	args := []string{"--trace", excerpt, "--policy", "least-outstanding,cache-aware", "--sessions", "600", "--gateways", "1,4", "--slo-ttft", "2s,3x", "--scrape-loss", "0.1", "--sharing", "none"}
	code, out, errs := simulate(t, args...)
	if code != 0 || strings.Count(out, "cache-aware") != 1 || strings.Count(out, "1 gateway ") != 2 || strings.Count(out, "4 gateways, alone") != 2 {
		t.Fatalf("exit %d: %s\n%s", code, errs, out)
	}
	if !strings.Contains(out, "SLO ttft 2s or 3 × unloaded prefill") {
		t.Errorf("the SLO is missing in\n%s", out)
	}
	var reports []struct {
		Config  struct{ Gateways int }
		Results []struct {
			TTFT struct{ Mean float64 } `json:"ttft_s"`
		}
	}
	code, out, errs = simulate(t, append(args, "--format", "json")...)
	if err := json.Unmarshal([]byte(out), &reports); code != 0 || err != nil || len(reports) != 2 {
		t.Fatalf("exit %d: %s, %v, %d reports", code, errs, err, len(reports))
	}
	if reports[0].Config.Gateways != 1 || reports[1].Config.Gateways != 4 || reports[0].Results[1].TTFT == reports[1].Results[1].TTFT {
		t.Errorf("%+v", reports)
	}
	// One number of the list is what that number alone is.
	code, out, _ = simulate(t, append(slices.Clone(args[:7]), "4", "--slo-ttft", "2s,3x", "--scrape-loss", "0.1", "--format", "json")...)
	var alone struct {
		Results []struct {
			TTFT struct{ Mean float64 } `json:"ttft_s"`
		}
	}
	if err := json.Unmarshal([]byte(out), &alone); code != 0 || err != nil || alone.Results[1].TTFT != reports[1].Results[1].TTFT {
		t.Errorf("alone: exit %d, %v, %+v; in the list %+v", code, err, alone, reports[1])
	}
}

func TestSim_AWiderBoundKeepsMoreCalls(t *testing.T) {
	attained := func(bound string) float64 {
		code, out, errs := simulate(t, "--trace", excerpt, "--policy", "round-robin", "--replicas", "2", "--sessions", "600", "--slo-ttft", bound, "--format", "json")
		var report struct {
			Results []struct {
				Attainment float64 `json:"slo_attainment"`
			}
		}
		if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil {
			t.Fatalf("exit %d: %s, %v", code, errs, err)
		}
		return report.Results[0].Attainment
	}
	narrow, either, relative := attained("1s"), attained("1s,3x"), attained("3x")
	if !(narrow < either && relative < either && relative > 0) {
		t.Errorf("1s: %v, 3x: %v, the wider of both: %v", narrow, relative, either)
	}
}

// TestSim_SlowStartSaysHowSoonAnEngineHasItsShare has one join.
func TestSim_SlowStartSaysHowSoonAnEngineHasItsShare(t *testing.T) {
	sent := func(d string) (first int) {
		t.Helper()
		list := filepath.Join(t.TempDir(), "calls.csv")
		code, _, errs := simulate(t, "--trace", excerpt, "--policy", "round-robin", "--replicas", "2", "--sessions", "600", "--join", "2@5s", "--slow-start", d, "--calls", list)
		if code != 0 {
			t.Fatal(errs)
		}
		text, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows[1:] {
			if came, _ := strconv.ParseFloat(row[3], 64); came >= 5 && came < 10 && row[4] == "2" {
				first++
			}
		}
		return first
	}
	if at, slow := sent("0"), sent("5s"); at < 5 || 3*slow > 2*at {
		t.Errorf("in the 5 s after it joined it gets %d calls at once, and %d slowly", at, slow)
	}
}

// Behind no defence an overload leaves nothing of use; clients that try again send three times as
// much. The capacity is that of clients that wait.
func TestSim_Overload(t *testing.T) {
	args := []string{"--workload", "random:input=2000,output=200", "--arrivals", "poisson:rate=14", "--for", "1m", "--replicas", "1", "--policy", "predicted-ttft",
		"--slo-ttft", "2s", "--patience", "8s", "--client-retries", "2", "--overload", "0.8,3"}
	code, out, errs := simulate(t, args...)
	if code != 0 {
		t.Fatal(errs)
	}
	rows := regexp.MustCompile(`predicted-ttft +none +(\S+) +(\S+) +\d+ % +(\S+)`).FindStringSubmatch(out)
	if rows == nil {
		t.Fatal(out)
	}
	calm, pressed, attempts := number64(t, rows[1]), number64(t, rows[2]), number64(t, rows[3])
	if calm < 5 || pressed > calm/4 || attempts < 2.5 {
		t.Errorf("without a defence %v good calls a second, %v at 3×, %v attempts a call\n%s", calm, pressed, attempts, out)
	}
	if !strings.Contains(out, "clients leave after 8s without a first token, and try again up to 2 times") {
		t.Error(out)
	}
	if code, out, errs = simulate(t, append(args, "--format", "json")...); code != 0 || !strings.Contains(out, `"capacity_rate_scale"`) || !strings.Contains(out, `"defence": "deadline"`) {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
}

// Where no call is good at any load, what is left of the peak is a share of nothing.
func TestSim_OverloadWithoutAGoodCall(t *testing.T) {
	code, out, errs := simulate(t, "--workload", "random:input=2000,output=200", "--arrivals", "poisson:rate=14", "--for", "20s", "--replicas", "1", "--policy", "predicted-ttft",
		"--slo-ttft", "2s", "--patience", "1ns", "--overload", "0.8")
	if code != 0 {
		t.Fatal(errs)
	}
	if !regexp.MustCompile(`predicted-ttft +none +0\.00 +- `).MatchString(out) || strings.Contains(out, "NaN") {
		t.Error(out)
	}
}

func number64(t *testing.T, text string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
