package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"kvasir/client/workload"
	"kvasir/internal/kvblock"
)

func sameSession(a, b workload.Session) bool {
	return a.ID == b.ID && a.At == b.At && a.Class == b.Class && a.Terms == b.Terms && slices.EqualFunc(a.Calls, b.Calls, func(x, y workload.Call) bool {
		return slices.Equal(x.After, y.After) && x.Gap == y.Gap && x.Offset == y.Offset &&
			x.Adapter == y.Adapter && x.PromptTokens == y.PromptTokens && x.OutputTokens == y.OutputTokens &&
			slices.Equal(x.Blocks, y.Blocks) && slices.Equal(x.AnswerBlocks, y.AnswerBlocks)
	})
}

// written returns a trace in Kvasir's format.
func written(tb testing.TB, tr *Trace) string {
	tb.Helper()
	var b bytes.Buffer
	if _, err := Write(&b, tr); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

func TestWrite_IsReadBackAsTheSameSource(t *testing.T) {
	for _, s := range samples {
		tr, want := read(t, testdata(t, s.file), Options{Seed: 3})
		again, got := read(t, text("copy", written(t, tr)), Options{Strict: true})
		if !slices.EqualFunc(want, got, sameSession) {
			t.Errorf("%s: other sessions come back", s.file)
		}
		if again.Format != Kvasir || again.Name != tr.Name || again.BlockTokens != tr.BlockTokens || again.Bin != 0 || again.Spread != max(tr.Bin, tr.Spread) ||
			again.Timed != tr.Timed || again.SessionRate != tr.SessionRate || again.Estimated != tr.Estimated {
			t.Errorf("%s: %+v comes back as %+v", s.file, tr, again)
		}
		if a, b := written(t, tr), written(t, again); a != b {
			t.Errorf("%s: what is written the second time differs", s.file)
		}
	}
}

// drawSession makes a session of branches that go on from each other, are cut, and begin
// anew.
func drawSession(t *rapid.T, at time.Duration, blockTokens int) workload.Session {
	s := workload.Session{ID: rapid.String().Draw(t, "id"), At: at, Class: rapid.SampledFrom([]string{"", "a \"b\"\n\\"}).Draw(t, "class")}
	if rapid.Bool().Draw(t, "terms") {
		s.Terms = workload.Terms{
			Tenant: rapid.SampledFrom([]string{"", "a\tb"}).Draw(t, "tenant"), Share: rapid.SampledFrom([]float64{0, 0.1, 3, workload.MaxShare}).Draw(t, "share"),
			Priority: rapid.IntRange(-workload.MaxPriority, workload.MaxPriority).Draw(t, "priority"),
			Deadline: time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "deadline")),
		}
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "calls") {
		var c workload.Call
		var all []kvblock.Hash
		if i > 0 {
			c.Offset = s.Calls[i-1].Offset + time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "later"))
			from := rapid.IntRange(0, i-1).Draw(t, "from")
			before := slices.Concat(s.Calls[from].Blocks, s.Calls[from].AnswerBlocks)
			all = before[:rapid.IntRange(0, len(before)).Draw(t, "shared")]
			if rapid.Bool().Draw(t, "waits") {
				c.After = []int{from}
				if from < i-1 {
					c.After = append(c.After, i-1)
				}
			}
		}
		for range rapid.IntRange(0, 5).Draw(t, "new") {
			var head kvblock.Hash
			if len(all) > 0 {
				head = all[len(all)-1]
			}
			id := rapid.Uint64().Draw(t, "id")
			for k := range uint64(rapid.IntRange(1, 4).Draw(t, "run")) {
				head = workload.Extend(head, id+k)
				all = append(slices.Clip(all), head)
			}
		}
		c.Gap = time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "gap"))
		c.Adapter = rapid.SampledFrom([]string{"", "sql", "a \"b\"\n\\"}).Draw(t, "adapter")
		if blockTokens == 0 {
			all = nil
		}
		prompt := rapid.IntRange(0, len(all)).Draw(t, "prompt")
		c.Blocks, c.AnswerBlocks = all[:prompt:prompt], all[prompt:]
		c.PromptTokens = max(prompt*blockTokens, 1)
		c.OutputTokens = len(c.AnswerBlocks)*blockTokens + rapid.IntRange(0, 100).Draw(t, "output")
		s.Calls = append(s.Calls, c)
	}
	return s
}

