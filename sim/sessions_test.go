package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kvasir/client/workload"
	"kvasir/gateway/attempt"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
)

// source is a workload of the sessions, which also counts how many were read.
func source(read *int, all ...workload.Session) workload.Source {
	return workload.Source{Name: "test", BlockTokens: 64, Sessions: func(yield func(workload.Session, error) bool) {
		for _, s := range all {
			if read != nil {
				*read++
			}
			if !yield(s, nil) {
				return
			}
		}
	}}
}

func plainCall(gap time.Duration, after ...int) workload.Call {
	return workload.Call{After: after, Gap: gap, Offset: gap, PromptTokens: 100, OutputTokens: 10}
}

// play answers every call after the time that lasts says, or fails it where that is
// negative, and returns when which call came.
func play(t *testing.T, c SessionsConfig, lasts func(n int) time.Duration) []string {
	t.Helper()
	feed, err := NewSessions(c)
	if err != nil {
		t.Fatal(err)
	}
	var open []Record
	var said []string
	byItself, more := Call{}, false
	come := func(c *Call) {
		d := lasts(len(said))
		said = append(said, fmt.Sprintf("%v router %d", c.At.Sub(0).Round(time.Millisecond), c.Router))
		r := Record{Call: c.Request.ID, At: c.At, End: c.At.Add(max(d, 0)), Tag: c.Tag, Outcome: attempt.Success}
		if d < 0 {
			r.Outcome = attempt.Broken
		}
		open = append(open, r)
	}
	var later []Call
	for more = feed.Next(&byItself); more || len(open) > 0 || len(later) > 0; {
		slices.SortStableFunc(open, func(a, b Record) int { return int(a.End - b.End) })
		slices.SortStableFunc(later, func(a, b Call) int { return int(a.At - b.At) })
		next, what := mono.Never, 0
		if more {
			next, what = byItself.At, 1
		}
		if len(later) > 0 && later[0].At < next {
			next, what = later[0].At, 2
		}
		if len(open) > 0 && open[0].End <= next {
			r := open[0]
			open = open[1:]
			var added []*Call
			feed.Ended(r.End, &r, func() *Call { added = append(added, &Call{}); return added[len(added)-1] })
			for _, c := range added {
				later = append(later, *c)
			}
			continue
		}
		if what == 1 {
			c := byItself
			byItself = Call{}
			come(&c)
			more = feed.Next(&byItself)
		} else {
			c := later[0]
			later = later[1:]
			come(&c)
		}
	}
	if err := feed.Close(); err != nil {
		t.Fatal(err)
	}
	return said
}

func TestSessions_CallsWaitForThoseBeforeThem(t *testing.T) {
	// Two subagents after the first call, and one call that needs both.
	agent := workload.Session{ID: "a", At: time.Second, Calls: []workload.Call{
		plainCall(0), plainCall(time.Second, 0), plainCall(2*time.Second, 0), plainCall(time.Second, 1, 2),
	}}
	var ended []SessionRecord
	c := SessionsConfig{Source: source(nil, agent), Routers: 1, Rate: 1, EngineBlockTokens: 16, Ended: func(r *SessionRecord) { ended = append(ended, *r) }}
	five := func(int) time.Duration { return 5 * time.Second }
	want := []string{"1s router 0", "7s router 0", "8s router 0", "14s router 0"}
	if have := play(t, c, five); !slices.Equal(have, want) {
		t.Errorf("calls came %v; want %v", have, want)
	}
	if len(ended) != 1 || ended[0].Calls != 4 || ended[0].End.Sub(ended[0].At) != 18*time.Second || ended[0].Failed {
		t.Errorf("sessions: %+v", ended)
	}

	// One of the subagents fails: the other goes on, and what needs both is not sent.
	ended = nil
	want = want[:3]
	second := func(n int) time.Duration {
		if n == 1 {
			return -1
		}
		return 5 * time.Second
	}
	if have := play(t, c, second); !slices.Equal(have, want) {
		t.Errorf("with one that fails calls came %v; want %v", have, want)
	}
	if len(ended) != 1 || !ended[0].Failed || ended[0].Calls != 3 || ended[0].Skipped != 1 {
		t.Errorf("sessions: %+v", ended)
	}

	c.Clock = Recorded
	want = []string{"1s router 0", "2s router 0", "2s router 0", "3s router 0"}
	if have := play(t, c, five); !slices.Equal(have, want) {
		t.Errorf("by the recorded clock calls came %v; want %v", have, want)
	}
}

