package limit

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
)

func one(c Caps) Config { return Config{Rules: []Rule{{Scope{Kind: Tenant, Name: "a"}, c}}} }

var a = Caller{Tenant: "a"}

// TestBook_NeverMoreThanTheCapRuns is the law of concurrency, for every scope and for
// conversations.
func TestBook_NeverMoreThanTheCapRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		b := New(0, c)
		now := mono.Time(0)
		runs := map[Grant]Caller{}
		waits := map[Grant]Caller{}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 1e10).Draw(t, "passes")))
			if rapid.Bool().Draw(t, "comes") {
				who := drawCaller(t)
				switch v := b.Take(now, &who, Estimate{Input: 1, MaxOutput: 1}); v.Outcome {
				case Granted:
					runs[v.Grant] = who
				case Wait:
					waits[v.Grant] = who
				}
			} else {
				for g := range runs {
					delete(runs, g)
					for _, w := range b.Settle(now, g, Usage{Input: 1, Output: 1}) {
						if w.Verdict.Outcome == Granted {
							runs[w.Grant] = waits[w.Grant]
						}
						delete(waits, w.Grant)
					}
					break
				}
			}
			for _, r := range c.Rules {
				n := 0
				for _, who := range runs {
					s := map[Kind]string{Tenant: who.Tenant, Key: who.Key, Model: who.Model, TenantModel: who.Tenant}
					if s[r.Scope.Kind] == r.Scope.Name && (r.Scope.Kind != TenantModel || r.Scope.Model == who.Model) {
						n++
					}
				}
				if r.Caps.Concurrency > 0 && n > r.Caps.Concurrency {
					t.Fatalf("%d calls run in %v, which may have %d", n, r.Scope, r.Caps.Concurrency)
				}
			}
			by := map[kvblock.Hash]int{}
			for _, who := range runs {
				if by[who.Conversation]++; who.Conversation != 0 && c.FanOut.Concurrency > 0 && by[who.Conversation] > c.FanOut.Concurrency {
					t.Fatalf("more than %d calls of a conversation run", c.FanOut.Concurrency)
				}
			}
		}
	})
}

// TestBook_WindowBound is the law of rates: in any window what was used by the calls that
// were let in is at most burst + rate × window, beside what calls used beyond what they
// reserved, and what was given back in the window of reservations from before it.
func TestBook_WindowBound(t *testing.T) {
	const tpm, rpm = 600, 30
	rapid.Check(t, func(t *rapid.T) {
		b := New(0, one(Caps{RPM: rpm, TPM: tpm}))
		type call struct {
			at       mono.Time
			reserved int
			used     int
		}
		var calls []call
		now := mono.Time(0)
		for range rapid.IntRange(1, 100).Draw(t, "calls") {
			now = now.Add(time.Duration(rapid.IntRange(0, 5e9).Draw(t, "passes")))
			input := rapid.IntRange(0, 900).Draw(t, "input")
			v := b.Take(now, &a, Estimate{Input: input, NoOutput: true})
			if v.Outcome == Refused {
				continue
			}
			used := rapid.IntRange(0, 2*input).Draw(t, "used")
			b.Settle(now, v.Grant, Usage{Input: used}) // at once: nothing is pending at a window's start
			calls = append(calls, call{now, min(input, tpm), used})
		}
		for i := range calls {
			sum, over := 0, 0
			for j := i; j < len(calls); j++ {
				c := calls[j]
				sum += c.used
				over += max(c.used-c.reserved, 0)
				window := c.at.Sub(calls[i].at)
				if most := tpm + tpm*window.Minutes() + float64(over); float64(sum) > most+1e-6 {
					t.Fatalf("%d tokens in %v, more than %v", sum, window, most)
				}
				if n := j - i + 1; float64(n) > rpm+rpm*window.Minutes()+1e-6 {
					t.Fatalf("%d calls in %v", n, window)
				}
			}
		}
	})
}

