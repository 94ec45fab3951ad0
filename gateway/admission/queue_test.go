package admission

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/internal/mono"
)

// TestQueue_AgainstAList compares every answer with that of a list that is sorted anew.
func TestQueue_AgainstAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := New(Config{})
		var list []Waiter // who has waited longest first
		first := func(passed int, open bool) (Waiter, bool) {
			sorted := slices.Clone(list)
			slices.SortFunc(sorted, func(a, b Waiter) int { return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.ID, b.ID)) })
			for _, w := range sorted {
				if w.Tied {
					if passed > 0 {
						passed--
						continue
					}
					return w, true
				}
				if open {
					return w, true
				}
			}
			return Waiter{}, false
		}
		remove := func(call int32) {
			at := slices.IndexFunc(list, func(w Waiter) bool { return w.Call == call })
			got, ok := q.Remove(call)
			if ok != (at >= 0) {
				t.Fatalf("Remove(%d) reports %v", call, ok)
			}
			if ok {
				if got != list[at] {
					t.Fatalf("Remove(%d) returns %+v, want %+v", call, got, list[at])
				}
				list = slices.Delete(list, at, at+1)
			}
		}
		now := mono.Time(0)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				now += mono.Time(rapid.IntRange(0, 3).Draw(t, "later"))
				call := int32(rapid.IntRange(0, 40).Draw(t, "call"))
				if slices.ContainsFunc(list, func(w Waiter) bool { return w.Call == call }) {
					t.Skip("it waits already")
				}
				w := Waiter{
					Call: call, ID: uint64(call)*7%41 + 1, Since: now - mono.Time(rapid.SampledFrom([]int{0, 0, 0, 7}).Draw(t, "waited before")),
					Rank:  int64(rapid.IntRange(-5, 5).Draw(t, "rank")),
					Bytes: int64(rapid.IntRange(0, 9).Draw(t, "bytes")), Tokens: int64(rapid.IntRange(0, 9).Draw(t, "tokens")),
					Tied: rapid.IntRange(0, 3).Draw(t, "tied") == 0,
				}
				q.Push(w)
				at := len(list)
				for at > 0 && list[at-1].Since > w.Since {
					at--
				}
				list = slices.Insert(list, at, w)
			},
			"remove": func(t *rapid.T) { remove(int32(rapid.IntRange(0, 45).Draw(t, "call"))) },
			"go": func(t *rapid.T) {
				if w, ok := q.Next(0, true); ok {
					remove(w.Call)
				}
			},
			"": func(t *rapid.T) {
				bytes, tokens := int64(0), int64(0)
				for _, w := range list {
					bytes += w.Bytes
					tokens += w.Tokens
				}
				if q.Len() != len(list) || q.Bytes() != bytes || q.Tokens() != tokens {
					t.Fatalf("%d calls, %d bytes, %d tokens; want %d, %d, %d", q.Len(), q.Bytes(), q.Tokens(), len(list), bytes, tokens)
				}
				for passed := range 4 {
					for _, open := range []bool{true, false} {
						got, ok := q.Next(passed, open)
						want, has := first(passed, open)
						if got != want || ok != has {
							t.Fatalf("Next(%d, %v) is %+v, want %+v", passed, open, got, want)
						}
					}
				}
				if got, ok := q.Oldest(); ok != (len(list) > 0) || ok && got != list[0] {
					t.Fatalf("oldest is %+v of %+v", got, list)
				}
			},
		})
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
	c := Config{Work: 1, Length: 3, Bytes: 100, MaxWait: 2 * time.Second}
	for _, x := range []struct {
		name        string
		calls       int
		bytes, more int64
		tokens      int64
		rate        float64
		want        Bound
		wait        time.Duration
	}{
		{"empty", 0, 0, 100, 0, 10, Within, 0},
		{"at the length less one", 2, 1, 1, 1, 10, Within, 200 * time.Millisecond},
		{"at the length", 3, 1, 1, 1, 10, LengthMost, 300 * time.Millisecond},
		{"at the bytes", 2, 40, 20, 1, 10, Within, 200 * time.Millisecond},
		{"over the bytes", 2, 40, 21, 1, 10, BytesMost, 200 * time.Millisecond},
		{"at the wait", 2, 1, 1, 10, 10, Within, 2 * time.Second},
		{"over the wait", 2, 1, 1, 11, 10, WaitMost, 2200 * time.Millisecond},
		{"a wait that is not known", 2, 1, 1, 1 << 40, 0, Within, 0},
		{"a wait beyond all measure", 2, 1, 1, 1 << 60, 1e-300, WaitMost, 24 * time.Hour},
	} {
		q := New(c)
		for i := range x.calls {
			q.Push(Waiter{Call: int32(i), Bytes: x.bytes, Tokens: x.tokens})
		}
		if got, wait := q.Refuses(x.more, x.rate); got != x.want || wait != x.wait {
			t.Errorf("%s: %v after %v, want %v after %v", x.name, got, wait, x.want, x.wait)
		}
	}
}

func TestSpeed(t *testing.T) {
	var s Speed
	if d, ok := s.Time(100); ok {
		t.Errorf("100 tokens take %v at a speed that is not known", d)
	}
	s.Learn(5, 0)
	if d, ok := s.Time(100); ok {
		t.Errorf("100 tokens take %v where 5 took no time", d)
	}
	s = Speed{}
	s.Learn(1000, time.Second)
	if d, ok := s.Time(500); !ok || d != 500*time.Millisecond {
		t.Errorf("500 tokens take %v (%v), want 500ms", d, ok)
	}
	for range 1000 {
		s.Learn(4000, time.Second)
	}
	if d, _ := s.Time(4000); d < 999*time.Millisecond || d > 1001*time.Millisecond {
		t.Errorf("4000 tokens take %v, long after a slower time; want 1s", d)
	}
	if d, _ := s.Time(1 << 62); d != 24*time.Hour {
		t.Errorf("2^62 tokens take %v, want a day", d)
	}
}

func TestParseOrder(t *testing.T) {
	for _, o := range []Order{FIFO, LeastSlack} {
		if got, err := ParseOrder(o.String()); got != o || err != nil {
			t.Errorf("%v: got %v, %v", o, got, err)
		}
	}
	if _, err := ParseOrder("lifo"); err == nil {
		t.Error("lifo is an order")
	}
}

// BenchmarkQueue is one call that comes and one that goes while so many wait.
func BenchmarkQueue(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			q := New(Config{})
			push := func(i int, call int32) {
				q.Push(Waiter{Call: call, ID: uint64(i), Rank: int64(uint32(i) * 2654435761), Since: mono.Time(i), Bytes: 1, Tokens: 1})
			}
			for i := range n {
				push(i, int32(i))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				w, _ := q.Next(0, true)
				q.Remove(w.Call)
				push(n+i, w.Call)
			}
		})
	}
}

func TestQueue_DoesNotAllocate(t *testing.T) {
	q := New(Config{})
	i := 0
	turn := func() {
		if q.Len() > 50 {
			w, _ := q.Next(0, true)
			q.Remove(w.Call)
		}
		q.Remove(int32(i % 100))
		q.Push(Waiter{Call: int32(i % 100), ID: uint64(i), Rank: int64(i * 37 % 100), Since: mono.Time(i), Tied: i%10 == 0})
		q.Remove(int32((i + 41) % 100))
		i++
	}
	for range 1000 {
		turn()
	}
	if n := testing.AllocsPerRun(1000, turn); n > 0 {
		t.Errorf("%v allocations a turn", n)
	}
}
