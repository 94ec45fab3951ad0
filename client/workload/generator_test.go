package workload

import (
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/internal/kvblock"
	"kvasir/internal/stats"
)

// drawGenerator draws a valid generator of any kind, with small sessions.
func drawGenerator(t *rapid.T) Generator {
	l := func(key string, least, most int) Lengths { return drawLengths(t, key, least, most) }
	n := func(key string, least, most int) int { return rapid.IntRange(least, most).Draw(t, key) }
	zipf := rapid.SampledFrom([]float64{0, 0.5, 1, 2}).Draw(t, "zipf")
	gap := FixedDelay(time.Duration(n("gap", 0, 1e9)))
	switch rapid.SampledFrom([]string{"random", "repetition", "shared", "dialogue", "retrieval", "subagents", "mix"}).Draw(t, "kind") {
	case "random":
		return Random{n("prefix", 0, 50), l("input", 1, 300), l("output", 0, 50)}
	case "repetition":
		return PrefixRepetition{n("prefixes", 1, 5), n("prefix", 0, 100), n("suffix", 1, 100), l("output", 0, 50)}
	case "shared":
		return SharedPrefix{n("groups", 1, 5), n("prompts", 0, 3), l("system", 0, 100), l("question", 1, 60), l("output", 0, 60), l("turns", 1, 4), gap, zipf}
	case "dialogue":
		context := n("context", 20, 800)
		return Dialogue{
			n("systems", 1, 5), zipf, l("system", 0, min(100, context-2)), l("history", 0, 300), l("turns", 1, 12), l("user", 1, 100), l("output", 0, 100),
			gap, context, l("summary", 0, context/2),
		}
	case "retrieval":
		return Retrieval{l("rewrite", 0, 50), l("system", 0, 50), l("question", 1, 50), l("query", 0, 40), gap, n("documents", 1, 10), zipf, l("found", 0, 5), l("document", 0, 80), l("output", 0, 50)}
	case "subagents":
		context := n("context", 20, 1500)
		return Subagents{
			l("system", 0, min(100, context-2)), l("task", 1, 100), n("rounds", 1, 3), l("branches", 1, 4), n("steps", 1, 3), l("plan", 0, 60),
			l("briefing", 1, 60), l("output", 0, 60), l("result", 1, 60), gap, context,
		}
	default:
		return Mix{{Name: "a", Weight: rapid.Float64Range(0.1, 9).Draw(t, "weight"), Generator: drawGenerator(t)}, {Name: "b", Weight: 1, Generator: drawGenerator(t)}}
	}
}

// every yields arrivals that are a second apart.
func every(yield func(time.Duration) bool) {
	for at := time.Second; yield(at); at += time.Second {
	}
}

// first returns the first n sessions of a workload.
func first(t interface{ Fatal(...any) }, g Generator, root uint64, n int) []Session {
	src, err := Generate("w", g, root, every)
	if err != nil {
		t.Fatal(err)
	}
	var all []Session
	for s, err := range src.Sessions {
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, s); len(all) == n {
			break
		}
	}
	return all
}

// TestLaw_SessionsAreWhatTheirDescriptionSays holds for every generator: its sessions are
// valid, their blocks are whole, the same seed gives the same ones, in any order, and the
// next seed others.
func TestLaw_SessionsAreWhatTheirDescriptionSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, root := drawGenerator(t), rapid.Uint64().Draw(t, "seed")
		all := first(t, g, root, 6)
		if len(all) != 6 && len(all) != g.Count() {
			t.Fatalf("%d sessions, want 6 or %d", len(all), g.Count())
		}
		for n := range all {
			s := &all[n]
			if err := s.Validate(blockTokens); err != nil {
				t.Fatalf("session %d: %v", n, err)
			}
			if s.ID != fmt.Sprintf("w-%d", n+1) || s.At != time.Duration(n+1)*time.Second || s.Class == "" {
				t.Fatalf("session %d is %q of class %q at %v", n, s.ID, s.Class, s.At)
			}
			for i := range s.Calls {
				c := &s.Calls[i]
				full, both := c.PromptTokens/blockTokens, (c.PromptTokens+c.OutputTokens)/blockTokens
				if len(c.Blocks) != full || len(c.AnswerBlocks) != both-full {
					t.Fatalf("session %d, call %d: %d and %d blocks for %d and %d tokens", n, i, len(c.Blocks), len(c.AnswerBlocks), c.PromptTokens, c.OutputTokens)
				}
			}
		}
		if again := first(t, g, root, 6); !reflect.DeepEqual(all, again) {
			t.Fatal("the sessions differ the second time")
		}
		for n := len(all) - 1; n >= 0; n-- {
			if s := g.Session(root, n); !reflect.DeepEqual(s.Calls, all[n].Calls) {
				t.Fatalf("session %d differs when it is made by itself", n)
			}
		}
		for _, other := range first(t, g, root+1, 3) {
			for i := range other.Calls {
				for j := range all[0].Calls {
					if a, b := other.Calls[i].Blocks, all[0].Calls[j].Blocks; len(a) > 0 && len(b) > 0 && a[0] == b[0] {
						t.Fatal("two seeds share text")
					}
				}
			}
		}
	})
}

