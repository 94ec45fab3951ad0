package lab

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// TestRoutingTrace_HasTheArticlesMoments: prompts have mean 957, CV 0.75, and are 436 to 3,079
// long; one in five is long; arrivals are λ = 0.20 a tick.
func TestRoutingTrace_HasTheArticlesMoments(t *testing.T) {
	x := routingLab().settings().(*routing)
	var n, sum, squares, long, last float64
	least, most := math.MaxInt, 0
	for root := range uint64(200) {
		calls := x.trace(root, x.rate)
		for _, c := range calls {
			p := c.prompt()
			least, most = min(least, p), max(most, p)
			n, sum, squares = n+1, sum+float64(p), squares+float64(p*p)
			if c.family >= x.short {
				long++
			}
		}
		last += float64(calls[len(calls)-1].at)
	}
	mean := sum / n
	cv := math.Sqrt(squares/n-mean*mean) / mean
	if math.Abs(mean-957) > 10 || math.Abs(cv-0.75) > 0.01 || least != 436 || most != 3079 {
		t.Errorf("prompts: mean %v, CV %v, %d to %d", mean, cv, least, most)
	}
	if math.Abs(long/n-0.2) > 0.01 || math.Abs(n/last-0.2) > 0.005 {
		t.Errorf("%v of the prompts are long, %v arrive a tick", long/n, n/last)
	}
}

// TestRouting_LosesNothing: under every rule each call is prefilled once, put out whole, and
// later than it came; no replica holds more KV than it has, or more calls than places.
func TestRouting_LosesNothing(t *testing.T) {
	for root := range uint64(5) {
		x := routingLab().settings().(*routing)
		for _, ru := range x.rules() {
			calls := x.trace(root, x.rate)
			replicas := make([]*replica, x.replicas)
			for i := range replicas {
				replicas[i] = newReplica(x.prefill, x.kv, x.slots)
			}
			choose := x.chooser(ru, replicas, root)
			want := 0
			for i := range calls {
				want += calls[i].output
			}
			next, got, done := 0, 0, 0
			for tick := 0; done < len(calls); tick++ {
				for next < len(calls) && calls[next].at <= tick {
					replicas[choose(&calls[next])].accept(&calls[next])
					next++
				}
				done = 0
				for _, r := range replicas {
					got += r.step(tick)
					done += r.completed
					inside, queued := 0, 0
					for _, c := range r.running {
						inside += c.need
					}
					if r.prefilling != nil {
						inside += r.prefilling.need
					}
					for _, c := range r.waiting {
						queued += c.prompt() + c.output
					}
					if r.used != inside || r.queued != queued || r.used > r.capacity || len(r.running) > r.slots || r.assigned != r.completed+r.outstanding() {
						t.Fatalf("%s, tick %d: KV %d of %d, counted %d; queued %d, counted %d; %d running; %d assigned, %d completed, %d outstanding",
							ru.name, tick, r.used, r.capacity, inside, r.queued, queued, len(r.running), r.assigned, r.completed, r.outstanding())
					}
				}
			}
			if got != want || next != len(calls) {
				t.Errorf("%s: %d of %d tokens were put out", ru.name, got, want)
			}
			for _, c := range calls {
				if !(c.at < c.first && c.first <= c.end) || c.end-c.first < c.output-1 {
					t.Fatalf("%s: %+v", ru.name, c)
				}
			}
		}
	}
}

// TestReplica_ByHand: a prefill stops decode, what is cached is neither prefilled nor held, and
// nobody overtakes.
func TestReplica_ByHand(t *testing.T) {
	r := newReplica(100, 1000, 2)
	a := &call{family: 0, head: 200, tail: 50, output: 4}
	b := &call{family: 0, head: 200, tail: 50, output: 2}
	c := &call{family: 1, head: 900, tail: 50, output: 1}
	d := &call{family: 0, head: 200, tail: 10, output: 1}
	for _, q := range []*call{a, b, c, d} {
		r.accept(q)
	}
	if r.queued != 254+252+951+211 {
		t.Errorf("queued %d", r.queued)
	}
	var output []int
	for tick := range 17 {
		output = append(output, r.step(tick))
		switch tick {
		case 0:
			if r.used != 254 {
				t.Errorf("A holds %d", r.used)
			}
		case 3:
			if r.used != 254+52 {
				t.Errorf("A and B, of which 200 are cached, hold %d", r.used)
			}
		}
	}
	// A is prefilled in ticks 0 to 2, B in 3; then they fill the two places. B ends in 4. C does
	// not fit beside A, and D waits behind it, until A has ended in 6.
	want := []int{0, 0, 1, 1, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}
	for i := range want {
		if output[i] != want[i] {
			t.Fatalf("output %v, want %v", output, want)
		}
	}
	if !b.cached || a.cached || c.cached || a.first != 3 || b.first != 4 || b.end != 5 || a.end != 7 || c.end != 17 {
		t.Errorf("A %+v\nB %+v\nC %+v", *a, *b, *c)
	}
}

