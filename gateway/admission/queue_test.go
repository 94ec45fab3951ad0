package admission

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
)

// listed is a queue as a list that is searched anew for every answer.
type listed struct {
	cfg    Config
	list   []Waiter // who has waited longest first
	passed map[int32]int
	since  int
	lowest int32
}

// bands returns the bands that wait and may go, the highest first.
func (l *listed) bands() []int32 {
	var all []int32
	for b := int32(MaxPriority); b >= l.lowest; b-- {
		if slices.ContainsFunc(l.list, func(w Waiter) bool { return Band(w.Priority) == b }) {
			all = append(all, b)
		}
	}
	return all
}

// due returns the one below the highest that was passed over most.
func (l *listed) due() (int32, bool) {
	top := int32(MinPriority)
	for _, w := range l.list {
		top = max(top, Band(w.Priority))
	}
	best, found := int32(0), false
	for _, b := range l.bands() {
		if b != top && (!found || l.passed[b] > l.passed[best]) {
			best, found = b, true
		}
	}
	return best, found
}

func (l *listed) next(passed int, open bool) (Waiter, bool) {
	bands := l.bands()
	if due, ok := l.due(); ok && l.cfg.Turn > 0 && l.since >= l.cfg.Turn-1 {
		bands = slices.DeleteFunc(bands, func(b int32) bool { return b == due })
		bands = slices.Insert(bands, 0, due)
	}
	sorted := slices.Clone(l.list)
	slices.SortFunc(sorted, func(a, b Waiter) int { return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.ID, b.ID)) })
	for _, b := range bands {
		for _, w := range sorted {
			switch {
			case Band(w.Priority) != b:
			case w.Tied && passed > 0:
				passed--
			case w.Tied || open:
				return w, true
			}
		}
	}
	return Waiter{}, false
}

func (l *listed) departs(w Waiter) {
	if due, ok := l.due(); !ok || due == Band(w.Priority) {
		l.since = 0
	} else {
		l.since++
	}
	for _, b := range l.waiting() {
		l.passed[b]++
	}
	l.passed[Band(w.Priority)] = 0
}

func (l *listed) waiting() []int32 {
	var all []int32
	for _, w := range l.list {
		if !slices.Contains(all, Band(w.Priority)) {
			all = append(all, Band(w.Priority))
		}
	}
	return all
}

// below returns who waits with less than the priority.
func (l *listed) below(priority int32) (below []Waiter) {
	for _, w := range l.list {
		if Band(w.Priority) < Band(priority) {
			below = append(below, w)
		}
	}
	return below
}

// least returns the newest of the lowest band below the priority.
func (l *listed) least(priority int32) (Waiter, bool) {
	best, found := Waiter{}, false
	for _, w := range l.below(priority) {
		if !found || Band(w.Priority) < Band(best.Priority) || Band(w.Priority) == Band(best.Priority) {
			best, found = w, true
		}
	}
	return best, found
}