// TestBook_Conservation: once everything is settled the book is as if what was used had
// been taken, and nothing else; and everything comes back in time.
func TestBook_Conservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Caps{RPM: 1e6, TPM: 1e6, Concurrency: 100, Weights: Weights{1, 0.25, 3}}
		b := New(0, Config{Rules: []Rule{{Scope{Kind: Tenant, Name: "a"}, c}}, FanOut: FanOut{Concurrency: 2, Waiting: 5}})
		var held []Grant
		sent, spent := 0, 0.0
		settle := func(i int) {
			g := held[i]
			held = append(held[:i], held[i+1:]...)
			u := drawUsage(t)
			waited := !b.find(g).running
			b.Settle(0, g, u)
			if !u.Unsent && !waited {
				sent++
				spent += float64(u.Input-u.Cached) + float64(u.Cached)*0.25 + float64(u.Output)*3
			}
		}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "ends") {
				settle(rapid.IntRange(0, len(held)-1).Draw(t, "which"))
				continue
			}
			who := Caller{Tenant: "a", Conversation: kvblock.Hash(rapid.IntRange(0, 3).Draw(t, "conversation"))}
			if v := b.Take(0, &who, Estimate{Input: rapid.IntRange(0, 1000).Draw(t, "input")}); v.Outcome != Refused {
				held = append(held, v.Grant)
			}
		}
		for len(held) > 0 {
			settle(0)
		}
		account := b.order[0]
		if got, want := float64(account.tokens.full-account.tokens.level)/float64(unit), spent; got != want {
			t.Fatalf("%v tokens are taken, %v were used", got, want)
		}
		if got := (account.requests.full - account.requests.level) / unit; got != int64(sent) {
			t.Fatalf("%d requests are taken, %d were sent", got, sent)
		}
		s := b.States(mono.Time(time.Hour))[0]
		if s.Running != 0 || s.Waiting != 0 || s.Tokens.Remaining != 1e6 || s.Requests.Remaining != 1e6 || s.Tokens.Reset != 0 {
			t.Fatalf("after an hour: %+v", s)
		}
		if grants, conversations := b.Load(); grants+conversations != 0 {
			t.Fatalf("%d grants and %d conversations are left", grants, conversations)
		}
	})
}

// TestBook_RetryIsExact: at the instant that a refusal names the call is let in, and not a
// microsecond before.
func TestBook_RetryIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := one(Caps{RPM: rapid.IntRange(1, 100).Draw(t, "rpm"), TPM: rapid.IntRange(1, 5000).Draw(t, "tpm")})
		b := New(0, config)
		now := mono.Time(0)
		e := Estimate{Input: rapid.IntRange(1, 3000).Draw(t, "input"), NoOutput: true}
		for {
			now = now.Add(time.Duration(rapid.IntRange(0, 1e9).Draw(t, "passes")))
			v := b.Take(now, &a, e)
			if v.Outcome != Refused {
				continue
			}
			if v := b.Take(now.Add(v.Retry-time.Microsecond), &a, e); v.Outcome != Refused {
				t.Fatalf("let in before its time")
			}
			if again := b.Take(now.Add(v.Retry), &a, e); again.Outcome != Granted {
				t.Fatalf("at the time that it was told it is refused again, for %v", again.Retry)
			}
			return
		}
	})
}

// TestBook_AFirstCallAlwaysPasses is field case F57: what a call reserves is no more than
// its limits hold, and who is refused leaves nothing behind.
func TestBook_AFirstCallAlwaysPasses(t *testing.T) {
	b := New(0, one(Caps{TPM: 100}))
	v := b.Take(0, &a, Estimate{Input: 5000})
	if v.Outcome != Granted {
		t.Fatalf("the first call is refused: %+v", v)
	}
	before := b.States(0)
	for range 20 {
		if v := b.Take(0, &a, Estimate{Input: 10}); v.Outcome != Refused || v.Limit != Tokens || v.Allowed != 100 || v.Used != 100 {
			t.Fatalf("%+v", v)
		}
	}
	after := b.States(0)
	after[0].Total.Refused -= 20
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("refusals change the book: %+v, before %+v", after, before)
	}
	b.Settle(0, v.Grant, Usage{Input: 30, Output: 20})
	if s := b.States(0)[0]; s.Tokens.Remaining != 50 {
		t.Errorf("%d tokens are left of 100 after 50 were used", s.Tokens.Remaining)
	}
}

