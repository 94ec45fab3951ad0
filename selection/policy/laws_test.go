package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// The laws below hold for every rule of the catalogue, with the exceptions that each
// names. A rule that is added to the catalogue is tested without further ado.

// eachRule runs a test for every rule.
func eachRule(t *testing.T, test func(t *testing.T, rule Rule)) {
	for _, rule := range Catalog() {
		t.Run(rule.Name, func(t *testing.T) { test(t, rule) })
	}
}

// drawGauge draws a number that an engine may report, wild ones included.
func drawGauge(t *rapid.T, now mono.Time, most float64) signal.Gauge {
	value := rapid.OneOf(
		rapid.Float64Range(0, most),
		rapid.SampledFrom([]float64{0, most, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e300, 5e-324, math.Copysign(0, -1)}),
	).Draw(t, "value")
	return signal.Gauge{
		Value: value,
		At:    now.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "age")) * time.Second),
		Known: rapid.Bool().Draw(t, "known"),
	}
}

// drawView draws a pool in any state.
func drawView(t *rapid.T) *selection.View {
	v := newView(rapid.IntRange(1, 9).Draw(t, "endpoints"))
	for i := range v.Endpoints {
		e := &v.Endpoints[i]
		e.Weight = rapid.SampledFrom([]float64{1, 1, 1, 2, 5, 0.5}).Draw(t, "weight")
		e.Load = signal.Load{
			Running: drawGauge(t, v.Now, 100), Waiting: drawGauge(t, v.Now, 50), KVUsage: drawGauge(t, v.Now, 1),
			KVBlocks: drawGauge(t, v.Now, 1e5), BlockTokens: drawGauge(t, v.Now, 64),
		}
		for range rapid.IntRange(0, 5).Draw(t, "calls") {
			charge(v, selection.Slot(i), rapid.IntRange(0, 5000).Draw(t, "tokens"))
		}
		v.Overlap[i] = int32(rapid.IntRange(0, 20).Draw(t, "overlap"))
		v.Active[i] = int32(rapid.IntRange(0, 20).Draw(t, "active"))
		v.Book[i].ActiveBlocks = int64(v.Active[i]) + int64(rapid.IntRange(0, 100).Draw(t, "active blocks"))
		v.AdapterCalls[i] = int32(rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "calls of the adapter"))
		v.Adapters[i] = v.AdapterCalls[i]/2 + int32(rapid.IntRange(0, 3).Draw(t, "adapters"))
		e.Load.Adapters = drawAdapters(t, v.Now)
	}
	drawCandidates(t, v)
	return v
}

// drawAdapters draws what an engine reports of adapters.
func drawAdapters(t *rapid.T, now mono.Time) signal.Adapters {
	if rapid.Bool().Draw(t, "no adapters") {
		return signal.Adapters{}
	}
	set := func(name string) (adapters []kvblock.Hash) {
		for _, a := range rapid.SliceOfN(rapid.IntRange(1, 3), 0, 3).Draw(t, name) {
			adapters = append(adapters, kvblock.Hash(a))
		}
		return adapters
	}
	at := now.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "age")) * time.Second)
	return signal.AdaptersOf(rapid.IntRange(0, 3).Draw(t, "slots"), set("running"), set("waiting"), at)
}

func drawCandidates(t *rapid.T, v *selection.View) {
	sure := rapid.SampledFrom(v.Members).Draw(t, "candidate")
	mask := rapid.Uint16().Draw(t, "candidates")
	v.Scores = v.Scores[:cap(v.Scores)]
	restrict(v, func(s selection.Slot) bool { return s == sure || mask>>s&1 == 1 })
}

func drawRequest(t *rapid.T) *selection.Request {
	q := newRequest(rapid.IntRange(0, 5).Draw(t, "request"), rapid.IntRange(0, 20).Draw(t, "blocks"))
	if rapid.Bool().Draw(t, "no header") {
		q.Key = 0
	}
	if len(q.Blocks) == 0 && rapid.Bool().Draw(t, "no prompt") {
		q.Head = 0
	}
	q.Adapter = kvblock.Hash(rapid.IntRange(0, 3).Draw(t, "adapter"))
	return q
}

