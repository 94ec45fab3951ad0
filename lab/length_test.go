package lab

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// TestAnswer_RefusesATraceWhoseGapsNeverEnd: a gap counts towards the length of a run, and years
// of waiting are not simulated second by second.
func TestAnswer_RefusesATraceWhoseGapsNeverEnd(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"kvasir_trace":1,"name":"gap","block_tokens":16}` + "\n")
	for i := range 12 {
		fmt.Fprintf(&b, `{"id":"%d","at_ns":%d,"calls":[{"prompt_tokens":100,"output_tokens":2},{"prompt_tokens":100,"output_tokens":2,"after":[0],"gap_ns":%d}]}`+"\n", i, i*1_000_000_000, int64(1)<<60)
	}
	for name, want := range map[string]string{
		"duel":    "until call 2 of session 12; allowed: 6h0m0s",
		"results": "session 1 lasts 320255h58m25s or more until its call 2; allowed: 6h0m0s",
	} {
		l, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.Run(Options{Seeds: 1, Trace: &Trace{Name: "gap", Data: []byte(b.String())}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLastCall adds up gaps and answers along the calls that wait for each other, and never
// beyond what a time can hold.
func TestLastCall(t *testing.T) {
	const hour = "3600000000000"
	for text, want := range map[string]sent{
		`{"id":"a","at_ns":` + hour + `,"calls":[{"prompt_tokens":1,"output_tokens":1}]}`:                                                                           {at: time.Hour / 2, session: 1, call: 1},
		`{"id":"a","at_ns":0,"calls":[{"prompt_tokens":1,"output_tokens":100,"gap_ns":` + hour + `},{"prompt_tokens":1,"output_tokens":1,"after":[0],"gap_ns":5}]}`: {at: time.Hour + time.Second + 5, session: 1, call: 2},
		`{"id":"a","at_ns":0,"calls":[{"prompt_tokens":1,"output_tokens":9},{"prompt_tokens":1,"output_tokens":200},{"prompt_tokens":1,"output_tokens":9,"after":[0,1]},{"prompt_tokens":1,"output_tokens":1}]}` + "\n" +
			`{"id":"b","at_ns":1,"calls":[{"prompt_tokens":1,"output_tokens":1}]}`: {at: 2 * time.Second, session: 1, call: 3},
		`{"id":"a","at_ns":0,"calls":[{"prompt_tokens":1,"output_tokens":1,"gap_ns":4611686018427387904},{"prompt_tokens":1,"output_tokens":1,"after":[0],"gap_ns":4611686018427387904},{"prompt_tokens":1,"output_tokens":1,"after":[1],"gap_ns":4611686018427387904}]}`: {at: 100 * 365 * 24 * time.Hour, session: 1, call: 1},
	} {
		tr, err := (&Trace{Name: "t", Data: []byte(`{"kvasir_trace":1,"name":"t","block_tokens":16}` + "\n" + text + "\n")}).workload()
		if err != nil {
			t.Fatal(err)
		}
		x, err := read(tr.Source, 10, contextTokens)
		if err != nil {
			t.Fatal(err)
		}
		if got := x.lastCall(2); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
		if got := x.lastCall(math.Inf(1)); got.at > want.at {
			t.Errorf("%s: at once %v", text, got)
		}
	}
}

// TestDuel_RefusesASessionThatNeverComes, which at a tenth of the trace's pace is later than a time can hold.
func TestDuel_RefusesASessionThatNeverComes(t *testing.T) {
	own := &Trace{Name: "own", Data: fmt.Appendf(nil, `{"kvasir_trace":1,"name":"t","block_tokens":16}
{"id":"a","at_ns":0,"calls":[{"prompt_tokens":1,"output_tokens":1}]}
{"id":"b","at_ns":%d,"calls":[{"prompt_tokens":1,"output_tokens":1}]}
`, int64(1)<<61)}
	_, err := duelLab().Run(Options{Settings: []Setting{{"rate", "0.1"}}, Seeds: 1, Trace: own})
	if err == nil || !strings.Contains(err.Error(), "last 876000h0m0s or more at rate 0.1, until call 1 of session 2") {
		t.Error(err)
	}
}

// TestRead_CutsAtLongAnswers, and counts the calls that are left out.
func TestRead_CutsAtLongAnswers(t *testing.T) {
	own := &Trace{Name: "own", Data: []byte(azureHead + fmt.Sprintf("2023-11-16 18:15:46.6805900,10,%d\n2023-11-16 18:15:50.9951690,10,%d\n", longestAnswer, longestAnswer+1))}
	tr, err := own.workload()
	if err != nil {
		t.Fatal(err)
	}
	if x, err := read(tr.Source, 10, contextTokens); err != nil || x.calls != 1 || x.long != 1 {
		t.Errorf("%+v, %v", x, err)
	}
}
