package trace

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestOTel_ReadsGraphs(t *testing.T) {
	tr, all := read(t, testdata(t, "otel.json"), Options{Strict: true})
	if tr.Format != OTel || !tr.Estimated || tr.Timed || all[0].ID != "fan" {
		t.Fatalf("the trace is %+v, the session %q", tr, all[0].ID)
	}
	c := all[0].Calls
	const ask, answer, why = 86, 72, 12 // bytes
	for i, want := range []struct {
		prompt, output int
		after          []int
		gap, offset    time.Duration
	}{
		{ask / 4, (ask+answer)/4 - ask/4, nil, 0, 0},
		{(ask + answer + why) / 4, 300, []int{0}, 500 * time.Millisecond, 2500 * time.Millisecond},
		{60, 20, []int{0}, time.Second, 3 * time.Second},
		{10 / 4, (10+27)/4 - 10/4, []int{1, 2}, time.Second, 6 * time.Second},
	} {
		if c[i].PromptTokens != want.prompt || c[i].OutputTokens != want.output || !slices.Equal(c[i].After, want.after) ||
			c[i].Gap != want.gap || c[i].Offset != want.offset {
			t.Errorf("call %d is %+v, want %+v", i, c[i], want)
		}
	}
	whole := slices.Concat(c[0].Blocks, c[0].AnswerBlocks)
	if len(whole) != 2 || !slices.Equal(whole, c[1].Blocks[:2]) || !slices.Equal(whole, c[2].Blocks[:2]) {
		t.Error("the later prompts do not begin with the first and its answer")
	}
}

// TestOTel_OrdersSpans: spans come in any order, as exporters write them.
func TestOTel_OrdersSpans(t *testing.T) {
	const a, b = `{"start_time":"2026-02-25T10:00:00","end_time":"2026-02-25T10:00:01","attributes":{"gen_ai.input.messages":"[]"}}`,
		`{"start_time":"2026-02-25T10:00:03","end_time":"2026-02-25T10:00:04","attributes":{"gen_ai.input.messages":"[]"}}`
	_, want := read(t, text("f", `{"spans":[`+a+","+b+`]}`), Options{Strict: true})
	_, got := read(t, text("f", `{"spans":[`+b+","+a+`]}`), Options{Strict: true})
	if !slices.EqualFunc(want, got, sameSession) || got[0].Calls[1].Gap != 2*time.Second {
		t.Errorf("%+v, in the other order %+v", want, got)
	}
}

func TestOTel_SaysWhatIsWrong(t *testing.T) {
	const call = `{"start_time":"2026-02-25T10:00:00","end_time":"2026-02-25T10:00:01","attributes":{"gen_ai.input.messages":"[]"}}`
	for _, c := range []struct{ record, want string }{
		{`{"spans":[]}`, "spans has none with gen_ai.input.messages"},
		{`{"spans":[` + strings.Replace(call, "10:00:01", "09:00:00", 1) + `]}`, "end_time is 1h0m0s before start_time"},
		{`{"spans":[` + strings.Replace(call, `"end_time"`, `"other"`, 1) + `]}`, "a span has no start_time or no end_time"},
		{`{"spans":[` + strings.Replace(call, `"[]"`, `"[{]"`, 1) + `]}`, "gen_ai.input.messages: byte 3"},
		{`{"spans":[` + strings.Repeat(call+",", maxSpans) + call + `]}`, "spans has more than 4096 calls"},
	} {
		tr, err := Open(text("f", c.record), Options{Strict: true, Format: OTel})
		if err != nil {
			t.Fatal(err)
		}
		for _, err = range tr.Sessions {
		}
		if err == nil || !strings.HasPrefix(err.Error(), "f:1: "+c.want) {
			t.Errorf("%.100s\n  says %v\n  want %s", c.record, err, c.want)
		}
	}
}
