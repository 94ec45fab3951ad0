package lab

import (
	"fmt"

	"kvasir/selection"
	"kvasir/selection/policy"
)

// kvCost is article 5.4: Dynamo's cost in KV blocks, on its documentation's example.
type kvCost struct {
	credit  float64
	decay   float64
	scale   float64
	active  float64
	pending int
}

func kvCostLab() Lab {
	return Lab{
		Name: "kv-cost", Title: "prefill, decode and cache hits in one unit", Section: "5.4",
		About: "The catalogue's kv-cost, which is NVIDIA Dynamo's formula, on the three workers of its documentation: a prompt of 10 blocks, of which they hold 2, 5 and 8, and 10, 5 and 9 blocks in use. " +
			"What a worker has still to prefill counts before its price, and, with a decay, once more by lowering what its cache is worth.",
		Look: []string{
			"Worker 3 holds most of the prompt and is not chosen: 9 blocks in use and 2 to prefill are 11, worker 2's 5 and 5 are 10.",
			"Turn `overlap_credit` to 2: a held block saves two, worker 2 costs 5 and worker 3 costs 9. Turn it to 0 and the caches count for nothing: 20, 15 and 19.",
			"In `pending` worker 2 gets prefill to do. From 2 blocks on worker 3 is cheaper, and from 9 on worker 1 would be, if worker 3 were not there.",
			"Turn `decay` up to 1: what worker 2 has to do also devalues its cache, and worker 3 is chosen from 1 block on.",
		},
		settings: func() experiment { return &kvCost{credit: 1, scale: 1} },
	}
}

func (x *kvCost) params() []Param {
	return []Param{
		number(&x.credit, "overlap_credit", "overlap_score_credit: blocks of prefill that a held block saves", 0, 4),
		number(&x.decay, "decay", "overlap_score_credit_decay: how fast that falls with more prefill to do than others have", 0, 100),
		number(&x.scale, "prefill_scale", "prefill_load_scale: what a block of prefill costs against one in use", 0, 10),
		number(&x.active, "active_weight", "decode_active_request_weight: blocks that an outstanding call costs; each worker has one", 0, 10),
		count(&x.pending, "pending", "blocks that worker 2 has still to prefill", 0, 100),
	}
}

// worker is one of the example.
type worker struct{ overlap, decode int }

// example is Dynamo's: blocks of the prompt, and what each worker holds and has in use.
const promptBlocks = 10

var exampleWorkers = []worker{{2, 10}, {5, 5}, {8, 9}}

// costBlock is the block of the example in tokens. No cost depends on it.
const costBlock = 64

// costs returns the policy's costs and its choice, with so much to prefill at one of the workers.
func (x *kvCost) costs(workers []worker, at, pending int, decay float64) (costs []float64, chosen int) {
	p := policy.KVCost{OverlapScoreCredit: x.credit, OverlapScoreCreditDecay: decay, PrefillLoadScale: x.scale, DecodeActiveRequestWeight: x.active}
	r := newRouter(&p, len(workers), 0, 0)
	for i, w := range workers {
		r.view.Overlap[i] = int32(w.overlap)
		r.view.Book[i] = selection.Book{Outstanding: 1, ActiveBlocks: int64(w.decode)}
	}
	r.view.Book[at].PendingWork.Tokens = int64(pending * costBlock)
	chosen = r.pick(&selection.Request{InputTokens: promptBlocks * costBlock, BlockTokens: costBlock})
	return append([]float64(nil), r.view.Scores...), chosen
}

func (x *kvCost) run(int) Findings {
	costs, chosen := x.costs(exampleWorkers, 1, x.pending, x.decay)
	t := Table{Name: "workers", Title: "the documentation's example, in blocks", Columns: []Column{{Name: "worker"}, {Name: "prefill"}, {Name: "held"}, {Name: "in use"}, {Name: "article's cost"}, {Name: "cost"}, {Name: "chosen"}}}
	for i, w := range exampleWorkers {
		prefill, mark := promptBlocks, ""
		if i == 1 {
			prefill += x.pending
		}
		if i == chosen {
			mark = "chosen"
		}
		t.Rows = append(t.Rows, []Cell{Number(float64(i+1), 0), Number(float64(prefill), 0), Number(float64(w.overlap), 0), Number(float64(w.decode), 0), Number(costArticle[i], 0), Number(costs[i], 2), Text(mark)})
	}
	by, plot := x.byPending()
	return Findings{Tables: []Table{t, by}, Plots: []Plot{plot}, Verdicts: x.verdicts(costs, chosen)}
}

