package policy

import (
	"math"
	"slices"
	"testing"

	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// scorers returns a weighted-scorers with changed parameters.
func scorers(change func(c *WeightedScorers)) selection.Policy {
	rule, _ := Lookup("weighted-scorers")
	c := rule.Params().(*WeightedScorers)
	if change != nil {
		change(c)
	}
	return c.New()
}

// TestWeightedScorersInNumbers is the default profile: queue 2, KV utilization 2, prefix 3.
func TestWeightedScorersInNumbers(t *testing.T) {
	v, q := newView(3), newRequest(1, 10)
	reports(v, 0, 0.75, 4, 10) // 2·0 + 2·0.25 + 3·1 = 3.5
	v.Overlap[0] = 10
	reports(v, 1, 0.5, 2, 10) // 2·0.5 + 2·0.5 + 3·0.5 = 3.5
	v.Overlap[1] = 5
	reports(v, 2, 0, 0, 10) // 2·1 + 2·1 + 0 = 4
	c := pick(scorers(nil), v, q, 0)
	if want := []float64{3.5, 3.5, 3}; !slices.Equal(v.Scores, want) || c != (selection.Choice{Index: 2, Reason: ReasonScored}) {
		t.Errorf("chose %+v by %v, want 2 by %v", c, v.Scores, want)
	}
}

// TestWeightedScorersKeepThePeersDefaults: an endpoint with the whole prompt wins whatever
// its queue, and half of it loses against an empty queue where its own has one call.
func TestWeightedScorersKeepThePeersDefaults(t *testing.T) {
	v, q := newView(2), newRequest(1, 10)
	reports(v, 0, 0.4, 500, 256)
	reports(v, 1, 0, 0, 0)
	v.Overlap[0] = 10
	if c := pick(scorers(nil), v, q, 0); c.Index != 0 {
		t.Errorf("500 waiting calls count: %v", v.Scores)
	}
	reports(v, 0, 0.51, 0, 0)
	reports(v, 1, 0, 0, 0)
	if c := pick(scorers(nil), v, q, 0); c.Index != 0 {
		t.Errorf("of equal queues half of the blocks count: %v", v.Scores)
	}
	reports(v, 0, 0, 1, 0)
	v.Overlap[0] = 6
	if c := pick(scorers(nil), v, q, 0); c.Index != 1 {
		t.Errorf("one waiting call doesn't count: %v", v.Scores)
	}
}

// TestWeightedScorersDontTrustSilence: what llm-d was found to do, to send every call to the
// endpoints that never answered a scrape, is not done.
func TestWeightedScorersDontTrustSilence(t *testing.T) {
	v, q := newView(4), newRequest(1, 10)
	reports(v, 0, 0.3, 1, 5)
	reports(v, 1, 0.5, 2, 5)
	v.Endpoints[2].Load, v.Endpoints[3].Load = signal.Load{}, signal.Load{}
	for draw := range 100 {
		if c := pick(scorers(nil), v, q, draw); c.Index > 1 && v.Scores[c.Index] < v.Scores[0] {
			t.Fatalf("%d is preferred without a report: %v", c.Index, v.Scores)
		}
	}
	if want := []float64{3 + 2*0.3, 3 + 2 + 2*0.5, 3 + 2*0.3, 3 + 2*0.3}; !near(v.Scores, want) {
		t.Errorf("scores %v, want %v", v.Scores, want)
	}
}

// TestWeightedScorersClamp: a score beyond 0 to 1 counts as what is nearest.
func TestWeightedScorersClamp(t *testing.T) {
	v, q := newView(2), newRequest(1, 10)
	reports(v, 0, 1.5, 0, 0)
	reports(v, 1, 1, 0, 0)
	v.Overlap[0] = 20
	if pick(scorers(nil), v, q, 0); !slices.Equal(v.Scores, []float64{2, 5}) {
		t.Errorf("scores %v, want 2 and 5", v.Scores)
	}
}

func near(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Abs(x-y) < 1e-12 })
}

func TestWeightedScorersFilter(t *testing.T) {
	v, q := newView(4), newRequest(1, 10)
	copy(v.Overlap, []int32{10, 8, 2, 0})
	v.Book[0].Outstanding = 9
	p := scorers(func(c *WeightedScorers) { c.AffinityThreshold, c.MaxActiveRequests = 0.8, 8 })
	c := pick(p, v, q, 0)
	if nan := math.NaN(); c.Index != 1 || !sameScores(v.Scores, []float64{nan, v.Scores[1], nan, nan}) {
		t.Errorf("chose %+v by %v, want 1, which alone is left", c, v.Scores)
	}
	if want := []selection.Slot{0, 1, 2, 3}; !slices.Equal(v.Candidates, want) {
		t.Errorf("the view's candidates became %v", v.Candidates)
	}
}