// TestBook_RefusedTakesNothing: one limit's refusal leaves the others as they were.
func TestBook_RefusedTakesNothing(t *testing.T) {
	b := New(0, Config{Rules: []Rule{
		{Scope{Kind: Tenant, Name: "a"}, Caps{RPM: 100, TPM: 1000, Concurrency: 10}}, {Scope{Kind: Model, Name: "m"}, Caps{RPM: 1}},
	}})
	who := Caller{Tenant: "a", Model: "m"}
	b.Take(0, &who, Estimate{Input: 10, MaxOutput: 1})
	before := b.States(0)[0]
	v := b.Take(0, &who, Estimate{Input: 10, MaxOutput: 1})
	if v.Outcome != Refused || v.Scope.Kind != Model || v.Limit != Requests || v.Retry != time.Minute {
		t.Fatalf("%+v", v)
	}
	if after := b.States(0)[0]; after.Requests != before.Requests || after.Tokens != before.Tokens || after.Running != before.Running {
		t.Errorf("%+v, before %+v", after, before)
	}
}

// TestBook_ANamedLimitIsTheOneThatHoldsLongest: who waits as long as he is told is let in.
func TestBook_ANamedLimitIsTheOneThatHoldsLongest(t *testing.T) {
	b := New(0, one(Caps{RPM: 60, TPM: 10, Concurrency: 1}))
	b.Take(0, &a, Estimate{Input: 10, NoOutput: true})
	v := b.Take(0, &a, Estimate{Input: 10, NoOutput: true})
	if v.Limit != Tokens || v.Retry != time.Minute || v.Allowed != 10 || v.Asked != 10 {
		t.Errorf("%+v", v)
	}
}

// TestBook_AFanOutWaitsInLine: children beyond the bound go in their order as siblings end;
// who leaves does not hold up the others, and a full line refuses.
func TestBook_AFanOutWaitsInLine(t *testing.T) {
	b := New(0, Config{FanOut: FanOut{Concurrency: 2, Waiting: 3}, Rules: []Rule{{Scope{Kind: Tenant, Name: "a"}, Caps{Concurrency: 2}}}})
	who := Caller{Tenant: "a", Conversation: 7}
	var all []Verdict
	for range 6 {
		all = append(all, b.Take(0, &who, Estimate{}))
	}
	var got []Outcome
	for _, v := range all {
		got = append(got, v.Outcome)
	}
	if fmt.Sprint(got) != fmt.Sprint([]Outcome{Granted, Granted, Wait, Wait, Wait, Refused}) {
		t.Fatalf("%v", got)
	}
	if v := all[5]; v.Limit != Waiting || v.Scope.Kind != Conversation || v.Allowed != 3 {
		t.Fatalf("%+v", v)
	}
	if words := b.Settle(0, all[3].Grant, Usage{Input: 1000}); len(words) != 0 { // the one in the middle leaves
		t.Fatalf("%+v", words)
	}
	if s := b.States(0)[0]; s.Running != 2 || s.Waiting != 2 || s.Total.Input != 0 || s.Total.Requests != 0 {
		t.Fatalf("%+v", s)
	}
	for i, next := range []int{2, 4} {
		words := b.Settle(0, all[i].Grant, Usage{})
		if len(words) != 1 || words[0].Grant != all[next].Grant || words[0].Verdict.Outcome != Granted {
			t.Fatalf("%+v, want %v", words, all[next].Grant)
		}
	}
	b.Settle(0, all[2].Grant, Usage{})
	b.Settle(0, all[4].Grant, Usage{})
	if grants, conversations := b.Load(); grants+conversations != 0 {
		t.Errorf("%d grants, %d conversations", grants, conversations)
	}
}