func TestWrite_IsReadBack_WhateverItIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blockTokens := rapid.SampledFrom([]int{0, 2, 64}).Draw(t, "block")
		var want []workload.Session
		at := time.Duration(0)
		for range rapid.IntRange(0, 4).Draw(t, "sessions") {
			at += time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "at"))
			want = append(want, drawSession(t, at, blockTokens))
		}
		tr := &Trace{Timed: true, Source: workload.Source{Name: "drawn", BlockTokens: blockTokens, Sessions: func(yield func(workload.Session, error) bool) {
			for _, s := range want {
				if !yield(s, nil) {
					return
				}
			}
		}}}
		var b bytes.Buffer
		if _, err := Write(&b, tr); err != nil {
			t.Fatal(err)
		}
		again, err := Open(text("copy", b.String()), Options{Strict: true})
		if err != nil {
			t.Fatal(err)
		}
		var got []workload.Session
		for s, err := range again.Sessions {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, s)
		}
		if !slices.EqualFunc(want, got, sameSession) {
			t.Fatalf("%+v\ncomes back as\n%+v\nfrom\n%s", want, got, b.String())
		}
	})
}

// TestWrite_IsCompact: what calls share is written once, whatever they share it with.
func TestWrite_IsCompact(t *testing.T) {
	tr, all := read(t, testdata(t, "agents.jsonl"), Options{})
	calls := 0
	for _, s := range all {
		calls += len(s.Calls)
	}
	if n := len(written(t, tr)); n > 176*calls {
		t.Errorf("%d bytes of %d calls", n, calls)
	}
}

func TestWrite_IsUTF8(t *testing.T) {
	tr := &Trace{Source: workload.Source{Name: "a\xffb", Sessions: func(yield func(workload.Session, error) bool) {
		yield(workload.Session{ID: "c\xfe", Class: "\x80", Calls: []workload.Call{{PromptTokens: 1}}}, nil)
	}}}
	if s := written(t, tr); !utf8.ValidString(s) || strings.Count(s, "\uFFFD") != 3 {
		t.Errorf("written: %q", s)
	}
	// Readers make names valid, so that they come back as they are.
	tr, all := read(t, text("f", "Timestamp,Session ID,Model,Request tokens,Response tokens\n1,\xe9t\xe9,m\xff,1,1\n"), Options{Strict: true})
	if all[0].ID != "\uFFFDt\uFFFD" || all[0].Class != "m\uFFFD" {
		t.Errorf("the session is %q of class %q", all[0].ID, all[0].Class)
	}
	if _, got := read(t, text("copy", written(t, tr)), Options{}); !slices.EqualFunc(all, got, sameSession) {
		t.Error("it comes back as another one")
	}
}

func TestWrite_RefusesWhatIsNoSession(t *testing.T) {
	tr := &Trace{Source: workload.Source{Sessions: func(yield func(workload.Session, error) bool) {
		yield(workload.Session{ID: "odd", Calls: []workload.Call{{PromptTokens: 1, Gap: -1}}}, nil)
	}}}
	if _, err := Write(new(bytes.Buffer), tr); err == nil || !strings.Contains(err.Error(), `session "odd": call 0: Gap is -1ns`) {
		t.Errorf("the error is %v", err)
	}
}