// What does not wait for a call that failed is sent.
func TestSessions_OnlyDependantsAreSkipped(t *testing.T) {
	x := workload.Session{ID: "a", Calls: []workload.Call{
		plainCall(0), plainCall(time.Second, 0), plainCall(3*time.Second, 0), plainCall(time.Second, 1), plainCall(time.Second, 2),
	}}
	var ended []SessionRecord
	c := SessionsConfig{Source: source(nil, x), Routers: 1, Rate: 1, EngineBlockTokens: 16, Ended: func(r *SessionRecord) { ended = append(ended, *r) }}
	have := play(t, c, func(n int) time.Duration {
		if n == 1 {
			return -1
		}
		return time.Second
	})
	want := []string{"0s router 0", "2s router 0", "4s router 0", "6s router 0"}
	if !slices.Equal(have, want) || len(ended) != 1 || ended[0].Skipped != 1 {
		t.Errorf("calls came %v; want %v; %+v", have, want, ended)
	}
}

// Many calls of one instant, many of one session: neither takes time that grows with its
// square. A test cannot measure time, but it would not come back.
func TestSessions_ManyAtOnce(t *testing.T) {
	const many = 300_000
	crowd := workload.Source{BlockTokens: 64, Sessions: func(yield func(workload.Session, error) bool) {
		for range many {
			if !yield(workload.Session{ID: "x", Calls: []workload.Call{plainCall(0)}}, nil) {
				return
			}
		}
	}}
	chain := workload.Session{ID: "chain"}
	for i := range many {
		c := plainCall(0)
		c.Offset = time.Duration(i)
		if i > 0 {
			c.After = []int{i - 1}
		}
		chain.Calls = append(chain.Calls, c)
	}
	for _, x := range []struct {
		source workload.Source
		clock  Clock
	}{{crowd, ClosedLoop}, {source(nil, chain), Recorded}, {source(nil, chain), ClosedLoop}} {
		feed, err := NewSessions(SessionsConfig{Source: x.source, Clock: x.clock, Routers: 1, Rate: 1, EngineBlockTokens: 16})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for c := (Call{}); feed.Next(&c); {
			for more := c; ; n++ {
				r := Record{Tag: more.Tag, Outcome: attempt.Success}
				var next *Call
				feed.Ended(more.At, &r, func() *Call { next = &Call{}; return next })
				if next == nil {
					n++
					break
				}
				more = *next
			}
		}
		if err := feed.Close(); err != nil || n != many {
			t.Errorf("%d calls, %v", n, err)
		}
	}
}

func TestSessions_RateMovesSessionsAndNotWhatIsWithinThem(t *testing.T) {
	c := SessionsConfig{Routers: 1, Rate: 2, EngineBlockTokens: 16, Source: source(nil,
		workload.Session{ID: "a", At: 0, Calls: []workload.Call{plainCall(0), plainCall(3*time.Second, 0)}},
		workload.Session{ID: "b", At: 4 * time.Second, Calls: []workload.Call{plainCall(0)}},
	)}
	want := []string{"0s router 0", "2s router 0", "4s router 0"}
	if have := play(t, c, func(int) time.Duration { return time.Second }); !slices.Equal(have, want) {
		t.Errorf("calls came %v; want %v", have, want)
	}
}