// TestBook_AChildWhoseModelIsFullIsRefusedInItsTurn and its siblings go on.
func TestBook_AChildWhoseModelIsFullIsRefusedInItsTurn(t *testing.T) {
	b := New(0, Config{FanOut: FanOut{Concurrency: 1, Waiting: 9}, Rules: []Rule{{Scope{Kind: Model, Name: "m"}, Caps{Concurrency: 1, RPM: 10}}}})
	b.Take(0, &Caller{Model: "m"}, Estimate{})
	first := b.Take(0, &Caller{Model: "other", Conversation: 1}, Estimate{})
	child := b.Take(0, &Caller{Model: "m", Conversation: 1}, Estimate{})
	sibling := b.Take(0, &Caller{Model: "other", Conversation: 1}, Estimate{})
	words := b.Settle(0, first.Grant, Usage{})
	if len(words) != 2 || words[0].Grant != child.Grant || words[0].Verdict.Outcome != Refused || words[0].Verdict.Limit != Concurrency ||
		words[1].Grant != sibling.Grant || words[1].Verdict.Outcome != Granted {
		t.Fatalf("%+v", words)
	}
	if s := b.States(0)[0]; s.Requests.Remaining != 9 || s.Waiting != 0 || s.Running != 1 {
		t.Errorf("%+v", s)
	}
}

// TestBook_LearnsHowLongAnswersAre so that a call without max_tokens reserves about what
// it will use.
func TestBook_LearnsHowLongAnswersAre(t *testing.T) {
	b := New(0, Config{Rules: []Rule{{Scope{Kind: Model, Name: "m"}, Caps{TPM: 1e6}}}})
	who := Caller{Model: "m"}
	reserves := func(e Estimate) int {
		v := b.Take(0, &who, e)
		n := 1e6 - b.States(0)[0].Tokens.Remaining
		b.Settle(0, v.Grant, Usage{Unsent: true})
		return n
	}
	if got := reserves(Estimate{Input: 10}); got != 266 {
		t.Errorf("at first %d, want 10 + 256", got)
	}
	for range 500 {
		v := b.Take(0, &who, Estimate{})
		b.Settle(0, v.Grant, Usage{Output: 40, Whole: true})
	}
	b.order[0].tokens.level = b.order[0].tokens.full
	if got := reserves(Estimate{Input: 10}); got != 50 {
		t.Errorf("%d, want 10 + 40", got)
	}
	if got := reserves(Estimate{Input: 10, MaxOutput: 3}); got != 13 {
		t.Errorf("%d with max_tokens 3", got)
	}
	if got := reserves(Estimate{Input: 10, NoOutput: true}); got != 10 {
		t.Errorf("%d of an embedding", got)
	}
}

// TestBook_ConfigureKeepsWhatIsUsed: a reload neither forgives nor charges anything.
func TestBook_ConfigureKeepsWhatIsUsed(t *testing.T) {
	b := New(0, one(Caps{RPM: 10, TPM: 1000, Concurrency: 2}))
	v := b.Take(0, &a, Estimate{Input: 300, NoOutput: true})
	b.Configure(0, one(Caps{RPM: 20, TPM: 2000, Concurrency: 1}))
	s := b.States(0)[0]
	if s.Requests.Remaining != 19 || s.Tokens.Remaining != 1700 || s.Running != 1 {
		t.Fatalf("%+v", s)
	}
	if v := b.Take(0, &a, Estimate{}); v.Limit != Concurrency {
		t.Fatalf("%+v", v)
	}
	b.Configure(0, one(Caps{RPM: 1}))
	if v := b.Take(0, &a, Estimate{}); v.Limit != Requests || v.Retry != time.Minute {
		t.Fatalf("%+v", v)
	}
	b.Configure(0, Config{}) // the tenant has gone
	b.Configure(0, one(Caps{TPM: 100}))
	b.Settle(0, v.Grant, Usage{Input: 5}) // of the former one
	if s := b.States(0)[0]; s.Tokens.Remaining != 100 || s.Running != 0 {
		t.Errorf("%+v", s)
	}
}