// TestWeightedScorersRemember: a session stays where it was, and calls of which nobody holds
// a block go round.
func TestWeightedScorersRemember(t *testing.T) {
	v := newView(4)
	p := scorers(func(c *WeightedScorers) { c.SessionAffinityWeight = 10 })
	home := picked(p, v, newRequest(1, 10), 0)
	for draw := range 20 {
		if got := picked(p, v, newRequest(1, 10), draw); got != home {
			t.Fatalf("the session moved from %d to %d", home, got)
		}
	}
	byHeader := scorers(func(c *WeightedScorers) { c.SessionAffinityWeight, c.SessionHeader = 10, "x-session-id" })
	withoutSessions := scorers(func(c *WeightedScorers) { c.SessionHeader = "x-session-id" })
	if p.(selection.KeyUser).KeyHeader() != "" || byHeader.(selection.KeyUser).KeyHeader() != "x-session-id" || withoutSessions.(selection.KeyUser).KeyHeader() != "" {
		t.Error("the header is asked for where it isn't needed, or the reverse")
	}
	home = picked(byHeader, v, newRequest(1, 10), 0)
	for draw := range 20 {
		q := newRequest(1, 10)
		q.Conversation = kvblock.Hash(draw + 1)
		if got := picked(byHeader, v, q, draw); got != home {
			t.Fatalf("the header's session moved from %d to %d", home, got)
		}
	}
	home = picked(p, v, newRequest(1, 10), 0)
	p.(selection.Forgetter).Forget(home)
	moved := false
	for draw := range 20 {
		moved = moved || picked(scorers(func(c *WeightedScorers) { c.SessionAffinityWeight = 10 }), v, newRequest(1, 10), draw) != home
	}
	if !moved {
		t.Error("equals are not drawn")
	}
	p = scorers(func(c *WeightedScorers) { c.NoHitLRUWeight = 1 })
	var seen []selection.Slot
	for draw := range 8 {
		seen = append(seen, picked(p, v, newRequest(draw, 10), draw))
	}
	if first := slices.Sorted(slices.Values(seen[:4])); !slices.Equal(first, v.Candidates) || !slices.Equal(seen[:4], seen[4:]) {
		t.Errorf("cold calls went to %v", seen)
	}
}

// TestWeightedScorersPickers compares the shares of calls with what each picker promises.
func TestWeightedScorersPickers(t *testing.T) {
	const draws = 20000
	v, q := newView(4), newRequest(1, 10)
	copy(v.Overlap, []int32{10, 5, 5, 0})
	for picker, weights := range map[string][]float64{
		pickMaxScore: {1, 0, 0, 0}, pickRandom: {1, 1, 1, 1}, pickWeightedRandom: {1, 0.5, 0.5, 0},
	} {
		p := scorers(func(c *WeightedScorers) {
			c.QueueWeight, c.KVCacheUtilizationWeight, c.Picker = 0, 0, picker
		})
		counts, sum := make([]float64, 4), 0.0
		for draw := range draws {
			counts[pick(p, v, q, draw).Index]++
		}
		for _, w := range weights {
			sum += w
		}
		for i, w := range weights {
			want := draws * w / sum
			if d := math.Abs(counts[i] - want); d > 4*math.Sqrt(want) {
				t.Errorf("%s: %v, want %.0f for %d", picker, counts, want, i)
			}
		}
	}
	copy(v.Overlap, []int32{0, 0, 0, 0})
	p := scorers(func(c *WeightedScorers) {
		c.QueueWeight, c.KVCacheUtilizationWeight, c.Picker = 0, 0, pickWeightedRandom
	})
	seen := map[int]bool{}
	for draw := range 100 {
		seen[pick(p, v, q, draw).Index] = true
	}
	if len(seen) != 4 {
		t.Errorf("without any score only %v are picked", seen)
	}
}

// TestWeightedScorersDontAllocate, with everything on.
func TestWeightedScorersDontAllocate(t *testing.T) {
	p := scorers(func(c *WeightedScorers) {
		c.RunningRequestsWeight, c.ActiveRequestWeight, c.TokenLoadWeight, c.NoHitLRUWeight, c.SessionAffinityWeight = 1, 1, 1, 1, 1
		c.AffinityThreshold, c.MaxActiveRequests, c.MaxKVCacheUtilization = 0.5, 10, 0.9
	})
	v := busyView(100)
	for i := 0; i < 100; i += 3 {
		v.Endpoints[i].Load.Waiting = signal.Gauge{}
	}
	var r seed.Rand
	i := 0
	requests := []*selection.Request{newRequest(1, 64), newRequest(2, 64), newRequest(3, 0)}
	one := func() {
		p.Pick(v, requests[i%len(requests)], &r)
		i++
	}
	for range 10 {
		one()
	}
	if got := testing.AllocsPerRun(100, one); got != 0 {
		t.Errorf("%v allocations a pick", got)
	}
}
