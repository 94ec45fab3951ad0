package policy

import (
	"slices"
	"time"

	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/scorer"
)

// ReasonScored: no other endpoint that the filters left has a higher sum of scores.
const ReasonScored selection.Reason = "scored"

// The pickers of weighted-scorers.
const (
	pickMaxScore       = "max-score"
	pickRandom         = "random"
	pickWeightedRandom = "weighted-random"
)

// WeightedScorers is a scheduling profile of llm-d's router, and of the Gateway API Inference
// Extension (GIE) before it: filters narrow the candidates, scorers judge each that is left by
// one thing alone, and a picker takes one by the sum
//
//	sum over the scorers of weight · min(1, max(0, score))
//
// The filters are prefix-cache-affinity and then utilization; the scorers are those of package
// scorer, and one of weight 0 is not asked. Pickers:
//
//	max-score        the highest sum, of equals one at random
//	random           one at random
//	weighted-random  one at random, the sum as the weight; where all are 0 they are equal
//
// Names are llm-d's with the words in snake case, and the default is its profile without a
// configuration: queue 2, kv-cache-utilization 2, prefix-cache 3, max-score, no filters.
//
// llm-d's choice is kept with what follows from it: the queue is relative to the others', so
// that 1 call against 0 is as bad as 500, and an endpoint that holds the whole prompt wins
// whatever its queue, until its KV usage is half of all blocks above another's. What is not
// kept is that an endpoint that reports nothing counts as idle, see package scorer. llm-d's
// session is a header's value; without session_header it is the conversation, which is that of
// x-session-id where a call has it.
//
// Score: all weights less the sum, so that 0 is the best that can be; with random 0, and with
// weighted-random the number drawn for an endpoint, of which the lowest wins. NaN for those
// that a filter took out.
type WeightedScorers struct {
	QueueWeight              float64 `config:"queue_weight" doc:"weight of few waiting calls; at least 0"`
	KVCacheUtilizationWeight float64 `config:"kv_cache_utilization_weight" doc:"weight of free KV blocks; at least 0"`
	PrefixCacheWeight        float64 `config:"prefix_cache_weight" doc:"weight of the share of the prompt that is held; at least 0"`
	RunningRequestsWeight    float64 `config:"running_requests_weight" doc:"weight of few calls in the engine's batch; at least 0"`
	ActiveRequestWeight      float64 `config:"active_request_weight" doc:"weight of few outstanding calls of this router; at least 0"`
	TokenLoadWeight          float64 `config:"token_load_weight" doc:"weight of few tokens to prefill; at least 0"`
	NoHitLRUWeight           float64 `config:"no_hit_lru_weight" doc:"weight of the longest time without a call of which nobody held a block; at least 0"`
	LoRAAffinityWeight       float64 `config:"lora_affinity_weight" doc:"weight of having the call's LoRA adapter, or room for it; at least 0"`
	SessionAffinityWeight    float64 `config:"session_affinity_weight" doc:"weight of having had the session's last call; at least 0"`

	PrefixMatchLengthWeight float64       `config:"prefix_match_length_weight" doc:"of prefix-cache: how much the length of the match counts against its share; 0 to 1"`
	ActiveIdleThreshold     int           `config:"active_idle_threshold" doc:"of active-request: outstanding calls up to which an endpoint is idle; at least 0"`
	ActiveMaxBusyScore      float64       `config:"active_max_busy_score" doc:"of active-request: the highest score of one that is not idle; 0 to 1"`
	QueueThresholdTokens    int           `config:"queue_threshold_tokens" doc:"of token-load: tokens from which on the score is 0; at least 1"`
	SessionHeader           string        `config:"session_header" doc:"of session-affinity: the request header whose value is the session; empty: the conversation, however it is known"`
	SessionTTL              time.Duration `config:"session_ttl" doc:"of session-affinity: for how long after a call it is remembered; above 0"`

	AffinityThreshold      float64       `config:"affinity_threshold" doc:"filter prefix-cache-affinity: share of the prompt that an endpoint must hold to stay; 0 to 1, 0 for no filter"`
	MaxTTFTPenalty         time.Duration `config:"max_ttft_penalty" doc:"of that filter: by how much the estimated wait of those may exceed that of the others; at least 0, 0 for any"`
	PeakPrefillThroughput  float64       `config:"peak_prefill_throughput" doc:"of that filter: tokens a second that an endpoint can prefill; above 0"`
	ExplorationProbability float64       `config:"exploration_probability" doc:"of that filter: share of the calls for which everyone stays; 0 to 1"`

	MaxActiveRequests     int     `config:"max_active_requests" doc:"filter utilization: outstanding calls above which an endpoint is left out; at least 0, 0 for any"`
	MaxRunningRequests    int     `config:"max_running_requests" doc:"likewise: calls in the engine's batch; at least 0, 0 for any"`
	MaxWaitingRequests    int     `config:"max_waiting_requests" doc:"likewise: calls that wait in the engine; at least 0, 0 for any"`
	MaxKVCacheUtilization float64 `config:"max_kv_cache_utilization" doc:"likewise: share of KV blocks in use; 0 to 1, 0 for any"`

	Picker string `config:"picker" doc:"who of those that are left is picked: max-score, random or weighted-random"`
}

