package telemetry

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"
)

func windowed(slo SLO) *Metrics {
	m := New(prometheus.NewRegistry())
	m.Configure([]ModelPools{{Model: "m", SLO: slo, Pools: []PoolEndpoints{{Pool: "p", Endpoints: []string{"a", "b"}}}}})
	return m
}

// drained returns what Drain hands out, copied.
func drained(m *Metrics) (calls map[string][]Ended, lost int) {
	calls = map[string][]Ended{}
	m.Drain(func(model string, ended []Ended, n int) {
		calls[model] = append(calls[model], ended...)
		lost += n
	})
	return calls, lost
}

func TestWindow_HandsOutEachCallOnce(t *testing.T) {
	m := windowed(SLO{})
	m.Call(&Call{Model: "m", Pool: "p", Endpoint: "a", Outcome: Success, Attempts: 3})
	m.Call(&Call{Model: "gone", Outcome: Refused, Refusal: UnknownModel})
	for i, want := range []map[string]int{{"m": 1, "": 1}, {"m": 0, "": 0}} {
		calls, lost := drained(m)
		for model, n := range want {
			if len(calls[model]) != n || lost != 0 {
				t.Errorf("drain %d: %d calls of %q and %d lost, want %d and 0", i, len(calls[model]), model, lost, n)
			}
		}
		if i == 0 && calls["m"][0] != (Ended{Pool: "p", Endpoint: "a", Outcome: Success, Retries: 2}) {
			t.Errorf("the call is %+v", calls["m"][0])
		}
	}
}

func TestWindow_AHedgeIsNoRetry(t *testing.T) {
	m := windowed(SLO{})
	for _, attempts := range []int{0, 2, 3} { // a record may end before its attempts are counted
		m.Call(&Call{Model: "m", Outcome: Success, Attempts: attempts, Hedged: true})
	}
	calls, _ := drained(m)
	for i, want := range []int{0, 0, 1} {
		if got := calls["m"][i].Retries; got != want {
			t.Errorf("call %d has %d retries, want %d", i, got, want)
		}
	}
}

func TestWindow_IsBounded_WhenNobodyLooks(t *testing.T) {
	m := windowed(SLO{})
	for range windowMost + 7 {
		m.Call(&Call{Model: "m", Outcome: Success})
	}
	calls, lost := drained(m)
	if len(calls["m"]) != windowMost || lost != 7 {
		t.Errorf("%d calls and %d lost, want %d and 7", len(calls["m"]), lost, windowMost)
	}
	if _, lost := drained(m); lost != 0 {
		t.Errorf("%d are lost again", lost)
	}
}

func TestWindow_LosesNothing_WhileSomebodyLooks(t *testing.T) {
	m := windowed(SLO{})
	const callers, each = 8, 2000
	var calling sync.WaitGroup
	for range callers {
		calling.Go(func() {
			for i := range each {
				m.Call(&Call{Model: "m", Pool: "p", Endpoint: "a", Outcome: Success, UsageKnown: true, OutputTokens: i})
			}
		})
	}
	over := make(chan struct{})
	go func() { calling.Wait(); close(over) }()
	n, tokens := 0, 0
	for last := false; !last; {
		select {
		case <-over:
			last = true
		default:
		}
		calls, lost := drained(m)
		n += len(calls["m"]) + lost
		for _, c := range calls["m"] {
			tokens += c.Output
		}
	}
	if want := callers * each * (each - 1) / 2; n != callers*each || tokens != want {
		t.Errorf("%d calls with %d tokens, want %d with %d", n, tokens, callers*each, want)
	}
}

