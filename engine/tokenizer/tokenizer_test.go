package tokenizer

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/engine"
	"kvasir/internal/kvblock"
)

var limits = Limits{Models: []string{"tiny", "alias"}, MaxModelLen: 4096, BlockTokens: 16, Seed: 7}

func read(t interface{ Fatalf(string, ...any) }, route Route, body any) *Call {
	data, ok := body.(string)
	if !ok {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatalf("%v", err)
		}
		data = string(b)
	}
	c, err := Read(route, []byte(data), limits)
	if err != nil {
		t.Fatalf("Read(%s): %v", data, err)
	}
	return c
}

type turn struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func chatBody(turns []turn, extra map[string]any) map[string]any {
	body := map[string]any{"model": "tiny", "messages": turns}
	maps.Copy(body, extra)
	return body
}

// The prompt of a conversation's next turn begins with the blocks of the last turn's
// prompt and answer, whatever was said.
func TestRead_WhenAnAnswerComesBack_ItHasTheTokensThatWereGenerated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var turns []turn
		if rapid.Bool().Draw(t, "system") {
			turns = append(turns, turn{"system", rapid.StringN(0, 300, -1).Draw(t, "prompt")})
		}
		extra := map[string]any{"max_tokens": rapid.IntRange(1, 100).Draw(t, "max_tokens")}
		if rapid.Bool().Draw(t, "tools") {
			extra["tools"] = []any{map[string]any{"type": "function", "function": map[string]any{"name": "look_up"}}}
		}
		var held []kvblock.Hash
		for range rapid.IntRange(1, 5).Draw(t, "turns") {
			turns = append(turns, turn{"user", rapid.StringN(0, 200, -1).Draw(t, "question")})
			item := read(t, Chat, chatBody(turns, extra)).Items[0]
			if q := item.Request; len(q.Blocks) < len(held) || !slices.Equal(q.Blocks[:len(held)], held) {
				t.Fatalf("turn %d: %d blocks of the last turn, the prompt does not begin with them", len(turns), len(held))
			}
			held = slices.Concat(item.Request.Blocks, item.Request.AnswerBlocks)
			tokens := item.Request.PromptTokens + item.Request.OutputTokens
			if len(held) != tokens/limits.BlockTokens {
				t.Fatalf("%d tokens have %d blocks", tokens, len(held))
			}
			turns = append(turns, turn{"assistant", item.Answer.Text()})
		}
	})
}

// Two prompts share exactly the blocks before the first difference.
func TestRead_SharesTheBlocksBeforeTheFirstDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 2000).Draw(t, "tokens")
		at := rapid.IntRange(0, n-1).Draw(t, "changed")
		a := make([]int, n)
		for i := range a {
			a[i] = i * 7919 % 32000
		}
		b := slices.Clone(a)
		b[at]++
		x := read(t, Completions, map[string]any{"prompt": a}).Items[0].Request
		y := read(t, Completions, map[string]any{"prompt": b}).Items[0].Request
		if x.PromptTokens != n || len(x.Blocks) != n/limits.BlockTokens {
			t.Fatalf("%d token ids gave %d tokens in %d blocks", n, x.PromptTokens, len(x.Blocks))
		}
		for i := range x.Blocks {
			if same := i < at/limits.BlockTokens; (x.Blocks[i] == y.Blocks[i]) != same {
				t.Fatalf("block %d: equal is %v with token %d changed", i, !same, at)
			}
		}
	})
}

func TestRead_SeparatesSaltsAndModels(t *testing.T) {
	prompt := strings.Repeat("the same words again ", 50)
	blocks := func(extra map[string]any, l Limits) []kvblock.Hash {
		data, _ := json.Marshal(chatBody([]turn{{"user", prompt}}, extra))
		c, err := Read(Chat, data, l)
		if err != nil {
			t.Fatal(err)
		}
		return c.Items[0].Request.Blocks
	}
	plain := blocks(nil, limits)
	if other := blocks(map[string]any{"model": "alias"}, limits); !slices.Equal(plain, other) {
		t.Error("an alias has a cache of its own")
	}
	if salted := blocks(map[string]any{"cache_salt": "a"}, limits); salted[0] == plain[0] {
		t.Error("a salted call shares blocks with one that is not")
	}
	large := limits
	large.Models = []string{"large", "tiny"}
	if other := blocks(nil, large); other[0] == plain[0] {
		t.Error("two models share blocks")
	}
	if effort := blocks(map[string]any{"reasoning_effort": "high"}, limits); effort[0] == plain[0] {
		t.Error("another reasoning effort shares blocks")
	}
}

