package discovery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestF75_UnderChurn_NothingGrows lets a name and an operator add and remove 20 endpoints
// a second each, for ten minutes: what the Set holds at the end is what is there, and the
// heap is what it was.
func TestF75_UnderChurn_NothingGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		const each = 100 * time.Millisecond
		dns, err := NewDNS(DNS{URL: "http://engines:8000", Interval: each, Resolver: fake{ip: func(context.Context, string, string) ([]netip.Addr, error) {
			n := time.Since(start) / each
			return []netip.Addr{
				netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}),
				netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}),
			}, nil
		}}})
		if err != nil {
			t.Fatal(err)
		}
		set := new(Set)
		ctx, cancel := context.WithCancel(t.Context())
		var changes atomic.Int64
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = set.Run(ctx, []Source{dns}, func([]Entry) { changes.Add(1) }, nil)
		})
		churn := func(from, to int) {
			for i := from; i < to; i++ {
				time.Sleep(each / 2)
				name := fmt.Sprintf("x-%d", i)
				add(t, set, Endpoint{URL: fmt.Sprintf("http://10.9.%d.%d", i/256%256, i%256), Name: name}, "")
				set.Drain(name, true)
				if i >= 10 {
					set.Remove(fmt.Sprintf("x-%d", i-10))
				}
				if listed := set.Entries(); i%7 == 0 && listed[0].Origin.Kind == KindDNS {
					set.Drain(listed[0].Name, true)
					set.Remove(listed[1].Name)
				}
			}
		}
		churn(0, 1000)
		before, goroutines := heap(), runtime.NumGoroutine()
		churn(1000, 12000)
		after := heap()
		if after > before+256<<10 {
			t.Errorf("heap: %d KiB, then %d KiB", before>>10, after>>10)
		}
		if n := runtime.NumGoroutine(); n > goroutines+5 {
			t.Errorf("%d goroutines, then %d", goroutines, n)
		}
		time.Sleep(time.Second)
		cancel()
		wg.Wait()
		if len(set.added) != 10 || len(set.removed) > 2 || len(set.drained) > 12 || len(set.lists) != 1 {
			t.Errorf("%d added, %d removed, %d drained, %d lists", len(set.added), len(set.removed), len(set.drained), len(set.lists))
		}
		if changes.Load() < 12000 {
			t.Errorf("%d changes were told", changes.Load())
		}
	})
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestF75_WhenRunAgainAndAgain_NothingIsLeft is a reload twenty times a second, each with
// other sources.
func TestF75_WhenRunAgainAndAgain_NothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := new(Set)
		for i := range 2000 {
			source := newListed(KindFile, fmt.Sprint(i))
			r := runSet(t, set, source, fixed(t))
			if i%2 == 0 {
				source.say(t, fmt.Sprintf("http://x:%d", i+1))
			}
			time.Sleep(50 * time.Millisecond)
			r.stop()
			if i%2 == 0 && len(set.lists) != 2 || len(set.lists) > 5 {
				t.Fatalf("run %d: %d lists", i, len(set.lists))
			}
		}
	})
}

// TestF36_UnderChurn_TheListenerHasTheTruth checks that whoever only follows onChange
// ends where the Set is, whatever came in whichever order, and was never told of an
// endpoint that is removed, or twice of one.
func TestF36_UnderChurn_TheListenerHasTheTruth(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			set := new(Set)
			sources := []*listed{newListed(KindDNS, "a"), newListed(KindFile, "b")}
			r := runSet(t, set, sources[0], sources[1])
			url := func() string { return fmt.Sprintf("http://x:%d", 1+rnd.IntN(6)) }
			for range 300 {
				name := fmt.Sprintf("x:%d", 1+rnd.IntN(6))
				switch rnd.IntN(6) {
				case 0, 1:
					urls := []string{url(), url(), url()}
					slices.Sort(urls)
					sources[rnd.IntN(2)].says <- told{endpoints: endpoints(t, slices.Compact(urls)...)}
				case 2:
					if err := set.Add(Endpoint{URL: url(), Weight: float64(rnd.IntN(2))}); err != nil {
						t.Error(err)
					}
				case 3:
					set.Drain(name, rnd.IntN(2) == 0)
				case 4:
					// What sources said before may be under way, and one list without the
					// name, then one with it, would rightly bring it back.
					synctest.Wait()
					if set.Remove(name); slices.ContainsFunc(set.Entries(), func(e Entry) bool { return e.Name == name }) {
						t.Errorf("%s is there after Remove", name)
					}
				case 5:
					synctest.Wait()
				}
			}
			synctest.Wait()
			if last := r.changes[len(r.changes)-1]; !slices.Equal(last, set.Entries()) {
				t.Errorf("seed %d: told %q, is %q", seed, show(last), show(set.Entries()))
			}
			for i, c := range r.changes {
				names := map[string]bool{}
				for _, e := range c {
					if names[e.Name] {
						t.Errorf("seed %d: %q has one twice", seed, show(c))
					}
					names[e.Name] = true
				}
				if i > 0 && slices.Equal(c, r.changes[i-1]) {
					t.Errorf("seed %d: %q was told twice", seed, show(c))
				}
			}
			r.stop()
		})
	}
}

func BenchmarkSet_Merge(b *testing.B) {
	b.ReportAllocs()
	var urls []string
	for i := range Most {
		urls = append(urls, fmt.Sprintf("http://10.0.%d.%d:8000", i/256, i%256))
	}
	source, err := NewStatic(endpoints(b, urls...))
	if err != nil {
		b.Fatal(err)
	}
	set := new(Set)
	set.lists = []*list{{endpoints: source.(static)}}
	for b.Loop() {
		_ = set.Entries()
	}
}