// TestBook_AnOldGrantIsNobodys: what was settled once does not settle who has its place now.
func TestBook_AnOldGrantIsNobodys(t *testing.T) {
	b := New(0, one(Caps{Concurrency: 1}))
	old := b.Take(0, &a, Estimate{}).Grant
	b.Settle(0, old, Usage{})
	now := b.Take(0, &a, Estimate{}).Grant
	if old.Index() != now.Index() {
		t.Fatal("this shows nothing: the place is not used again")
	}
	b.Settle(0, old, Usage{})
	b.Settle(0, Grant{}, Usage{})
	if s := b.States(0)[0]; s.Running != 1 {
		t.Errorf("%d run", s.Running)
	}
}

// TestCeil is what makes a refusal's time exact.
func TestCeil(t *testing.T) {
	for _, x := range [][3]int64{{0, 3, 0}, {1, 3, 1}, {2, 3, 1}, {3, 3, 1}, {4, 3, 2}, {1, 2, 1}, {-1, 3, 0}, {-4, 3, -1}} {
		if got := ceil(x[0], x[1]); got != x[2] {
			t.Errorf("%d/%d: %d, want %d", x[0], x[1], got, x[2])
		}
	}
}

// TestBook_AHigherBoundLetsTheLineGoAtOnce, and none at all lets all of it go.
func TestBook_AHigherBoundLetsTheLineGoAtOnce(t *testing.T) {
	b := New(0, Config{FanOut: FanOut{Concurrency: 1, Waiting: 9}})
	for c := kvblock.Hash(1); c <= 2; c++ {
		for range 5 {
			b.Take(0, &Caller{Conversation: c}, Estimate{})
		}
	}
	for _, x := range []struct{ bound, let int }{{1, 0}, {3, 4}, {2, 0}, {0, 4}} {
		words := b.Configure(0, Config{FanOut: FanOut{Concurrency: x.bound, Waiting: 9}})
		if len(words) != x.let {
			t.Errorf("a bound of %d lets %d go, want %d", x.bound, len(words), x.let)
		}
	}
	for i := range b.grants {
		b.Settle(0, Grant{int32(i), b.grants[i].generation}, Usage{})
	}
	if grants, conversations := b.Load(); grants+conversations != 0 {
		t.Errorf("%d grants, %d conversations", grants, conversations)
	}
}

// TestBucket_ClockMayStandStill: what comes at one instant, or before the last one, gains
// nothing.
func TestBucket_ClockMayStandStill(t *testing.T) {
	b := New(mono.Time(time.Minute), one(Caps{RPM: 1}))
	b.Take(mono.Time(time.Minute), &a, Estimate{})
	for _, at := range []mono.Time{0, mono.Time(time.Minute), mono.Time(2*time.Minute - 1)} {
		if b.Take(at, &a, Estimate{}).Outcome != Refused {
			t.Errorf("let in at %d", at)
		}
	}
}

// TestBucket_DebtIsBounded however much an endpoint claims.
func TestBucket_DebtIsBounded(t *testing.T) {
	b := New(0, one(Caps{TPM: MostTokens, Burst: MostBurst, Weights: Weights{MostWeight, MostWeight, MostWeight}}))
	for range 20 {
		g := b.keep(grant{held: true, running: true, line: none, scopes: 1, accounts: [mostScopes]*account{b.order[0]}})
		b.Settle(0, g, Usage{Input: 1 << 40, Output: 1 << 40})
	}
	if l := b.order[0].tokens.level; l < -maxDebt || l > 0 {
		t.Errorf("level %d", l)
	}
	if v := b.Take(0, &a, Estimate{}); v.Outcome != Refused || v.Retry <= 0 || v.Retry > maxRetry {
		t.Errorf("%+v", v)
	}
}

