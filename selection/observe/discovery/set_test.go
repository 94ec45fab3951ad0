package discovery

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// run is a Set that is being run in a bubble, and what it told.
type run struct {
	t    *testing.T
	set  *Set
	stop func() // ends Run and waits for it

	mu      sync.Mutex
	changes [][]Entry
	warned  []string // "origin: error"
}

func runSet(t *testing.T, set *Set, sources ...Source) *run {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &run{t: t, set: set}
	var wg sync.WaitGroup
	wg.Go(func() {
		err := set.Run(ctx, sources, func(entries []Entry) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.changes = append(r.changes, entries)
		}, func(origin Origin, err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.warned = append(r.warned, fmt.Sprintf("%v: %v", origin, err))
		})
		if err != nil {
			t.Error(err)
		}
	})
	r.stop = func() { cancel(); wg.Wait() }
	return r
}

// show returns entries as "name", with "!" where it is draining, and the kind of its
// origin where that isn't static.
func show(entries []Entry) string {
	var all []string
	for _, e := range entries {
		s := e.Name
		if e.Draining {
			s += "!"
		}
		if e.Weighed {
			s += fmt.Sprint("*", e.Weight)
		}
		if e.Origin.Kind != KindStatic {
			s += "@" + string(e.Origin.Kind)
		}
		all = append(all, s)
	}
	return strings.Join(all, " ")
}

// want waits until nothing moves and checks what was told since the last call, with " | "
// between the lists; "-" for nothing.
func (r *run) want(lists string) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	got := "-"
	for i, c := range r.changes {
		if i == 0 {
			got = show(c)
		} else {
			got += " | " + show(c)
		}
	}
	if got != lists {
		r.t.Errorf("told %q, want %q", got, lists)
	}
	if n := len(r.changes); n > 0 && !slices.Equal(r.changes[n-1], r.set.Entries()) {
		r.t.Errorf("Entries: %q, told %q", show(r.set.Entries()), show(r.changes[n-1]))
	}
	r.changes = nil
}

func (r *run) wantWarned(want ...string) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.warned, want) {
		r.t.Errorf("warned %q, want %q", r.warned, want)
	}
	r.warned = nil
}

func fixed(t *testing.T, urls ...string) Source {
	t.Helper()
	s, err := NewStatic(endpoints(t, urls...))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func add(t *testing.T, s *Set, e Endpoint, want string) {
	t.Helper()
	wantError(t, s.Add(e), want)
}

func TestSet_MergesItsSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dns, file := newListed(KindDNS, "d"), newListed(KindFile, "f")
		r := runSet(t, new(Set), fixed(t, "http://s:1"), dns, file)
		r.want("s:1")
		file.say(t, "http://f:1", "http://d:1")
		r.want("s:1 f:1@file d:1@file")
		dns.say(t, "http://d:1", "http://s:1")
		r.want("s:1 d:1@dns f:1@file")
		dns.say(t, "http://d:1", "http://s:1")
		r.want("-")
		dns.fail("down")
		r.want("-")
		dns.say(t)
		r.want("s:1 f:1@file d:1@file")
		r.wantWarned("dns d: down", "dns d: <nil>") // of what two list alike there is nothing to say
		r.stop()
	})
}

func TestSet_WhenEveryoneHasSpokenOfNothing_TellsSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dns := newListed(KindDNS, "d")
		r := runSet(t, new(Set), fixed(t), dns)
		r.want("-")
		dns.fail("down")
		r.want("")
		r.stop()
		r = runSet(t, new(Set))
		r.want("")
		r.stop()
	})
}

func TestSet_Add_TakesIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dns := newListed(KindDNS, "d")
		set := new(Set)
		add(t, set, Endpoint{URL: "http://early:1"}, "") // before Run
		r := runSet(t, set, dns)
		r.want("early:1@admin")
		dns.say(t, "http://d:1")
		r.want("d:1@dns early:1@admin")

		add(t, set, Endpoint{URL: "http://x:1", Name: "x"}, "")
		r.want("d:1@dns early:1@admin x@admin")
		add(t, set, Endpoint{URL: "http://x:1", Name: "x"}, "")
		r.want("-")
		add(t, set, Endpoint{URL: "http://x:2", Name: "x", Weight: 3}, "")
		r.want("d:1@dns early:1@admin x@admin")
		add(t, set, Endpoint{URL: "http://d:1"}, "") // as it is listed
		r.want("-")
		add(t, set, Endpoint{URL: "http://d:1", Weight: 2}, "") // the operator's own
		r.want("early:1@admin x@admin d:1@admin")
		add(t, set, Endpoint{URL: "http://d:1"}, "") // the source's again
		r.want("d:1@dns early:1@admin x@admin")

		add(t, set, Endpoint{URL: "ftp://x"}, "url: ")
		add(t, set, Endpoint{URL: "http://x:2", Name: "y"}, "url: http://x:2 is the endpoint x already (admin)")
		add(t, set, Endpoint{URL: "https://d:1", Name: "y"}, "url: https://d:1 is the endpoint d:1 already (dns d)")
		add(t, set, Endpoint{URL: "http://y", Name: "d:1"}, "name: d:1 is the endpoint at http://d:1 already (dns d)")
		r.want("-")
		r.stop()
	})
}

