package emulator

import "kvasir/engine"

// rank is one data-parallel engine. Run owns it.
type rank struct {
	engine   *engine.Engine
	requests map[engine.ID]*request
	metrics  metrics
	outputs  []engine.Output // of the latest Advance
}

// request is one request in an engine.
type request struct {
	call  *call
	item  int // of the call
	times times
}

// newRanks returns idle engines. The configuration must be valid.
func newRanks(c *Config) ([]*rank, error) {
	var ranks []*rank
	cfg := c.Engine
	cfg.EveryToken = true // streams show them
	for range c.Ranks {
		e, err := engine.New(cfg)
		if err != nil {
			return nil, err
		}
		r := &rank{engine: e, requests: map[engine.ID]*request{}}
		r.metrics.init(c.Engine.MaxModelLen)
		ranks = append(ranks, r)
	}
	return ranks, nil
}

// handOut measures what the steps gave and tells the calls.
func (k *rank) handOut() {
	for i, out := range k.outputs {
		if out.First {
			k.metrics.cachedTokens += int64(out.Cached)
		}
		if r := k.requests[out.ID]; r != nil { // else taken back while the step ran
			k.metrics.output(&r.times, r.call.Items[r.item].Request.PromptTokens, out)
			if out.Finished {
				k.metrics.finish(&r.times, r.item, r.call)
				delete(k.requests, out.ID)
			}
			r.call.deliver(r.item, out)
		}
		if i == len(k.outputs)-1 || k.outputs[i+1].At != out.At {
			k.metrics.step()
		}
	}
}

// weight is how much a rank has to do, as vLLM's data-parallel balancer reckons it: a
// request that waits weighs four that run.
func (k *rank) weight() int {
	running := k.engine.Stats().Running
	return 4*max(len(k.requests)-running, 0) + running
}

// total sums up the ranks' stats. The share of KV blocks in use is that of all blocks.
func total(ranks []engine.Stats) engine.Stats {
	t := ranks[0]
	for _, s := range ranks[1:] {
		t.Running += s.Running
		t.Waiting += s.Waiting
		t.Deferred += s.Deferred
		t.FreeBlocks += s.FreeBlocks
		t.TotalBlocks += s.TotalBlocks
		t.Steps += s.Steps
		t.PrefixQueries += s.PrefixQueries
		t.PrefixHits += s.PrefixHits
		t.Preemptions += s.Preemptions
		t.PromptTokens += s.PromptTokens
		t.GenerationTokens += s.GenerationTokens
		for i, n := range s.Finished {
			t.Finished[i] += n
		}
	}
	if len(ranks) > 1 {
		t.KVUsage = float64(t.TotalBlocks-t.FreeBlocks) / float64(t.TotalBlocks)
	}
	return t
}
