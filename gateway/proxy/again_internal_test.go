package proxy

import (
	"fmt"
	"testing"
	"time"
)

// What is remembered is bounded in number and in time.
func TestRepeats_AreBounded(t *testing.T) {
	var r repeats
	now := time.Unix(1e9, 0)
	if r.seen(now, "a", "k") || !r.seen(now, "a", "k") || r.seen(now, "b", "k") {
		t.Error("a key is seen the second time, by its own client")
	}
	if now = now.Add(repeatsFor - 1); !r.seen(now, "a", "k") {
		t.Error("forgotten before its time")
	}
	if r.seen(now, "a", "late"); !r.seen(now.Add(repeatsFor), "a", "late") {
		t.Error("a key that came late is forgotten with the early ones")
	}
	if now = now.Add(10 * repeatsFor); r.seen(now, "a", "k") || r.seen(now, "a", "late") {
		t.Error("remembered long after its time")
	}
	for i := range 3 * mostRepeats {
		r.seen(now, "a", fmt.Sprint(i))
	}
	if n := len(r.newer) + len(r.old); n > 2*mostRepeats {
		t.Errorf("%d keys are remembered, allowed %d", n, 2*mostRepeats)
	}
	if !r.seen(now, "a", fmt.Sprint(3*mostRepeats-1)) || r.seen(now, "a", "0") {
		t.Error("of too many the newest are remembered")
	}
}

// What a call with an idempotency key costs: a table that is full is turned over now and then.
func BenchmarkRepeats(b *testing.B) {
	var r repeats
	now := time.Now()
	keys := make([]string, 1<<18)
	for i := range keys {
		keys[i] = fmt.Sprintf("stainless-retry-%d", i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.seen(now, "team-a", keys[i%len(keys)])
	}
}
