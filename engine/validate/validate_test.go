package validate

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kvasir/accelerator"
	"kvasir/engine"
)

// hosts are the real engines that are logged; see testdata/vllm/README.md.
var hosts = []struct {
	name     string
	log      string
	profile  string
	blocks   int // KV blocks that requests can use; 0: the profile's
	seqs     int
	overhead time.Duration // the host's, a step
	allowed  float64       // relative error of a mean
}{
	// The KV cache is saturated: requests queue for a minute and are preempted. Nothing is
	// tuned. vLLM reports 2,588 blocks, of which one stands for no block.
	{"RTX 4090", "rtx-4090", "llama-3.1-8b/rtx-4090", 2588 - 1, 256, 0, 0.03},
	// The KV cache never fills. One number is tuned, the overhead.
	{"RTX PRO 6000", "rtx-pro-6000", "llama-3.1-8b/rtx-pro-6000", 0, 128, 3 * time.Millisecond, 0.06},
}

const document = "../../docs/validation.md"

// The model against two real engines. With -v the table is printed, and the document has
// the same one.
func TestEngine_MatchesRealVLLM(t *testing.T) {
	var table strings.Builder
	table.WriteString("| Llama-3.1-8B on | quantity | vLLM 0.19 | model | off by |\n|---|---|---|---|---|\n")
	for _, h := range hosts {
		profile, err := accelerator.Lookup(h.profile)
		if err != nil {
			t.Fatal(err)
		}
		c := engine.Defaults(profile)
		c.MaxBatchedTokens, c.MaxSeqs, c.Overhead = 2048, h.seqs, h.overhead
		if h.blocks > 0 {
			c.NumBlocks = h.blocks
		}
		log := open(t, h.log)
		model, stats, err := Replay(c, log)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range Compare(Measured(log), model) {
			fmt.Fprintf(&table, "| %s | %s | %s | %s | %+.1f %% |\n", h.name, q.Name, show(q.Real), show(q.Model), 100*q.Error())
			if strings.HasPrefix(q.Name, "mean") && !(math.Abs(q.Error()) <= h.allowed) {
				t.Errorf("%s: %s is off by %+.1f %%, allowed ±%.0f %%", h.name, q.Name, 100*q.Error(), 100*h.allowed)
			}
		}
		t.Logf("%s: %d preemptions, %d steps", h.name, stats.Preemptions, stats.Steps)
	}
	if testing.Verbose() {
		fmt.Print(table.String())
	}
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), table.String()) {
		t.Errorf("%s has another table; the one above should be", document)
	}
}

func show(seconds float64) string {
	if seconds < 1 {
		return fmt.Sprintf("%.1f ms", 1000*seconds)
	}
	return fmt.Sprintf("%.2f s", seconds)
}

func open(t *testing.T, name string) []Request {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "vllm", name+".requests.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	log, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	if len(log) != 300 {
		t.Fatalf("%d requests, want 300", len(log))
	}
	return log
}

const line = `{"input_toks": 10, "output_toks": 3, "queued_ts": 5, "first_token_ts": 6, "last_token_ts": 8}`

func TestRead_NamesLineFieldAndValue(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{`"input_toks": 10`, `"input_toks": 0`, "line 2: input_toks is 0; allowed: 1 to"},
		{`"output_toks": 3`, `"output_toks": -1`, "line 2: output_toks is -1; allowed: 1 to"},
		{`"queued_ts": 5`, `"queued_ts": -1`, "line 2: queued_ts is -1; allowed: 0 to"},
		{`"queued_ts": 5`, `"queued_ts": 4`, "line 2: queued_ts is 4; allowed: 5, the line's before, or later"},
		{`"first_token_ts": 6`, `"first_token_ts": 5`, "line 2: first_token_ts is 5; allowed: after queued_ts"},
		{`"last_token_ts": 8`, `"last_token_ts": 5.5`, "line 2: last_token_ts is 5.5; allowed: first_token_ts or later"},
		{`"last_token_ts": 8`, `"last_token_ts": 6`, "more than a token"},
		{`{`, `[`, "line 2: "},
		{line, ``, "line 2: "},
		{line, strings.Repeat(" ", maxLine), "allowed: at most 65536 bytes"},
	} {
		_, err := Read(strings.NewReader(line + "\n" + strings.Replace(line, c.from, c.to, 1) + "\n"))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.to, err, c.want)
		}
	}
	if _, err := Read(strings.NewReader("")); err == nil {
		t.Error("an empty log is read")
	}
	if log, err := Read(strings.NewReader(line + "\n" + line)); err != nil || len(log) != 2 || log[1].LastToken != 8 {
		t.Errorf("%+v, %v", log, err)
	}
}

func TestReplay_NamesTheLineThatIsRefused(t *testing.T) {
	p, err := accelerator.Lookup("llama-3.1-8b/rtx-4090")
	if err != nil {
		t.Fatal(err)
	}
	c := engine.Defaults(p)
	log := []Request{{Prompt: 1, Output: 1, FirstToken: 1, LastToken: 1}, {Prompt: 1 << 20, Output: 1, FirstToken: 1, LastToken: 1}}
	if _, _, err := Replay(c, log); err == nil || !strings.HasPrefix(err.Error(), "line 2: ") {
		t.Errorf("%v", err)
	}
	c.MaxSeqs = 0
	if _, _, err := Replay(c, log); err == nil || !strings.Contains(err.Error(), "MaxSeqs") {
		t.Errorf("%v", err)
	}
}

func TestCompare_MeansAndPercentiles(t *testing.T) {
	var real, model Latencies
	for i := 1; i <= 200; i++ {
		real.add(0, float64(i), float64(3*i), 3)
		model.add(1, float64(i)+1, float64(4*i)+1, 2)
	}
	for i, want := range []Quantity{
		{"mean TTFT", 100.5, 100.5}, {"mean TPOT", 100.5, 301.5}, {"mean E2E", 301.5, 402},
		{"p99 TTFT", 198, 198}, {"p99 TPOT", 198, 594}, {"p99 E2E", 594, 792},
	} {
		if got := Compare(real, model)[i]; got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if e := (Quantity{Real: 4, Model: 5}).Error(); e != 0.25 {
		t.Errorf("%v", e)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(line))
	f.Fuzz(func(t *testing.T, data []byte) {
		log, err := Read(strings.NewReader(string(data)))
		if err != nil {
			return
		}
		for _, x := range Compare(Measured(log), Measured(log)) {
			if e := x.Error(); e != 0 && !math.IsNaN(x.Real) {
				t.Errorf("%+v is off by %v", x, e)
			}
		}
	})
}
