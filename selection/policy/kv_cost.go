package policy

import (
	"math"

	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
	"kvasir/selection"
)

// KVCost counts everything in KV blocks and picks the lowest sum, as NVIDIA Dynamo's KV
// router does (article section 5.4):
//
//	cost    = prefill_load_scale · max(prefill - credit, 0) + decode
//	          + decode_active_request_weight · calls
//	prefill = (pending + input) / block
//	credit  = device_credit · device + host_cache_hit_weight · host
//	          + disk_cache_hit_weight · disk
//	decode  = blocks in use there with this call
//
//	pending  tokens of the calls there without a first token that weren't in the prefix
//	         cache when they were sent
//	input    tokens of this call's prompt
//	block    tokens a block
//	device   leading blocks of the prompt in device memory, or on their way there with a call
//	         in flight, of which Dynamo's index, fed by KV events, does not know; host, disk: how many more
//	         there are in host memory, and how many more on disk
//	calls    outstanding ones
//
// A block in use by several calls counts once (Book.ActiveBlocks, View.Active). So calls
// that share a prefix draw each other to one endpoint from the moment of their dispatch,
// before any cache can hold it. What is generated isn't counted, as is Dynamo's default.
//
//	device_credit = overlap_score_credit / (1 + overlap_score_credit_decay · excess)
//	excess        = (pending - the least pending of the candidates) / block / the
//	                prompt's blocks, begun ones included
//
// Names and defaults are Dynamo's. A router_temperature above 0 draws an endpoint with
// the softmax of -cost / ((highest - lowest cost) · temperature) as its probability; the
// score then has the noise added that makes the lowest one distributed so.
//
// Dynamo's unit is the engine's KV block; the one here is a fine block of the router
// (kvblock.Span), so that decode_active_request_weight alone depends on the size: a call
// counts for that many blocks, which are four of vLLM's 16 tokens where a block has 256
// bytes. Dynamo's shared cache, pins and taints have no counterpart here.
//
// Score: cost, in blocks.
type KVCost struct {
	OverlapScoreCredit        float64 `config:"overlap_score_credit" doc:"blocks of prefill that a block in device memory saves; at least 0"`
	OverlapScoreCreditDecay   float64 `config:"overlap_score_credit_decay" doc:"how fast that falls as the endpoint has more prefill to do than others; at least 0, 0 for not at all"`
	HostCacheHitWeight        float64 `config:"host_cache_hit_weight" doc:"blocks of prefill that a block in host memory saves; at least 0"`
	DiskCacheHitWeight        float64 `config:"disk_cache_hit_weight" doc:"blocks of prefill that a block on disk saves; at least 0"`
	PrefillLoadScale          float64 `config:"prefill_load_scale" doc:"what a block of prefill costs against one in use; at least 0"`
	DecodeActiveRequestWeight float64 `config:"decode_active_request_weight" doc:"blocks that an outstanding call costs beside its own; at least 0"`
	RouterTemperature         float64 `config:"router_temperature" doc:"how evenly calls are spread against the costs; at least 0, 0 for the lowest cost always"`
}

// Validate reports every parameter that is not finite or below 0.
func (c *KVCost) Validate() []ParamError {
	var errs []ParamError
	for _, p := range []struct {
		name  string
		value float64
	}{
		{"overlap_score_credit", c.OverlapScoreCredit},
		{"overlap_score_credit_decay", c.OverlapScoreCreditDecay},
		{"host_cache_hit_weight", c.HostCacheHitWeight},
		{"disk_cache_hit_weight", c.DiskCacheHitWeight},
		{"prefill_load_scale", c.PrefillLoadScale},
		{"decode_active_request_weight", c.DecodeActiveRequestWeight},
		{"router_temperature", c.RouterTemperature},
	} {
		if !finite(p.value) || p.value < 0 {
			errs = append(errs, ParamError{p.name, p.value, "a number of at least 0"})
		}
	}
	return errs
}

// New returns the policy.
func (c *KVCost) New() selection.Policy { return kvCost{*c} }

type kvCost struct{ config KVCost }

// UsesOverlap marks the policy as one that reads View.Overlap.
func (kvCost) UsesOverlap() {}

// UsesActive marks the policy as one that reads View.Active.
func (kvCost) UsesActive() {}

// fineBlockTokens is the size of a block where a prompt is too short to have one: that of
// 256 bytes.
const fineBlockTokens = 64

func (p kvCost) Pick(v *selection.View, q *selection.Request, r *seed.Rand) selection.Choice {
	c := &p.config
	block := q.BlockTokens
	if block == 0 {
		block = fineBlockTokens
	}
	perToken := 1 / float64(block)
	own := int64(kvblock.Span(len(q.Blocks)))
	least, perExcess := int64(0), 0.0
	if c.OverlapScoreCreditDecay > 0 {
		least = leastPending(v)
		begun := max(1, (q.InputTokens+block-1)/block)
		perExcess = c.OverlapScoreCreditDecay * perToken / float64(begun)
	}
	scores, book := v.Scores, v.Book
	for i, slot := range v.Candidates {
		b := &book[slot]
		pending := b.PendingWork.Tokens
		device := span(int(selection.OverlapAt(v.Overlap, slot)))
		credit := float64(c.OverlapScoreCredit * device)
		if perExcess > 0 {
			credit /= 1 + float64(perExcess*float64(pending-least))
		}
		if v.HostOverlap != nil || v.DiskOverlap != nil {
			credit += p.tiers(v, slot, device)
		}
		prefill := max(float64(float64(pending+int64(q.InputTokens))*perToken)-credit, 0)
		decode := b.ActiveBlocks + own - int64(kvblock.Span(int(selection.OverlapAt(v.Active, slot))))
		scores[i] = float64(c.PrefillLoadScale*prefill) + float64(decode) +
			float64(c.DecodeActiveRequestWeight*float64(b.Outstanding))
	}
	reason := ReasonLowestCost
	if c.RouterTemperature > 0 {
		soften(scores, c.RouterTemperature, r)
		reason = ReasonDrawn
	}
	return selection.Choice{Index: argmin(scores, r), Reason: reason}
}

// tiers returns the credit for what is in host memory and on disk beyond the device's.
func (p kvCost) tiers(v *selection.View, slot selection.Slot, device float64) float64 {
	host := max(device, span(int(selection.OverlapAt(v.HostOverlap, slot))))
	disk := max(host, span(int(selection.OverlapAt(v.DiskOverlap, slot))))
	return float64(p.config.HostCacheHitWeight*(host-device)) + float64(p.config.DiskCacheHitWeight*(disk-host))
}

// leastPending returns the fewest tokens to prefill that a candidate has.
func leastPending(v *selection.View) int64 {
	least := int64(math.MaxInt64)
	for _, slot := range v.Candidates {
		least = min(least, v.Book[slot].PendingWork.Tokens)
	}
	return least
}

var (
	_ selection.OverlapUser = kvCost{}
	_ selection.ActiveUser  = kvCost{}
)
