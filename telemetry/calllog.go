package telemetry

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"kvasir/api"
)

// LogCall writes the call's one line, at level INFO with the message "call". Times are
// in seconds. A field that does not apply to the call, or that is unknown, is left out
// rather than written as zero: usage that the endpoint did not report, a first token
// that never came. Only a Call's own fields are written, so no prompt text can be.
//
// Where the logger's handler is a CallHandler the line is written by hand: one is written
// for every call, and slog's way costs as much as choosing an endpoint ten times over.
// Any other handler gets the same attributes.
func LogCall(ctx context.Context, l *slog.Logger, c *Call) {
	h := l.Handler()
	if !h.Enabled(ctx, slog.LevelInfo) {
		return
	}
	if fast, ok := h.(*CallHandler); ok {
		fast.writeCall(time.Now(), c)
		return
	}
	var a attrs
	c.describe(&a)
	l.LogAttrs(ctx, slog.LevelInfo, "call", a.list...)
}

// usualClass is the class that goes without saying.
const usualClass = "interactive"

// describer takes a call's fields in their order.
type describer interface {
	text(key, value string)
	whole(key string, value int)
	yes(key string, value bool)
	seconds(key string, value time.Duration)
}

// describe says what is known of the call.
func (c *Call) describe(d describer) {
	d.text("id", c.ID)
	d.text("route", c.Route)
	d.text("model", label(c.Model, unknownName))
	d.text("outcome", c.Outcome.String())
	d.whole("status", c.Status)
	d.yes("stream", c.Stream)
	d.whole("attempts", c.Attempts)
	if c.Retry {
		d.yes("retry", true)
	}
	d.whole("input_tokens_estimated", c.InputTokens)
	d.seconds("e2e_seconds", c.E2E)
	if c.Peer != "" {
		d.text("peer", c.Peer)
	}
	if c.Client != "" {
		d.text("client", c.Client)
	}
	if c.Tenant != "" && c.Tenant != c.Client {
		d.text("tenant", c.Tenant)
	}
	if c.Class != "" && c.Class != usualClass {
		d.text("class", c.Class)
	}
	if c.Conversation != 0 {
		d.text("conversation", ConversationName(c.Conversation))
	}
	if c.Refusal != NotRefused {
		d.text("refusal", c.Refusal.String())
	}
	if c.Attempts > 0 {
		d.text("pool", c.Pool)
		d.text("endpoint", c.Endpoint)
		d.text("policy", c.Policy)
		d.seconds("pick_seconds", c.Pick)
		d.seconds("sent_seconds", c.Sent)
	}
	if c.Held > 0 {
		d.seconds("held_seconds", c.Held)
	}
	if c.Tried != "" {
		d.text("tried", c.Tried)
	}
	if c.Continued > 0 {
		d.whole("continued", c.Continued)
	}
	if c.Hedged {
		d.yes("hedged", true)
	}
	if c.TTFT > 0 {
		d.seconds("ttft_seconds", c.TTFT)
	}
	if c.Thought > 0 {
		d.seconds("first_reasoning_seconds", c.Thought)
	}
	if c.PredictedTTFT > 0 {
		d.seconds("predicted_ttft_seconds", c.PredictedTTFT)
	}
	if t, ok := c.TPOT(); ok {
		d.seconds("tpot_seconds", t)
	}
	if c.UsageKnown {
		d.whole("prompt_tokens", c.PromptTokens)
		if c.CachedKnown {
			d.whole("cached_tokens", c.CachedTokens)
		}
		d.whole("output_tokens", c.OutputTokens)
	}
	if c.OutputEstimated > 0 {
		d.whole("output_tokens_estimated", c.OutputEstimated)
	}
	if c.DoneMissing {
		d.yes("done_missing", true)
	}
}

// ConversationName names a conversation in logs and explanations: the first half of its
// hash, in hex; "" for 0. It is no name that a client gave.
func ConversationName(hash uint64) string {
	if hash == 0 {
		return ""
	}
	const digits = "0123456789abcdef"
	var name [8]byte
	for i := range name {
		name[i] = digits[hash>>(60-4*i)&15]
	}
	return string(name[:])
}

// attrs collects a call's fields as slog's attributes.
type attrs struct{ list []slog.Attr }

func (a *attrs) text(key, value string)      { a.list = append(a.list, slog.String(key, value)) }
func (a *attrs) whole(key string, value int) { a.list = append(a.list, slog.Int(key, value)) }
func (a *attrs) yes(key string, value bool)  { a.list = append(a.list, slog.Bool(key, value)) }
func (a *attrs) seconds(key string, value time.Duration) {
	a.list = append(a.list, slog.Float64(key, value.Seconds()))
}

// CallHandler is slog's JSON handler, with a fast way for the lines of calls. It is safe
// for concurrent use.
type CallHandler struct {
	slog.Handler
	w    interface{ Write([]byte) (int, error) }
	room sync.Pool // *callLine
}

// NewCallHandler returns a handler that writes JSON lines to w from the level on, each
// with one Write.
func NewCallHandler(w interface{ Write([]byte) (int, error) }, level slog.Leveler) *CallHandler {
	return &CallHandler{
		Handler: slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}), w: w,
		room: sync.Pool{New: func() any { return &callLine{} }},
	}
}

func (h *CallHandler) writeCall(now time.Time, c *Call) {
	line := h.room.Get().(*callLine)
	line.b = append(line.b[:0], `{"time":"`...)
	line.b = now.AppendFormat(line.b, time.RFC3339Nano)
	line.b = append(line.b, `","level":"INFO","msg":"call"`...)
	c.describe(line)
	line.b = append(line.b, "}\n"...)
	_, _ = h.w.Write(line.b) // as slog does, which has nobody to tell either
	h.room.Put(line)
}

// callLine writes a call's fields as JSON, as slog's JSON handler would.
type callLine struct{ b []byte }

func (l *callLine) key(key string) {
	l.b = append(l.b, `,"`...)
	l.b = append(l.b, key...) // the keys need no escapes
	l.b = append(l.b, `":`...)
}

func (l *callLine) text(key, value string) {
	l.key(key)
	l.b = api.AppendString(l.b, value)
}

func (l *callLine) whole(key string, value int) {
	l.key(key)
	l.b = strconv.AppendInt(l.b, int64(value), 10)
}

func (l *callLine) yes(key string, value bool) {
	l.key(key)
	l.b = strconv.AppendBool(l.b, value)
}

func (l *callLine) seconds(key string, value time.Duration) {
	l.key(key)
	l.b = strconv.AppendFloat(l.b, value.Seconds(), 'g', -1, 64)
}