// drawParams draws parameters that Validate accepts: the defaults or others.
func drawParams(t *rapid.T, rule Rule) Params {
	p := rule.Params()
	switch p := p.(type) {
	case *PowerOfTwo:
		p.ChoiceCount = rapid.IntRange(2, 12).Draw(t, "choice_count")
	case *WeightedLeastRequest:
		p.ActiveRequestBias = rapid.SampledFrom([]float64{0, 0.5, 1, 2, 30}).Draw(t, "active_request_bias")
	case *ConsistentHash:
		p.Key = rapid.SampledFrom([]string{"prompt", "header"}).Draw(t, "key")
		p.Blocks = rapid.IntRange(1, 25).Draw(t, "blocks")
		p.LoadFactor = rapid.SampledFrom([]float64{1.0000001, 1.25, 10}).Draw(t, "load_factor")
	case *CacheAware:
		p.CacheThreshold = rapid.SampledFrom([]float64{0, 0.3, 1}).Draw(t, "cache_threshold")
		p.BalanceAbsThreshold = rapid.IntRange(0, 5).Draw(t, "balance_abs_threshold")
	case *StickyUntilSaturated:
		p.AffinityThreshold = rapid.SampledFrom([]float64{0, 0.1, 0.8, 1}).Draw(t, "affinity_threshold")
		p.MaxTTFTPenalty = rapid.SampledFrom([]time.Duration{0, time.Nanosecond, 100 * time.Millisecond, 18 * time.Second}).Draw(t, "max_ttft_penalty")
		p.ExplorationProbability = rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "exploration_probability")
	case *KVCost:
		p.OverlapScoreCredit = rapid.SampledFrom([]float64{0, 1, 1.5}).Draw(t, "overlap_score_credit")
		p.PrefillLoadScale = rapid.SampledFrom([]float64{0, 1, 3}).Draw(t, "prefill_load_scale")
		p.DecodeActiveRequestWeight = rapid.SampledFrom([]float64{0, 1, 10}).Draw(t, "decode_active_request_weight")
		p.OverlapScoreCreditDecay = rapid.SampledFrom([]float64{0, 0.5, 10}).Draw(t, "overlap_score_credit_decay")
		p.RouterTemperature = rapid.SampledFrom([]float64{0, 0.1, 2}).Draw(t, "router_temperature")
	case *CacheAwareSpill:
		p.CacheThreshold = rapid.SampledFrom([]float64{0, 0.3, 1}).Draw(t, "cache_threshold")
		p.BalanceAbsThreshold = rapid.IntRange(0, 5).Draw(t, "balance_abs_threshold")
		p.BalanceRelThreshold = rapid.SampledFrom([]float64{1, 1.5}).Draw(t, "balance_rel_threshold")
		p.OverlapDecay = rapid.SampledFrom([]float64{0, 1, 10}).Draw(t, "overlap_decay")
		p.SelectionTemperature = rapid.SampledFrom([]float64{0, 0.1, 2}).Draw(t, "selection_temperature")
	case *WeightedScorers:
		for _, w := range []*float64{
			&p.QueueWeight, &p.KVCacheUtilizationWeight, &p.PrefixCacheWeight, &p.RunningRequestsWeight,
			&p.ActiveRequestWeight, &p.TokenLoadWeight, &p.NoHitLRUWeight, &p.LoRAAffinityWeight, &p.SessionAffinityWeight,
		} {
			*w = rapid.SampledFrom([]float64{0, 0, 1, 3}).Draw(t, "weight")
		}
		p.PrefixMatchLengthWeight = rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "prefix_match_length_weight")
		p.ActiveIdleThreshold = rapid.IntRange(0, 3).Draw(t, "active_idle_threshold")
		p.ActiveMaxBusyScore = rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "active_max_busy_score")
		p.QueueThresholdTokens = rapid.SampledFrom([]int{1, 5000, 4 << 20}).Draw(t, "queue_threshold_tokens")
		p.SessionTTL = rapid.SampledFrom([]time.Duration{1, time.Second, time.Hour}).Draw(t, "session_ttl")
		p.AffinityThreshold = rapid.SampledFrom([]float64{0, 0, 0.5, 1}).Draw(t, "affinity_threshold")
		p.MaxTTFTPenalty = rapid.SampledFrom([]time.Duration{0, 100 * time.Millisecond}).Draw(t, "max_ttft_penalty")
		p.ExplorationProbability = rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "exploration_probability")
		p.MaxActiveRequests = rapid.IntRange(0, 4).Draw(t, "max_active_requests")
		p.MaxWaitingRequests = rapid.SampledFrom([]int{0, 10}).Draw(t, "max_waiting_requests")
		p.Picker = rapid.SampledFrom([]string{pickMaxScore, pickRandom, pickWeightedRandom}).Draw(t, "picker")
	case *PrefixHash:
		p.PrefixTokenCount = rapid.SampledFrom([]int{1, 256, 2000}).Draw(t, "prefix_token_count")
		p.LoadFactor = rapid.SampledFrom([]float64{1, 1.25, 10}).Draw(t, "load_factor")
		p.BalanceAbsThreshold = rapid.IntRange(0, 5).Draw(t, "balance_abs_threshold")
	case *PredictedTTFT:
		for _, w := range []*float64{&p.Work, &p.Decode, &p.Interference, &p.Crowding} {
			*w = rapid.SampledFrom([]float64{0, 0.5, 1, 20}).Draw(t, "weight")
		}
		p.Window = rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Hour}).Draw(t, "window")
	case *LoRAAffinity:
		p.Then = rapid.SampledFrom([]string{
			"least-outstanding", "random", "power-of-two", "ewma-latency", "consistent-hash", "least-kv", "cache-aware",
		}).Draw(t, "then")
		p.Slack = rapid.IntRange(0, 5).Draw(t, "slack")
		p.Slots = rapid.IntRange(1, 3).Draw(t, "slots")
	}
	return p
}

