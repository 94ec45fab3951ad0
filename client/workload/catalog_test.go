package workload

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"kvasir/internal/spec"
	"kvasir/internal/stats"
)

func TestParse(t *testing.T) {
	m, err := Parse("conversations:turns=6,system=2000,gap=lognormal/10s/1")
	if err != nil || len(m) != 1 {
		t.Fatal(m, err)
	}
	d := m[0].Generator.(*Dialogue)
	if m[0].Name != "conversations" || m[0].Weight != 1 || d.Turns.String() != "6" || d.System.String() != "2000" || d.Gap.String() != "lognormal/10s/1" || d.Systems != 10 {
		t.Errorf("%+v of %+v", d, m[0])
	}
	m, err = Parse(" 0.5 * reasoning:output=100+random + random:output=5 ")
	if err != nil || len(m) != 3 {
		t.Fatal(m, err)
	}
	if m[0].Weight != 0.5 || m[0].Name != "reasoning" || m[1].Name != "random" || m[2].Name != "random-2" || m[2].Generator.(*Random).Output.String() != "5" {
		t.Errorf("%+v", m)
	}
	if len(m.Objectives("reasoning")) != 2 || m.Objectives("random") != nil || m.Objectives("none") != nil {
		t.Errorf("%v", m)
	}
}

func TestParse_NamesEveryMistake(t *testing.T) {
	for text, want := range map[string]string{
		"":                             `"" is not a workload; allowed: random, prefix-repetition, generated-shared-prefix, conversations`,
		"chat":                         `"chat" is not a workload; allowed: `,
		"random:turns=3":               `random: "turns" is no key; allowed: prefix, input, output`,
		"random:input=0":               "random: input is 0; allowed: lengths within 1 and ",
		"random:input=some,prefix=1.5": "random: input is \"some\"; allowed: 256, uniform/MIN/MAX, normal/MEAN/CV",
		"-1*random":                    `weight is "-1"; allowed: above 0, to 1e+09`,
		"x*random":                     `weight is "x"; allowed: above 0, to 1e+09`,
		"random+":                      `"" is not a workload; allowed: `,
		"random:zipf=1 + chat:x=1":     "random: \"zipf\" is no key; allowed: prefix, input, output\n\"chat\" is not a workload",
		strings.Repeat("+", 100):       "workload of 101 parts; allowed: 100",
		strings.Repeat("x", maxText+1): "workload of 65537 bytes; allowed: 65536",
		"conversations:gap=5":          "conversations: gap is \"5\"; allowed: 1.5s, uniform/MIN/MAX",
	} {
		if _, err := Parse(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40q: %v\nwant %s", text, err, want)
		}
	}
}

// TestCatalog makes every generator and preset as it is, and a session of each.
func TestCatalog(t *testing.T) {
	seen := map[string]bool{}
	help := Describe()
	for _, e := range all().Entries {
		if seen[e.Name] {
			t.Errorf("%s is there twice", e.Name)
		}
		seen[e.Name] = true
		g := e.Make()
		if err := g.Validate(); err != nil {
			t.Errorf("%s: %v", e.Name, err)
			continue
		}
		s := g.Session(1, 0)
		if err := s.Validate(blockTokens); err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}
		text := e.Format(g)
		if m, err := Parse(text); err != nil || text != e.Name || e.Format(m[0].Generator) != text {
			t.Errorf("%s is written as %s: %v", e.Name, text, err)
		}
		if !strings.Contains(help, "\n  "+e.Name+"\n") || !strings.Contains(help, e.Source) {
			t.Errorf("%s is not described", e.Name)
		}
	}
	for _, key := range []string{"systems=10", "history=lognormal/1500/1/0/16000", "turns=300", "documents=10000", "branches=12", "objective: ttft p99 ≤ 1s"} {
		if !strings.Contains(help, key) {
			t.Errorf("%s is not described", key)
		}
	}
}

// TestCatalog_ReadsItsTexts shows that every text of the catalogue is one: lengths and delays
// that cannot read theirs are 0 always, and few are meant to be.
func TestCatalog_ReadsItsTexts(t *testing.T) {
	meant := map[string]string{
		"random": "prefix=0", "generated-shared-prefix": "gap=0s zipf=0", "conversations": "history=0 summary=0",
		"chat-turn": "gap=0s summary=0", "tool-agent": "summary=0",
	}
	for _, e := range Generators().Entries {
		var zeros []string
		for line := range strings.Lines(describe(e)) {
			if key := strings.Fields(line)[0]; strings.HasSuffix(key, "=0") || strings.HasSuffix(key, "=0s") {
				zeros = append(zeros, key)
			}
		}
		if got := strings.Join(zeros, " "); got != meant[e.Name] {
			t.Errorf("%s has %s, want %s", e.Name, got, meant[e.Name])
		}
	}
}

