package api

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"kvasir/internal/kvblock"
)

// codeAndChat returns a chat body of about size bytes whose text is code and talk, as
// an agent sends it: an escape in about 25 bytes, another text for each seed.
func codeAndChat(size int, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	body := []byte(`{"model":"llama-3.1-8b","temperature":0.2,"messages":[{"role":"system","content":"You are a careful engineer.\nAnswer \"briefly\".\n"}`)
	for role := 0; len(body) < size-200; role++ {
		var text strings.Builder
		for text.Len() < size/8 && len(body)+text.Len() < size-200 {
			talk(&text, rng)
			text.WriteString("```\n")
			language := code[rng.IntN(len(code))]
			for range 2 + rng.IntN(6) {
				line := language[rng.IntN(len(language))]
				for _, c := range line {
					if c == '$' {
						text.WriteString(words[rng.IntN(len(words))])
					} else {
						text.WriteRune(c)
					}
				}
			}
			text.WriteString("```\n")
		}
		body = append(body, `,{"role":"`...)
		body = append(body, []string{"user", "assistant"}[role%2]...)
		body = AppendString(append(body, `","content":`...), text.String())
		body = append(body, '}')
	}
	return append(body, `],"stream":true,"stream_options":{"include_usage":true},"max_tokens":512}`...)
}

var words = strings.Fields("the a this that which when where request response stream buffer handler value error index retries pool reads after before naïve because instead every other first last between under lock timeout header body token prefix cache block —")

// code has lines of Go and of Python.
var code = [][]string{
	{"\tif $ != nil {\n", "\t\treturn fmt.Errorf(\"read $ of %q: %w\", $, err)\n", "\t}\n", "\tfor _, $ := range $.$ {\n", "\t\t$.$ = append($.$, $)\n", "func ($ *$) $($ []byte) (int, error) {\n", "\t\t\tlog.Printf(\"$\\t%d\\n\", len($))\n"},
	{"def $_$(self, $: int = 0) -> None:\n", "    for $ in self._$.values():\n", "        if not isinstance($, $):\n", "            raise ValueError(f\"$ of {$} is no $\")\n", "        $.$ = self.$($, timeout=30.0)\n"},
}

// talk writes some lines of prose.
func talk(text *strings.Builder, rng *rand.Rand) {
	for i := range 20 + rng.IntN(40) {
		form := "%s "
		switch {
		case rng.IntN(14) == 0:
			form = "%q "
		case i%12 == 11:
			form = "%s\n"
		}
		fmt.Fprintf(text, form, words[rng.IntN(len(words))])
	}
	text.WriteString("\n\n")
}