func TestGoodput_JudgesCallsThatCouldMeetTheSLO(t *testing.T) {
	slo := SLO{TTFT: time.Second, TPOT: 50 * time.Millisecond}
	good := Call{Model: "m", Outcome: Success, Stream: true, TTFT: time.Second, E2E: time.Second + 450*time.Millisecond, UsageKnown: true, OutputTokens: 10}
	with := func(change func(*Call)) Call { c := good; change(&c); return c }
	for name, c := range map[string]struct {
		slo            SLO
		call           Call
		judged, within bool
	}{
		"at both bounds":           {slo, good, true, true},
		"first token late":         {slo, with(func(c *Call) { c.TTFT, c.E2E = c.TTFT+1, c.E2E+1 }), true, false},
		"tokens late":              {slo, with(func(c *Call) { c.E2E += 10 }), true, false},
		"only the first bound":     {SLO{TTFT: time.Second}, with(func(c *Call) { c.E2E += time.Hour }), true, true},
		"only the second bound":    {SLO{TPOT: 50 * time.Millisecond}, with(func(c *Call) { c.TTFT, c.E2E = c.TTFT+time.Hour, c.E2E+time.Hour }), true, true},
		"no usage":                 {slo, with(func(c *Call) { c.UsageKnown = false; c.E2E += time.Hour }), true, true},
		"one token":                {slo, with(func(c *Call) { c.OutputTokens = 1; c.E2E += time.Hour }), true, true},
		"not streamed":             {slo, with(func(c *Call) { c.Stream, c.TTFT = false, 0 }), false, false},
		"no content":               {slo, with(func(c *Call) { c.TTFT = 0 }), false, false},
		"no SLO":                   {SLO{}, good, false, false},
		"failed":                   {slo, with(func(c *Call) { c.Outcome = EndpointFailure }), true, false},
		"pushed back":              {slo, with(func(c *Call) { c.Outcome = BackPressure }), true, false},
		"refused for want of room": {slo, Call{Model: "m", Outcome: Refused, Refusal: QueueFull}, true, false},
		"refused as unreadable":    {slo, Call{Model: "m", Outcome: Refused, Refusal: BadRequest}, false, false},
		"caller's fault":           {slo, with(func(c *Call) { c.Outcome = CallerFault }), false, false},
		"client gone":              {slo, with(func(c *Call) { c.Outcome = ClientGone }), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := windowed(c.slo)
			m.Call(&c.call)
			calls, _ := drained(m)
			if got := calls["m"][0]; got.Judged != c.judged || got.Within != c.within {
				t.Errorf("judged %v, within %v; want %v, %v", got.Judged, got.Within, c.judged, c.within)
			}
		})
	}
}

// naive is a Sum of calls by definition.
func naive(calls []Ended, pairs int) Sum {
	var s Sum
	var ttft, tpot, errors []float64
	for _, c := range calls {
		s.Calls++
		s.Outcomes[c.Outcome]++
		s.Retries += c.Retries
		s.Output += c.Output
		s.Prompt += c.Prompt
		s.Cached += c.Cached
		if c.Reported {
			s.Reported++
		}
		if c.Judged {
			s.Judged++
		}
		if c.Within {
			s.Within++
		}
		if c.TTFT > 0 {
			ttft = append(ttft, c.TTFT.Seconds())
		}
		if c.TPOT > 0 {
			tpot = append(tpot, c.TPOT.Seconds())
		}
		if c.Predicted > 0 && c.Actual > 0 {
			errors = append(errors, math.Abs((c.Predicted-c.Actual).Seconds())/c.Actual.Seconds())
			s.Pairs = append(s.Pairs, Pair{c.Predicted, c.Actual})
		}
	}
	s.Pairs = s.Pairs[max(len(s.Pairs)-pairs, 0):]
	s.Predictions = len(errors)
	s.TTFT, s.TPOT, s.Errors = nearestRank(ttft), nearestRank(tpot), nearestRank(errors)
	return s
}

func nearestRank(values []float64) Quantiles {
	q := Quantiles{N: len(values)}
	if q.N == 0 {
		return q
	}
	slices.Sort(values)
	at := func(q float64) float64 { return values[max(int(math.Ceil(q*float64(len(values)))), 1)-1] }
	q.P50, q.P95, q.P99 = at(0.5), at(0.95), at(0.99)
	return q
}

