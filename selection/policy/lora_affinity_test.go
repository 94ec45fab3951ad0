package policy

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// loraCall returns a call of the adapter.
func loraCall(a kvblock.Hash) *selection.Request {
	q := newRequest(1, 20)
	q.Adapter = a
	return q
}

// told makes an endpoint report adapters, of which it has so many slots for.
func told(v *selection.View, slot selection.Slot, age time.Duration, slots int, running, waiting []kvblock.Hash) {
	v.Endpoints[slot].Load.Adapters = signal.AdaptersOf(slots, running, waiting, v.Now.Add(-age))
}

// Endpoint i has i outstanding calls, so of those in the best class within the slack the
// first is picked. The calls are of adapter 9.
func TestLoRAAffinity_PicksTheNearestClassWithinTheSlack(t *testing.T) {
	set := func(a ...kvblock.Hash) []kvblock.Hash { return a }
	const fresh, stale = time.Second, time.Minute
	for _, c := range []struct {
		name   string
		slack  int
		view   func(v *selection.View)
		want   selection.Slot
		reason selection.Reason
	}{
		{"nobody has it, all have room", 4, func(*selection.View) {}, 0, ReasonEmptySlot},
		{"own calls of it", 4, func(v *selection.View) { v.AdapterCalls[2], v.Adapters[2] = 1, 1 }, 2, ReasonActive},
		{"a report of it", 4, func(v *selection.View) { told(v, 3, fresh, 4, set(5, 9), nil) }, 3, ReasonActive},
		{"a stale report of it", 4, func(v *selection.View) { told(v, 3, stale, 4, set(5, 9), nil) }, 0, ReasonEmptySlot},
		{"active, at the end of the slack", 2, func(v *selection.View) { v.AdapterCalls[2], v.Adapters[2] = 1, 1 }, 2, ReasonActive},
		{"active, beyond the slack", 1, func(v *selection.View) { v.AdapterCalls[2], v.Adapters[2] = 1, 1 }, 0, ReasonTooBusy},
		{"two are active", 4, func(v *selection.View) {
			for _, s := range []selection.Slot{1, 3} {
				v.AdapterCalls[s], v.Adapters[s] = 2, 1
			}
		}, 1, ReasonActive},
		{"others use the only slot", 4, func(v *selection.View) { v.Adapters[0] = 1 }, 1, ReasonEmptySlot},
		{"others use every slot", 4, func(v *selection.View) { copy(v.Adapters, []int32{1, 1, 1, 2}) }, 0, ReasonNoSlot},
		{"a report says that there are more slots", 4, func(v *selection.View) {
			copy(v.Adapters, []int32{1, 1, 2, 1})
			told(v, 2, fresh, 3, set(5), nil)
		}, 2, ReasonEmptySlot},
		{"even a stale one", 4, func(v *selection.View) {
			copy(v.Adapters, []int32{1, 1, 2, 1})
			told(v, 2, stale, 3, nil, nil)
		}, 2, ReasonEmptySlot},
		{"calls of others wait for it", 4, func(v *selection.View) {
			for s := range selection.Slot(4) {
				told(v, s, fresh, 1, set(5), nil)
			}
			told(v, 2, fresh, 1, set(5), set(9))
		}, 2, ReasonAwaited},
		{"others of a report use every slot", 4, func(v *selection.View) {
			told(v, 0, fresh, 2, set(5, 6), nil)
			told(v, 1, fresh, 2, set(5), nil)
		}, 1, ReasonEmptySlot},
		{"who reports nothing has no room where others report", 4, func(v *selection.View) {
			told(v, 3, fresh, 2, set(5), nil)
		}, 3, ReasonEmptySlot},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newView(4)
			for slot := range selection.Slot(4) {
				for range slot {
					charge(v, slot, 100)
				}
			}
			c.view(v)
			p := (&LoRAAffinity{Then: "least-outstanding", Slack: c.slack, Slots: 1}).New()
			got := pick(p, v, loraCall(9), 1)
			if v.Candidates[got.Index] != c.want || got.Reason != c.reason {
				t.Errorf("picked %d for %s, want %d for %s", v.Candidates[got.Index], got.Reason, c.want, c.reason)
			}
		})
	}
}

// A call of the base model is the other rule's, whatever adapters are where.
func TestLoRAAffinity_LeavesTheBaseModelAlone(t *testing.T) {
	v := newView(3)
	charge(v, 0, 100)
	copy(v.Adapters, []int32{0, 5, 5})
	copy(v.AdapterCalls, []int32{7, 0, 0})
	for draw := range 20 {
		if c := pick(build(loraAffinityName), v, newRequest(1, 3), draw); v.Candidates[c.Index] == 0 || c.Reason != ReasonBaseModel {
			t.Fatalf("picked %d for %s", v.Candidates[c.Index], c.Reason)
		}
	}
}

