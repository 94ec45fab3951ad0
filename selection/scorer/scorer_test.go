package scorer

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// newView returns a view of n idle endpoints that report nothing.
func newView(n int) *selection.View {
	v := &selection.View{
		Now: mono.Time(time.Hour), MaxAge: 10 * time.Second,
		Endpoints: make([]selection.Endpoint, n), Book: make([]selection.Book, n), Overlap: make([]int32, n),
	}
	for i := range n {
		v.Candidates = append(v.Candidates, selection.Slot(i))
	}
	return v
}

// tokens10 is a call of 650 tokens with ten blocks of 64.
func tokens10() *selection.Request {
	return &selection.Request{InputTokens: 650, BlockTokens: 64, Blocks: make([]kvblock.Hash, 10)}
}

// score returns what the scorer says of all candidates.
func score(s Scorer, v *selection.View, q *selection.Request) []float64 {
	out := make([]float64, len(v.Candidates))
	for i := range out {
		out[i] = math.NaN()
	}
	s.Score(v, q, v.Candidates, out)
	return out
}

func known(v *selection.View, values ...float64) []signal.Gauge {
	out := make([]signal.Gauge, len(values))
	for i, x := range values {
		out[i] = signal.Known(x, v.Now)
	}
	return out
}

func TestScorersOfReportsInNumbers(t *testing.T) {
	nan := math.NaN()
	for _, test := range []struct {
		name   string
		scorer Scorer
		set    func(l *signal.Load, g signal.Gauge)
		values []float64
		want   []float64
	}{
		{"queue", &Queue{}, func(l *signal.Load, g signal.Gauge) { l.Waiting = g }, []float64{2, 10, 4, 2}, []float64{1, 0, 0.75, 1}},
		{"queue of one call", &Queue{}, func(l *signal.Load, g signal.Gauge) { l.Waiting = g }, []float64{0, 1}, []float64{1, 0}},
		{"queue of equals", &Queue{}, func(l *signal.Load, g signal.Gauge) { l.Waiting = g }, []float64{500, 500}, []float64{1, 1}},
		{"queue with unknown", &Queue{}, func(l *signal.Load, g signal.Gauge) { l.Waiting = g }, []float64{2, nan, 10, 4, -1}, []float64{1, 0.75, 0, 0.75, 0.75}},
		{"queue of unknown", &Queue{}, func(l *signal.Load, g signal.Gauge) { l.Waiting = g }, []float64{nan, math.Inf(1)}, []float64{1, 1}},
		{"running", &RunningRequests{}, func(l *signal.Load, g signal.Gauge) { l.Running = g }, []float64{100, 50, 0}, []float64{0, 0.5, 1}},
		{"running with unknown", &RunningRequests{}, func(l *signal.Load, g signal.Gauge) { l.Running = g }, []float64{nan, 50, 0}, []float64{1, 0, 1}},
		{"running of unknown", &RunningRequests{}, func(l *signal.Load, g signal.Gauge) { l.Running = g }, []float64{nan, nan}, []float64{1, 1}},
		{"kv", &KVCacheUtilization{}, func(l *signal.Load, g signal.Gauge) { l.KVUsage = g }, []float64{0.25, 1, 0}, []float64{0.75, 0, 1}},
		{"kv with unknown", &KVCacheUtilization{}, func(l *signal.Load, g signal.Gauge) { l.KVUsage = g }, []float64{0.25, nan, 1, 0.5}, []float64{0.75, 0.5, 0, 0.5}},
		{"kv of unknown", &KVCacheUtilization{}, func(l *signal.Load, g signal.Gauge) { l.KVUsage = g }, []float64{nan, -1}, []float64{1, 1}},
	} {
		v := newView(len(test.values))
		for i, g := range known(v, test.values...) {
			test.set(&v.Endpoints[i].Load, g)
		}
		if got := score(test.scorer, v, nil); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	v := newView(3)
	for i, usage := range []float64{0.75, 0.125, 0.5} {
		v.Endpoints[i].Load.KVUsage = signal.Known(usage, v.Now)
	}
	v.Endpoints[1].Load.KVUsage.At = v.Now.Add(-v.MaxAge - 1)
	if got := score(&KVCacheUtilization{}, v, nil); !slices.Equal(got, []float64{0.25, 0.5, 0.5}) {
		t.Errorf("with a stale report: %v", got)
	}
	v.MaxAge = 0
	if got := score(&KVCacheUtilization{}, v, nil); got[1] != 0.875 {
		t.Errorf("where any age counts: %v", got)
	}
}

func TestPrefixCacheInNumbers(t *testing.T) {
	v, q := newView(3), tokens10()
	copy(v.Overlap, []int32{0, 5, 10})
	if got := score(&PrefixCache{}, v, q); !slices.Equal(got, []float64{0, 0.5, 1}) {
		t.Errorf("shares: %v", got)
	}
	// 320 of 8,192 tokens squared are 0.00152587890625, 640 are 0.006103515625.
	if got := score(&PrefixCache{MatchLengthWeight: 0.5}, v, q); !slices.Equal(got, []float64{0, 0.250762939453125, 0.5030517578125}) {
		t.Errorf("with lengths: %v", got)
	}
	q.BlockTokens = 4096
	if got := score(&PrefixCache{MatchLengthWeight: 1}, v, q); !slices.Equal(got, []float64{0, 1, 1}) {
		t.Errorf("of long matches: %v", got)
	}
	q.Blocks = make([]kvblock.Hash, 66) // 80 fine ones
	copy(v.Overlap, []int32{64, 65, 66})
	if got := score(&PrefixCache{}, v, q); !slices.Equal(got, []float64{0.8, 0.9, 1}) {
		t.Errorf("of coarse blocks: %v", got)
	}
	if got := score(&PrefixCache{}, v, &selection.Request{}); !slices.Equal(got, []float64{0, 0, 0}) {
		t.Errorf("of a prompt without blocks: %v", got)
	}
	v.Overlap = nil
	if got := score(&PrefixCache{}, v, q); !slices.Equal(got, []float64{0, 0, 0}) {
		t.Errorf("without an index: %v", got)
	}
}

func TestActiveRequestInNumbers(t *testing.T) {
	v := newView(4)
	for i, calls := range []int32{0, 2, 5, 8} {
		v.Book[i].Outstanding = calls
	}
	for _, test := range []struct {
		scorer ActiveRequest
		want   []float64
	}{
		{ActiveRequest{0, 1}, []float64{1, 0.75, 0.375, 0}},
		{ActiveRequest{2, 1}, []float64{1, 1, 0.375, 0}},
		{ActiveRequest{0, 0.5}, []float64{1, 0.375, 0.1875, 0}},
	} {
		if got := score(&test.scorer, v, nil); !slices.Equal(got, test.want) {
			t.Errorf("%+v: %v, want %v", test.scorer, got, test.want)
		}
	}
}

func TestTokenLoadInNumbers(t *testing.T) {
	v, q := newView(3), tokens10()
	v.Overlap[0] = 10
	v.Book[0].PendingWork.Tokens, v.Book[1].PendingWork.Tokens, v.Book[2].PendingWork.Tokens = 90, 100, 400
	if got := score(&TokenLoad{1000}, v, q); !slices.Equal(got, []float64{0.9, 0.25, 0}) {
		t.Errorf("%v", got)
	}
}

func TestNoHitLRU(t *testing.T) {
	v, q := newView(5), tokens10()
	var s NoHitLRU
	see := func(what string, want ...float64) {
		t.Helper()
		if got := score(&s, v, q); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	see("at first", 1, 1, 1, 1, 1)
	s.Picked(v, q, 3)
	see("3 had one", 1, 1, 1, 0, 1)
	s.Picked(v, q, 0)
	see("then 0", 0, 1, 1, 0.25, 1)
	s.Picked(v, q, 3)
	see("3 again", 0.25, 1, 1, 0, 1)
	v.Overlap[2] = 1
	see("a hit", 0.5, 0.5, 0.5, 0.5, 0.5)
	s.Picked(v, q, 4)
	v.Overlap[2] = 0
	see("which is none for 4", 0.25, 1, 1, 0, 1)
	v.Candidates = []selection.Slot{0, 3}
	see("of two", 1, 0)
	v.Candidates = []selection.Slot{3}
	see("of one", 1)
	v.Candidates = []selection.Slot{0, 1, 2, 3, 4}
	s.Forget(3)
	see("without 3", 0, 1, 1, 1, 1)
	s.Forget(0)
	s.Forget(0)
	see("without all", 1, 1, 1, 1, 1)
}

// TestNoHitLRUIsASortByTime compares with the instants of the last cold call.
func TestNoHitLRUIsASortByTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "endpoints")
		v, q := newView(n), tokens10()
		var s NoHitLRU
		last := make([]int, n) // 0: never
		for now := range rapid.IntRange(1, 40).Draw(t, "events") {
			slot := selection.Slot(rapid.IntRange(0, n-1).Draw(t, "slot"))
			if rapid.IntRange(0, 4).Draw(t, "forget") == 0 {
				s.Forget(slot)
				last[slot] = 0
			} else {
				score(&s, v, q)
				s.Picked(v, q, slot)
				last[slot] = now + 1
			}
			for i, got := range score(&s, v, q) {
				rank := 0
				for j := range last {
					if last[i] > 0 && last[j] < last[i] {
						rank++
					}
				}
				if want := 1 - float64(rank)/float64(max(n-1, 1)); got != want {
					t.Fatalf("slot %d of %v scores %v, want %v", i, last, got, want)
				}
			}
		}
	})
}