// observe tells a policy that learns what came of a call.
func observe(p selection.Policy, e *selection.End) {
	if learner, ok := selection.As[selection.Learner](p); ok {
		learner.Learn(&e.Sample)
	}
	if learner, ok := selection.As[selection.EndLearner](p); ok {
		learner.LearnEnd(e)
	}
}

// live makes a drawn number of picks and whatever happens between them: calls that
// start and end, candidates that change, latencies that are learned.
func live(t *rapid.T, v *selection.View, policies ...selection.Policy) {
	for draw := range rapid.IntRange(0, 12).Draw(t, "picks before") {
		q := drawRequest(t)
		var slot selection.Slot
		for _, p := range policies {
			slot = picked(p, v, q, draw)
		}
		v.Now = v.Now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
		if rapid.Bool().Draw(t, "learn") {
			ttft := time.Duration(rapid.IntRange(0, 5000).Draw(t, "ttft")) * time.Millisecond
			e := selection.End{
				Sample: selection.Sample{
					Slot: slot, At: v.Now, TTFT: ttft, Input: q.InputTokens, Own: q.Work(v.Overlap[slot]),
					Context: int64(rapid.IntRange(0, 100_000).Draw(t, "context")),
				},
				Ended: v.Now.Add(time.Second), ShowsStart: true,
				Usage: selection.Usage{Known: true, Prompt: q.InputTokens, Output: rapid.IntRange(1, 1000).Draw(t, "output")},
			}
			for _, p := range policies {
				observe(p, &e)
			}
		}
		if rapid.Bool().Draw(t, "charge") {
			charge(v, slot, 1000)
		} else {
			v.Book[slot] = selection.Book{}
		}
		drawCandidates(t, v)
	}
}

