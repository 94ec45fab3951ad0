package trace

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// samples are the files of testdata, with what each is.
var samples = []struct {
	file     string
	format   Format
	sessions int
	calls    int
	bad      int
}{
	{"mooncake_conversation.jsonl", Mooncake, 40, 40, 0},
	{"mooncake_synthetic.jsonl", Mooncake, 40, 40, 0},
	{"agents.jsonl", Agents, 3, 78, 0},
	{"azure_2023_code.csv", Azure, 60, 60, 0},
	{"azure_2024.csv", Azure, 5, 5, 0},
	{"burstgpt.csv", BurstGPT, 5, 6, 0},
	{"bailian.jsonl", Bailian, 2, 4, 0},
	{"vllm_log.jsonl", VLLMLog, 20, 20, 0},
	{"sharegpt.json", ShareGPT, 2, 3, 1},
	{"prompts.jsonl", Prompts, 5, 7, 0},
	{"kvasir.jsonl", Kvasir, 5, 7, 0},
	{"otel.json", OTel, 1, 4, 0},
}

func TestOpen_FindsOutTheFormat(t *testing.T) {
	for _, s := range samples {
		var tally Tally
		tr, all := read(t, testdata(t, s.file), Options{Done: func(got Tally) { tally = got }})
		calls := 0
		for _, session := range all {
			calls += len(session.Calls)
		}
		if tr.Format != s.format || len(all) != s.sessions || calls != s.calls {
			t.Errorf("%s: format %s, %d sessions, %d calls; want %s, %d, %d", s.file, tr.Format, len(all), calls, s.format, s.sessions, s.calls)
		}
		if tally.Bad != s.bad || tally.Sessions != s.sessions || tally.Calls != s.calls || !tally.Whole || len(tally.First) != s.bad {
			t.Errorf("%s: the tally is %+v", s.file, tally)
		}
	}
}

// TestSources_BeginAnew: a source gives the same sessions each time.
func TestSources_BeginAnew(t *testing.T) {
	for _, s := range samples {
		tr, once := read(t, testdata(t, s.file), Options{Seed: 5})
		if again := collect(t, tr.Source); !slices.EqualFunc(once, again, sameSession) {
			t.Errorf("%s: the second time the sessions are others", s.file)
		}
	}
}

func TestOpen_WhenTheFormatIsUnknown(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "f: the file is empty"},
		{"\n \n", "f: the file is empty"},
		{"a,b\n1,2\n", `f: the format is not known: the first record begins with "a,b"; formats: kvasir, `},
		{`{"some":1}`, `f: the format is not known: the first record begins with "{\"some\":1}"`},
		{`{"chat_id":1,"input_length":true}`, "f: none of the first 1 records is a call of format bailian: input_length is \"true\""},
	} {
		if _, err := Open(text("f", c.text), Options{}); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: %v\n  want %s", c.text, err, c.want)
		}
	}
}

func TestOptions_SayWhatIsNotAllowed(t *testing.T) {
	o := Options{
		Format: "morse", BlockTokens: -1, SessionRate: -1, AnswerTokens: -1, TimeUnit: -1, Bin: -1,
		TokenTime: -1, ThinkTime: -1, Idle: -1,
	}
	err := o.Validate()
	for _, field := range []string{"Format is morse", "BlockTokens is -1", "SessionRate is -1", "AnswerTokens is -1", "TimeUnit", "Bin", "TokenTime", "ThinkTime", "Idle"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not in: %v", field, err)
		}
	}
	if _, err := Open(text("f", ""), o); err == nil {
		t.Error("a file opens with options that are not allowed")
	}
	for _, c := range []struct {
		file string
		o    Options
		want string
	}{
		{"azure_2024.csv", Options{BlockTokens: 16}, "BlockTokens is 16; allowed: none, for the format is azure"},
		{"azure_2024.csv", Options{TimeUnit: 1}, "TimeUnit is 1ns; allowed: none"},
		{"agents.jsonl", Options{Bin: 1}, "Bin is 1ns; allowed: none"},
		{"azure_2024.csv", Options{SessionRate: 2}, "SessionRate is 2; allowed: none, for the file has times"},
	} {
		_, err := Open(testdata(t, c.file), c.o)
		if _, ok := errors.AsType[*OptionError](err); !ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %s", c.file, err, c.want)
		}
	}
}