// TestQueue_AgainstAList compares every answer with that of a list that is searched anew.
func TestQueue_AgainstAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{Turn: rapid.IntRange(0, 4).Draw(t, "turn"), Length: 8, Bytes: 30, MaxWait: time.Hour}
		q := New(cfg)
		l := &listed{cfg: cfg, passed: map[int32]int{}, lowest: MinPriority}
		remove := func(call int32, goes bool) {
			at := slices.IndexFunc(l.list, func(w Waiter) bool { return w.Call == call })
			if goes {
				l.departs(l.list[at])
				q.Depart(call)
			} else if got, ok := q.Remove(call); ok != (at >= 0) || ok && got != l.list[at] {
				t.Fatalf("Remove(%d) returns %+v, %v", call, got, ok)
			}
			if at >= 0 {
				l.list = slices.Delete(l.list, at, at+1)
			}
		}
		now := mono.Time(0)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				now += mono.Time(rapid.IntRange(0, 3).Draw(t, "later"))
				call := int32(rapid.IntRange(0, 40).Draw(t, "call"))
				if slices.ContainsFunc(l.list, func(w Waiter) bool { return w.Call == call }) {
					t.Skip("it waits already")
				}
				w := Waiter{
					Call: call, ID: uint64(call)*7%41 + 1, Since: now - mono.Time(rapid.SampledFrom([]int{0, 0, 0, 7}).Draw(t, "waited before")),
					Rank:  int64(rapid.IntRange(-5, 5).Draw(t, "rank")),
					Bytes: int64(rapid.IntRange(0, 9).Draw(t, "bytes")), Tokens: int64(rapid.IntRange(0, 9).Draw(t, "tokens")),
					Tied: rapid.IntRange(0, 3).Draw(t, "tied") == 0, Priority: int32(rapid.SampledFrom([]int{0, 0, 1, 3, -1, 7, 8, 900}).Draw(t, "priority")),
					Until: mono.Time(rapid.SampledFrom([]int{0, 0, 5, 9, 12}).Draw(t, "until")),
				}
				if !slices.Contains(l.waiting(), Band(w.Priority)) {
					l.passed[Band(w.Priority)] = 0
				}
				q.Push(w)
				at := len(l.list)
				for at > 0 && l.list[at-1].Since > w.Since {
					at--
				}
				l.list = slices.Insert(l.list, at, w)
			},
			"remove": func(t *rapid.T) { remove(int32(rapid.IntRange(0, 45).Draw(t, "call")), false) },
			"go": func(t *rapid.T) {
				if w, ok := q.Next(rapid.IntRange(0, 2).Draw(t, "passed"), rapid.Bool().Draw(t, "open")); ok {
					remove(w.Call, true)
				}
			},
			"release": func(t *rapid.T) {
				l.lowest = int32(rapid.SampledFrom([]int{MinPriority, 0}).Draw(t, "from"))
				q.Release(l.lowest)
			},
			"give way": func(t *rapid.T) {
				priority, bytes := int32(rapid.IntRange(-2, 9).Draw(t, "priority")), int64(rapid.IntRange(0, 30).Draw(t, "bytes"))
				calls, held := len(l.list), q.Bytes()
				for _, w := range l.below(priority) {
					calls--
					held -= w.Bytes
				}
				want := Within
				if calls >= cfg.Length {
					want = LengthMost
				} else if held+bytes > cfg.Bytes {
					want = BytesMost
				}
				if got, _ := q.Refuses(Asking{Priority: priority, Bytes: bytes}); got != want {
					t.Fatalf("a call of priority %d and %d bytes: bound %v, want %v", priority, bytes, got, want)
				}
				if want != Within {
					return
				}
				asking := Asking{Priority: priority, Bytes: bytes}
				n, size, last := q.Len(), q.Bytes(), int64(0)
				for {
					call, ok := q.GivesWay(asking, n-q.Len(), size-q.Bytes())
					if !ok {
						break
					}
					if w, _ := l.least(priority); w.Call != call {
						t.Fatalf("call %d gives way, want %d", call, w.Call)
					}
					last = q.places[call].Bytes
					remove(call, false)
				}
				// Push takes every call, so there may be more than the bounds allow, as after a reload.
				if q.Len() >= cfg.Length && q.Len() == n || q.Bytes()+bytes > cfg.Bytes && size-q.Bytes() < bytes {
					t.Fatalf("there is no room: %d calls, %d bytes", q.Len(), q.Bytes())
				}
				if n-q.Len() > 1 && size-q.Bytes()-last >= bytes {
					t.Fatalf("%d calls of %d bytes leave for one of %d", n-q.Len(), size-q.Bytes(), bytes)
				}
			},
			"": func(t *rapid.T) {
				bytes, tokens := int64(0), int64(0)
				ending, ends := Waiter{}, false
				for _, w := range l.list {
					bytes += w.Bytes
					tokens += w.Tokens
					if w.Until > 0 && (!ends || cmp.Or(cmp.Compare(w.Until, ending.Until), cmp.Compare(w.ID, ending.ID)) < 0) {
						ending, ends = w, true
					}
				}
				if q.Len() != len(l.list) || q.Bytes() != bytes || q.Tokens() != tokens {
					t.Fatalf("%d calls, %d bytes, %d tokens; want %d, %d, %d", q.Len(), q.Bytes(), q.Tokens(), len(l.list), bytes, tokens)
				}
				for _, priority := range []int32{-8, 0, 3, 8} {
					before := tokens + CallTokens*int64(len(l.list))
					for _, w := range l.below(priority) {
						before -= w.Tokens + CallTokens
					}
					if got := q.Wait(Asking{Priority: priority, Rate: 1}); got != time.Duration(before)*time.Second {
						t.Fatalf("a call of priority %d waits %v for %d tokens", priority, got, before)
					}
				}
				for passed := range 4 {
					for _, open := range []bool{true, false} {
						got, ok := q.Next(passed, open)
						want, has := l.next(passed, open)
						if got != want || ok != has {
							t.Fatalf("Next(%d, %v) is %+v, want %+v", passed, open, got, want)
						}
					}
				}
				if got, ok := q.Oldest(); ok != (len(l.list) > 0) || ok && got.Since != l.list[0].Since {
					t.Fatalf("oldest is %+v of %+v", got, l.list)
				}
				if got, ok := q.Ending(); ok != ends || got != ending {
					t.Fatalf("%+v ends first, want %+v", got, ending)
				}
			},
		})
	})
}