func TestLawEveryPickIsACandidateWithItsReasonAndAllScores(t *testing.T) {
	eachRule(t, func(t *testing.T, rule Rule) {
		rapid.Check(t, func(t *rapid.T) {
			params := drawParams(t, rule)
			if errs := params.Validate(); errs != nil {
				t.Fatalf("the test's own parameters are refused: %v", errs)
			}
			p, v := params.New(), drawView(t)
			live(t, v, p)
			c := pick(p, v, drawRequest(t), 99)
			if c.Index < 0 || c.Index >= len(v.Candidates) {
				t.Fatalf("picked %d of %d candidates", c.Index, len(v.Candidates))
			}
			if !slices.Contains(rule.Reasons, c.Reason) {
				t.Fatalf("reason %q is not listed: %v", c.Reason, rule.Reasons)
			}
			scored := 0
			for i, s := range v.Scores {
				if math.Float64bits(s) == math.Float64bits(unset) {
					t.Fatalf("score %d was not set", i)
				}
				if s < v.Scores[c.Index] {
					t.Fatalf("candidate %d has a lower score than the chosen %d: %v", i, c.Index, v.Scores)
				}
				if !math.IsNaN(s) {
					scored++
				}
			}
			if scored > 0 && math.IsNaN(v.Scores[c.Index]) {
				t.Fatalf("the chosen %d has no score: %v", c.Index, v.Scores)
			}
		})
	})
}

// TestLawPartsAreTheScores: what an Explainer says before a pick adds up to the scores of
// that pick, and saying it changes nothing.
func TestLawPartsAreTheScores(t *testing.T) {
	eachRule(t, func(t *testing.T, rule Rule) {
		if _, ok := selection.As[selection.Explainer](rule.Params().New()); !ok {
			t.Skip("it explains nothing")
		}
		rapid.Check(t, func(t *rapid.T) {
			params, v := drawParams(t, rule), drawView(t)
			a, b := params.New(), params.New()
			live(t, v, a, b)
			q := drawRequest(t)
			e, ok := selection.As[selection.Explainer](a)
			if !ok {
				return // of another rule that ranks
			}
			all := e.Explain(v, q)
			first := pick(a, v, q, 99)
			for i, parts := range all {
				sum := 0.0
				for _, p := range parts {
					if strings.HasSuffix(p.Name, "_cost") {
						sum += p.Value
					}
				}
				if math.Abs(sum-v.Scores[i]) > 1e-9*math.Max(1, math.Abs(sum)) {
					t.Fatalf("candidate %d scores %v, its parts add up to %v: %v", i, v.Scores[i], sum, parts)
				}
			}
			if second := pick(b, v, q, 99); first != second {
				t.Fatalf("one that explained chose %v, one that did not %v", first, second)
			}
		})
	})
}

func TestLawSameHistoryGivesSameChoice(t *testing.T) {
	eachRule(t, func(t *testing.T, rule Rule) {
		rapid.Check(t, func(t *rapid.T) {
			params, v := drawParams(t, rule), drawView(t)
			a, b := params.New(), params.New()
			live(t, v, a, b)
			q := drawRequest(t)
			first := pick(a, v, q, 99)
			scores := scoreBits(v.Scores)
			second := pick(b, v, q, 99)
			if first != second || !slices.Equal(scores, scoreBits(v.Scores)) {
				t.Fatalf("two policies with one history chose %v and %v, scores %x and %x", first, second, scores, scoreBits(v.Scores))
			}
		})
	})
}

func scoreBits(scores []float64) []uint64 {
	out := make([]uint64, len(scores))
	for i, s := range scores {
		out[i] = math.Float64bits(s)
	}
	return out
}