// BenchmarkReadBody goes through bodies of 1.6 MB together: one that came again and again
// would teach the branch predictor where its escapes are.
func BenchmarkReadBody(b *testing.B) {
	for _, kb := range []int{4, 40, 400} {
		b.Run(fmt.Sprintf("%dKB", kb), func(b *testing.B) {
			bodies := make([][]byte, 1600/kb)
			bytesOfAll, escapes := 0, 0
			for i := range bodies {
				bodies[i] = codeAndChat(kb<<10, uint64(i))
				bytesOfAll += len(bodies[i])
				escapes += bytes.Count(bodies[i], []byte{'\\'})
			}
			if escapes*40 < bytesOfAll || escapes*15 > bytesOfAll {
				b.Fatalf("%d escapes in %d bytes", escapes, bytesOfAll)
			}
			var r Reader
			var w kvblock.Writer
			b.SetBytes(int64(bytesOfAll / len(bodies)))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := r.Read(Chat, bodies[i%len(bodies)]); err != nil {
					b.Fatal(err)
				}
				if _, err := r.Prompt(&w, "llama", "", 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkMarks(b *testing.B) {
	body := codeAndChat(400<<10, 1)
	var m marks
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		m = marksOf(body, m)
	}
}

// BenchmarkReadMessages reads an agent's call of Anthropic's API: tools, cache marks, calls
// and results.
func BenchmarkReadMessages(b *testing.B) {
	const tool = `{"name":"edit","description":"Replaces a text in a file.\nThe text must be there once.","input_schema":{"type":"object","properties":{"path":{"type":"string"},"old":{"type":"string"},"new":{"type":"string"}}}}`
	const turn = `{"role":"assistant","content":[{"type":"text","text":"I look at \"main.go\" first.\n"},{"type":"tool_use","id":"toolu_01","name":"read","input":{"path":"cmd/main.go"}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_01","content":[{"type":"text","text":"package main\n\nfunc main() {\n\tos.Exit(run(context.Background(), os.Args))\n}\n"}],"cache_control":{"type":"ephemeral"}}]}`
	body := fmt.Appendf(nil, `{"model":"m","max_tokens":4096,"stream":true,"system":[{"type":"text","text":"You are a careful engineer.","cache_control":{"type":"ephemeral"}}],"tools":[%s],"messages":[{"role":"user","content":"Fix it."},%s]}`,
		strings.Repeat(tool+",", 19)+tool, strings.Repeat(turn+",", 79)+turn)
	var r Reader
	var w kvblock.Writer
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Read(Messages, body); err != nil {
			b.Fatal(err)
		}
		if _, err := r.Prompt(&w, "m", "", 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadUpload(b *testing.B) {
	file := make([]byte, 20<<20)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < len(file); i += 8 {
		binary.LittleEndian.PutUint64(file[i:], rng.Uint64())
	}
	kind, body := form(b, "----WebKitFormBoundary7MA4YWxkTrZu0gW", file, "model", "whisper-1")
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadUpload(kind, body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadImage(b *testing.B) {
	body := fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}]}]}`, strings.Repeat("iVBORw0K", 5<<17))
	var r Reader
	var w kvblock.Writer
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Read(Chat, body); err != nil {
			b.Fatal(err)
		}
		if _, err := r.Prompt(&w, "m", "", 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadTokens(b *testing.B) {
	var ids []int
	for i := range 50_000 {
		ids = append(ids, i*7919%128_000)
	}
	body, _ := json.Marshal(map[string]any{"model": "m", "prompt": ids})
	var r Reader
	var w kvblock.Writer
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Read(Chat, body); err != nil {
			b.Fatal(err)
		}
		if _, err := r.Prompt(&w, "m", "", 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRecognise(b *testing.B) {
	for _, c := range []struct {
		name string
		g    Grammar
		data string
	}{
		{"vllm-content", Chat, vllmContent}, {"vllm-role", Chat, vllmRole}, {"vllm-usage", Chat, vllmUsage},
		{"vllm-text", Completions, vllmText}, {"openai", Chat, openaiContent},
		{"responses-delta", Responses, responsesStream[7][1]}, {"responses-created", Responses, responsesStream[0][1]},
		{"messages-delta", Messages, messagesStream[7][1]}, {"messages-start", Messages, messagesStream[0][1]},
	} {
		b.Run(c.name, func(b *testing.B) {
			data := []byte(c.data)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				ReadChunk(c.g, nil, data)
			}
		})
	}
}

func BenchmarkBodyScanner(b *testing.B) {
	floats := bytes.Repeat([]byte("-0.012345678,"), 1<<16)
	long := fmt.Appendf(nil, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[%s0]}],"usage":{"prompt_tokens":8,"total_tokens":8}}`, floats)
	for _, c := range []struct {
		name string
		body []byte
	}{
		{"floats", long},
		{"base64", fmt.Appendf(nil, `{"data":[{"embedding":"%s"}],"usage":{"prompt_tokens":8}}`, bytes.Repeat([]byte("AbC/"), 1<<18))},
	} {
		b.Run(c.name, func(b *testing.B) {
			var s BodyScanner
			b.SetBytes(int64(len(c.body)))
			b.ReportAllocs()
			for b.Loop() {
				s.Reset(Chat)
				for p := c.body; len(p) > 0; {
					n := min(len(p), 32<<10)
					s.Feed(p[:n])
					p = p[n:]
				}
				if s.Usage().Input != 8 {
					b.Fatal(s.Usage())
				}
			}
		})
	}
}