// TestQueue_NobodyStarves: while some bands wait all the time, one call after the other, each
// goes within Turn·(bands−1) departures.
func TestQueue_NobodyStarves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		turn := rapid.IntRange(1, 9).Draw(t, "turn")
		bands := rapid.SliceOfNDistinct(rapid.Int32Range(MinPriority, MaxPriority), 2, 6, rapid.ID).Draw(t, "bands")
		q := New(Config{Turn: turn})
		since := map[int32]int{}
		push := func(call int, b int32) { q.Push(Waiter{Call: int32(call), ID: uint64(call), Priority: b}) }
		for i, b := range bands {
			push(i, b)
		}
		top := slices.Max(bands)
		highest := 0
		const departures = 500
		for range departures {
			w, ok := q.Next(0, true)
			if !ok {
				t.Fatal("nobody goes")
			}
			q.Depart(w.Call)
			for _, b := range bands {
				since[b]++
				if since[b] > turn*(len(bands)-1) && b != top {
					t.Fatalf("band %d of %v has not gone for %d departures, with a turn of %d", b, bands, since[b], turn)
				}
			}
			since[w.Priority] = 0
			if w.Priority == top {
				highest++
			}
			if rapid.IntRange(0, 9).Draw(t, "other") == 0 { // another band comes and goes, too
				if b := bands[rapid.IntRange(0, len(bands)-1).Draw(t, "band")]; b != w.Priority {
					push(100+int(b)+20, b)
					q.Remove(int32(100 + int(b) + 20))
				}
			}
			push(int(w.Call), w.Priority)
		}
		if want := departures * (turn - 1) / turn; highest < want-1 || turn > 1 && highest > want+turn {
			t.Fatalf("the highest band had %d of %d departures, with a turn of %d", highest, departures, turn)
		}
	})
}

// TestQueue_StaysInOrderAfterRemovals takes many calls out of the middle of a long queue.
func TestQueue_StaysInOrderAfterRemovals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := New(Config{})
		ranks := rapid.SliceOfN(rapid.Int64Range(0, 1000), 60, 120).Draw(t, "ranks")
		for i, r := range ranks {
			q.Push(Waiter{Call: int32(i), Rank: r, ID: uint64(i)})
		}
		for range rapid.IntRange(1, len(ranks)-1).Draw(t, "removals") {
			q.Remove(int32(rapid.IntRange(0, len(ranks)-1).Draw(t, "call")))
		}
		last := int64(-1)
		for n := q.Len(); n > 0; n-- {
			w, ok := q.Next(0, true)
			if !ok || w.Rank < last {
				t.Fatalf("rank %d (%v) goes after %d", w.Rank, ok, last)
			}
			last = w.Rank
			q.Remove(w.Call)
		}
	})
}

func TestQueue_RefusesPastEachBound(t *testing.T) {
	c := Config{Work: 1, Length: 3, Bytes: 100, MaxWait: 2 * time.Second, MaxWaitRatio: 4}
	for _, x := range []struct {
		name        string
		calls       int
		bytes, more int64
		tokens      int64
		rate        float64
		service     time.Duration
		want        Bound
		wait        time.Duration
	}{
		{"empty", 0, 0, 100, 0, 5130, 0, Within, 0},
		{"at the length less one", 2, 1, 1, 1, 5130, 0, Within, 200 * time.Millisecond},
		{"at the length", 3, 1, 1, 1, 5130, 0, LengthMost, 300 * time.Millisecond},
		{"at the bytes", 2, 40, 20, 1, 5130, 0, Within, 200 * time.Millisecond},
		{"over the bytes", 2, 40, 21, 1, 5130, 0, BytesMost, 200 * time.Millisecond},
		{"at the wait", 2, 1, 1, 4618, 5130, 0, Within, 2 * time.Second},
		{"over the wait", 2, 1, 1, 5131, 5130, 0, WaitMost, 2200 * time.Millisecond},
		{"a wait that is not known", 2, 1, 1, 1 << 40, 0, 0, Within, 0},
		{"a wait beyond all measure", 2, 1, 1, 1 << 60, 1e-300, 0, WaitMost, 24 * time.Hour},
		{"at the ratio", 2, 1, 1, 2053, 5130, 250 * time.Millisecond, Within, time.Second},
		{"over the ratio", 2, 1, 1, 2053, 5130, 249 * time.Millisecond, WaitMost, time.Second},
	} {
		q := New(c)
		for i := range x.calls {
			q.Push(Waiter{Call: int32(i), Bytes: x.bytes, Tokens: x.tokens})
		}
		if got, wait := q.Refuses(Asking{Bytes: x.more, Rate: x.rate, Service: x.service}); got != x.want || wait != x.wait {
			t.Errorf("%s: %v after %v, want %v after %v", x.name, got, wait, x.want, x.wait)
		}
	}
}

