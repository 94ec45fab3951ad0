package proxy

import (
	"log/slog"

	"kvasir/gateway/flow"
	"kvasir/selection/signal"
)

// whyNotCached names what most often lies behind a cache that does not hold what was
// predicted, in the order in which it is easily checked.
const whyNotCached = "its prefix caching is off or reports 0; " +
	"blocks or tokens are not what the router takes them for (chat template, tokenizer, block size); " +
	"a cache salt that the router does not see; " +
	"evictions: less KV capacity than it reports, or other routers fill it; " +
	"several replicas or data-parallel ranks behind its address"

// trustLine says in the log that beliefs about an endpoint's prefix cache are relied on less
// than before, or more, and what led to it.
func trustLine(a flow.Action) (slog.Level, string, []slog.Attr) {
	more := []slog.Attr{
		slog.String("prefix_trust", a.Trust.String()),
		slog.Int64("predicted_tokens", a.Compared.Predicted),
		slog.Int64("reported_tokens", a.Compared.Found),
	}
	if 100*a.Compared.Found >= signal.TrustWon*a.Compared.Predicted {
		return slog.LevelInfo, "endpoint caches what is predicted", more
	}
	return slog.LevelWarn, "endpoint caches less than predicted", append(more, slog.String("likely_causes", whyNotCached))
}
