package api

import (
	"bytes"
	"encoding/json"
	"fmt"
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
				if _, err := r.Read(body); err != nil {
					b.Fatal(err)
				}
				if _, err := r.Prompt(&w, "llama", "", 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkReadImage(b *testing.B) {
	body := fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}]}]}`, strings.Repeat("iVBORw0K", 5<<17))
	var r Reader
	var w kvblock.Writer
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Read(body); err != nil {
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
		if _, err := r.Read(body); err != nil {
			b.Fatal(err)
		}
		if _, err := r.Prompt(&w, "m", "", 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRecognise(b *testing.B) {
	for _, c := range []struct{ name, data string }{
		{"vllm-content", vllmContent}, {"vllm-role", vllmRole}, {"vllm-usage", vllmUsage}, {"vllm-text", vllmText}, {"openai", openaiContent},
	} {
		b.Run(c.name, func(b *testing.B) {
			data := []byte(c.data)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				ReadChunk(data)
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
				s.Reset()
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
