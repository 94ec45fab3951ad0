package trace

import (
	"slices"
	"strings"
	"testing"
	"time"

	"kvasir/client/workload"
)

func TestAgents_ReadsSessions(t *testing.T) {
	tr, all := read(t, testdata(t, "agents.jsonl"), Options{Strict: true})
	if tr.Format != Agents || tr.BlockTokens != 64 || tr.Timed || tr.SessionRate != 1./60 || len(all) != 3 {
		t.Fatalf("format %s, blocks of %d tokens, timed %v, rate %v, %d sessions", tr.Format, tr.BlockTokens, tr.Timed, tr.SessionRate, len(all))
	}
	a := all[0]
	if a.ID != "trace_0630" || a.Class != "agent" || len(a.Calls) != 17 {
		t.Fatalf("session %q of class %q with %d calls", a.ID, a.Class, len(a.Calls))
	}
	c := a.Calls[1]
	if c.PromptTokens != 43731 || c.OutputTokens != 222 || len(c.Blocks) != 683 || !slices.Equal(c.After, []int{0}) ||
		c.Gap != 8*time.Second || c.Offset != 13*time.Second {
		t.Errorf("the second call: %d and %d tokens, %d blocks, after %v, gap %v, offset %v",
			c.PromptTokens, c.OutputTokens, len(c.Blocks), c.After, c.Gap, c.Offset)
	}
	if !slices.Equal(a.Calls[0].Blocks, c.Blocks[:300]) {
		t.Error("the second prompt does not begin as the first")
	}
	// The answer of 261 tokens to a prompt of 19236 ends in block 304, and the next prompt has it.
	if got := a.Calls[0].AnswerBlocks; !slices.Equal(got, c.Blocks[300:304]) {
		t.Errorf("the first answer fills %d blocks", len(got))
	}
	// From the third last prompt on, block 943 is another one.
	if x, y := a.Calls[13].Blocks, a.Calls[14].Blocks; x[941] != y[941] || x[942] == y[942] {
		t.Error("the 15th prompt goes on from the 14th elsewhere than behind 942 blocks")
	}
}

// TestAgents_ShareTheirHeads: tools and system prompt are shared by sessions that have them
// of the same lengths, and nothing else is.
func TestAgents_ShareTheirHeads(t *testing.T) {
	_, all := read(t, testdata(t, "agents.jsonl"), Options{})
	x, other, y := all[0].Calls[0].Blocks, all[1].Calls[0].Blocks, all[2].Calls[0].Blocks
	head := (12597 + 2208) / 64
	if x[head-1] != y[head-1] || x[head] == y[head] {
		t.Errorf("two sessions with one head share %d blocks; want %d", equal(x, y), head)
	}
	if n := equal(x, other); n != 0 {
		t.Errorf("two sessions with different heads share %d blocks", n)
	}
}

// TestAgents_PutSubagentsBeside: a subagent that its parent waited for begins behind the
// request before its start, and the parent's next request waits for its end.
func TestAgents_PutSubagentsBeside(t *testing.T) {
	_, all := read(t, testdata(t, "agents.jsonl"), Options{})
	calls := all[1].Calls
	if len(calls) != 20+5+7 {
		t.Fatalf("%d calls, want those of the parent and of two subagents", len(calls))
	}
	parent := slices.IndexFunc(calls, func(c workload.Call) bool { return c.PromptTokens == 91853 })
	next := slices.IndexFunc(calls, func(c workload.Call) bool { return c.PromptTokens == 97317 })
	one := slices.IndexFunc(calls, func(c workload.Call) bool { return c.PromptTokens == 11353 })
	two := slices.IndexFunc(calls, func(c workload.Call) bool { return c.PromptTokens == 11341 })
	if !slices.Equal(calls[one].After, []int{parent}) || !slices.Equal(calls[two].After, []int{parent}) {
		t.Errorf("the subagents begin after %v and %v, want after call %d", calls[one].After, calls[two].After, parent)
	}
	if after := calls[next].After; len(after) != 3 || after[0] != parent || after[2] != next-1 {
		t.Errorf("call %d waits for %v; want the parent's call before, %d, and the last of both subagents", next, after, parent)
	}
	if got, want := calls[one].Offset, 1148013*time.Millisecond-46656*time.Millisecond; got != want {
		t.Errorf("the first subagent begins at %v, want %v", got, want)
	}
	// From the end of the later subagent's last call, which took 21.6 s.
	if got, want := calls[next].Gap, 1209*time.Second-(1101369+54000+21600)*time.Millisecond; got != want {
		t.Errorf("the gap behind the subagents is %v, want %v", got, want)
	}
}