// Memory is bounded by the sessions in flight: one that has not come is not read, but for
// the next one.
func TestSessions_ReadsNoFurtherThanItMust(t *testing.T) {
	var all []workload.Session
	for i := range 1000 {
		all = append(all, workload.Session{ID: fmt.Sprint(i), At: time.Duration(i) * time.Second, Calls: []workload.Call{plainCall(0)}})
	}
	read := 0
	feed, err := NewSessions(SessionsConfig{Source: source(&read, all...), Routers: 3, Rate: 1, EngineBlockTokens: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	var c Call
	used := map[int]bool{}
	for n := range 500 {
		if !feed.Next(&c) {
			t.Fatal("no call")
		}
		used[c.Router] = true
		if read > n+2 {
			t.Fatalf("%d sessions were read for %d calls", read, n+1)
		}
	}
	if len(used) != 3 {
		t.Errorf("sessions went to the routers %v; want all three", used)
	}
}

func TestSessions_CallsOfOneInstantGetOneEach(t *testing.T) {
	var all []workload.Session
	for i := range 5 {
		all = append(all, workload.Session{ID: fmt.Sprint(i), At: time.Second, Calls: []workload.Call{plainCall(0), plainCall(0)}})
	}
	feed, err := NewSessions(SessionsConfig{Source: source(nil, all...), Routers: 1, Rate: 1, EngineBlockTokens: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	var c Call
	last := mono.Time(-1)
	n := 0
	for ; feed.Next(&c); n++ {
		if c.At <= last {
			t.Errorf("call %d comes at %v, the one before at %v", n, c.At, last)
		}
		last = c.At
	}
	if n != 10 {
		t.Errorf("%d calls; want 10", n)
	}
}

func TestSessions_RefusesDisorderAndPassesErrorsOn(t *testing.T) {
	late := source(nil, workload.Session{ID: "a", At: time.Second, Calls: []workload.Call{plainCall(0)}}, workload.Session{ID: "b"})
	broken := errors.New("file:7: broken")
	failing := workload.Source{Sessions: func(yield func(workload.Session, error) bool) { yield(workload.Session{}, broken) }}
	for _, x := range []struct {
		source workload.Source
		want   string
	}{{late, `session "b" comes at 0s`}, {failing, "file:7"}} {
		feed, err := NewSessions(SessionsConfig{Source: x.source, Routers: 1, Rate: 1, EngineBlockTokens: 16})
		if err != nil {
			t.Fatal(err)
		}
		var c Call
		for feed.Next(&c) {
		}
		if err := feed.Close(); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("error %v; want one with %q", err, x.want)
		}
	}
	for _, c := range []SessionsConfig{{Routers: 1}, {Rate: 1}} {
		if _, err := NewSessions(c); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}

// Two calls whose prompts share blocks in the trace share them for routers and engines, and
// a next turn finds what its predecessor answered.
func TestSessions_BlocksReachRoutersAndEngines(t *testing.T) {
	h := func(ids ...uint64) (out []kvblock.Hash) {
		var parent kvblock.Hash
		for _, id := range ids {
			parent = workload.Extend(parent, id)
			out = append(out, parent)
		}
		return out
	}
	chain := h(1, 2, 3, 4)
	first := workload.Call{PromptTokens: 130, OutputTokens: 126, Blocks: chain[:2], AnswerBlocks: chain[2:4]}
	second := workload.Call{PromptTokens: 300, OutputTokens: 5, Blocks: chain}
	feed, err := NewSessions(SessionsConfig{Routers: 1, Rate: 1, EngineBlockTokens: 32, Source: source(nil, workload.Session{ID: "a", Calls: []workload.Call{first}}, workload.Session{ID: "b", At: time.Second, Calls: []workload.Call{second}})})
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	var a, b Call
	if !feed.Next(&a) || !feed.Next(&b) {
		t.Fatal("no calls")
	}
	if len(a.Request.Blocks) != 2 || len(b.Request.Blocks) != 4 || !slices.Equal(a.Request.Blocks, b.Request.Blocks[:2]) {
		t.Errorf("a router sees %v and %v", a.Request.Blocks, b.Request.Blocks)
	}
	if len(a.Prompt.Blocks) != 4 || len(a.Prompt.AnswerBlocks) != 4 || !slices.Equal(slices.Concat(a.Prompt.Blocks, a.Prompt.AnswerBlocks), b.Prompt.Blocks) {
		t.Errorf("an engine sees %v, %v and %v", a.Prompt.Blocks, a.Prompt.AnswerBlocks, b.Prompt.Blocks)
	}
	if a.Request.Conversation != a.Request.Key || b.Request.Conversation != b.Request.Key {
		t.Error("a session is not a conversation")
	}
	if a.Request.Head == b.Request.Head || a.Request.Key == b.Request.Key {
		t.Error("different prompts of different sessions have one name")
	}
}