// TestLaw_TurnsSendAllBeforeThem holds for dialogues: a turn's prompt goes on from the prompt
// and answer before it, or begins anew with the system prompt, when it would not fit.
func TestLaw_TurnsSendAllBeforeThem(t *testing.T) {
	compacted := 0
	rapid.Check(t, func(t *rapid.T) {
		context := rapid.IntRange(200, 2000).Draw(t, "context")
		d := Dialogue{
			3, 1, Fixed(rapid.IntRange(0, 100).Draw(t, "system")), drawLengths(t, "history", 0, 50), drawLengths(t, "turns", 1, 30),
			drawLengths(t, "user", 1, 80), drawLengths(t, "output", 0, 80), FixedDelay(time.Second), context, drawLengths(t, "summary", 0, 50),
		}
		system, _ := d.System.Bounds()
		for n := range 5 {
			s := d.Session(1, n)
			for i := range s.Calls {
				c := &s.Calls[i]
				if c.PromptTokens+c.OutputTokens > context {
					t.Fatalf("call %d has %d and %d tokens in a context of %d", i, c.PromptTokens, c.OutputTokens, context)
				}
				if i == 0 {
					if c.After != nil || c.Gap != 0 || c.Offset != 0 {
						t.Fatalf("the first call waits: %+v", c)
					}
					continue
				}
				before := &s.Calls[i-1]
				if !slices.Equal(c.After, []int{i - 1}) || c.Gap != time.Second || c.Offset != before.Offset+time.Duration(before.OutputTokens)*tokenTime+time.Second {
					t.Fatalf("call %d waits for %v and %v, and comes at %v", i, c.After, c.Gap, c.Offset)
				}
				said := slices.Concat(before.Blocks, before.AnswerBlocks)
				if len(c.Blocks) >= len(said) && slices.Equal(c.Blocks[:len(said)], said) && c.PromptTokens > before.PromptTokens+before.OutputTokens {
					continue
				}
				compacted++
				shared := system / blockTokens
				if !slices.Equal(c.Blocks[:shared], before.Blocks[:shared]) || min(len(c.Blocks), len(before.Blocks)) > shared && c.Blocks[shared] == before.Blocks[shared] {
					t.Fatalf("call %d shares other than the system prompt's %d blocks when its context is new", i, shared)
				}
				if room := before.PromptTokens + before.OutputTokens + 160; room <= context {
					t.Fatalf("call %d begins anew at %d of %d tokens", i, before.PromptTokens+before.OutputTokens, context)
				}
			}
		}
	})
	if compacted == 0 {
		t.Error("no context was full")
	}
}

func TestDialogue_FirstCallIsCutToFit(t *testing.T) {
	for _, test := range []struct{ history, user, output, wantPrompt, wantOutput int }{
		{10, 20, 30, 70, 30}, {100, 20, 30, 70, 30}, {100, 80, 30, 70, 30}, {100, 80, 200, 41, 59},
	} {
		d := Dialogue{1, 0, Fixed(40), Fixed(test.history), Fixed(1), Fixed(test.user), Fixed(test.output), Delays{}, 100, Fixed(0)}
		if c := d.Session(0, 0).Calls[0]; c.PromptTokens != test.wantPrompt || c.OutputTokens != test.wantOutput {
			t.Errorf("%+v: %d and %d tokens", test, c.PromptTokens, c.OutputTokens)
		}
	}
}

// entry returns the generator that a text stands for.
func entry(t testing.TB, text string) Generator {
	t.Helper()
	m, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return m[0].Generator
}

// TestUnitsOfWork_HaveTheArticlesCalls checks section 13's numbers: 1, 2, 12, 40, 300.
func TestUnitsOfWork_HaveTheArticlesCalls(t *testing.T) {
	for name, want := range map[string]int{"chat-turn": 1, "rag-answer": 2, "tool-agent": 12, "subagents": 40, "long-agent": 300} {
		g := entry(t, name)
		for n := range 50 {
			if got := len(g.Session(5, n).Calls); got != want {
				t.Errorf("%s, session %d: %d calls, want %d", name, n, got, want)
				break
			}
		}
	}
}