// TestLoRAAffinityInNumbers has llm-d's four classes, at engines with four slots.
func TestLoRAAffinityInNumbers(t *testing.T) {
	a, b, c, d, e := signal.Adapter("a"), signal.Adapter("b"), signal.Adapter("c"), signal.Adapter("d"), signal.Adapter("e")
	type set = []kvblock.Hash
	v := newView(8)
	for slot, x := range []struct {
		running, waiting set
		age              time.Duration
	}{
		{set{a, b, c, d}, nil, 0},                // runs there
		{set{b, c}, set{d}, 0},                   // a slot is left
		{set{b, c}, set{d, e}, 0},                // no slot is left: those that wait count
		{set{b, c, d, e}, set{a}, 0},             // calls wait for it
		{set{b, c}, set{a}, 0},                   // a slot is left, and calls wait for it
		{set{b, c, d, e}, nil, 0},                // neither
		{set{a}, nil, 11 * time.Second},          // too old to count
		{set{a, b, c, d}, nil, 10 * time.Second}, // just not
	} {
		v.Endpoints[slot].Load.Adapters = signal.AdaptersOf(4, x.running, x.waiting, v.Now.Add(-x.age))
	}
	if got, want := score(&LoRAAffinity{}, v, &selection.Request{Adapter: a}), []float64{1, 0.8, 0, 0.6, 0.8, 0, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := score(&LoRAAffinity{}, v, &selection.Request{}), []float64{0, 0.8, 0, 0, 0.8, 0, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("a call of the base model: %v, want %v", got, want)
	}
	if got := score(&LoRAAffinity{}, newView(2), &selection.Request{Adapter: a}); !slices.Equal(got, []float64{0, 0}) {
		t.Errorf("without reports: %v", got)
	}
}

func TestSessionAffinity(t *testing.T) {
	t.Run("by header", func(t *testing.T) {
		testSessionAffinity(t, true, func(key kvblock.Hash) *selection.Request { return &selection.Request{Key: key, Conversation: 7} })
	})
	t.Run("by conversation", func(t *testing.T) {
		testSessionAffinity(t, false, func(key kvblock.Hash) *selection.Request { return &selection.Request{Key: 7, Conversation: key} })
	})
}

func testSessionAffinity(t *testing.T, header bool, session func(kvblock.Hash) *selection.Request) {
	v := newView(3)
	s := SessionAffinity{TTL: time.Minute, Header: header}
	see := func(what string, key kvblock.Hash, want ...float64) {
		t.Helper()
		if got := score(&s, v, session(key)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	see("a new one", 1, 0, 0, 0)
	s.Picked(v, session(1), 2)
	s.Picked(v, session(2), 0)
	s.Picked(v, session(0), 1)
	see("the first", 1, 0, 0, 1)
	see("the second", 2, 1, 0, 0)
	see("none", 0, 0, 0, 0)
	s.Picked(v, session(1), 1)
	see("it moved", 1, 0, 1, 0)
	v.Now = v.Now.Add(time.Minute)
	see("in time", 1, 0, 1, 0)
	s.Picked(v, session(2), 0)
	v.Now = v.Now.Add(1)
	see("too late", 1, 0, 0, 0)
	s.Picked(v, session(3), 0) // what is too old is dropped
	see("renewed", 2, 1, 0, 0)
	s.Forget(0)
	see("forgotten", 2, 0, 0, 0)
	see("likewise", 3, 0, 0, 0)
	s.Picked(v, session(2), 0)
	see("anew", 2, 1, 0, 0)
	v.Candidates = []selection.Slot{1, 2}
	see("not there", 2, 0, 0)
}

// TestSessionAffinityIsBounded: what it remembers doesn't grow with the sessions, and the
// newest are remembered.
func TestSessionAffinityIsBounded(t *testing.T) {
	v := newView(2)
	s := SessionAffinity{TTL: time.Hour}
	const sessions = 3 * maxSessions
	for key := range sessions {
		s.Picked(v, &selection.Request{Conversation: kvblock.Hash(key + 1)}, 1)
	}
	if n := len(s.recent) + len(s.former); n > 2*maxSessions {
		t.Errorf("%d sessions are remembered", n)
	}
	for key := sessions - maxSessions; key < sessions; key++ {
		if got := score(&s, v, &selection.Request{Conversation: kvblock.Hash(key + 1)}); got[1] != 1 {
			t.Fatalf("the session %d from the end is forgotten", sessions-key)
		}
	}
}

func TestPrefixCacheAffinityKeeps(t *testing.T) {
	f := PrefixCacheAffinity{Threshold: 0.8, MaxTTFTPenalty: time.Second, PeakPrefillThroughput: 1000}
	for _, test := range []struct {
		name    string
		overlap []int32
		pending []int64
		left    []selection.Slot
		want    []selection.Slot
		verdict Verdict
	}{
		{"the warm", []int32{8, 7, 10, 0}, []int64{0, 0, 0, 0}, []selection.Slot{0, 1, 2, 3}, []selection.Slot{0, 2}, Warm},
		{"of those left", []int32{8, 7, 10, 0}, []int64{0, 0, 0, 0}, []selection.Slot{1, 2}, []selection.Slot{2}, Warm},
		{"nobody is", []int32{7, 7, 7, 0}, []int64{0, 0, 0, 0}, []selection.Slot{0, 1, 3}, []selection.Slot{0, 1, 3}, Cold},
		{"a second behind", []int32{8, 0, 0, 0}, []int64{1500, 500, 0, 0}, []selection.Slot{0, 1}, []selection.Slot{0}, Warm},
		{"and more", []int32{8, 0, 0, 0}, []int64{1501, 500, 0, 0}, []selection.Slot{0, 1}, []selection.Slot{0, 1}, Saturated},
	} {
		v := newView(4)
		copy(v.Overlap, test.overlap)
		for i, tokens := range test.pending {
			v.Book[i].PendingWork.Tokens = tokens
		}
		var r seed.Rand
		if _, verdict := f.Judge(v, tokens10(), test.left, &r); verdict != test.verdict {
			t.Errorf("%s: verdict %d, want %d", test.name, verdict, test.verdict)
		}
		if got := f.Keep(v, tokens10(), slices.Clone(test.left), &r); !slices.Equal(got, test.want) {
			t.Errorf("%s: kept %v, want %v", test.name, got, test.want)
		}
	}
}

func TestUtilizationKeeps(t *testing.T) {
	v := newView(4)
	for i, g := range known(v, 5, 10, 20, math.NaN()) {
		v.Endpoints[i].Load.Running = g
	}
	for i, g := range known(v, 0, 3, 1, 2) {
		v.Endpoints[i].Load.Waiting = g
	}
	for i, g := range known(v, 0.9, 0.5, 0.7, 0.2) {
		v.Endpoints[i].Load.KVUsage = g
	}
	for i, calls := range []int32{1, 2, 3, 4} {
		v.Book[i].Outstanding = calls
	}
	for _, test := range []struct {
		name   string
		filter Utilization
		want   []selection.Slot
	}{
		{"nothing is bounded", Utilization{}, []selection.Slot{0, 1, 2, 3}},
		{"calls", Utilization{MaxActive: 2}, []selection.Slot{0, 1}},
		{"running, where 3 counts as 10", Utilization{MaxRunning: 10}, []selection.Slot{0, 1, 3}},
		{"running, where 3 counts as 10 still", Utilization{MaxRunning: 9}, []selection.Slot{0}},
		{"waiting", Utilization{MaxWaiting: 1}, []selection.Slot{0, 2}},
		{"kv", Utilization{MaxKVUsage: 0.5}, []selection.Slot{1, 3}},
		{"all", Utilization{MaxActive: 3, MaxWaiting: 2, MaxKVUsage: 0.8}, []selection.Slot{2}},
		{"nobody is left", Utilization{MaxActive: 1, MaxKVUsage: 0.5}, []selection.Slot{0, 1, 2, 3}},
	} {
		if got := test.filter.Keep(v, nil, slices.Clone(v.Candidates), nil); !slices.Equal(got, test.want) {
			t.Errorf("%s: kept %v, want %v", test.name, got, test.want)
		}
	}
}

// TestEnoughBlocks compares with a look at every number of blocks.
func TestEnoughBlocks(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 10, 63, 64, 65, 66, 100, 300} {
		for step := 1; step <= 100; step++ {
			share := float64(step) / 100
			want := int32(1)
			for span(int(want))/span(n) < share {
				want++
			}
			if got := enoughBlocks(share, n); got != want {
				t.Fatalf("%v of %d blocks: %d, want %d", share, n, got, want)
			}
		}
		if enoughBlocks(0, n) <= int32(n) {
			t.Errorf("a share of 0 of %d blocks can be had", n)
		}
	}
	if enoughBlocks(0.5, 0) == 0 {
		t.Error("everybody holds a prompt without blocks")
	}
}