func TestAzure_ReadsBothFormsOfStamps(t *testing.T) {
	_, all := read(t, testdata(t, "azure_2023_code.csv"), Options{Strict: true})
	if c := all[1].Calls[0]; all[1].At != 52*time.Millisecond || c.PromptTokens != 3180 || c.OutputTokens != 8 {
		t.Errorf("2023: the second call is at %v: %+v", all[1].At, c)
	}
	_, all = read(t, testdata(t, "azure_2024.csv"), Options{Strict: true})
	if all[3].At != time.Second-1163*time.Microsecond || all[4].Calls[0].OutputTokens != 104 {
		t.Errorf("2024: the fourth call is at %v", all[3].At)
	}
	crlf, err := os.ReadFile("testdata/azure_2024.csv")
	if err != nil {
		t.Fatal(err)
	}
	_, same := read(t, text("f", strings.ReplaceAll(string(crlf), "\n", "\r\n")), Options{Strict: true})
	if !slices.EqualFunc(all, same, sameSession) {
		t.Error("with CRLF the calls are others")
	}
}

func TestBurstGPT_PutsSessionsTogether(t *testing.T) {
	_, all := read(t, testdata(t, "burstgpt.csv"), Options{Strict: true, Raw: true})
	a := all[0]
	if a.ID != "a" || a.Class != "GPT-4 Conversation log" || len(a.Calls) != 2 {
		t.Fatalf("the first session: %+v", a)
	}
	// 82 s after the call before it, whose answer took 43 s.
	if c := a.Calls[1]; c.Gap != 39*time.Second || c.Offset != 82*time.Second || !slices.Equal(c.After, []int{0}) || c.PromptTokens != 1400 {
		t.Errorf("its second call: %+v", c)
	}
	// The last line is of the same name, but hours later.
	if last := all[4]; last.ID != "a" || len(last.Calls) != 1 {
		t.Errorf("the last session: %+v", last)
	}
}

func TestBailian_FollowsChats(t *testing.T) {
	_, all := read(t, testdata(t, "bailian.jsonl"), Options{Strict: true, TokenTime: 10 * time.Millisecond})
	a := all[0]
	if len(a.Calls) != 3 || a.Class != "text" || len(a.Calls[0].Blocks) != 4 {
		t.Fatalf("the first session: %+v", a)
	}
	for i, gap := range []time.Duration{0, 14386*time.Millisecond - 300*time.Millisecond, 28886*time.Millisecond - 300*time.Millisecond} {
		if i > 0 && (!slices.Equal(a.Calls[i].After, []int{0}) || a.Calls[i].Gap != gap) {
			t.Errorf("call %d comes %v after %v; want %v after the first", i, a.Calls[i].Gap, a.Calls[i].After, gap)
		}
	}
	if got := a.Calls[0].AnswerBlocks; !slices.Equal(got, a.Calls[1].Blocks[4:6]) {
		t.Errorf("the first answer fills %d blocks of the next prompt", len(got))
	}
}

