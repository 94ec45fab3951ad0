package lab

import (
	"slices"
	"testing"
)

// The facts that the article states of its trace (section 6.1), other than those that are
// built into the search: 12 requests of which 8 are on P1, three replicas, threshold 2.
const (
	hitsByLoad, hitsAware             = 4, 6
	droppedAffinity                   = 2 // both miss
	prefilledByLoad, prefilledAware   = 29_180, 21_180
	firstHead, firstTail              = 4000, 180
	traceLength, traceOnP1, threshold = 12, 8, 2
)

// TestPrefixTrace_IsWhatTheSearchFinds goes through the sequences of prefixes in
// lexicographic order, those with the fewest prefixes first, and for each through the
// lengths of the other prefixes in whole thousands up to P1's. Every request's own part is
// R1's; the last one takes what is left of the article's total. The committed trace is the
// first that satisfies every fact.
func TestPrefixTrace_IsWhatTheSearchFinds(t *testing.T) {
	for prefixes := 2; prefixes <= traceLength-traceOnP1+1; prefixes++ {
		var found []prompt
		sequences(make([]int, 0, traceLength), prefixes, func(sequence []int) bool {
			found = lengths(sequence, prefixes)
			return found != nil
		})
		if found != nil {
			if !slices.Equal(found, prefixTrace[:]) {
				t.Errorf("the search finds\n%v, the trace is\n%v", found, prefixTrace)
			}
			return
		}
	}
	t.Error("the search finds nothing")
}

// sequences calls f with every sequence that has the stated length, P1 first and as often
// as stated, and so many prefixes, each of which is first met after those with lower
// numbers. It ends when f returns true, and returns that.
func sequences(head []int, prefixes int, f func([]int) bool) bool {
	met, onP1 := 0, 0
	for _, p := range head {
		met = max(met, p)
		if p == 1 {
			onP1++
		}
	}
	if len(head) == traceLength {
		return met == prefixes && onP1 == traceOnP1 && f(head)
	}
	for p := 1; p <= min(met+1, prefixes); p++ {
		if p == 1 && onP1 == traceOnP1 || p > 1 && len(head)-onP1 == traceLength-traceOnP1 {
			continue
		}
		if sequences(append(head, p), prefixes, f) {
			return true
		}
	}
	return false
}

// lengths returns the first trace with this sequence that satisfies every fact; nil where
// there is none.
func lengths(sequence []int, prefixes int) []prompt {
	trace := make([]prompt, len(sequence))
	heads := make([]int, prefixes+1)
	heads[1] = firstHead
	fill := func(last int) {
		for i, p := range sequence {
			trace[i] = prompt{p, heads[p], firstTail}
		}
		trace[len(trace)-1].tail = last
	}
	fill(firstTail)
	// Where a request goes does not depend on lengths.
	load, aware := place(trace, 3, threshold, false), place(trace, 3, threshold, true)
	free := place(trace, 3, unlimited, true)
	if load.hits != hitsByLoad || aware.hits != hitsAware || aware.dropped != droppedAffinity || aware.missed != droppedAffinity ||
		!slices.Equal(free.loads, []int{8, 2, 2}) || load.requests[0].replica != 0 || aware.requests[0].replica != 0 {
		return nil
	}
	var choose func(p int) bool
	choose = func(p int) bool {
		if p > prefixes {
			fill(firstTail)
			last := firstTail + prefilledByLoad - place(trace, 3, threshold, false).prefill
			if last < 1 || last > 1000 {
				return false
			}
			fill(last)
			return place(trace, 3, threshold, true).prefill == prefilledAware
		}
		for heads[p] = 1000; heads[p] <= firstHead; heads[p] += 1000 {
			if choose(p + 1) {
				return true
			}
		}
		return false
	}
	if !choose(2) {
		return nil
	}
	return trace
}

// TestPrefix_TheThresholdIsADial: at 0 affinity is dropped most, from the greatest gap on
// never, and then the hits are the most that there are. In between they need not rise with
// every step.
func TestPrefix_TheThresholdIsADial(t *testing.T) {
	dropped, hits := 0, 0
	for threshold := range 12 {
		p := place(prefixTrace[:], 3, threshold, true)
		dropped, hits = max(dropped, p.dropped), max(hits, p.hits)
	}
	if p := place(prefixTrace[:], 3, 0, true); p.dropped != dropped || p.dropped == 0 {
		t.Errorf("threshold 0 drops %d, another one %d", p.dropped, dropped)
	}
	for threshold := 8; threshold < 12; threshold++ {
		if p := place(prefixTrace[:], 3, threshold, true); p.dropped != 0 || p.hits != hits {
			t.Errorf("threshold %d drops %d and hits %d, another one hits %d", threshold, p.dropped, p.hits, hits)
		}
	}
}