// TestLongAgent_SpansHoursAndCompacts checks the article's other columns for it.
func TestLongAgent_SpansHoursAndCompacts(t *testing.T) {
	g := entry(t, "long-agent")
	var spans, anew []float64
	for n := range 40 {
		s := g.Session(3, n)
		smaller := 0
		for i := 1; i < len(s.Calls); i++ {
			if s.Calls[i].PromptTokens < s.Calls[i-1].PromptTokens {
				smaller++
			}
		}
		spans, anew = append(spans, s.Calls[len(s.Calls)-1].Offset.Hours()), append(anew, float64(smaller))
	}
	if mean := stats.Summarize(spans).Mean; mean < 1 || mean > 6 {
		t.Errorf("it takes %v hours", mean)
	}
	if s := stats.Summarize(anew); s.Mean < 1 || s.Mean > 10 {
		t.Errorf("it compacts %v times", s.Mean)
	}
}

func TestPrefixRepetition_SharesItsPrefixesAlone(t *testing.T) {
	g := PrefixRepetition{Prefixes: 10, Prefix: 250, Suffix: 100, Output: Fixed(128)}
	seen := map[kvblock.Hash]int{}
	ends := map[kvblock.Hash]bool{}
	const n = 10000
	for _, s := range first(t, g, 1, n) {
		b := s.Calls[0].Blocks
		seen[b[250/blockTokens-1]]++
		ends[b[250/blockTokens]] = true
	}
	if len(seen) != 10 || len(ends) != n {
		t.Errorf("%d prefixes, %d blocks behind them", len(seen), len(ends))
	}
	for _, times := range seen {
		if math.Abs(float64(times)-n/10) > 4*math.Sqrt(n/10*0.9) {
			t.Errorf("a prefix came %d times of %d", times, n)
		}
	}
}

func TestSharedPrefix_EndsAndFollowsZipf(t *testing.T) {
	g := SharedPrefix{Groups: 20, Prompts: 500, System: Fixed(64), Question: Fixed(32), Output: Fixed(1), Turns: Fixed(1), Zipf: 1}
	all := first(t, g, 2, -1)
	if len(all) != 10000 {
		t.Fatalf("%d sessions", len(all))
	}
	seen := map[kvblock.Hash]int{}
	for _, s := range all {
		seen[s.Calls[0].Blocks[3]]++
	}
	var counts []int
	for _, n := range seen {
		counts = append(counts, n)
	}
	slices.Sort(counts)
	slices.Reverse(counts)
	harmonic := 0.0
	for k := range 20 {
		harmonic += 1 / float64(k+1)
	}
	for k, n := range counts[:3] {
		want := 10000 / harmonic / float64(k+1)
		if math.Abs(float64(n)-want) > 4*math.Sqrt(want) {
			t.Errorf("group %d has %d sessions, want %.0f", k+1, n, want)
		}
	}
}

// TestSubagents_ComeInBurstsThatJoin checks the shape of a fan-out.
func TestSubagents_ComeInBurstsThatJoin(t *testing.T) {
	g := Subagents{
		System: Fixed(600), Task: Fixed(100), Rounds: 2, Branches: Fixed(5), Steps: 3, Plan: Fixed(40), Briefing: Fixed(50),
		Output: Fixed(30), Result: Fixed(70), Gap: FixedDelay(time.Second), Context: 100000,
	}
	s := g.Session(1, 0)
	if len(s.Calls) != 1+2*(5*3+1) {
		t.Fatalf("%d calls", len(s.Calls))
	}
	children := map[int][]int{} // of a call: those that wait for it alone
	joins := 0
	for i := range s.Calls {
		switch c := &s.Calls[i]; len(c.After) {
		case 0:
		case 1:
			children[c.After[0]] = append(children[c.After[0]], i)
		default:
			joins++
			told := 0
			for _, a := range c.After {
				told += s.Calls[a].OutputTokens
				if len(children[a]) != 0 {
					t.Errorf("call %d waits for %d, which is not the last of its branch", i, a)
				}
			}
			if len(c.After) != 5 || told != 150 {
				t.Errorf("call %d joins %v", i, c.After)
			}
		}
	}
	bursts := 0
	for parent, of := range children {
		if len(of) == 1 {
			c, p := &s.Calls[of[0]], &s.Calls[parent]
			if c.Gap != time.Second || c.PromptTokens != p.PromptTokens+30+70 || !slices.Equal(c.Blocks[:len(p.Blocks)], p.Blocks) {
				t.Errorf("call %d does not go on from %d", of[0], parent)
			}
			continue
		}
		bursts++
		p := &s.Calls[parent]
		said := slices.Concat(p.Blocks, p.AnswerBlocks)
		lasts := map[kvblock.Hash]bool{}
		for _, i := range of {
			c := &s.Calls[i]
			if c.Gap != 0 || c.Offset != s.Calls[of[0]].Offset || c.PromptTokens != p.PromptTokens+40+50 || !slices.Equal(c.Blocks[:len(said)], said) {
				t.Errorf("subagent %d: %d tokens after %v", i, c.PromptTokens, c.Gap)
			}
			lasts[c.Blocks[len(said)]] = true
		}
		if len(of) != 5 || len(lasts) != 5 {
			t.Errorf("a burst of %d with %d briefings", len(of), len(lasts))
		}
	}
	if bursts != 2 || joins != 2 {
		t.Errorf("%d bursts, %d joins", bursts, joins)
	}
}

