package trace

import (
	"bytes"
	"io"
	"os"
	"testing"
)

// benchmarkRead reads an excerpt over and over, as one long file: MB/s are of its text.
func benchmarkRead(b *testing.B, file string, times int) {
	line, err := os.ReadFile("testdata/" + file)
	if err != nil {
		b.Fatal(err)
	}
	whole := bytes.Repeat(line, times)
	f := File{Name: file, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(whole)), nil }}
	// The times of the repeated lines go back, so those formats are read one excerpt at a time.
	tr, err := Open(f, Options{Raw: true, Strict: true})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(whole)))
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range tr.Sessions {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkRead_Mooncake(b *testing.B) { benchmarkRead(b, "mooncake_conversation.jsonl", 1) }
func BenchmarkRead_Azure(b *testing.B)    { benchmarkRead(b, "azure_2023_code.csv", 1) }
func BenchmarkRead_Agents(b *testing.B)   { benchmarkRead(b, "agents.jsonl", 20) }

func BenchmarkWrite_Agents(b *testing.B) {
	tr, _ := read(b, testdata(b, "agents.jsonl"), Options{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Write(io.Discard, tr); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPublic reads whole public traces; without KVASIR_TRACES it is skipped.
func BenchmarkPublic(b *testing.B) {
	for _, path := range []string{"mooncake/conversation_trace.jsonl", "azure2023/AzureLLMInferenceTrace_conv.csv"} {
		b.Run(path, func(b *testing.B) {
			f := public(b, path)
			r, err := f.Open()
			if err != nil {
				b.Fatal(err)
			}
			whole, err := io.ReadAll(r)
			if err != nil {
				b.Fatal(err)
			}
			tr, err := Open(text(f.Name, string(whole)), Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(whole)))
			b.ReportAllocs()
			for b.Loop() {
				for _, err := range tr.Sessions {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkSummarize_Agents(b *testing.B) {
	tr, _ := read(b, testdata(b, "agents.jsonl"), Options{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Summarize(tr.Source); err != nil {
			b.Fatal(err)
		}
	}
}