// TestLeastOccupied_IsBlindToTheQueue: the flaw that the article describes. Calls that wait
// hold nothing, and are asked only where what is held is equal.
func TestLeastOccupied_IsBlindToTheQueue(t *testing.T) {
	x := routingLab().settings().(*routing)
	two := []*replica{newReplica(x.prefill, x.kv, x.slots), newReplica(x.prefill, x.kv, x.slots)}
	choose := x.chooser(x.rules()[leastKV], two, 1)
	two[0].used, two[0].queued, two[1].queued = 1, 0, 1_000_000
	for range 20 {
		if i := choose(&call{}); i != 1 {
			t.Fatalf("replica %d was picked", i)
		}
	}
	two[0].used = 0
	for range 20 {
		if i := choose(&call{}); i != 0 {
			t.Fatalf("of equals, replica %d was picked", i)
		}
	}
	two[1].queued = 0
	picked := map[int]bool{}
	for range 20 {
		picked[choose(&call{})] = true
	}
	if len(picked) != 2 {
		t.Errorf("of equals only %v were picked", picked)
	}
}

// TestRouting_ThroughputAndTailAreTwoEndsOfADial pins why a claim does not hold: with a low
// threshold prefix-aware puts out more than least outstanding, and then it does not lose
// the tail.
func TestRouting_ThroughputAndTailAreTwoEndsOfADial(t *testing.T) {
	for threshold, want := range map[int][2]Outcome{3: {Holds, DoesNotHold}, 6: {DoesNotHold, Holds}} {
		x := routingLab().settings().(*routing)
		x.threshold = threshold
		least, aware := x.repeat(x.rules()[leastOutstanding], DefaultSeeds, x.rate), x.repeat(x.rules()[prefixAware], DefaultSeeds, x.rate)
		output, tail := above("", "", aware.throughput, least.throughput, 2, ""), above("", "", aware.p95, least.p95, 1, "")
		if output.Outcome != want[0] || tail.Outcome != want[1] {
			t.Errorf("threshold %d: output %s, %s; tail %s, %s", threshold, output.Outcome, output.Ours, tail.Outcome, tail.Ours)
		}
	}
}

// TestRouting_ShowsTheRunOfTheRule: each replica completes what it was assigned, all calls together,
// and the plot's longest queue is the one that its sentence names.
func TestRouting_ShowsTheRunOfTheRule(t *testing.T) {
	for _, key := range ruleKeys {
		x := routingLab().settings().(*routing)
		x.shown = key
		table, plot := x.show()
		sum := 0.0
		for _, row := range table.Rows {
			if row[1].Value() != row[2].Value() || row[4].Value() > row[3].Value() || row[3].Value() > 100 {
				t.Errorf("%s: replica %v", key, row)
			}
			sum += row[1].Value()
		}
		if sum != float64(x.requests) {
			t.Errorf("%s: %v of %d requests were assigned", key, sum, x.requests)
		}
		longest, of, at := 0.0, 0, 0.0
		for i, s := range plot.Series {
			for n, y := range s.Y {
				if y > longest || y == longest && s.X[n] < at {
					longest, of, at = y, i+1, s.X[n]
				}
			}
		}
		if want := fmt.Sprintf("The longest queue is replica %d's, %v requests in tick ", of, longest); !strings.HasPrefix(plot.Says, want) {
			t.Errorf("%s: %q, want %q", key, plot.Says, want)
		}
	}
}