// permuted returns the same pool with the endpoint of slot i in slot to[i].
func permuted(v *selection.View, to []int) *selection.View {
	w := newView(len(v.Members))
	w.Now = v.Now
	for i, j := range to {
		w.Endpoints[j], w.Book[j], w.Overlap[j], w.Active[j] = v.Endpoints[i], v.Book[i], v.Overlap[i], v.Active[i]
		w.AdapterCalls[j], w.Adapters[j] = v.AdapterCalls[i], v.Adapters[i]
	}
	restrict(w, func(s selection.Slot) bool { return v.Position[slices.Index(to, int(s))] != selection.None })
	return w
}

// TestLawSlotsDoNotMatter: an endpoint's score is the same in whichever slot it is.
// round-robin is left out: its score is a place in the order of slots.
func TestLawSlotsDoNotMatter(t *testing.T) {
	eachRule(t, func(t *testing.T, rule Rule) {
		if rule.Name == "round-robin" {
			t.Skip("its order is that of the slots")
		}
		rapid.Check(t, func(t *rapid.T) {
			params, v, q := unrandom(drawParams(t, rule)), drawView(t), drawRequest(t)
			to := rapid.Permutation(indices(len(v.Members))).Draw(t, "to")
			w := permuted(v, to)
			a, b := params.New(), params.New()
			for range rapid.IntRange(0, 9).Draw(t, "observations") {
				i := rapid.IntRange(0, len(to)-1).Draw(t, "slot")
				ttft := time.Duration(rapid.IntRange(1, 5000).Draw(t, "ttft")) * time.Millisecond
				e := selection.End{Sample: selection.Sample{At: v.Now - 1, Slot: selection.Slot(i), TTFT: ttft, Input: 1000, Own: selection.Prefill(1000, 0)}, Ended: v.Now}
				observe(a, &e)
				e.Slot = selection.Slot(to[i])
				observe(b, &e)
			}
			// Which endpoints are looked at may depend on the draw; what they score may not.
			for draw := range 5 {
				pick(a, v, q, draw)
				pick(b, w, q, draw)
				if draw > 0 && stateful(rule) {
					break
				}
				for i, slot := range v.Candidates {
					x, y := v.Scores[i], w.Scores[w.Position[to[slot]]]
					if x != y && !math.IsNaN(x) && !math.IsNaN(y) {
						t.Fatalf("%s scores %v in slot %d and %v in slot %d", v.Endpoints[slot].Name, x, slot, y, to[slot])
					}
				}
			}
		})
	})
}

// unrandom takes out of the parameters what makes scores random: noise belongs to a draw,
// not to an endpoint, and what is drawn with one load says nothing of a draw with another.
func unrandom(p Params) Params {
	switch p := p.(type) {
	case *KVCost:
		p.RouterTemperature = 0
	case *CacheAwareSpill:
		p.SelectionTemperature = 0
	case *WeightedScorers:
		p.Picker = pickMaxScore
	}
	return p
}

// stateful reports whether a pick changes what the next one scores.
func stateful(rule Rule) bool {
	return slices.Contains([]string{"weighted-round-robin", "weighted-least-request", "weighted-scorers", "lora-affinity", "predicted-ttft"}, rule.Name)
}

func indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// TestLawAPermutedPoolPermutesTheChoices: the share of first choices that an endpoint
// gets over many draws is the same in whichever slot it is.
func TestLawAPermutedPoolPermutesTheChoices(t *testing.T) {
	const draws = 4000
	to := []int{3, 0, 4, 2, 1, 5}
	eachRule(t, func(t *testing.T, rule Rule) {
		v := newView(len(to))
		for i, calls := range []int{2, 1, 1, 3, 1, 2} {
			for range calls {
				charge(v, selection.Slot(i), 500)
			}
			v.Overlap[i] = int32(i % 2)
		}
		w := permuted(v, to)
		a, b := make([]float64, len(to)), make([]float64, len(to))
		for draw := range draws {
			q := newRequest(draw, 20)
			a[picked(rule.Params().New(), v, q, draw)]++
			b[picked(rule.Params().New(), w, q, draw+draws)]++
		}
		for i, j := range to {
			// Two counts of one probability differ by less than five deviations.
			if d := math.Abs(a[i] - b[j]); d > 5*math.Sqrt(a[i]+b[j])+1 {
				t.Errorf("endpoint %d got %v of %d calls, moved to slot %d %v", i, a[i], draws, j, b[j])
			}
		}
	})
}