// Validate reports weights that are not finite or below 0, shares outside 0 to 1, bounds
// below 0, a throughput, a time or a threshold that must be above 0 and is not, a header that
// can't be one and an unknown picker.
func (c *WeightedScorers) Validate() []ParamError {
	var errs []ParamError
	wrong := func(ok bool, name string, value any, allowed string) {
		if !ok {
			errs = append(errs, ParamError{name, value, allowed})
		}
	}
	for _, w := range c.scorers() {
		wrong(finite(w.weight) && w.weight >= 0, w.param, w.weight, "a number of at least 0")
	}
	wrong(isShare(c.PrefixMatchLengthWeight), "prefix_match_length_weight", c.PrefixMatchLengthWeight, "a number from 0 to 1")
	wrong(c.ActiveIdleThreshold >= 0, "active_idle_threshold", c.ActiveIdleThreshold, "an integer of at least 0")
	wrong(isShare(c.ActiveMaxBusyScore), "active_max_busy_score", c.ActiveMaxBusyScore, "a number from 0 to 1")
	wrong(c.QueueThresholdTokens >= 1, "queue_threshold_tokens", c.QueueThresholdTokens, "an integer of at least 1")
	wrong(c.SessionHeader == "" || isHeaderName(c.SessionHeader), "session_header", c.SessionHeader, "a header's name: letters, digits and hyphens; empty for the conversation")
	wrong(c.SessionTTL > 0, "session_ttl", c.SessionTTL, "a duration above 0")
	affinity := StickyUntilSaturated{c.AffinityThreshold, c.MaxTTFTPenalty, c.PeakPrefillThroughput, c.ExplorationProbability}
	errs = append(errs, affinity.Validate()...)
	wrong(c.MaxActiveRequests >= 0, "max_active_requests", c.MaxActiveRequests, "an integer of at least 0")
	wrong(c.MaxRunningRequests >= 0, "max_running_requests", c.MaxRunningRequests, "an integer of at least 0")
	wrong(c.MaxWaitingRequests >= 0, "max_waiting_requests", c.MaxWaitingRequests, "an integer of at least 0")
	wrong(isShare(c.MaxKVCacheUtilization), "max_kv_cache_utilization", c.MaxKVCacheUtilization, "a number from 0 to 1")
	wrong(slices.Contains([]string{pickMaxScore, pickRandom, pickWeightedRandom}, c.Picker),
		"picker", c.Picker, "max-score, random or weighted-random")
	return errs
}

// scoring is a scorer with its weight and the parameter that holds that.
type scoring struct {
	param  string
	weight float64
	scorer scorer.Scorer
}

// scorers returns the list of all of them.
func (c *WeightedScorers) scorers() []scoring {
	return []scoring{
		{"queue_weight", c.QueueWeight, &scorer.Queue{}},
		{"kv_cache_utilization_weight", c.KVCacheUtilizationWeight, &scorer.KVCacheUtilization{}},
		{"prefix_cache_weight", c.PrefixCacheWeight, &scorer.PrefixCache{MatchLengthWeight: c.PrefixMatchLengthWeight}},
		{"running_requests_weight", c.RunningRequestsWeight, &scorer.RunningRequests{}},
		{"active_request_weight", c.ActiveRequestWeight, &scorer.ActiveRequest{IdleThreshold: c.ActiveIdleThreshold, MaxBusyScore: c.ActiveMaxBusyScore}},
		{"token_load_weight", c.TokenLoadWeight, &scorer.TokenLoad{QueueThresholdTokens: c.QueueThresholdTokens}},
		{"no_hit_lru_weight", c.NoHitLRUWeight, &scorer.NoHitLRU{}},
		{"lora_affinity_weight", c.LoRAAffinityWeight, &scorer.LoRAAffinity{}},
		{"session_affinity_weight", c.SessionAffinityWeight, &scorer.SessionAffinity{TTL: c.SessionTTL, Header: c.SessionHeader != ""}},
	}
}