func TestSubagents_DoOnlyWhatFits(t *testing.T) {
	// A leader's call ends at 370 tokens, a subagent's at 420 and 450; a leader that has heard
	// the reports of all would be at 630.
	for context, want := range map[int]int{419: 1, 420: 1 + 12, 449: 1 + 12, 450: 1 + 12*2, 629: 1 + 12*2, 630: 1 + 12*2 + 1} {
		g := entry(t, fmt.Sprintf("subagents:system=300,task=50,plan=20,briefing=30,output=20,result=10,rounds=2,steps=2,gap=0s,context=%d", context))
		s := g.Session(1, 0)
		for i, c := range s.Calls {
			if c.PromptTokens+c.OutputTokens > context {
				t.Errorf("call %d has %d and %d tokens in a context of %d", i, c.PromptTokens, c.OutputTokens, context)
			}
		}
		if len(s.Calls) != want {
			t.Errorf("%d calls in a context of %d, want %d", len(s.Calls), context, want)
		}
	}
}

// TestDialogue_SystemPromptsHaveLengthsOfTheirOwn shows that who shares a system prompt
// shares all of it.
func TestDialogue_SystemPromptsHaveLengthsOfTheirOwn(t *testing.T) {
	g := entry(t, "conversations:systems=3,zipf=0,system=uniform/100/3000,turns=1,user=16")
	heads := map[int]map[kvblock.Hash]bool{}
	for n := range 60 {
		c := &g.Session(1, n).Calls[0]
		if heads[c.PromptTokens] == nil {
			heads[c.PromptTokens] = map[kvblock.Hash]bool{}
		}
		heads[c.PromptTokens][c.Blocks[(c.PromptTokens-16)/blockTokens-1]] = true
	}
	if len(heads) != 3 {
		t.Errorf("%d lengths of three system prompts", len(heads))
	}
	for tokens, ends := range heads {
		if len(ends) != 1 {
			t.Errorf("prompts of %d tokens have %d system prompts", tokens, len(ends))
		}
	}
}

func TestRetrieval_SharesDocumentsFromTheFirstOneOn(t *testing.T) {
	g := Retrieval{
		Rewrite: Fixed(32), System: Fixed(64), Question: Fixed(20), Query: Fixed(10), Gap: FixedDelay(time.Second),
		Documents: 3, Found: Fixed(2), Document: Fixed(160), Output: Fixed(50),
	}
	pairs := map[[2]kvblock.Hash]int{}
	for _, s := range first(t, g, 4, 900) {
		if len(s.Calls) != 2 || s.Calls[0].PromptTokens != 52 || s.Calls[1].PromptTokens != 64+320+20 {
			t.Fatalf("%+v", s)
		}
		if c := s.Calls[1]; !slices.Equal(c.After, []int{0}) || c.Gap != time.Second {
			t.Fatalf("the answer waits for %v and %v", c.After, c.Gap)
		}
		b := s.Calls[1].Blocks
		pairs[[2]kvblock.Hash{b[13], b[23]}]++
	}
	firsts := map[kvblock.Hash]bool{}
	for p, n := range pairs {
		firsts[p[0]] = true
		if n < 60 || n > 140 {
			t.Errorf("two documents were found together %d times of 900", n)
		}
	}
	if len(pairs) != 9 || len(firsts) != 3 {
		t.Errorf("%d pairs of %d first documents", len(pairs), len(firsts))
	}
}

