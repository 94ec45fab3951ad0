package telemetry

import (
	"context"
	"log/slog"
	"time"
)

// LogCall writes the call's one line, at level INFO with the message "call". Times are
// in seconds. A field that does not apply to the call, or that is unknown, is left out
// rather than written as zero: usage that the endpoint did not report, a first token
// that never came. Only a Call's own fields are written, so no prompt text can be.
func LogCall(ctx context.Context, l *slog.Logger, c *Call) {
	var room [24]slog.Attr
	a := append(room[:0],
		slog.String("id", c.ID),
		slog.String("route", c.Route),
		slog.String("model", label(c.Model, unknownName)),
		slog.String("outcome", c.Outcome.String()),
		slog.Int("status", c.Status),
		slog.Bool("stream", c.Stream),
		slog.Int("attempts", c.Attempts),
		slog.Int("input_tokens_estimated", c.InputTokens),
		seconds("e2e_seconds", c.E2E),
	)
	if c.Client != "" {
		a = append(a, slog.String("client", c.Client))
	}
	if c.Refusal != NotRefused {
		a = append(a, slog.String("refusal", c.Refusal.String()))
	}
	if c.Attempts > 0 {
		a = append(a,
			slog.String("pool", c.Pool),
			slog.String("endpoint", c.Endpoint),
			slog.String("policy", c.Policy),
			seconds("pick_seconds", c.Pick))
	}
	if c.TTFT > 0 {
		a = append(a, seconds("ttft_seconds", c.TTFT))
	}
	if d, ok := c.TPOT(); ok {
		a = append(a, seconds("tpot_seconds", d))
	}
	if c.UsageKnown {
		a = append(a,
			slog.Int("prompt_tokens", c.PromptTokens),
			slog.Int("cached_tokens", c.CachedTokens),
			slog.Int("output_tokens", c.OutputTokens))
	}
	if c.DoneMissing {
		a = append(a, slog.Bool("done_missing", true))
	}
	l.LogAttrs(ctx, slog.LevelInfo, "call", a...)
}

func seconds(key string, d time.Duration) slog.Attr {
	return slog.Float64(key, d.Seconds())
}