func TestMooncake_ReadsSessionsOfAIPerf(t *testing.T) {
	const lines = `{"session_id":"s","input_length":1024,"output_length":600,"hash_ids":[4,5],"timestamp":0}
{"input_length":512,"output_length":1,"hash_ids":[4],"timestamp":100}
{"session_id":"s","input_length":300,"output_length":10,"delay":2000}
`
	_, all := read(t, text("f", lines), Options{Strict: true})
	if len(all) != 2 || len(all[0].Calls) != 2 {
		t.Fatalf("%d sessions", len(all))
	}
	c := all[0].Calls
	if c[1].PromptTokens != 1024+600+300 || c[1].Gap != 2*time.Second || len(c[1].Blocks) != 3 || len(c[0].AnswerBlocks) != 1 {
		t.Errorf("the second turn: %+v", c[1])
	}
	if c[1].Blocks[1] != c[0].Blocks[1] || c[1].Blocks[2] != c[0].AnswerBlocks[0] || all[1].Calls[0].Blocks[0] != c[0].Blocks[0] {
		t.Error("prompts do not share what they have in common")
	}
}

func TestShareGPT_CountsTextInTokens(t *testing.T) {
	tr, all := read(t, testdata(t, "sharegpt.json"), Options{ThinkTime: 3 * time.Second, BlockTokens: 4})
	if !tr.Estimated || tr.Timed || tr.SessionRate != 1 || tr.BlockTokens != 4 {
		t.Errorf("the trace is %+v", tr)
	}
	const system, ask = 58, 76 // bytes
	c := all[0].Calls
	if c[0].PromptTokens != (system+ask)/4 || c[0].OutputTokens != 23 || len(c[0].Blocks) != (system+ask)/16 {
		t.Errorf("the first call: %+v", c[0])
	}
	if c[1].Gap != 3*time.Second || !slices.Equal(c[1].After, []int{0}) || c[1].Offset != 3*time.Second+23*25*time.Millisecond {
		t.Errorf("the second call: gap %v, offset %v, after %v", c[1].Gap, c[1].Offset, c[1].After)
	}
	whole := slices.Concat(c[0].Blocks, c[0].AnswerBlocks)
	if !slices.Equal(whole, c[1].Blocks[:len(whole)]) || len(c[0].AnswerBlocks) < 5 {
		t.Error("the second prompt does not begin with the first and its answer")
	}
	// Hello!Wähl "eins" von zweien and a sign of four bytes, without an answer.
	if x := all[1].Calls[0]; all[1].ID != "2" || x.PromptTokens != (6+24+4)/4 || x.OutputTokens != 256 {
		t.Errorf("the second conversation, %q: %+v", all[1].ID, x)
	}
}

func TestPrompts_ReadsWhatBenchmarksTake(t *testing.T) {
	tr, all := read(t, testdata(t, "prompts.jsonl"), Options{Strict: true, AnswerTokens: 77})
	if !tr.Estimated || tr.BlockTokens != 16 {
		t.Errorf("the trace is %+v", tr)
	}
	if n := equal(all[0].Calls[0].Blocks, all[1].Calls[0].Blocks); n != 1 || all[0].Calls[0].OutputTokens != 90 {
		t.Errorf("two prompts that begin alike share %d blocks", n)
	}
	turns := all[2].Calls
	if len(turns) != 2 || turns[1].PromptTokens != 77/4+40+3 || turns[1].Gap != 1500*time.Millisecond || turns[1].Blocks[0] != turns[0].Blocks[0] {
		t.Errorf("the turns: %+v", turns)
	}
	if c := all[3].Calls[0]; c.PromptTokens != 23/4 || c.OutputTokens != 77 {
		t.Errorf("the messages: %+v", c)
	}
	if s := all[4]; s.ID != "s" || len(s.Calls) != 2 || s.Calls[1].Gap != 250*time.Millisecond || s.Calls[1].PromptTokens != 20/4 {
		t.Errorf("the session: %+v", s)
	}
}