// TestBook_DoesNotAllocate once it is grown.
func TestBook_DoesNotAllocate(t *testing.T) {
	b, who := busy()
	now := mono.Time(0)
	if n := testing.AllocsPerRun(1000, func() {
		now += 1000
		v := b.Take(now, &who, Estimate{Input: 100, MaxOutput: 50})
		b.Settle(now, v.Grant, Usage{Input: 100, Output: 40, Whole: true})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// busy is a book with a thousand tenants, and one of their callers.
func busy() (*Book, Caller) {
	c := Config{FanOut: FanOut{Concurrency: 8, Waiting: 64}}
	caps := Caps{Concurrency: 1e6, RPM: 1e7, TPM: 1e9}
	for i := range 1000 {
		c.Rules = append(c.Rules, Rule{Scope{Kind: Tenant, Name: fmt.Sprint("tenant-", i)}, caps}, Rule{Scope{Kind: Key, Name: fmt.Sprint("key-", i)}, caps})
	}
	c.Rules = append(c.Rules, Rule{Scope{Kind: Model, Name: "m"}, caps}, Rule{Scope{TenantModel, "tenant-7", "m"}, caps})
	return New(0, c), Caller{Tenant: "tenant-7", Key: "key-7", Model: "m", Conversation: 1}
}

// BenchmarkTakeSettle is a call's whole stay, with all kinds of scopes.
func BenchmarkTakeSettle(b *testing.B) {
	book, who := busy()
	now := mono.Time(0)
	b.ReportAllocs()
	for b.Loop() {
		now += 100_000
		who.Conversation++
		v := book.Take(now, &who, Estimate{Input: 100, MaxOutput: 50})
		if v.Outcome != Granted {
			b.Fatalf("%+v", v)
		}
		book.Settle(now, v.Grant, Usage{Input: 100, Output: 40, Whole: true})
	}
}

// BenchmarkWaitInLine is the same for a call that waits for a sibling.
func BenchmarkWaitInLine(b *testing.B) {
	book, who := busy()
	now := mono.Time(0)
	var running []Grant
	for range 8 {
		running = append(running, book.Take(now, &who, Estimate{}).Grant)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		now += 100_000
		book.Take(now, &who, Estimate{Input: 100, MaxOutput: 50})
		words := book.Settle(now, running[i%8], Usage{Input: 100, Output: 40})
		running[i%8] = words[0].Grant
	}
}

// TestBook_ALoweredCapDoesNotEmptyTheLine: those who wait go on waiting while siblings run.
func TestBook_ALoweredCapDoesNotEmptyTheLine(t *testing.T) {
	c := one(Caps{Concurrency: 8})
	c.FanOut = FanOut{Concurrency: 8, Waiting: 500}
	b := New(0, c)
	who := Caller{Tenant: "a", Conversation: 7}
	var all []Grant
	for range 208 {
		all = append(all, b.Take(0, &who, Estimate{}).Grant)
	}
	c.Rules[0].Caps.Concurrency = 6
	b.Configure(0, c)
	let := 0
	for i, g := range all {
		for _, w := range b.Settle(0, g, Usage{}) {
			if let++; w.Verdict.Outcome != Granted || w.Grant != all[7+let] {
				t.Fatalf("%+v, want %v let in", w, all[7+let])
			}
		}
		if want := max(i-1, 0); let != min(want, 200) {
			t.Fatalf("after %d ends %d of those that waited were let in, want %d", i+1, let, want)
		}
	}
}