// sameSum compares all but Covers; quantiles to within what is promised.
func sameSum(got, want Sum) error {
	for _, q := range []struct {
		name      string
		got, want Quantiles
	}{{"TTFT", got.TTFT, want.TTFT}, {"TPOT", got.TPOT, want.TPOT}, {"errors", got.Errors, want.Errors}} {
		if q.got.N != q.want.N {
			return fmt.Errorf("%s of %d calls, want %d", q.name, q.got.N, q.want.N)
		}
		for _, v := range [][2]float64{{q.got.P50, q.want.P50}, {q.got.P95, q.want.P95}, {q.got.P99, q.want.P99}} {
			if off := math.Abs(v[0] - v[1]); off > 0.008*v[1]+2e-6 {
				return fmt.Errorf("%s: %v, want %v", q.name, q.got, q.want)
			}
		}
	}
	got.TTFT, got.TPOT, got.Errors, got.Covers = want.TTFT, want.TPOT, want.Errors, want.Covers
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		return fmt.Errorf("%s\nwant %s", g, w)
	}
	return nil
}

func TestTrail_IsWhatANaiveSumSays(t *testing.T) {
	micro := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.OneOf(rapid.Int64Range(0, 300), rapid.Int64Range(0, 60e6)).Draw(t, "µs")) * time.Microsecond
	})
	ended := rapid.Custom(func(t *rapid.T) Ended {
		e := Ended{
			Pool: "p", Endpoint: rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "endpoint"),
			Outcome: Outcome(rapid.IntRange(1, int(outcomes)-1).Draw(t, "outcome")), Retries: rapid.IntRange(0, 5).Draw(t, "retries"),
			TTFT: micro.Draw(t, "ttft"), TPOT: micro.Draw(t, "tpot"), Output: rapid.IntRange(0, 5000).Draw(t, "output"),
			Judged: rapid.Bool().Draw(t, "judged"), Reported: rapid.Bool().Draw(t, "reported"),
		}
		e.Within = e.Judged && rapid.Bool().Draw(t, "within")
		if e.Endpoint == "" {
			e.Pool = ""
		}
		if rapid.Bool().Draw(t, "compared") {
			e.Predicted, e.Actual = micro.Draw(t, "predicted")+time.Microsecond, micro.Draw(t, "actual")+time.Microsecond
		}
		if e.Prompt = rapid.IntRange(0, 5000).Draw(t, "prompt"); e.Prompt > 0 {
			e.Cached = rapid.IntRange(0, e.Prompt).Draw(t, "cached")
		}
		return e
	})
	rapid.Check(t, func(t *rapid.T) {
		start := time.Unix(1e9, 0)
		span := time.Duration(rapid.IntRange(1, 8).Draw(t, "span")) * time.Second
		trail := NewTrail(start, span)
		type timed struct {
			at time.Time
			Ended
		}
		var all []timed
		now := start
		for range rapid.IntRange(1, 20).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(100, 2500).Draw(t, "ms")) * time.Millisecond)
			calls := rapid.SliceOfN(ended, 0, 12).Draw(t, "calls")
			trail.Add(now, calls)
			for _, c := range calls {
				all = append(all, timed{now, c})
			}
			within := func(d time.Duration, of func(Ended) bool) (calls []Ended) {
				for _, c := range all {
					if now.Sub(c.at) < d && of(c.Ended) {
						calls = append(calls, c.Ended)
					}
				}
				return calls
			}
			everybody := func(Ended) bool { return true }
			got, endpoints := trail.Sums(5)
			if err := sameSum(got, naive(within(span, everybody), 5)); err != nil {
				t.Fatal(err)
			}
			if got.Covers <= 0 || got.Covers > now.Sub(start) || got.Covers >= span+2500*time.Millisecond {
				t.Fatalf("covers %v of %v, span %v", got.Covers, now.Sub(start), span)
			}
			for _, name := range []string{"a", "b", "c"} {
				want := naive(within(span, func(e Ended) bool { return e.Endpoint == name }), 0)
				e, there := endpoints[[2]string{"p", name}]
				if err := sameSum(e, want); err != nil || there != (want.Calls > 0) {
					t.Fatalf("endpoint %s (%v): %v", name, there, err)
				}
			}
			recent := time.Duration(rapid.IntRange(1, 3).Draw(t, "recent")) * time.Second
			if err := sameSum(trail.Recent(recent), naive(within(min(recent, span), everybody), 0)); err != nil {
				t.Fatalf("of the last %v: %v", recent, err)
			}
		}
	})
}

