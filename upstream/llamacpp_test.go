package upstream

import (
	"bufio"
	"bytes"
	"net/http"
	"slices"
	"testing"
)

// TestReadLlamaCPP_Captured reads the pages of a real server with 2 slots of 2048 tokens,
// busy with 1,202 tokens each, and 2 calls deferred.
func TestReadLlamaCPP_Captured(t *testing.T) {
	d := LlamaCPP()
	answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(golden(t, "llamacpp_metrics_header.txt"))), nil)
	if err != nil {
		t.Fatal(err)
	}
	metrics, mr := d.ReadLoad(Page{Body: golden(t, "llamacpp_metrics.txt"), Header: answer.Header.Get}, at)
	m := want{running: new(2.0), waiting: new(2.0), queries: new(158.0 + 154), hits: new(154.0), generated: new(4500.0), started: new(11469572189.0)}
	diff(t, metrics, m)
	slots, sr := d.LoadPages[0].Read(Page{Body: golden(t, "llamacpp_slots.json")}, at)
	s := want{running: new(2.0), usage: new(2404.0 / 4096), blocks: new(4096.0), tokens: new(1.0)}
	diff(t, slots, s)
	if !slices.Equal(mr.Missing, []string{"kv_usage"}) || !slices.Equal(sr.Missing, []string{"waiting"}) {
		t.Errorf("missing %v, %v", mr.Missing, sr.Missing)
	}
	both, report := Join(metrics, mr, slots, sr)
	m.usage, m.blocks, m.tokens = s.usage, s.blocks, s.tokens
	diff(t, both, m)
	if !report.Clean() {
		t.Errorf("report %+v", report)
	}
	// What idle slots still hold is free.
	idle, _ := d.LoadPages[0].Read(Page{Body: golden(t, "llamacpp_slots_idle.json")}, at)
	diff(t, idle, want{running: new(0.0), usage: new(0.0), blocks: new(4096.0), tokens: new(1.0)})
}

func TestReadLlamaCPP(t *testing.T) {
	header := func(v string) func(string) string {
		return func(name string) string {
			return http.Header{"Process-Start-Time-Unix": {v}}.Get(name)
		}
	}
	for _, c := range []struct {
		name, page string
		header     func(string) string
		want       want
		bad        int
	}{
		{name: "before cached tokens were counted", page: "llamacpp:prompt_tokens_total 50\nllamacpp:tokens_predicted_total 1.23457e+06\n",
			want: want{generated: new(1.23457e+06)}},
		{name: "cached tokens alone", page: "llamacpp:prompt_tokens_cached_total 50\n", want: want{hits: new(50.0)}},
		{name: "start that is no number", page: "llamacpp:requests_processing 1\n", header: header("soon"), want: want{running: new(1.0)}, bad: 1},
		{name: "start that can't be", page: "llamacpp:requests_processing 1\n", header: header("0"), want: want{running: new(1.0)}, bad: 1},
		{name: "start", page: "llamacpp:requests_processing 1\n", header: header("1796000000"), want: want{running: new(1.0), started: new(1796000000.0)}},
		{name: "no start", page: "llamacpp:requests_processing 1\n", header: header(""), want: want{running: new(1.0)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, r := LlamaCPP().ReadLoad(Page{Body: []byte(c.page), Header: c.header}, at)
			diff(t, l, c.want)
			if r.BadValues != c.bad {
				t.Errorf("report %+v", r)
			}
		})
	}
}

func TestReadLlamaCPPSlots(t *testing.T) {
	const busy = `{"n_ctx":100,"is_processing":true,"n_prompt_tokens_cache":1,"n_prompt_tokens_processed":2,"next_token":[{"n_decoded":7}]}`
	for _, c := range []struct {
		name, page string
		want       want
		bad        int
	}{
		{"one of two tells nothing of its context", `[` + busy + `,{"is_processing":false}]`, want{running: new(1.0)}, 1},
		{"one of two doesn't tell whether it is busy", `[` + busy + `,{"n_ctx":100,"is_processing":1}]`, want{blocks: new(200.0), tokens: new(1.0)}, 1},
		{"no next token", `[{"n_ctx":100,"is_processing":true,"n_prompt_tokens_cache":1,"n_prompt_tokens_processed":2,"next_token":[]}]`,
			want{running: new(1.0), blocks: new(100.0), tokens: new(1.0)}, 0},
		{"a next token that isn't an object", `[{"n_ctx":100,"is_processing":true,"n_prompt_tokens_cache":1,"n_prompt_tokens_processed":2,"next_token":7}]`,
			want{running: new(1.0), blocks: new(100.0), tokens: new(1.0)}, 0},
		{"negative", `[{"n_ctx":-100,"is_processing":true,"n_prompt_tokens_cache":-1}]`, want{running: new(1.0)}, 1},
		{"a prompt's text", `[{"n_ctx":100,"is_processing":false,"prompt":"\"is_processing\":true"}]`,
			want{running: new(0.0), usage: new(0.0), blocks: new(100.0), tokens: new(1.0)}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, r := LlamaCPP().LoadPages[0].Read(Page{Body: []byte(c.page)}, at)
			diff(t, l, c.want)
			if r.BadValues != c.bad || r.BadLines != 0 {
				t.Errorf("report %+v", r)
			}
		})
	}
	if _, r := LlamaCPP().LoadPages[0].Read(Page{Body: []byte(`{"error":{"code":501}}`)}, at); r.BadLines != 1 || r.Samples != 0 {
		t.Errorf("an error's body: %+v", r)
	}
}
