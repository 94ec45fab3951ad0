package trace

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"kvasir/client/workload"
)

// fuzzFormat feeds a reader: whatever it is given, it returns sessions that are none but
// valid and ordered ones, counts what it does not, and writes what it reads so that it comes
// back the same.
func fuzzFormat(f *testing.F, format Format, seeds ...string) {
	for _, name := range seeds {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:min(len(b), 4<<10)], uint8(0))
		for n := range 2 { // and its first lines alone
			if i := bytes.IndexByte(b, '\n'); i >= 0 && n == 0 {
				f.Add(b[:i], uint8(1))
			}
		}
	}
	if format == Agents {
		f.Add([]byte(besides+"\n"+besides), uint8(0))
	}
	f.Fuzz(func(t *testing.T, b []byte, choice uint8) {
		o := Options{Format: format, Seed: 1, Raw: choice&1 != 0}
		var tally Tally
		o.Done = func(got Tally) { tally = got }
		tr, err := Open(text("f", string(b)), o)
		if err != nil {
			return
		}
		var all []workload.Session
		ended := error(nil)
		for s, err := range tr.Sessions {
			if err != nil {
				ended = err
				break
			}
			if err := s.Validate(tr.BlockTokens); err != nil {
				t.Fatalf("session %q: %v", s.ID, err)
			}
			if n := len(all); n > 0 && s.At < all[n-1].At {
				t.Fatalf("session %q comes at %v, the one before it at %v", s.ID, s.At, all[n-1].At)
			}
			all = append(all, s)
		}
		if tally.Sessions != len(all) || tally.Bad > tally.Records || len(tally.First) != min(tally.Bad, firstErrors) {
			t.Fatalf("%d sessions, tally %+v", len(all), tally)
		}
		if ended != nil {
			if e, ok := errors.AsType[*RecordError](ended); !ok || e.Line < 1 {
				t.Fatalf("the pass ends with %v", ended)
			}
			return
		}
		if len(all) == 0 {
			return
		}
		var copied bytes.Buffer
		if _, err := Write(&copied, tr); err != nil {
			t.Fatal(err)
		}
		again, err := Open(text("copy", copied.String()), Options{Strict: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := collectAny(t, again.Source); !slices.EqualFunc(all, got, sameSession) {
			t.Fatalf("other sessions come back from\n%s", copied.String())
		}
		if _, err := Summarize(tr.Source); err != nil {
			t.Fatal(err)
		}
	})
}

// collectAny reads a source to its end.
func collectAny(t *testing.T, s workload.Source) (all []workload.Session) {
	for session, err := range s.Sessions {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, session)
	}
	return all
}

func FuzzMooncake(f *testing.F) {
	fuzzFormat(f, Mooncake, "mooncake_conversation.jsonl", "mooncake_synthetic.jsonl")
}
func FuzzBailian(f *testing.F)  { fuzzFormat(f, Bailian, "bailian.jsonl") }
func FuzzAzure(f *testing.F)    { fuzzFormat(f, Azure, "azure_2023_code.csv", "azure_2024.csv") }
func FuzzBurstGPT(f *testing.F) { fuzzFormat(f, BurstGPT, "burstgpt.csv") }
func FuzzAgents(f *testing.F)   { fuzzFormat(f, Agents, "agents.jsonl") }
func FuzzShareGPT(f *testing.F) { fuzzFormat(f, ShareGPT, "sharegpt.json") }
func FuzzPrompts(f *testing.F)  { fuzzFormat(f, Prompts, "prompts.jsonl") }
func FuzzVLLMLog(f *testing.F)  { fuzzFormat(f, VLLMLog, "vllm_log.jsonl") }
func FuzzOTel(f *testing.F)     { fuzzFormat(f, OTel, "otel.json") }
func FuzzKvasir(f *testing.F)   { fuzzFormat(f, Kvasir, "kvasir.jsonl") }

// FuzzDetect: a format that is found out can be opened, or says why not.
func FuzzDetect(f *testing.F) {
	for _, s := range samples {
		b, err := os.ReadFile("testdata/" + s.file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:min(len(b), 2<<10)])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		tr, err := Open(File{Name: "f", Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}, Options{})
		if (err == nil) != (tr != nil) {
			t.Fatalf("%v, %v", tr, err)
		}
	})
}