func TestTrail_ReachesLessFarBack_WhenMoreCallsEndThanItKeeps(t *testing.T) {
	now := time.Unix(1e9, 0)
	trail := NewTrail(now, time.Minute)
	batch := make([]Ended, trailMost/8)
	for range 20 {
		now = now.Add(time.Second)
		trail.Add(now, batch)
		if trail.calls > trailMost {
			t.Fatalf("%d calls are kept", trail.calls)
		}
	}
	if all, _ := trail.Sums(0); all.Calls != trailMost || all.Covers != 8*time.Second {
		t.Errorf("%d calls of %v, want %d of 8 s", all.Calls, all.Covers, trailMost)
	}
	if size := unsafe.Sizeof(step{}); size > 40 {
		t.Errorf("a call takes %d bytes, at most 40 are promised", size)
	}
}

func TestTrail_ForgetsEndpointsThatAreGone(t *testing.T) {
	now := time.Unix(1e9, 0)
	trail := NewTrail(now, 2*time.Second)
	for i := range trailMost + 2000 {
		if i%1000 == 0 {
			now = now.Add(time.Second)
		}
		trail.Add(now, []Ended{{Pool: "p", Endpoint: fmt.Sprint(i), Outcome: Success}})
	}
	if len(trail.names) > 4000 {
		t.Errorf("%d names are kept", len(trail.names))
	}
	last := fmt.Sprint(trailMost + 1999)
	if _, by := trail.Sums(0); by[[2]string{"p", last}].Calls != 1 {
		t.Error("the newest endpoint has lost its call")
	}
}

// BenchmarkWindow is what a call that ends pays.
func BenchmarkWindow(b *testing.B) {
	w := &window{slo: SLO{TTFT: time.Second, TPOT: 50 * time.Millisecond}}
	c := &Call{
		Model: "m", Pool: "p", Endpoint: "a", Outcome: Success, Attempts: 1, Stream: true, UsageKnown: true, CachedKnown: true,
		PromptTokens: 900, CachedTokens: 512, OutputTokens: 128, TTFT: 120 * time.Millisecond, PredictedTTFT: 110 * time.Millisecond, E2E: 2 * time.Second,
	}
	nothing := func([]Ended, int) {}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		w.add(c)
		if n++; n%1000 == 0 { // as often as at 1,000 calls a second
			w.drain(nothing)
		}
	}
}

// BenchmarkSums is what a look costs at 1,000 calls a second to 50 endpoints.
func BenchmarkSums(b *testing.B) {
	now := time.Unix(1e9, 0)
	trail := NewTrail(now, time.Minute)
	for range 60 {
		now = now.Add(time.Second)
		calls := make([]Ended, 1000)
		for i := range calls {
			calls[i] = Ended{Pool: "p", Endpoint: fmt.Sprint(i % 50), Outcome: Success, TTFT: time.Duration(i) * time.Millisecond,
				TPOT: time.Duration(10+i%30) * time.Millisecond, Predicted: time.Duration(1+i) * time.Millisecond, Actual: time.Duration(2+i) * time.Millisecond}
		}
		trail.Add(now, calls)
	}
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			trail.Sums(200)
		}
	})
	b.Run("recent", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			trail.Recent(10 * time.Second)
		}
	})
}