// filters returns those that are on.
func (c *WeightedScorers) filters() []scorer.Filter {
	var on []scorer.Filter
	if c.AffinityThreshold > 0 {
		on = append(on, c.affinity())
	}
	if c.MaxActiveRequests > 0 || c.MaxRunningRequests > 0 || c.MaxWaitingRequests > 0 || c.MaxKVCacheUtilization > 0 {
		on = append(on, &scorer.Utilization{
			MaxActive: c.MaxActiveRequests, MaxRunning: float64(c.MaxRunningRequests),
			MaxWaiting: float64(c.MaxWaitingRequests), MaxKVUsage: c.MaxKVCacheUtilization,
		})
	}
	return on
}

func (c *WeightedScorers) affinity() *scorer.PrefixCacheAffinity {
	return &scorer.PrefixCacheAffinity{
		Threshold: c.AffinityThreshold, MaxTTFTPenalty: c.MaxTTFTPenalty,
		PeakPrefillThroughput: c.PeakPrefillThroughput, ExplorationProbability: c.ExplorationProbability,
	}
}

// New returns the policy.
func (c *WeightedScorers) New() selection.Policy {
	p := &weightedScorers{filters: c.filters(), picker: c.Picker}
	for _, w := range c.scorers() {
		if w.weight == 0 {
			continue
		}
		p.scorers = append(p.scorers, w)
		p.total += w.weight
		if x, ok := w.scorer.(scorer.Witness); ok {
			p.witnesses = append(p.witnesses, x)
		}
		if x, ok := w.scorer.(selection.Forgetter); ok {
			p.forgetters = append(p.forgetters, x)
		}
		if _, ok := w.scorer.(*scorer.SessionAffinity); ok {
			p.header = c.SessionHeader
		}
	}
	return p
}

type weightedScorers struct {
	filters    []scorer.Filter
	scorers    []scoring
	total      float64 // of the weights
	picker     string
	witnesses  []scorer.Witness
	forgetters []selection.Forgetter
	header     string // of the session; "": none is asked for

	left   []selection.Slot // scratch
	scores []float64        // scratch, parallel to left: of one scorer
	sums   []float64        // scratch, parallel to left
}

// UsesOverlap marks the policy as one that reads View.Overlap.
func (*weightedScorers) UsesOverlap() {}

// KeyHeader returns the header that holds the session, "" where sessions don't count.
func (p *weightedScorers) KeyHeader() string { return p.header }

// Forget takes back what was learned of the slot.
func (p *weightedScorers) Forget(slot selection.Slot) {
	for _, f := range p.forgetters {
		f.Forget(slot)
	}
}

func (p *weightedScorers) Pick(v *selection.View, q *selection.Request, r *seed.Rand) selection.Choice {
	left := v.Candidates
	if len(p.filters) > 0 {
		p.left = append(p.left[:0], left...)
		left = p.left
		for _, f := range p.filters {
			left = f.Keep(v, q, left, r)
		}
		unscored(v)
	}
	reason := ReasonDrawn
	if p.picker == pickMaxScore {
		reason = ReasonScored
	}
	ranks := p.rank(p.sum(v, q, left), r)
	if len(p.filters) == 0 {
		copy(v.Scores, ranks)
	} else {
		for i, slot := range left {
			v.Scores[v.Position[slot]] = ranks[i]
		}
	}
	best := argmin(v.Scores, r)
	for _, w := range p.witnesses {
		w.Picked(v, q, v.Candidates[best])
	}
	return selection.Choice{Index: best, Reason: reason}
}

// sum returns the weighted sum of the scores of each slot left.
func (p *weightedScorers) sum(v *selection.View, q *selection.Request, left []selection.Slot) []float64 {
	p.scores = slices.Grow(p.scores[:0], len(left))[:len(left)]
	p.sums = slices.Grow(p.sums[:0], len(left))[:len(left)]
	clear(p.sums)
	if p.picker == pickRandom {
		return p.sums
	}
	for _, w := range p.scorers {
		w.scorer.Score(v, q, left, p.scores)
		for i, s := range p.scores {
			if s > 1 {
				s = 1
			} else if s < 0 {
				s = 0
			}
			p.sums[i] += float64(w.weight * s)
		}
	}
	return p.sums
}

// rank makes the sums numbers of which the lowest wins.
func (p *weightedScorers) rank(sums []float64, r *seed.Rand) []float64 {
	switch p.picker {
	case pickRandom: // all are 0, and of equals one is drawn
	case pickWeightedRandom: // the first to ring of clocks that ring at the rate of their sums, never at 0
		for i, sum := range sums {
			sums[i] = exponential(r) / sum
		}
	default:
		for i, sum := range sums {
			sums[i] = p.total - sum
		}
	}
	return sums
}

var (
	_ selection.OverlapUser = (*weightedScorers)(nil)
	_ selection.KeyUser     = (*weightedScorers)(nil)
	_ selection.Forgetter   = (*weightedScorers)(nil)
)
