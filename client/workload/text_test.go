package workload

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"kvasir/internal/kvblock"
)

// contents returns all that a call's messages say, in one text.
func contents(messages []Message) string {
	var b strings.Builder
	for _, m := range messages {
		b.WriteString(m.Content)
	}
	return b.String()
}

// TestLaw_TextIsSharedExactlyAsBlocksAre holds for every generator and ratio: a prompt's text
// has the length that its tokens say, two prompts share the text of the blocks that they
// share, and not that of the next one.
func TestLaw_TextIsSharedExactlyAsBlocksAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := Text{blockTokens, rapid.SampledFrom([]float64{0, 2, 3.7, 4, 5}).Draw(t, "bytes a token")}
		all := first(t, drawGenerator(t), 1, 3)
		type prompt struct {
			call *Call
			text string
		}
		var prompts []prompt
		for n := range all {
			for i := range all[n].Calls {
				c := &all[n].Calls[i]
				p := prompt{c, contents(text.Messages(nil, &all[n], i))}
				if len(p.text) != text.bytes(c.PromptTokens) {
					t.Fatalf("%d bytes for %d tokens", len(p.text), c.PromptTokens)
				}
				if p.text != contents(text.Messages(nil, &all[n], i)) {
					t.Fatal("the text differs the second time")
				}
				if prompts = append(prompts, p); len(prompts) == 30 {
					break
				}
			}
		}
		for _, a := range prompts {
			for _, b := range prompts {
				blocks, most := 0, min(len(a.call.Blocks), len(b.call.Blocks))
				for blocks < most && a.call.Blocks[blocks] == b.call.Blocks[blocks] {
					blocks++
				}
				same := 0
				for same < min(len(a.text), len(b.text)) && a.text[same] == b.text[same] {
					same++
				}
				if same < text.bytes(blocks*blockTokens) || blocks < most && same >= text.bytes((blocks+1)*blockTokens) {
					t.Fatalf("%d blocks are shared, and %d bytes", blocks, same)
				}
			}
		}
	})
}

// TestText_TurnsRepeatWhatWasSaid checks that a conversation's messages are those of the turn
// before, an answer, and a new message.
func TestText_TurnsRepeatWhatWasSaid(t *testing.T) {
	g := Dialogue{
		Systems: 2, System: Fixed(100), History: Fixed(37), Turns: Fixed(5), User: Fixed(21), Output: Fixed(45), Context: 10000,
	}
	s := g.Session(3, 0)
	text := Text{BlockTokens: blockTokens}
	var before []Message
	for i := range s.Calls {
		messages := text.Messages(nil, &s, i)
		if len(messages) != 2*i+1 {
			t.Fatalf("call %d has %d messages", i, len(messages))
		}
		for j, m := range before {
			if messages[j] != m {
				t.Fatalf("call %d says other than before in message %d:\n%q\n%q", i, j, messages[j].Content, m.Content)
			}
		}
		for j, m := range messages {
			if want := []string{"user", "assistant"}[j%2]; m.Role != want || m.Content == "" {
				t.Errorf("call %d, message %d is %q's", i, j, m.Role)
			}
		}
		if i > 0 && (len(messages[2*i-1].Content) != 45*4 || len(messages[2*i].Content) != 21*4) {
			t.Errorf("call %d: an answer of %d bytes, a question of %d", i, len(messages[2*i-1].Content), len(messages[2*i].Content))
		}
		before = messages
	}
}

func TestText_BranchesGoOnFromTheirLeader(t *testing.T) {
	s := entry(t, "subagents:rounds=1").Session(3, 0)
	text := Text{BlockTokens: blockTokens}
	lead := text.Messages(nil, &s, 0)
	seen := map[string]bool{}
	for i := 1; i < len(s.Calls); i++ {
		messages := text.Messages(nil, &s, i)
		if len(messages) != 3 || messages[0] != lead[0] || messages[1].Role != "assistant" {
			if len(s.Calls[i].After) == 1 {
				t.Errorf("subagent %d has %d messages", i, len(messages))
			}
		}
		seen[messages[len(messages)-1].Content] = true
	}
	if len(seen) != len(s.Calls)-1 {
		t.Errorf("%d different last messages of %d calls", len(seen), len(s.Calls)-1)
	}
}