// describe describes one entry.
func describe(e spec.Entry[Generator]) string {
	return spec.Catalog[Generator]{Entries: []spec.Entry[Generator]{e}}.Describe()
}

// TestPresets_HaveTheirShapes compares means over all calls with inference-perf's catalogue
// (its *.config.json): prompt without system prompt, output, turns, seconds between turns,
// each with the deviation allowed because clipping moves means.
func TestPresets_HaveTheirShapes(t *testing.T) {
	for _, want := range []struct {
		name                       string
		system                     int
		prompt, output, turns, gap float64
		allowed                    float64
	}{
		{"interactive-chat", 1000, 4000, 300, 4, 45, 0.15},
		{"code-generation", 3000, 160000, 425, 540, 15, 0.15},
		{"deep-research", 2000, 45000, 300, 15, 25, 0.15},
		{"reasoning", 250, 1000, 8000, 1, 0, 0.15},
		{"batch-summarization-rag", 500, 15000, 500, 1, 0, 0.15},
		{"batch-synthetic-data-generation", 2000, 500, 4250, 1, 0, 0.15},
		{"agentic-trace-replay", 8000, 49141, 659, 21.9, 13, 0.25},
	} {
		g, objectives, err := Preset(want.name)
		if err != nil {
			t.Fatal(err)
		}
		var prompts, outputs, turns, waits []float64
		for n := range 1000 {
			s := g.Session(7, n)
			turns = append(turns, float64(len(s.Calls)))
			for i, c := range s.Calls {
				prompts, outputs = append(prompts, float64(c.PromptTokens-want.system)), append(outputs, float64(c.OutputTokens))
				if i > 0 {
					waits = append(waits, c.Gap.Seconds())
				}
			}
		}
		for _, m := range []struct {
			what   string
			values []float64
			want   float64
		}{{"prompt", prompts, want.prompt}, {"output", outputs, want.output}, {"turns", turns, want.turns}, {"gap", waits, want.gap}} {
			if mean := stats.Summarize(m.values).Mean; m.want > 0 && math.Abs(mean/m.want-1) > want.allowed {
				t.Errorf("%s: mean %s is %.1f, want %v", want.name, m.what, mean, m.want)
			}
		}
		if (len(objectives) == 0) != (want.name == "agentic-trace-replay") {
			t.Errorf("%s has objectives %v", want.name, objectives)
		}
	}
}

func TestPreset(t *testing.T) {
	g, objectives, err := Preset("interactive-chat")
	if want := []Objective{{TTFT, 0.99, time.Second}, {ITL, 0.99, 50 * time.Millisecond}}; err != nil || !slices.Equal(objectives, want) || g.(*Dialogue).Systems != 1 {
		t.Errorf("%+v, %v, %v", g, objectives, err)
	}
	if o := (Objective{E2E, 0.999, time.Minute}); o.String() != "e2e p99.9 ≤ 1m0s" {
		t.Errorf("written as %v", o)
	}
	g, _, err = Preset("llm-d-factorial-60x8k")
	if p, ok := g.(*SharedPrefix); err != nil || !ok || p.Groups != 60 || p.System.String() != "8000" || p.Prompts != 32 {
		t.Errorf("%+v, %v", g, err)
	}
	if _, _, err := Preset("random"); err == nil || !strings.HasPrefix(err.Error(), `"random" is not a preset; allowed: interactive-chat, code-generation, deep-research,`) {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"conversations:turns=6,system=2000", "3*chat-turn + 1*tool-agent:turns=20", "random:input=quantiles/1/2/3", "subagents:context=0", "1e9*random",
		"long-agent:gap=normal/1s/0.5/0s/2s,summary=0", "interactive-chat:zipf=inf", "generated-shared-prefix:groups=99999999999", "rag-answer:found=1000", "+*:=,",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse(text)
		if err != nil {
			return
		}
		for _, p := range m {
			for _, e := range all().Entries {
				if e.Name != strings.TrimRight(strings.TrimRight(p.Name, "0123456789"), "-") && e.Name != p.Name {
					continue
				}
				again, err := Parse(e.Format(p.Generator))
				if err != nil || e.Format(again[0].Generator) != e.Format(p.Generator) {
					t.Errorf("%q is written as %q and read as %+v, %v", text, e.Format(p.Generator), again, err)
				}
			}
		}
	})
}