func TestRead_TakesEveryFormOfPrompt(t *testing.T) {
	for _, c := range []struct {
		name  string
		route Route
		body  string
		want  []int // prompt tokens, by item
	}{
		// begin + start, user, end of header + 3 + end of turn + start, assistant (3), end of header
		{"content string", Chat, `{"messages":[{"role":"user","content":"hello world"}]}`, []int{13}},
		{"one part", Chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"hello world"}]}]}`, []int{13}},
		{"two parts", Chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"hello"},"world"]}]}`, []int{14}},
		{"image", Chat, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:x"}},{"text":"hello world"}]}]}`, []int{13 + mediaTokens}},
		{"no content", Chat, `{"messages":[{"role":"user","content":null}]}`, []int{10}},
		{"tool call", Chat, `{"messages":[{"role":"user","tool_calls":[{"id": 1}]}]}`, []int{12}},
		{"open turn", Chat, `{"messages":[{"role":"user","content":"hello world"}],"continue_final_message":true,"add_generation_prompt":false}`, []int{7}},
		{"two choices", Chat, `{"messages":[{"role":"user","content":"hello world"}],"n":2}`, []int{13, 13}},
		{"text", Completions, `{"prompt":"hello world"}`, []int{4}},
		{"texts", Completions, `{"prompt":["hello world","hello"],"n":2}`, []int{4, 4, 3, 3}},
		{"ids", Completions, `{"prompt":[1,2,4000000000]}`, []int{3}},
		{"lists of ids", Completions, `{"prompt":[[1,2,3],[4]]}`, []int{3, 1}},
		{"embedding", Embeddings, `{"input":["hello world","a"]}`, []int{4, 2}},
		{"embedding of ids", Embeddings, `{"input":[7,8]}`, []int{2}},
		{"embedding of a chat", Embeddings, `{"messages":[{"role":"user","content":"hello world"}]}`, []int{8}},
	} {
		t.Run(c.name, func(t *testing.T) {
			call := read(t, c.route, c.body)
			var got []int
			sum := 0
			for i, item := range call.Items {
				got = append(got, item.Request.PromptTokens)
				if i%call.Choices == 0 {
					sum += item.Request.PromptTokens
				}
			}
			if !slices.Equal(got, c.want) || call.PromptTokens != sum {
				t.Errorf("prompts of %v tokens, want %v; in all %d, want %d", got, c.want, call.PromptTokens, sum)
			}
		})
	}
}

func TestRead_ReadsOptions(t *testing.T) {
	c := read(t, Chat, `{"model":"alias","request_id":"r1","messages":[],"stream":true,"n":2,"max_tokens":5,"max_completion_tokens":9.0,
		"stream_options":{"include_usage":true,"continuous_usage_stats":true},"Stream":false,"unknown":{}}`)
	if c.Model != "tiny" || c.RequestID != "r1" || !c.Stream || !c.IncludeUsage || !c.ContinuousUsage || c.Choices != 2 || c.MaxTokens != 9 {
		t.Errorf("got %+v", c)
	}
	c = read(t, Completions, `{"prompt":"x","stream":true,"stream_options":{"continuous_usage_stats":true}}`)
	if c.IncludeUsage || c.ContinuousUsage || c.MaxTokens != 16 {
		t.Errorf("got %+v", c)
	}
	c = read(t, Embeddings, `{"input":"x","encoding_format":"base64","dimensions":8}`)
	if !c.Base64 || c.Dimensions != 8 || c.Items[0].Request.OutputTokens != 0 {
		t.Errorf("got %+v", c)
	}
	if c = read(t, Chat, `{"messages":[]}`); c.MaxTokens != limits.MaxModelLen-c.PromptTokens {
		t.Errorf("max_tokens %d, prompt %d", c.MaxTokens, c.PromptTokens)
	}
}

func TestRead_BoundsTheAnswer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prompt := rapid.String().Draw(t, "prompt")
		most := rapid.IntRange(1, 400).Draw(t, "max_tokens")
		least := rapid.IntRange(0, most).Draw(t, "min_tokens")
		answer := func(extra map[string]any) (Answer, engine.Request) {
			extra["prompt"] = prompt
			item := read(t, Completions, extra).Items[0]
			return item.Answer, item.Request
		}
		free, _ := answer(map[string]any{"max_tokens": 4000})
		a, q := answer(map[string]any{"max_tokens": most, "min_tokens": least})
		switch {
		case a.Tokens > most || a.Tokens < least || q.OutputTokens != a.Tokens:
			t.Fatalf("%d tokens with min %d and max %d; request has %d", a.Tokens, least, most, q.OutputTokens)
		case a.Stop != (q.Reason == engine.Stop):
			t.Fatalf("answer stops: %v, request ends with %v", a.Stop, q.Reason)
		case !a.Stop && a.Tokens != most:
			t.Fatalf("cut at %d, bound %d", a.Tokens, most)
		case free.Tokens <= most && free.Tokens > least && a != free:
			t.Fatalf("bounds that do not bind changed the answer from %+v to %+v", free, a)
		case a.Stop && a.TextTokens() != a.Tokens-1, !a.Stop && a.TextTokens() != a.Tokens:
			t.Fatalf("%+v has text for %d tokens", a, a.TextTokens())
		}
		if !a.Stop && !strings.HasPrefix(free.Text()+strings.Repeat("?", 4*most), a.Text()[:4*min(most, free.TextTokens()-1)]) {
			t.Fatalf("the cut answer %q is no head of %q", a.Text(), free.Text())
		}
		if a, _ = answer(map[string]any{"max_tokens": most, "ignore_eos": true}); a.Tokens != most || a.Stop {
			t.Fatalf("ignore_eos with max_tokens %d gave %+v", most, a)
		}
	})
}