// TestReaders_SayWhatIsWrong: a bad record is passed over, counted and told with its line, and
// with Strict it ends the pass.
func TestReaders_SayWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ good, bad, want string }{
		{`{"timestamp":0,"input_length":10,"output_length":1,"hash_ids":[1]}`, `{"timestamp":0,"input_length":-1}`, "input_length is -1; allowed: whole numbers from 1 to 2147483647"},
		{`{"timestamp":0,"input_length":10,"output_length":1,"hash_ids":[1]}`, `{"timestamp":1,"output_length":1}`, "input_length is missing"},
		{`{"timestamp":9,"input_length":10,"output_length":1,"hash_ids":[1]}`, `{"timestamp":1,"input_length":1}`, "timestamp is 8ms before that of an earlier line"},
		{`{"timestamp":9,"input_length":10,"output_length":1,"hash_ids":[1]}`, `{"input_length":1}`, "timestamp is missing, and the file's first call has one"},
		{`{"timestamp":9,"input_length":10,"output_length":1,"hash_ids":[1]}`, `{"timestamp":9,"input_length":2000,"hash_ids":[1]}`, "hash_ids has 1 ids, and input_length 2000 is 3 full blocks"},
		{`{"timestamp":9,"input_length":10,"output_length":1,"hash_ids":[1]}`, `{"timestamp":9,`, "the record ends where a string should stand"},
		{"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1,1", "2023-11-16 18:17:04,0,1", "contexttokens is 0; allowed: whole numbers from 1"},
		{"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1,1", "yesterday,1,1", `timestamp is "yesterday"; allowed: 2006-01-02 15:04:05`},
		{"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1,1", "2023-11-16 18:17:04,1", "the line has 2 fields; allowed: 3"},
		{`{"input_toks":1,"output_toks":1,"arrival_time":1}`, `{"input_toks":1,"output_toks":1}`, "arrival_time is missing"},
		{`{"conversations":[{"from":"human","value":"x"}]}`, `{"conversations":[{"from":"cat","value":"x"}]}`, `from is "cat"; allowed: human, user`},
		{`{"conversations":[{"from":"human","value":"x"}]}`, `{"conversations":[{"from":"human","value":[{"image":"x"}]}]}`, "value has a part without text"},
		{`{"prompt":"x"}`, `{"max_tokens":1}`, "there is no text; allowed: one of [prompt text texts text_input messages turns]"},
		{`{"prompt":"x"}`, `{"prompt":"x","text":"y"}`, "text stands beside prompt; allowed: one of them"},
		{`{"prompt":"x"}`, `{"turns":[{"turns":[]}]}`, "turns stands within turns"},
		{`{"prompt":"x"}`, `{"turns":[]}`, "turns has none"},
	} {
		file := text("f", c.good+"\n"+c.bad+"\n"+c.good+"\n")
		line := 2 + strings.Count(c.good, "\n")
		want := "f:" + string(rune('0'+line)) + ": " + c.want
		var tally Tally
		tr, err := Open(file, Options{Done: func(got Tally) { tally = got }})
		if err != nil {
			t.Fatalf("%s: %v", c.good, err)
		}
		if all := collect(t, tr.Source); tally.Bad == 0 || len(all) == 0 || !strings.HasPrefix(tally.First[0].Error(), want) {
			t.Errorf("%s\n  is told as %v\n  want %s", c.bad, tally.First, want)
		}
		tr, err = Open(file, Options{Strict: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, err = range tr.Sessions {
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s\n  with Strict: %v\n  want %s", c.bad, err, want)
		}
	}
}

func TestReaders_PassOverRecordsThatAreTooLong(t *testing.T) {
	long := `{"prompt":"` + strings.Repeat("x", MaxRecord) + `"}`
	for _, file := range []string{
		`{"prompt":"a"}` + "\n" + long + "\n" + `{"prompt":"b"}`,
		`[{"prompt":"a"},` + long + `,{"prompt":"b"}]`,
	} {
		var tally Tally
		_, all := read(t, text("f", file), Options{Done: func(got Tally) { tally = got }})
		if len(all) != 2 || tally.Bad != 1 || !errors.Is(tally.First[0], errTooLong) {
			t.Errorf("%d sessions, tally %+v", len(all), tally)
		}
	}
}
