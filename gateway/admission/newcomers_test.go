package admission

import (
	"testing"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
)

// TestFair_WhoGoesOnIsNotStarvedByNewcomers: beside two ever new conversations at a time, one
// that always waits gets its third of the departures, and waits for few of them in a row.
func TestFair_WhoGoesOnIsNotStarvedByNewcomers(t *testing.T) {
	for _, order := range []Order{Fair, FairLocal} {
		q := New(Config{Order: order, Fairness: DefaultFairness()})
		id := int32(0)
		push := func(who kvblock.Hash) {
			id++
			q.Push(Waiter{Call: id % 64, Rank: int64(id), ID: uint64(id), Since: mono.Time(id), Tokens: 100, Principal: who})
		}
		const stays = kvblock.Hash(7)
		fresh := kvblock.Hash(1000)
		newcomer := func() { fresh++; push(fresh) }
		push(stays)
		newcomer()
		newcomer()
		got, longest, since := 0, 0, 0
		for range 3000 {
			w, ok := q.Next(0, true)
			if !ok {
				t.Fatal("nobody goes")
			}
			w, payer := q.Depart(w.Call)
			q.Charge(payer, 3000)
			q.End(payer)
			since++
			if w.Principal == stays {
				got, since = got+1, 0
				push(stays)
			} else {
				newcomer()
			}
			longest = max(longest, since)
		}
		if got < 700 || got > 1300 || longest > 20 {
			t.Errorf("%v: of 3000 departures it has %d, want about 1000; it waits for %d in a row", order, got, longest)
		}
	}
}

// TestFair_WhatIsGivenBackMovesNoNewcomerBack: charges that are taken back leave newcomers where
// they were.
func TestFair_WhatIsGivenBackMovesNoNewcomerBack(t *testing.T) {
	q := New(Config{Order: Fair, Fairness: DefaultFairness()})
	q.Push(Waiter{Call: 1, ID: 1, Rank: 1, Principal: 1})
	for i := range 100 {
		p := q.Enter(0, kvblock.Hash(100+i))
		q.Charge(p, 1000)
		q.Charge(p, -1000)
		q.End(p)
	}
	p := q.Enter(0, 2)
	if had := q.Had(p); had > 1000 {
		t.Errorf("a newcomer is lifted to %v, where nobody has had more than 1000", had)
	}
}

// TestGivesWay_OneCallMakesRoomForItself, however far a reload has lowered the bounds.
func TestGivesWay_OneCallMakesRoomForItself(t *testing.T) {
	for name, x := range map[string]struct {
		order    Order
		priority int32
		bytes    int64
		want     int
	}{
		"fair":                      {Fair, 0, 0, 1},
		"background waits":          {FIFO, -1, 0, 1},
		"background waits, a large": {FIFO, -1, 25, 3},
	} {
		c := Default()
		c.Work, c.Order, c.Length = 1, x.order, 1000
		q := New(c)
		for i := range int32(500) {
			q.Push(Waiter{Call: i, Rank: int64(i), ID: uint64(i), Since: mono.Time(i), Tokens: 1, Bytes: 10, Principal: 7, Priority: x.priority})
		}
		c.Length = 10
		if x.bytes > 0 {
			c.Bytes = 100
		}
		q.Bound(c)
		a := Asking{Principal: 8, Tokens: 1, Bytes: x.bytes}
		if b, _ := q.Refuses(a); b != Within {
			t.Fatalf("%s: bound %v", name, b)
		}
		n := 0
		for size := q.Bytes(); ; n++ {
			call, ok := q.GivesWay(a, n, size-q.Bytes())
			if !ok {
				break
			}
			q.Remove(call)
		}
		if n != x.want {
			t.Errorf("%s: one call pushes out %d, want %d", name, n, x.want)
		}
	}
}