// besides is a session with a subagent that runs beside its parent.
const besides = `{"id":"a","block_size":4,"tool_tokens":0,"system_tokens":0,"requests":[` +
	`{"t":0,"in":8,"out":4,"api_time":1,"think_time":0,"hash_ids":[7,8]},` +
	`{"t":2,"duration_ms":null,"type":"subagent","tool_tokens":0,"system_tokens":0,"requests":[{"t":0.5,"in":5,"out":1,"hash_ids":[7,9]},{"t":30,"in":5,"out":1,"hash_ids":[7,9]}]},` +
	`{"t":5,"in":13,"out":4,"api_time":1,"think_time":4,"hash_ids":[7,8,9,10]}]}`

func TestAgents_RunBesideTheirParent(t *testing.T) {
	_, all := read(t, text("a", besides), Options{Strict: true, TokenTime: time.Second})
	c := all[0].Calls
	if len(c) != 4 || c[1].Offset != 2500*time.Millisecond || c[2].Offset != 5*time.Second || c[3].Offset != 32*time.Second {
		t.Fatalf("the calls: %+v", c)
	}
	if !slices.Equal(c[1].After, []int{0}) || !slices.Equal(c[2].After, []int{0}) || !slices.Equal(c[3].After, []int{1}) {
		t.Errorf("calls come after %v, %v, %v", c[1].After, c[2].After, c[3].After)
	}
	if c[1].Gap != 1500*time.Millisecond || c[2].Gap != 4*time.Second || c[3].Gap != 28500*time.Millisecond {
		t.Errorf("the gaps are %v, %v, %v", c[1].Gap, c[2].Gap, c[3].Gap)
	}
	if !slices.Equal(c[0].AnswerBlocks, c[2].Blocks[2:3]) || c[1].Blocks[0] != c[0].Blocks[0] {
		t.Error("the parent's prompts or the shared block of its session are not recognised")
	}
}

func TestAgents_SayWhatIsWrong(t *testing.T) {
	const good = `{"block_size":64,"requests":[{"t":0,"in":64,"out":1,"h":[[1,1]]}]}` + "\n"
	for _, c := range []struct{ record, want string }{
		{`{"block_size":64,"requests":[]}`, "requests has none; allowed: one or more"},
		{`{"requests":[{"t":0,"in":64,"out":1,"h":[[1,1]]}]}`, "block_size is missing; allowed: 1 to 1048576"},
		{`{"block_size":32,"requests":[{"t":0,"in":64,"out":1,"h":[[1,2]]}]}`, "block_size is 32; allowed: 64, as in the file's first session"},
		{`{"block_size":64,"requests":[{"t":0,"out":1,"h":[[1,1]]}]}`, "in is missing; allowed: whole numbers from 1 to 2147483647"},
		{`{"block_size":64,"requests":[{"t":0,"in":64,"h":[[1,1]]}]}`, "out is missing; allowed: whole numbers from 0 to 2147483647"},
		{`{"block_size":64,"requests":[{"t":0,"in":64,"out":1}]}`, "hash_ids is missing"},
		{`{"block_size":64,"requests":[{"t":0,"in":64,"out":1,"h":[[1,3]]}]}`, "hash_ids has 3 ids, and in is 64"},
		{`{"block_size":64,"requests":[{"t":0,"in":64,"out":1,"h":[[3,1]]}]}`, "h has a range of 2 numbers, [3 1]"},
		{`{"block_size":64,"requests":[{"t":5,"in":64,"out":1,"h":[[1,1]]},{"t":4,"in":64,"out":1,"h":[[1,1]]}]}`, "t is 4s, and that of the request before it 5s"},
		{`{"block_size":64,"requests":[{"t":0,"requests":[]}]}`, "a subagent's requests has none"},
		{`{"block_size":64,"hash_id_scope":"global","requests":[]}`, `hash_id_scope is "global"; allowed: local`},
		{`{"block_size":1,"requests":[{"t":0,"in":2000000000,"out":1,"h":[[0,1999999999]]}]}`, "block_size is 1"},
	} {
		tr, err := Open(text("f", good+c.record), Options{Strict: true, Format: Agents})
		if err != nil {
			t.Fatal(err)
		}
		err = nil
		for _, e := range tr.Sessions {
			err = e
		}
		if err == nil || !strings.HasPrefix(err.Error(), "f:2: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n  says %v\n  want %s", c.record, err, c.want)
		}
	}
	tr, err := Open(text("f", `{"block_size":1,"requests":[{"t":0,"in":2000000000,"out":1,"h":[[0,1999999999]]}]}`), Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, err = range tr.Sessions {
	}
	if err == nil || !strings.Contains(err.Error(), "more than 16777216 blocks") {
		t.Errorf("a session with 2 thousand million blocks: %v", err)
	}
}