func TestSet_Add_IsBounded(t *testing.T) {
	set := new(Set)
	for i := range Most {
		add(t, set, Endpoint{URL: fmt.Sprintf("http://x:%d", i+1)}, "")
	}
	add(t, set, Endpoint{URL: "http://y"}, "512 endpoints have been added")
	add(t, set, Endpoint{URL: "http://x:1", Weight: 2}, "") // a change
	if !set.Remove("x:7") {
		t.Error("x:7 is not there")
	}
	add(t, set, Endpoint{URL: "http://y"}, "")
}

func TestSet_Remove_HoldsUntilAddOrUntilTheSourceHasForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dns := newListed(KindDNS, "d")
		set := new(Set)
		r := runSet(t, set, fixed(t, "http://s:1"), dns)
		dns.say(t, "http://a:1", "http://b:1")
		synctest.Wait()
		r.changes = nil

		if !set.Remove("a:1") || set.Remove("a:1") || set.Remove("nobody") {
			t.Error("Remove reports wrongly")
		}
		r.want("s:1 b:1@dns")
		dns.say(t, "http://a:1", "http://b:1", "http://c:1")
		r.want("s:1 b:1@dns c:1@dns")
		dns.fail("down") // is no word on a:1
		r.want("-")
		add(t, set, Endpoint{URL: "http://a:1"}, "")
		r.want("s:1 a:1@dns b:1@dns c:1@dns")

		set.Remove("a:1")
		r.want("s:1 b:1@dns c:1@dns")
		dns.say(t, "http://b:1")
		r.want("s:1 b:1@dns")
		dns.say(t, "http://a:1", "http://b:1")
		r.want("s:1 a:1@dns b:1@dns")

		set.Remove("s:1") // of a source that won't speak again
		r.want("a:1@dns b:1@dns")
		add(t, set, Endpoint{URL: "http://x:1", Name: "s:1"}, "")
		r.want("a:1@dns b:1@dns s:1@admin")
		add(t, set, Endpoint{URL: "http://x:2", Name: "s:1", Weight: 2}, "") // it has been the operator's
		r.want("a:1@dns b:1@dns s:1@admin")
		add(t, set, Endpoint{URL: "http://x:1", Name: "s:1"}, "")
		r.want("a:1@dns b:1@dns s:1@admin")
		clash := "static: 1 of 1 endpoints can't be used: name: s:1 is the endpoint at http://x:%d already (admin)"
		r.wantWarned("dns d: down", "dns d: <nil>", fmt.Sprintf(clash, 1), fmt.Sprintf(clash, 2), fmt.Sprintf(clash, 1))
		set.Remove("s:1") // the operator's and the source's
		r.want("a:1@dns b:1@dns")
		r.wantWarned("static: <nil>")
		r.stop()
		if len(set.added) != 0 || len(set.removed) != 1 {
			t.Errorf("left: %v, %v", set.added, set.removed)
		}
	})
}

func TestSet_Drain_HoldsWhileTheEndpointIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dns := newListed(KindDNS, "d")
		set := new(Set)
		r := runSet(t, set, dns)
		add(t, set, Endpoint{URL: "http://x:1"}, "")
		dns.say(t, "http://a:1", "http://b:1")
		synctest.Wait()
		r.changes = nil

		if !set.Drain("a:1", true) || !set.Drain("x:1", true) || set.Drain("nobody", true) {
			t.Error("Drain reports wrongly")
		}
		r.want("a:1!@dns b:1@dns x:1!@admin")
		set.Drain("x:1", true)
		r.want("-")
		set.Drain("x:1", false)
		r.want("a:1!@dns b:1@dns x:1@admin")
		dns.say(t, "http://b:1")
		r.want("b:1@dns x:1@admin")
		dns.say(t, "http://a:1", "http://b:1")
		r.want("a:1@dns b:1@dns x:1@admin")

		set.Drain("a:1", true)
		set.Remove("a:1")
		if set.Drain("a:1", true) {
			t.Error("a removed endpoint can be drained")
		}
		add(t, set, Endpoint{URL: "http://a:1"}, "")
		synctest.Wait()
		if got := show(set.Entries()); got != "a:1@dns b:1@dns x:1@admin" {
			t.Errorf("%q: a removed endpoint comes back draining", got)
		}
		r.stop()
	})
}