func TestSpeed(t *testing.T) {
	var s Speed
	if d, ok := s.Time(1, 100); ok {
		t.Errorf("100 tokens take %v at a speed that is not known", d)
	}
	s.Learn(5, 0)
	if d, ok := s.Time(1, 100); ok {
		t.Errorf("100 tokens take %v where 5 took no time", d)
	}
	s = Speed{}
	s.Learn(1000-CallTokens, time.Second)
	if d, ok := s.Time(0, 500); !ok || d != 500*time.Millisecond {
		t.Errorf("500 tokens take %v (%v), want 500ms", d, ok)
	}
	if d, _ := s.Time(3, 1000); d != 2536*time.Millisecond {
		t.Errorf("1000 tokens of 3 calls take %v, want 2.536s", d)
	}
	for range 1000 {
		s.Learn(4000, time.Second)
	}
	if d, _ := s.Time(1, 4000); d < 999*time.Millisecond || d > 1001*time.Millisecond {
		t.Errorf("4000 tokens take %v, long after a slower time; want 1s", d)
	}
	if d, _ := s.Time(1, 1<<62); d != 24*time.Hour {
		t.Errorf("2^62 tokens take %v, want a day", d)
	}
}

// TestSpeed_ShortPromptsSayLittleOfLongOnes: what 10 tokens take is a step's overhead for the most
// part, and not what a thousand times as many take a thousand times.
func TestSpeed_ShortPromptsSayLittleOfLongOnes(t *testing.T) {
	var s Speed
	for range 100 {
		s.Learn(10, 20*time.Millisecond)
	}
	if d, _ := s.Time(1, 10_000); d > time.Second {
		t.Errorf("10,000 tokens take %v", d)
	}
}

func TestParseOrder(t *testing.T) {
	for _, o := range []Order{FIFO, LeastSlack, Deadline, Fair, FairLocal} {
		if got, err := ParseOrder(o.String()); got != o || err != nil {
			t.Errorf("%v: got %v, %v", o, got, err)
		}
	}
	if _, err := ParseOrder("lifo"); err == nil {
		t.Error("lifo is an order")
	}
}

// BenchmarkQueue is one call that comes and one that goes while so many wait, of a thousand
// tenants in three bands that stay as long as they are. Ranks grow as time does, and who comes is ranked among all who wait. A
// call is charged when it goes and when it ends.
func BenchmarkQueue(b *testing.B) {
	for o := range Order(len(orderNames)) {
		for _, n := range []int{10, 1000, 10000} {
			b.Run(fmt.Sprintf("%v/%d", o, n), func(b *testing.B) {
				q := New(Config{Order: o, Turn: 8, Fairness: DefaultFairness()})
				q.Prefer(func(call int32) int64 { return int64(call) * 2654435761 % 8192 })
				push := func(i int, call, priority int32) {
					x := uint32(i) * 2654435761
					q.Push(Waiter{
						Call: call, ID: uint64(i), Rank: int64(i)<<12 + int64(x)%(int64(n)<<12), Since: mono.Time(i), Bytes: 1, Tokens: 1,
						Priority: priority, Principal: kvblock.Hash(1 + x>>12%1000),
					})
				}
				for i := range n {
					push(i, int32(i), int32(i%3)-1)
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					w, _ := q.Next(0, true)
					_, payer := q.Depart(w.Call)
					q.Charge(payer, float64(100+i%1000))
					push(n+i, w.Call, w.Priority)
					q.Charge(payer, float64(i%100))
					q.End(payer)
				}
			})
		}
	}
}

func TestQueue_DoesNotAllocate(t *testing.T) {
	for o := range Order(len(orderNames)) {
		doesNotAllocate(t, o)
	}
}

func doesNotAllocate(t *testing.T, o Order) {
	q := New(Config{Order: o, Turn: 3, Fairness: DefaultFairness()})
	q.Prefer(func(call int32) int64 { return int64(call) })
	i := 0
	turn := func() {
		if q.Len() > 50 {
			w, _ := q.Next(0, true)
			_, payer := q.Depart(w.Call)
			q.Charge(payer, float64(i%7))
			q.End(payer)
		}
		q.Remove(int32(i % 100))
		q.Push(Waiter{
			Call: int32(i % 100), ID: uint64(i), Rank: int64(i * 37 % 100), Since: mono.Time(i), Tied: i%10 == 0,
			Priority: int32(i % 5), Principal: kvblock.Hash(i % 13), Until: mono.Time(i % 3),
		})
		q.Remove(int32((i + 41) % 100))
		i++
	}
	for range 1000 {
		turn()
	}
	if n := testing.AllocsPerRun(1000, turn); n > 0 {
		t.Errorf("%v: %v allocations a turn", o, n)
	}
}