func TestMix_DrawsItsClassesByWeight(t *testing.T) {
	m, err := Parse("3*chat-turn + 1*rag-answer+chat-turn:turns=2")
	if err != nil {
		t.Fatal(err)
	}
	const n = 10000
	classes := map[string]int{}
	heads := map[kvblock.Hash]string{}
	for _, s := range first(t, m, 1, n) {
		classes[s.Class]++
		head := s.Calls[0].Blocks[0]
		if class, ok := heads[head]; ok && class != s.Class {
			t.Fatalf("%s and %s share text", class, s.Class)
		}
		heads[head] = s.Class
	}
	for class, share := range map[string]float64{"chat-turn": 0.6, "rag-answer": 0.2, "chat-turn-2": 0.2} {
		if got := float64(classes[class]); math.Abs(got-share*n) > 4*math.Sqrt(share*(1-share)*n) {
			t.Errorf("%s: %v sessions of %d", class, got, n)
		}
	}
	if !strings.Contains(m.Loop(), "rag-answer: Within a session") {
		t.Errorf("the loop is said to be %q", m.Loop())
	}
}

func TestGenerate_EndsWithItsArrivalsAndSaysItsLoop(t *testing.T) {
	some := iter.Seq[time.Duration](func(yield func(time.Duration) bool) { _ = yield(1) && yield(5) })
	src, err := Generate("chat", entry(t, "chat-turn"), 1, some)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for s := range src.Sessions {
		if n++; s.Class != "chat" {
			t.Errorf("class %q", s.Class)
		}
	}
	if n != 2 || src.Name != "chat" || src.BlockTokens != blockTokens || src.Loop != "Sessions are open-loop: they come when they come, whatever becomes of others. Each is a single call, so nothing waits for an answer." {
		t.Errorf("%d sessions of %+v", n, src)
	}
	if _, err := Generate("chat", Dialogue{}, 1, some); err == nil || !strings.HasPrefix(err.Error(), "workload chat: systems is 0; allowed: 1 to ") {
		t.Errorf("an invalid one: %v", err)
	}
}

func TestValidate_NamesEveryMistake(t *testing.T) {
	for _, test := range []struct {
		g    Generator
		want []string
	}{
		{Random{-1, Fixed(0), lengths("lognormal/9/1")}, []string{"prefix is -1", "input is 0; allowed: lengths within 1 and", "output is lognormal/9/1"}},
		{PrefixRepetition{}, []string{"prefixes is 0", "suffix is 0"}},
		{SharedPrefix{Prompts: -1, Zipf: math.NaN()}, []string{"groups is 0", "prompts is -1", "question is 0", "turns is 0", "zipf is NaN; allowed: 0 to 100"}},
		{Dialogue{System: Fixed(9), Context: 10, Summary: Fixed(6), Systems: 1}, []string{"system is 9; allowed: lengths within 0 and 8", "turns is 0", "user is 0", "summary is 6; allowed: lengths within 0 and 5"}},
		{Retrieval{Found: Fixed(1001)}, []string{"question is 0", "documents is 0", "found is 1001"}},
		{Subagents{Context: 1}, []string{"context is 1", "task is 0", "rounds is 0", "branches is 0", "steps is 0", "briefing is 0", "result is 0"}},
		{Subagents{System: Fixed(1), Task: Fixed(1), Rounds: 1000, Branches: Fixed(1000), Steps: 1000, Briefing: Fixed(1), Result: Fixed(1), Context: 1 << 20}, []string{"rounds · branches is 1000000; allowed: 1 to 256", "rounds · branches · steps is 65537000; allowed: 1 to 65536"}},
		{Mix{}, []string{"parts is 0"}},
		{Mix{{"a", 1, Random{0, Fixed(1), Fixed(1)}, nil, Terms{}}, {"a", -1, Random{}, nil, Terms{}}, {"", math.NaN(), Random{}, nil, Terms{}}}, []string{"part 2 has the name \"a\"", "a: weight is -1", "a: input is 0", "part 3 has the name \"\"", ": weight is NaN"}},
	} {
		err := test.g.Validate()
		if err == nil {
			t.Errorf("%+v is valid", test.g)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		for i, want := range test.want {
			if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
				t.Errorf("%T: %v\nwant line %d: %s", test.g, err, i+1, want)
				break
			}
		}
	}
}

func BenchmarkSessions(b *testing.B) {
	for _, e := range Generators().Entries {
		b.Run(e.Name, func(b *testing.B) {
			g := e.Make()
			b.ReportAllocs()
			calls := 0
			for n := 0; b.Loop(); n++ {
				calls += len(g.Session(1, n).Calls)
			}
			b.ReportMetric(float64(calls)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}