// costArticle has the article's costs, by worker.
var costArticle = [...]float64{18, 10, 11}

// mostPending is as far as the table by pending prefill goes.
const mostPending = 12

// byPending lets worker 2 have ever more to do.
func (x *kvCost) byPending() (Table, Plot) {
	t := Table{Name: "by-pending", Title: "what worker 2 has to prefill, with decay " + show(x.decay) + ", in blocks",
		Columns: []Column{{Name: "pending at worker 2"}, {Name: "cost of 1"}, {Name: "of 2"}, {Name: "of 3"}, {Name: "chosen"}, {Name: "of 2 with decay 1"}, {Name: "chosen with decay 1"}}}
	p := Plot{Name: "pending", Title: t.Title, Kind: Lines, X: Axis{Label: "pending at worker 2", Unit: "blocks"}, Y: Axis{Label: "cost", Unit: "blocks"}}
	for i := range exampleWorkers {
		p.Series = append(p.Series, Series{Name: fmt.Sprintf("worker %d", i+1)})
	}
	p.Series = append(p.Series, Series{Name: "worker 2, decay 1"})
	left := -1
	for pending := range mostPending + 1 {
		costs, chosen := x.costs(exampleWorkers, 1, pending, x.decay)
		decayed, other := x.costs(exampleWorkers, 1, pending, 1)
		for i, y := range append(costs, decayed[1]) {
			p.Series[i].X, p.Series[i].Y = append(p.Series[i].X, float64(pending)), append(p.Series[i].Y, y)
		}
		if left < 0 && chosen != 1 {
			left = pending
		}
		t.Rows = append(t.Rows, []Cell{Number(float64(pending), 0), Number(costs[0], 2), Number(costs[1], 2), Number(costs[2], 2), Number(float64(chosen+1), 0), Number(decayed[1], 2), Number(float64(other+1), 0)})
	}
	p.Says = fmt.Sprintf("Worker 2 is not chosen any more from %d pending blocks on.", left)
	if left < 0 {
		p.Says = fmt.Sprintf("Worker 2 is chosen up to %d pending blocks.", mostPending)
	}
	return t, p
}

// brake returns from how many pending blocks on a worker that holds most of the prompt costs more than
// one that holds nothing, where that is all that they differ in.
func (x *kvCost) brake(decay float64) int {
	for pending := 0; ; pending++ {
		costs, _ := x.costs([]worker{{overlap: 8}, {}}, 0, pending, decay)
		if costs[0] > costs[1] || pending == noBrake {
			return pending
		}
	}
}

// noBrake is more than any prompt of the example could outweigh.
const noBrake = 100 * promptBlocks

func (x *kvCost) verdicts(costs []float64, chosen int) []Verdict {
	none, some := x.brake(0), x.brake(1)
	more, less := kvCost{credit: 2, scale: 1}, kvCost{scale: 1}
	rich, _ := more.costs(exampleWorkers, 1, 0, 0)
	poor, _ := less.costs(exampleWorkers, 1, 0, 0)
	return []Verdict{
		equals("5.4", "the workers cost 18, 10 and 11, and worker 2 is selected", figure{18, costs[0], 0, ""}, figure{10, costs[1], 0, ""}, figure{11, costs[2], 0, ""}, figure{2, float64(chosen + 1), 0, ""}),
		holds("5.4", "worker 3 holds the most cache and loses on decode load", costs[2] > costs[1] && exampleWorkers[2].overlap > exampleWorkers[1].overlap,
			fmt.Sprintf("%s blocks in use against %s, for %d held against %d", show(float64(exampleWorkers[2].decode)), show(float64(exampleWorkers[1].decode)), exampleWorkers[2].overlap, exampleWorkers[1].overlap)),
		holds("5.4", "a higher overlap credit favours cache reuse, a lower one even load", poor[2]-poor[0] > rich[2]-rich[0],
			fmt.Sprintf("without credit worker 3 costs %s less than worker 1, with a credit of 2 %s less", show(poor[0]-poor[2]), show(rich[0]-rich[2]))),
		holds("5.4", "a decay weakens the pull of a cache the more its worker has to prefill", some < none,
			fmt.Sprintf("8 of 10 blocks held lose to none from %d pending blocks on with a decay of 1, from %d without", some, none)),
		holds("5.4", "with a decay of 0, the default, the cost has no brake on affinity", none == noBrake,
			fmt.Sprintf("8 of 10 blocks held lose to none from %d pending blocks on", none)).
			because("What a worker has still to prefill is in its cost, decay or not: a cache is worth what it saves, and no more work ahead than that. The decay is a second brake."),
	}
}