func TestSet_Weigh_HoldsWhileTheEndpointIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dns := newListed(KindDNS, "d")
		set := new(Set)
		r := runSet(t, set, dns)
		add(t, set, Endpoint{URL: "http://x:1"}, "")
		dns.say(t, "http://a:1", "http://b:1")
		synctest.Wait()
		r.changes = nil
		weigh := func(name string, weight float64, there bool, want string) {
			t.Helper()
			got, err := set.Weigh(name, weight)
			wantError(t, err, want)
			if got != there {
				t.Errorf("%s is there: %v", name, got)
			}
		}
		weigh("a:1", 2, true, "")
		r.want("a:1*2@dns b:1@dns x:1@admin")
		weigh("x:1", 1000, true, "")
		r.want("a:1*2@dns b:1@dns x:1*1000@admin")
		weigh("nobody", 2, false, "")
		for _, bad := range []float64{0, -1, 1001, math.NaN(), math.Inf(1)} {
			weigh("a:1", bad, false, fmt.Sprintf("weight: %v is not allowed; allowed: above 0 to 1000", bad))
		}
		r.want("-")
		dns.say(t, "http://b:1")
		r.want("b:1@dns x:1*1000@admin")
		dns.say(t, "http://a:1", "http://b:1") // it is a new one
		r.want("a:1@dns b:1@dns x:1*1000@admin")
		add(t, set, Endpoint{URL: "http://x:1", Weight: 3}, "") // the newest word counts
		r.want("a:1@dns b:1@dns x:1@admin")
		weigh("a:1", 4, true, "")
		r.want("a:1*4@dns b:1@dns x:1@admin")
		set.Remove("a:1")
		r.want("b:1@dns x:1@admin")
		weigh("a:1", 4, false, "")
		add(t, set, Endpoint{URL: "http://a:1"}, "")
		r.want("a:1@dns b:1@dns x:1@admin")
		r.stop()
		if len(set.weighed) != 0 {
			t.Errorf("left: %v", set.weighed)
		}
	})
}

func TestSet_WhenSourcesClash_TheFirstCountsAndIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newListed(KindDNS, "a"), newListed(KindFile, "b")
		r := runSet(t, new(Set), a, b)
		a.say(t, "http://x:1")
		b.says <- told{endpoints: []Endpoint{{"http://y:1", "x:1", 1, ""}, {"https://x:1", "z", 1, ""}, {"http://w:1", "w", 1, ""}}}
		synctest.Wait()
		if got := show(r.set.Entries()); got != "x:1@dns w@file" {
			t.Errorf("%q", got)
		}
		r.wantWarned("file b: 2 of 3 endpoints can't be used: name: x:1 is the endpoint at http://x:1 already (dns a)")
		a.say(t)
		r.wantWarned("file b: <nil>")
		if got := show(r.set.Entries()); got != "x:1@file z@file w@file" {
			t.Errorf("%q", got)
		}
		r.stop()
	})
}

// TestSet_WhenRunAgain_TakesOver is a reload: the source d stays, f goes, g comes.
func TestSet_WhenRunAgain_TakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, f := newListed(KindDNS, "d"), newListed(KindFile, "f")
		set := new(Set)
		r := runSet(t, set, d, f)
		d.say(t, "http://d:1", "http://d:2")
		f.say(t, "http://f:1")
		add(t, set, Endpoint{URL: "http://x:1"}, "")
		set.Drain("d:1", true)
		set.Remove("d:2")
		r.stop()

		d, g := newListed(KindDNS, "d"), newListed(KindFile, "g")
		r = runSet(t, set, g, d)
		r.want("d:1!@dns f:1@file x:1@admin")
		g.say(t, "http://g:1")
		r.want("g:1@file d:1!@dns f:1@file x:1@admin")
		d.fail("down")
		r.want("g:1@file d:1!@dns x:1@admin")
		r.wantWarned("dns d: down")
		r.stop()

		// And back, before everybody has spoken: f is a source again, not a leftover.
		f, h := newListed(KindFile, "f"), newListed(KindFile, "h")
		r = runSet(t, set, f, h)
		r.want("g:1@file d:1!@dns x:1@admin")
		r.stop()
		g, f = newListed(KindFile, "g"), newListed(KindFile, "f")
		r = runSet(t, set, g, f)
		g.say(t, "http://g:1")
		f.say(t, "http://f:1")
		synctest.Wait()
		if got := show(set.Entries()); got != "g:1@file f:1@file x:1@admin" {
			t.Errorf("%q", got)
		}
		if got := len(set.Status()); got != 2 || len(set.lists) != 2 || len(set.removed)+len(set.drained) != 0 {
			t.Errorf("%d sources of %d lists, %v, %v", got, len(set.lists), set.removed, set.drained)
		}
		r.stop()
	})
}