func TestAnswer_TextIsFourPlainBytesAToken(t *testing.T) {
	a := Answer{Tokens: 3000, Stop: true, words: 5}
	text := a.Text()
	if len(text) != 4*a.TextTokens() {
		t.Fatalf("%d bytes for %d tokens", len(text), a.TextTokens())
	}
	if quoted, _ := json.Marshal(text); string(quoted) != `"`+text+`"` {
		t.Fatal("the text needs escaping")
	}
	var joined []byte
	for i := 0; i < a.Tokens; i += 7 {
		joined = a.AppendText(joined, i, i+7)
	}
	if string(joined) != text {
		t.Fatal("parts joined differ from the whole")
	}
	if words := strings.Fields(text); len(words) < 1000 || !strings.HasSuffix(text, ".") {
		t.Fatalf("%d words, ending in %q", len(words), text[len(text)-4:])
	}
}

func TestDraw_LengthsAreLognormalLike(t *testing.T) {
	const n = 20000
	lengths := make([]int, n)
	for i := range lengths {
		lengths[i] = draw(3, kvblock.Hash(i), 0, bounds{max: math.MaxInt32}).Tokens
	}
	slices.Sort(lengths)
	for _, q := range []struct {
		at       float64
		from, to int
	}{{0, 4, 12}, {0.1, 30, 50}, {0.5, 110, 130}, {0.9, 300, 440}, {0.99, 700, 1100}, {1, 1500, 2048}} {
		if got := lengths[int(q.at*(n-1))]; got < q.from || got > q.to {
			t.Errorf("quantile %v is %d, want %d to %d", q.at, got, q.from, q.to)
		}
	}
	if a, b := draw(3, 1, 0, bounds{max: 4000}), draw(3, 1, 1, bounds{max: 4000}); a == b {
		t.Error("two choices give one answer")
	}
	if a, b := draw(3, 1, 0, bounds{max: 4000}), draw(4, 1, 0, bounds{max: 4000}); a == b {
		t.Error("two seeds give one answer")
	}
}

func TestEmbedding_HasLengthOneAndShortens(t *testing.T) {
	item := Item{Hash: 9}
	whole, short := item.Embedding(embeddingDimensions), item.Embedding(64)
	for _, v := range [][]float32{whole, short} {
		sum := 0.0
		for _, x := range v {
			sum += float64(x) * float64(x)
		}
		if math.Abs(sum-1) > 1e-5 {
			t.Errorf("squared length %v", sum)
		}
	}
	scale := short[0] / whole[0]
	for d := range short {
		if math.Abs(float64(whole[d]*scale-short[d])) > 1e-6 {
			t.Fatalf("dimension %d of the short vector is not the whole one's", d)
		}
	}
	if (Item{Hash: 10}).Embedding(1)[0] == 0 || slices.Equal((Item{Hash: 10}).Embedding(8), item.Embedding(8)) {
		t.Error("two prompts have one embedding")
	}
}

func BenchmarkRead(b *testing.B) {
	for _, kb := range []int{4, 40, 400} {
		b.Run(fmt.Sprintf("%dKB", kb), func(b *testing.B) {
			var turns []turn
			for range kb {
				turns = append(turns, turn{"user", strings.Repeat("a line of code; // with a comment\n", 1000/34)})
			}
			data, err := json.Marshal(chatBody(turns, map[string]any{"max_tokens": 100}))
			if err != nil {
				b.Fatal(err)
			}
			l := limits
			l.MaxModelLen = 1 << 20
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Read(Chat, data, l); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAnswer_Text(b *testing.B) {
	a := Answer{Tokens: 1000, words: 1}
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	start := time.Now()
	n := 0
	for b.Loop() {
		buf = a.AppendText(buf[:0], 0, 1000)
		n += 1000
	}
	b.ReportMetric(float64(time.Since(start).Nanoseconds())/float64(n), "ns/token")
}