// TestLawMoreOutstandingNeverRaisesAChance: whoever is chosen with a load would be, by
// the same draw, with less. The rules that don't read load are left out.
func TestLawMoreOutstandingNeverRaisesAChance(t *testing.T) {
	eachRule(t, func(t *testing.T, rule Rule) {
		if slices.Contains([]string{"random", "round-robin", "weighted-round-robin"}, rule.Name) {
			t.Skip("it doesn't read load")
		}
		rapid.Check(t, func(t *rapid.T) {
			params, v := unrandom(drawParams(t, rule)), drawView(t)
			if p, ok := params.(*WeightedScorers); ok {
				p.AffinityThreshold = 0 // scores are relative to those left, and load may bring back others
			}
			if p, ok := params.(*LoRAAffinity); ok {
				p.Then = "least-outstanding" // of more that stay, others draw another one
			}
			less, more := params.New(), params.New()
			live(t, v, less, more)
			q := drawRequest(t)
			slot := rapid.SampledFrom(v.Candidates).Draw(t, "slot")
			before := picked(less, v, q, 99)
			for range rapid.IntRange(1, 10).Draw(t, "more calls") {
				charge(v, slot, rapid.IntRange(0, 5000).Draw(t, "tokens"))
			}
			if after := picked(more, v, q, 99); after == slot && before != slot {
				t.Fatalf("%d is chosen with more calls but %d with fewer", slot, before)
			}
		})
	})
}

// TestLawEqualsAreDrawnUniformly: in a pool of equals every endpoint gets its share of
// first choices. consistent-hash and prefix-hash are left out: their keys decide.
func TestLawEqualsAreDrawnUniformly(t *testing.T) {
	const draws, n = 7000, 7
	eachRule(t, func(t *testing.T, rule Rule) {
		if rule.Name == "consistent-hash" || rule.Name == "prefix-hash" {
			t.Skip("it has no equals, its keys decide")
		}
		for _, overlap := range []int32{0, 20} {
			v := newView(n)
			for i := range v.Overlap {
				v.Overlap[i] = overlap
			}
			counts := make([]float64, n)
			for draw := range draws {
				counts[picked(rule.Params().New(), v, newRequest(1, 20), draw)]++
			}
			chi2 := 0.0
			for _, c := range counts {
				chi2 += (c - draws/n) * (c - draws/n) / (draws / n)
			}
			if chi2 > 22.5 { // 6 degrees of freedom: exceeded by chance once in 1,000
				t.Errorf("overlap %d: counts %v, chi-square %.1f", overlap, counts, chi2)
			}
		}
	})
}

// TestLawForgottenSlotsLeaveNoTrace: a policy that has forgotten all slots chooses as a
// new one does. round-robin is left out: what it remembers is whose turn it is, which
// belongs to no endpoint. So is predicted-ttft: what work costs belongs to the model and
// the engine (TestPredictedTTFTForgets has what belongs to endpoints).
func TestLawForgottenSlotsLeaveNoTrace(t *testing.T) {
	eachRule(t, func(t *testing.T, rule Rule) {
		if rule.Name == "round-robin" {
			t.Skip("it remembers a turn, not an endpoint")
		}
		if rule.Name == "predicted-ttft" {
			t.Skip("it remembers the pool's model, not an endpoint")
		}
		rapid.Check(t, func(t *rapid.T) {
			params, v := drawParams(t, rule), drawView(t)
			used, fresh := params.New(), params.New()
			live(t, v, used)
			for slot := range v.Endpoints {
				if f, ok := selection.As[selection.Forgetter](used); ok {
					f.Forget(selection.Slot(slot))
				}
				v.Endpoints[slot].Name += "'"
				v.Endpoints[slot].Generation++
			}
			v.Version++
			for draw := range 10 {
				q := drawRequest(t)
				a := pick(used, v, q, draw)
				scores := scoreBits(v.Scores)
				if b := pick(fresh, v, q, draw); a != b || !slices.Equal(scores, scoreBits(v.Scores)) {
					t.Fatalf("pick %d: %v with a past, %v without", draw, a, b)
				}
			}
		})
	})
}