// TestText_OfUnknownPrefixesIsTheCallsOwn covers traces without prefixes, and blocks that end
// before the prompt does.
func TestText_OfUnknownPrefixesIsTheCallsOwn(t *testing.T) {
	a := Session{ID: "a", Calls: []Call{{PromptTokens: 1000}, {PromptTokens: 1000, After: []int{0}}}}
	b := Session{ID: "b", Calls: []Call{{PromptTokens: 1000}}}
	text := Text{}
	texts := []string{contents(text.Messages(nil, &a, 0)), contents(text.Messages(nil, &a, 1)), contents(text.Messages(nil, &b, 0))}
	for i, x := range texts {
		if len(x) != 4000 {
			t.Errorf("%d bytes", len(x))
		}
		if x[:64] == x[64:128] {
			t.Error("a text repeats itself")
		}
		for _, y := range texts[:i] {
			if x[:64] == y[:64] {
				t.Error("two calls share text")
			}
		}
	}
	if m := text.Messages(nil, &a, 1); len(m) != 1 {
		t.Errorf("%d messages", len(m))
	}
	chain := Session{ID: "c", Calls: []Call{{PromptTokens: 1000, Blocks: b.Calls[0].Blocks}, {PromptTokens: 1000}}}
	h := Extend(0, 7)
	chain.Calls[0].Blocks, chain.Calls[1].Blocks = append(chain.Calls[0].Blocks, h), append(chain.Calls[1].Blocks, h)
	text = Text{BlockTokens: 512}
	x, y := contents(text.Messages(nil, &chain, 0)), contents(text.Messages(nil, &chain, 1))
	if len(x) != 4000 || x[:2048] != y[:2048] || x[2048:2112] == y[2048:2112] {
		t.Error("two calls share other than their one block")
	}
}

// TestText_DoesNotGuessTurns has calls that wait for one whose prompt is not theirs, or of
// which not enough is known.
func TestText_DoesNotGuessTurns(t *testing.T) {
	text := Text{BlockTokens: blockTokens}
	s := entry(t, "rag-answer").Session(1, 0)
	if m := text.Messages(nil, &s, 1); len(m) != 1 {
		t.Errorf("the answer to a retrieval has %d messages", len(m))
	}
	s = entry(t, "tool-agent").Session(1, 0)
	first := &s.Calls[0]
	first.Blocks = first.Blocks[:len(first.Blocks)-1]
	if m := text.Messages(nil, &s, 1); len(m) != 1 {
		t.Errorf("a call behind one with unknown blocks has %d messages", len(m))
	}
}

func TestText_Validate(t *testing.T) {
	if err := (Text{BlockTokens: -1, BytesPerToken: 0.5}).Validate(); err == nil || err.Error() != "BlockTokens is -1; allowed: 0 to 4194304\nBytesPerToken is 0.5; allowed: 1 to 64" {
		t.Error(err)
	}
	if err := (Text{BlockTokens: 16}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestSpell_DiffersForEveryNumber(t *testing.T) {
	seen := map[string]uint64{}
	for i := range uint64(64) {
		for _, v := range []uint64{1 << i, 1<<i - 1, ^(1 << i)} {
			text := string(spell(nil, v))
			if other, ok := seen[text]; ok && other != v {
				t.Errorf("%d and %d are both %q", v, other, text)
			}
			if block := string(appendBlock(nil, kvblock.Hash(v), 64)); block[:25] != text || len(block) != 64 {
				t.Errorf("the block of %q begins with %q", text, block)
			}
			if seen[text] = v; len(text) != 25 {
				t.Errorf("%q has %d bytes", text, len(text))
			}
		}
	}
}

func BenchmarkText(b *testing.B) {
	for _, name := range []string{"chat-turn", "tool-agent"} {
		b.Run(name, func(b *testing.B) {
			s := entry(b, name).Session(1, 0)
			text := Text{BlockTokens: blockTokens}
			last := len(s.Calls) - 1
			b.SetBytes(int64(text.bytes(s.Calls[last].PromptTokens)))
			b.ReportAllocs()
			var messages []Message
			for b.Loop() {
				messages = text.Messages(messages[:0], &s, last)
			}
		})
	}
}
