package scorer

import "kvasir/selection"

// LoRAAffinity prefers the endpoints where the call's LoRA adapter is (llm-d's and GIE's
// lora-affinity-scorer), as their reports say:
//
//	1    calls of the adapter run there
//	0.8  else, where fewer adapters run or are waited for than there are slots
//	0.6  else, where calls wait for it
//	0    else, and where no report says anything of adapters
//
// A call of the base model has no adapter, so it prefers those with a free slot: llm-d looks
// for the model's name among the adapters, and doesn't find it either.
type LoRAAffinity struct{}

// Score sets out.
func (*LoRAAffinity) Score(v *selection.View, q *selection.Request, left []selection.Slot, out []float64) {
	oldest := v.Oldest()
	for i, slot := range left {
		a := v.Endpoints[slot].Load.Adapters
		running, waiting := a.Running(), a.Waiting()
		switch {
		case !a.Known() || a.At < oldest:
			out[i] = 0
		case running.Has(q.Adapter):
			out[i] = 1
		case running.Len()+waiting.Len() < a.Slots():
			out[i] = 0.8
		case waiting.Has(q.Adapter):
			out[i] = 0.6
		default:
			out[i] = 0
		}
	}
}

var _ Scorer = (*LoRAAffinity)(nil)