// Whoever ranks sees those that stay alone, and what it learns, and what it asks for, goes
// through.
func TestLoRAAffinity_LetsAnotherRuleRank(t *testing.T) {
	v := newView(4)
	copy(v.AdapterCalls, []int32{1, 0, 1, 0})
	copy(v.Adapters, []int32{1, 0, 1, 0})
	copy(v.Overlap, []int32{5, 20, 10, 20})
	p := (&LoRAAffinity{Then: "cache-aware", Slack: 4, Slots: 1}).New()
	if got := picked(p, v, loraCall(9), 1); got != 2 {
		t.Errorf("picked %d, want 2: the longest match among those where the adapter is active", got)
	}
	if !math.IsNaN(v.Scores[1]) || !math.IsNaN(v.Scores[3]) || v.Scores[2] != 0 {
		t.Errorf("scores are %v", v.Scores)
	}
	if _, ok := selection.As[selection.OverlapUser](p); !ok {
		t.Error("nobody asks for the overlap")
	}
	if _, ok := selection.As[selection.OverlapUser](build(loraAffinityName)); ok {
		t.Error("somebody asks for the overlap who does not use it")
	}

	q := (&LoRAAffinity{Then: "ewma-latency", Slack: 4, Slots: 1}).New()
	learner, ok := selection.As[selection.Learner](q)
	if !ok {
		t.Fatal("nobody learns")
	}
	for slot, ms := range []time.Duration{300, 10, 200, 10} {
		learner.Learn(&selection.Sample{At: v.Now, Slot: selection.Slot(slot), TTFT: ms * time.Millisecond})
	}
	if got := picked(q, v, loraCall(9), 1); got != 2 {
		t.Errorf("picked %d, want 2: the faster one of those where the adapter is active", got)
	}
}

// Calls end at once here, so nothing is active: what counts is what was sent where. All four
// have two slots and are equally loaded, but for what a case says.
func TestLoRAAffinity_RemembersWhatItSent(t *testing.T) {
	type send struct {
		adapter kvblock.Hash
		only    selection.Slot // the only candidate; -1: all are
		reason  selection.Reason
	}
	const all = selection.None
	forget := func(p selection.Policy) {
		f, _ := selection.As[selection.Forgetter](p)
		f.Forget(2)
	}
	for _, c := range []struct {
		name   string
		before []send
		then   func(p selection.Policy, v *selection.View)
		want   bool // the last send goes to slot 2, as resident
	}{
		{"it is there", []send{{9, 2, ReasonEmptySlot}}, nil, true},
		{"with another one", []send{{9, 2, ReasonEmptySlot}, {5, 2, ReasonEmptySlot}}, nil, true},
		{"two others came since", []send{{9, 2, ReasonEmptySlot}, {5, 2, ReasonEmptySlot}, {6, 2, ReasonFreeSlot}}, nil, false},
		{"it came again between them", []send{{9, 2, ReasonEmptySlot}, {5, 2, ReasonEmptySlot}, {9, all, ReasonResident}, {6, 2, ReasonFreeSlot}}, nil, true},
		{"the base model takes no slot", []send{{9, 2, ReasonEmptySlot}, {0, 2, ReasonBaseModel}, {5, 2, ReasonEmptySlot}, {0, 2, ReasonBaseModel}}, nil, true},
		{"another one finds an empty slot", []send{{9, 2, ReasonEmptySlot}, {5, 2, ReasonEmptySlot}, {6, all, ReasonEmptySlot}}, nil, true},
		{"others have filled every slot", []send{
			{1, 0, ReasonEmptySlot}, {3, 0, ReasonEmptySlot}, {1, 1, ReasonEmptySlot}, {3, 1, ReasonEmptySlot},
			{1, 2, ReasonEmptySlot}, {3, 2, ReasonEmptySlot}, {1, 3, ReasonEmptySlot}, {3, 3, ReasonEmptySlot}, {9, 2, ReasonFreeSlot},
		}, nil, true},
		{"the endpoint is another one", []send{{9, 2, ReasonEmptySlot}}, func(p selection.Policy, _ *selection.View) { forget(p) }, false},
		{"others use both slots", []send{{9, 2, ReasonEmptySlot}}, func(_ selection.Policy, v *selection.View) { v.Adapters[2] = 2 }, false},
		{"it has one slot alone", []send{{9, 2, ReasonEmptySlot}, {5, 2, ReasonEmptySlot}}, func(_ selection.Policy, v *selection.View) {
			for s := range selection.Slot(4) {
				told(v, s, 0, 1, nil, nil)
			}
		}, false},
		{"it is too loaded", []send{{9, 2, ReasonEmptySlot}}, func(_ selection.Policy, v *selection.View) {
			for range 5 {
				charge(v, 2, 100)
			}
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, v := (&LoRAAffinity{Then: "least-outstanding", Slack: 4, Slots: 2}).New(), newView(4)
			at := func(only selection.Slot) *selection.View {
				v.Scores = v.Scores[:cap(v.Scores)]
				restrict(v, func(s selection.Slot) bool { return only == all || s == only })
				return v
			}
			for i, s := range c.before {
				if got := pick(p, at(s.only), loraCall(s.adapter), i); got.Reason != s.reason {
					t.Fatalf("send %d: %s, want %s", i, got.Reason, s.reason)
				}
			}
			if c.then != nil {
				c.then(p, v)
			}
			got := pick(p, at(all), loraCall(9), 99)
			if resident := got.Reason == ReasonResident && v.Candidates[got.Index] == 2; resident != c.want {
				t.Errorf("picked %d for %s, want it where it was: %v", v.Candidates[got.Index], got.Reason, c.want)
			}
		})
	}
}