func TestLawPickDoesNotAllocate(t *testing.T) {
	eachRule(t, func(t *testing.T, rule Rule) {
		for _, n := range []int{1, 8, 100} {
			p, v, q := rule.Params().New(), busyView(n), newRequest(1, 64)
			teach(p, v)
			for i := 0; i < n; i += 3 {
				v.Endpoints[i].Load.Waiting = signal.Gauge{}
			}
			var r seed.Rand
			p.Pick(v, q, &r)
			if got := testing.AllocsPerRun(100, func() { p.Pick(v, q, &r) }); got != 0 {
				t.Errorf("%v allocations a pick of %d endpoints", got, n)
			}
		}
	})
}

// TestLawUnknownIsNotIdle: an endpoint whose signals are unknown, stale or nonsense is
// never preferred for it to others that report an ordinary load.
func TestLawUnknownIsNotIdle(t *testing.T) {
	bad := map[string]func(g *signal.Gauge){
		"unknown":  func(g *signal.Gauge) { *g = signal.Gauge{} },
		"stale":    func(g *signal.Gauge) { g.At = g.At.Add(-time.Minute) },
		"NaN":      func(g *signal.Gauge) { g.Value = math.NaN() },
		"infinite": func(g *signal.Gauge) { g.Value = math.Inf(1) },
		"negative": func(g *signal.Gauge) { g.Value = -1 },
	}
	eachRule(t, func(t *testing.T, rule Rule) {
		if slices.Contains([]string{"round-robin", "weighted-round-robin", "weighted-least-request"}, rule.Name) {
			t.Skip("it reads no signals and takes turns")
		}
		for name, spoil := range bad {
			counts := make([]int, 3)
			for draw := range 300 {
				v := newView(3) // e0 reports more than e1; e2 is spoiled
				v.Endpoints[0].Load.KVUsage.Value = 0.6
				l := &v.Endpoints[2].Load
				spoil(&l.KVUsage)
				spoil(&l.Waiting)
				spoil(&l.Running)
				if name == "unknown" {
					v.MaxAge = 0 // no report is too old, but none is still none
				}
				counts[picked(rule.Params().New(), v, newRequest(draw, 20), draw)]++
			}
			if counts[2] > 200 {
				t.Errorf("%s: an endpoint of unknown load got %d of 300 calls", name, counts[2])
			}
		}
	})
}

func TestCatalogIsWellFormed(t *testing.T) {
	seen := map[string]bool{}
	for _, rule := range Catalog() {
		if seen[rule.Name] {
			t.Errorf("%s is listed twice", rule.Name)
		}
		seen[rule.Name] = true
		if rule.Doc == "" || rule.Source == "" || len(rule.Reasons) == 0 {
			t.Errorf("%s lacks its doc, source or reasons", rule.Name)
		}
		if errs := rule.Params().Validate(); len(errs) > 0 {
			t.Errorf("%s refuses its own defaults: %v", rule.Name, errs)
		}
		if a, b := rule.Params(), rule.Params(); fmt.Sprintf("%+v", a) != fmt.Sprintf("%+v", b) {
			t.Errorf("%s has two sets of defaults: %+v, %+v", rule.Name, a, b)
		}
		if got, ok := Lookup(rule.Name); !ok || got.Name != rule.Name {
			t.Errorf("Lookup(%q) = %q, %v", rule.Name, got.Name, ok)
		}
	}
	if _, ok := Lookup("no-such-rule"); ok {
		t.Error("Lookup finds a rule that isn't there")
	}
}