func TestKvasir_SaysWhatIsWrong(t *testing.T) {
	const header = `{"kvasir_trace":1,"name":"n","block_tokens":4}` + "\n"
	for _, c := range []struct{ file, want string }{
		{`{"kvasir_trace":2}`, "f:1: kvasir_trace is 2; allowed: whole numbers from 1 to 1"},
		{`{"kvasir_trace":1,"color":3}`, `f:1: the header has a field "color"; allowed: those of version 1`},
		{`{"kvasir_trace":1,"drawn_sessions_per_second":0}`, `f:1: drawn_sessions_per_second is "0"; allowed: numbers above 0`},
		{header + `{"calls":[]}`, "f:2: calls has none; allowed: one or more"},
		{header + `{"at_ns":-1}`, "f:2: at_ns is -1; allowed"},
		{header + `{"colour":1}`, `f:2: the session has a field "colour"`},
		{header + `{"calls":[{"gap_ns":1}]}`, "f:2: prompt_tokens is missing"},
		{header + `{"calls":[{"prompt_tokens":1,"after":[0]}]}`, "f:2: after is [0] of call 0; allowed: calls before it, from 0"},
		{header + `{"calls":[{"prompt_tokens":1,"wait":1}]}`, `f:2: the call has a field "wait"`},
		{header + `{"calls":[{"prompt_tokens":4,"prefix":[0,1]}]}`, "f:2: prefix is of call 0; allowed: calls before this one"},
		{header + `{"calls":[{"prompt_tokens":4},{"prompt_tokens":4,"prefix":[0,1]}]}`, "f:2: prefix is the first 1 blocks of call 0; allowed: at most 0"},
		{header + `{"calls":[{"prompt_tokens":4,"adapter":7}]}`, "f:2: "},
		{header + `{"calls":[{"prompt_tokens":4,"prefix":[0]}]}`, "f:2: prefix has 1 numbers; allowed: two"},
		{header + `{"calls":[{"prompt_tokens":4,"blocks":[1,2]}]}`, "f:2: call 0: len(Blocks) is 2; allowed: at most 1"},
		{header + `{"calls":[{"prompt_tokens":4,"blocks":[[1,2,3]]}]}`, "f:2: blocks has a run of 3 numbers; allowed: two"},
		{header + `{"calls":[{"prompt_tokens":4,"blocks":[[1,16777216],[1,16777216]]}]}`, "f:2: the session has more than 16777216 blocks"},
		{header + `{"calls":[{"prompt_tokens":4000000,"blocks":[[1,1000000]]}` + strings.Repeat(`,{"prompt_tokens":4000000,"prefix":[0,1000000]}`, 20) + `]}`, "f:2: call 17: the session has more than 16777216 blocks"},
		{header + `{"at_ns":5,"calls":[{"prompt_tokens":4}]}` + "\n" + `{"at_ns":4,"calls":[{"prompt_tokens":4}]}`, "f:3: at_ns is 4; allowed: from 5 on"},
	} {
		tr, err := Open(text("f", c.file), Options{Strict: true})
		if err == nil {
			for _, err = range tr.Sessions {
			}
		}
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s\n  says %v\n  want %s", c.file, err, c.want)
		}
	}
}

// A file of bad records alone is no empty trace.
func TestOpen_AFileOfBadRecordsAloneFails(t *testing.T) {
	const header = `{"kvasir_trace":1,"name":"n","block_tokens":4}` + "\n"
	for _, c := range []struct{ file, want string }{
		{header, ""},
		{header + "{}\n{\"id\":1}\n", "f: none of its 2 records is one of format kvasir: the first of 2 bad ones: f:2: calls has none"},
		{header + "{}\n" + `{"calls":[{"prompt_tokens":4}]}`, ""},
	} {
		tr, err := Open(text("f", c.file), Options{})
		if err != nil {
			t.Fatal(err)
		}
		said := ""
		for _, err := range tr.Sessions {
			if err != nil {
				said = err.Error()
			}
		}
		if !strings.HasPrefix(said, c.want) || (said == "") != (c.want == "") {
			t.Errorf("%s\n  says %q\n  want %q", c.file, said, c.want)
		}
	}
}

func TestOpen_SaysWhereReadingFails(t *testing.T) {
	for _, c := range []struct {
		file File
		want string
	}{
		{File{Name: "f", Open: func() (io.ReadCloser, error) { return io.NopCloser(iotest.ErrReader(errors.New("broken"))), nil }}, "f:1: broken"},
		{File{Name: "f", Open: func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader("\n\n"), iotest.ErrReader(errors.New("broken")))), nil
		}}, "f:3: broken"},
		{text("f", `{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":`+strings.Repeat("[", 65)+strings.Repeat("]", 65)+"}"), "f: the format is not known: of the first record brackets are nested more than 64 deep"},
	} {
		if _, err := Open(c.file, Options{}); err == nil || err.Error() != c.want {
			t.Errorf("says %v, want %s", err, c.want)
		}
	}
}

// TestKvasir_MemoryOfLongSessions: prompts that go on from each other share it, so a session
// is not bounded by the sum of its prompts.
func TestKvasir_MemoryOfLongSessions(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"kvasir_trace":1,"block_tokens":1}` + "\n" + `{"calls":[{"prompt_tokens":100000,"blocks":[[1,100000]]}`)
	for i := range 1000 {
		fmt.Fprintf(&b, `,{"prompt_tokens":%d,"prefix":[%d,%d],"blocks":[7]}`, 100001+i, i, 100000+i)
	}
	b.WriteString("]}")
	_, all := read(t, text("f", b.String()), Options{Strict: true})
	if c := all[0].Calls; len(c) != 1001 || len(c[1000].Blocks) != 101000 || c[1000].Blocks[0] != c[0].Blocks[0] {
		t.Errorf("%d calls", len(c))
	}
}
