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
// an agent sends it: about one escape every 20 bytes.
func codeAndChat(size int) []byte {
	const code = "func (s *Server) handle(w http.ResponseWriter) {\n\tif err := s.run(); err != nil {\n\t\t" +
		"log.Printf(\"run %d: %v\", s.n, err)\n\t\treturn\n\t}\n\tfmt.Fprintln(w, \"done\")\n}\n\n"
	const talk = "Why does this fail on the second run? It says \"no such file\", but the file is there, I looked twice: " +
		"C:\\data\\x. The log of the first run is clean, and nothing else touches that folder as far as I can tell.\n"
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	messages := []message{{"system", "You are a careful engineer.\nAnswer \"briefly\".\n"}}
	for n := 0; n < size; {
		text := strings.Repeat(code, 2) + fmt.Sprintf("turn %d\n", len(messages)) + strings.Repeat(talk, 4)
		role := "user"
		if len(messages)%2 == 0 {
			role = "assistant"
		}
		text = text[:min(len(text), (size-n)*9/10+1)]
		messages = append(messages, message{role, text})
		n += len(text) * 10 / 9
	}
	body, err := json.Marshal(map[string]any{
		"model": "llama-3.1-8b", "messages": messages, "stream": true, "temperature": 0.2,
		"stream_options": map[string]any{"include_usage": true}, "max_tokens": 512,
	})
	if err != nil {
		panic(err)
	}
	return body
}

func BenchmarkReadBody(b *testing.B) {
	for _, kb := range []int{4, 40, 400} {
		b.Run(fmt.Sprintf("%dKB", kb), func(b *testing.B) {
			body := codeAndChat(kb << 10)
			if escapes := bytes.Count(body, []byte{'\\'}); escapes*40 < len(body) {
				b.Fatalf("%d escapes in %d bytes", escapes, len(body))
			}
			var r Reader
			var w kvblock.Writer
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Read(Chat, body); err != nil {
					b.Fatal(err)
				}
				if _, err := r.Prompt(&w, "llama", "", 0); err != nil {
					b.Fatal(err)
				}
			}
		})
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