func TestSet_Run_WhenItCanNot_SaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := new(Set)
		err := set.Run(t.Context(), []Source{newListed(KindFile, "f"), newListed(KindFile, "f")}, nil, nil)
		wantError(t, err, "two sources are file f")
		r := runSet(t, set, newListed(KindFile, "f"))
		synctest.Wait()
		wantError(t, set.Run(t.Context(), nil, nil, nil), "is being run already")
		r.stop()
		runSet(t, set).stop()
	})
}

func TestSet_Status_SaysHowOldEachListIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dns := newListed(KindDNS, "d")
		set := new(Set)
		r := runSet(t, set, fixed(t, "http://s:1"), dns)
		synctest.Wait()
		time.Sleep(time.Minute)
		dns.fail("down")
		synctest.Wait()
		never := set.Status()
		dns.say(t, "http://d:1", "http://d:2")
		time.Sleep(3 * time.Second)
		clean := set.Status()
		dns.fail("down")
		time.Sleep(time.Second)
		failing := set.Status()
		r.wantWarned("dns d: down", "dns d: <nil>", "dns d: down")
		dns.fail("down")
		dns.fail("still down")
		r.wantWarned("dns d: still down")
		r.stop()
		for _, c := range []struct {
			got  Status
			want Status
		}{
			{never[0], Status{Origin{KindStatic, ""}, 1, true, 0, 0, nil}},
			{never[1], Status{Origin{KindDNS, "d"}, 0, false, 0, 1, errors.New("down")}},
			{clean[1], Status{Origin{KindDNS, "d"}, 2, true, 3 * time.Second, 1, nil}},
			{failing[1], Status{Origin{KindDNS, "d"}, 2, true, 4 * time.Second, 2, errors.New("down")}},
		} {
			if fmt.Sprint(c.got) != fmt.Sprint(c.want) {
				t.Errorf("%+v, want %+v", c.got, c.want)
			}
		}
	})
}

// TestSet_WhenChangesComeWhileOneIsTold_TheyAreOne has an onChange that takes its time
// and changes the Set itself: nothing is called under its lock, and one call at a time.
func TestSet_WhenChangesComeWhileOneIsTold_TheyAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := new(Set)
		ctx, cancel := context.WithCancel(t.Context())
		var told []string
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = set.Run(ctx, []Source{fixed(t, "http://s:1")}, func(entries []Entry) {
				told = append(told, show(entries))
				if len(told) == 1 {
					for i := range 100 {
						add(t, set, Endpoint{URL: fmt.Sprintf("http://x:%d", i+1)}, "")
					}
					for i := range 99 {
						set.Remove(fmt.Sprintf("x:%d", i+1))
					}
				}
				time.Sleep(time.Second)
				entries[0] = Entry{} // it is the callee's
			}, nil)
		})
		time.Sleep(time.Minute)
		set.Drain("s:1", false) // is no change
		time.Sleep(time.Minute)
		cancel()
		wg.Wait()
		if want := []string{"s:1", "s:1 x:100@admin"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}

// slow is a source that takes its time to end.
type slow struct{ Source }

func (s slow) Watch(ctx context.Context, tell func([]Endpoint, error)) {
	s.Source.Watch(ctx, tell)
	time.Sleep(time.Second)
}

func TestSet_Run_WaitsForItsSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := runSet(t, new(Set), slow{newListed(KindDNS, "d")})
		r.stop()
		if got := time.Since(start); got != time.Second {
			t.Errorf("Run returned after %v, its source after 1s", got)
		}
	})
}

func TestSet_WhenRunHasEnded_TellsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := new(Set)
		r := runSet(t, set, fixed(t, "http://s:1"))
		r.want("s:1")
		r.stop()
		add(t, set, Endpoint{URL: "http://x:1"}, "")
		r.want("-")
		if got := show(set.Entries()); got != "s:1 x:1@admin" {
			t.Errorf("%q", got)
		}
	})
}

func TestSet_WhenItIsEndedByWhomItTells_TellsNoMore(t *testing.T) {
	for range 50 {
		set := new(Set)
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		err := set.Run(ctx, []Source{fixed(t, "http://s:1")}, func([]Entry) {
			calls++
			cancel()
			add(t, set, Endpoint{URL: fmt.Sprintf("http://x:%d", calls)}, "")
		}, nil)
		if calls != 1 || err != nil {
			t.Fatalf("%d calls, %v", calls, err)
		}
	}
}

func TestStatic_WhenItHasEnded_TellsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	fixed(t, "http://s:1").Watch(ctx, func([]Endpoint, error) { t.Error("told") })
}

func TestNewStatic_WhenAnEndpointIsWrong_SaysWhy(t *testing.T) {
	_, err := NewStatic([]Endpoint{{URL: "http://a"}, {URL: "b"}})
	wantError(t, err, "url: \"b\"")
}
