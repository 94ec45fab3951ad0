package engine

// Stats is what an engine reports of itself: the values behind vLLM's metrics. Gauges
// and counters are those of the end of the last step, as vLLM's are: what arrived or
// left since then is not in them, and while the engine is idle they stay. An abort
// that leaves nothing to do refreshes them, as vLLM's empty step does.
type Stats struct {
	Running     int     // requests in the batch (num_requests_running)
	Waiting     int     // requests accepted and not in the batch (num_requests_waiting)
	Deferred    int     // of those that wait, the ones that lack a slot for their adapter (num_requests_waiting_by_reason, deferred)
	KVUsage     float64 // share of KV blocks in use, 0 to 1 (kv_cache_usage_perc); cached blocks that no request uses are free
	FreeBlocks  int
	TotalBlocks int // Config.NumBlocks

	// Counters since the engine's start.
	Steps            int64
	PrefixQueries    int64          // prompt tokens looked up in the prefix cache, once a request (prefix_cache_queries)
	PrefixHits       int64          // of those, tokens found (prefix_cache_hits)
	HostHits         int64          // of those not found, tokens that the host had (external_prefix_cache_hits)
	Preemptions      int64          // (num_preemptions)
	PromptTokens     int64          // prompt tokens of requests that got their first output (prompt_tokens)
	GenerationTokens int64          // answer tokens (generation_tokens)
	DraftTokens      int64          // tokens drafted for answers (spec_decode_num_draft_tokens)
	AcceptedTokens   int64          // of those, the ones that became part of them (spec_decode_num_accepted_tokens)
	Finished         [reasons]int64 // requests ended, by FinishReason (request_success)
}

// publish takes the gauges and counters that Stats shows until the next publish.
func (e *Engine) publish() {
	free, total := e.kv.free, len(e.kv.blocks)-1
	e.shown = e.counters
	e.lora.publish()
	e.shown.Deferred = e.lora.deferred
	e.shown.Running = e.running.n
	e.shown.Waiting = e.waiting.n
	e.shown.FreeBlocks = free
	e.shown.TotalBlocks = total
	e.shown.KVUsage = float64(total-free) / float64(total)
}

// Stats returns what the engine reports as of the last step that ended. A scrape at t
// comes after the step that ends at t: call Advance(t) first.
func (e *Engine) Stats() Stats { return e.shown }