// One adapter takes half of all calls and fifteen share the rest. Every endpoint gets its
// part of the calls, hardly any has more adapters than slots, and the popular one is at
// several.
func TestLoRAAffinity_APopularAdapterSpreads(t *testing.T) {
	const n, calls, atOnce = 8, 4000, 48
	v, p := newView(n), (&LoRAAffinity{Then: "least-outstanding", Slack: 2, Slots: 4}).New()
	held := make([]map[kvblock.Hash]int32, n)
	for i := range held {
		held[i] = map[kvblock.Hash]int32{}
	}
	type running struct {
		slot    selection.Slot
		adapter kvblock.Hash
	}
	var inFlight []running
	got := make([]int, n)
	at := map[kvblock.Hash]map[selection.Slot]bool{}
	crowded := 0
	r := seed.New(3, seed.Workload, 0, 0)
	for call := range calls {
		if len(inFlight) == atOnce {
			i := r.Intn(atOnce)
			x := inFlight[i]
			inFlight = slices.Delete(inFlight, i, i+1)
			v.Book[x.slot].Outstanding--
			if held[x.slot][x.adapter]--; held[x.slot][x.adapter] == 0 {
				delete(held[x.slot], x.adapter)
			}
		}
		a := kvblock.Hash(1)
		if r.Intn(2) == 0 {
			a = kvblock.Hash(2 + r.Intn(15))
		}
		for i := range held {
			v.AdapterCalls[i], v.Adapters[i] = held[i][a], int32(len(held[i]))
		}
		slot := picked(p, v, loraCall(a), call)
		v.Book[slot].Outstanding++
		held[slot][a]++
		inFlight = append(inFlight, running{slot, a})
		got[slot]++
		if at[a] == nil {
			at[a] = map[selection.Slot]bool{}
		}
		if at[a][slot] = true; len(held[slot]) > 4 {
			crowded++
		}
		least, most := int32(math.MaxInt32), int32(0)
		for _, b := range v.Book {
			least, most = min(least, b.Outstanding), max(most, b.Outstanding)
		}
		if call > atOnce && int(v.Book[slot].Outstanding) > int(least)+1+2 {
			t.Fatalf("call %d went to an endpoint with %d calls, the least loaded has %d", call, v.Book[slot].Outstanding, least)
		}
	}
	for slot, n := range got {
		if n < calls/8*3/4 || n > calls/8*5/4 {
			t.Errorf("endpoint %d got %d of %d calls", slot, n, calls)
		}
	}
	if len(at[1]) < 4 {
		t.Errorf("the popular adapter was at %d endpoints alone", len(at[1]))
	}
	if crowded > calls/100 {
		t.Errorf("%d of %d calls went to an endpoint with more adapters than slots", crowded, calls)
	}
	t.Logf("calls by endpoint %v; the popular adapter at %d; %d calls without a slot", got, len(at[1]), crowded)
}

func TestLoRAAffinity_PickDoesNotAllocate(t *testing.T) {
	p, v, q := build(loraAffinityName), busyView(100), loraCall(9)
	for slot := range selection.Slot(100) {
		told(v, slot, 0, 4, []kvblock.Hash{kvblock.Hash(slot % 12), 50, 51}, nil)
	}
	var r seed.Rand
	p.Pick(v, q, &r)
	if n := testing.AllocsPerRun(100, func() { p.Pick(v, q, &r) }); n != 0 {
		t.Errorf("%v allocations a pick", n)
	}
}

// BenchmarkPickAdapter has a report of every endpoint; an eighth of them run the adapter.
func BenchmarkPickAdapter(b *testing.B) {
	for _, n := range []int{8, 64, 512} {
		b.Run(fmt.Sprintf("lora-affinity/endpoints=%d", n), func(b *testing.B) {
			p, v, q := build(loraAffinityName), busyView(n), loraCall(7)
			for slot := range v.Members {
				a := kvblock.Hash(slot % 8)
				told(v, selection.Slot(slot), 0, 4, []kvblock.Hash{a, 20 + a, 40 + a}, nil)
			}
			var r seed.Rand
			b.ReportAllocs()
			for b.Loop() {
				p.Pick(v, q, &r)
			}
		})
	}
}
