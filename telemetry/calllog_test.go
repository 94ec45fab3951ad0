package telemetry

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func whole() *Call {
	return &Call{
		ID: "req-1", Model: "llama", Pool: "gpus", Endpoint: "http://10.0.0.11:8000", Policy: "cache-aware",
		Route: "/v1/chat/completions", Outcome: Success, Status: 200, Attempts: 1, Stream: true, Hedged: true, Continued: 1,
		Client: "team-a", Tenant: "acme", Class: "batch", OutputEstimated: 2, Peer: "10.0.0.9", Tried: "a busy", Conversation: 0x0123456789abcdef, InputTokens: 90, UsageKnown: true, CachedKnown: true, PromptTokens: 100, CachedTokens: 64, OutputTokens: 3,
		Pick: 400 * time.Nanosecond, Held: 50 * time.Millisecond, TTFT: 200 * time.Millisecond, Thought: 70 * time.Millisecond, PredictedTTFT: 150 * time.Millisecond, Sent: 60 * time.Millisecond, E2E: 220 * time.Millisecond, DoneMissing: true, Retry: true,
	}
}

// line returns the one line that LogCall writes for c, without the time.
func line(t *testing.T, c *Call) map[string]any {
	t.Helper()
	var b bytes.Buffer
	LogCall(t.Context(), slog.New(slog.NewJSONHandler(&b, nil)), c)
	if n := strings.Count(b.String(), "\n"); n != 1 {
		t.Fatalf("%d lines, want 1:\n%s", n, &b)
	}
	var got map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "time")
	return got
}

func TestLogCallWritesOneLine(t *testing.T) {
	got, wanted := line(t, whole()), map[string]any{
		"level": "INFO", "msg": "call",
		"id": "req-1", "client": "team-a", "tenant": "acme", "class": "batch", "output_tokens_estimated": 2.0, "peer": "10.0.0.9", "tried": "a busy", "conversation": "01234567", "route": "/v1/chat/completions", "model": "llama", "pool": "gpus",
		"endpoint": "http://10.0.0.11:8000", "policy": "cache-aware",
		"outcome": "success", "status": 200.0, "stream": true, "attempts": 1.0, "retry": true, "hedged": true, "continued": 1.0,
		"input_tokens_estimated": 90.0, "prompt_tokens": 100.0, "cached_tokens": 64.0, "output_tokens": 3.0,
		"pick_seconds": 4e-7, "sent_seconds": 0.06, "held_seconds": 0.05, "ttft_seconds": 0.2, "first_reasoning_seconds": 0.07, "predicted_ttft_seconds": 0.15, "tpot_seconds": 0.01, "e2e_seconds": 0.22,
		"done_missing": true,
	}
	if !reflect.DeepEqual(got, wanted) {
		t.Errorf("got  %v\nwant %v", got, wanted)
	}
}

func TestLogCallLeavesOutWhatIsUnknown(t *testing.T) {
	got := line(t, &Call{ID: "x\n{\"level\":\"forged\"}", Outcome: CallerFault, Refusal: UnknownModel, Status: 404})
	keys := slices.Sorted(maps.Keys(got))
	wanted := []string{"attempts", "e2e_seconds", "id", "input_tokens_estimated", "level", "model", "msg", "outcome", "refusal", "route", "status", "stream"}
	if !slices.Equal(keys, wanted) {
		t.Errorf("fields %v, want %v", keys, wanted)
	}
	if got["model"] != "unknown" || got["refusal"] != "unknown_model" || got["outcome"] != "caller_fault" {
		t.Errorf("got %v", got)
	}
}

// A Call with every field set shows each of them, so that a new field is not forgotten.
func TestLogCallShowsEveryField(t *testing.T) {
	c := whole()
	c.Refusal = Draining
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("the test's call leaves %s zero", v.Type().Field(i).Name)
		}
	}
	const derived, switches = 1, 2 // tpot_seconds is computed; UsageKnown and CachedKnown show as the presence of others
	if got, fields := len(line(t, c))-len([]string{"level", "msg"}), v.NumField(); got != fields+derived-switches {
		t.Errorf("%d attributes for %d fields of Call", got, fields)
	}
}

// The fast way says what slog says.
func TestLogCallWritesTheSameByHand(t *testing.T) {
	odd := whole()
	odd.ID, odd.Endpoint, odd.Client = "a\"b\\\n\x00\u2028é", "\xff<&>", "team ü"
	odd.TTFT, odd.E2E = 123456789*time.Nanosecond, 2*time.Hour
	for _, c := range []*Call{whole(), odd, {}, {Outcome: Refused, Refusal: Draining, Status: 503}} {
		var slow, fast bytes.Buffer
		LogCall(t.Context(), slog.New(slog.NewJSONHandler(&slow, nil)), c)
		LogCall(t.Context(), slog.New(NewCallHandler(&fast, slog.LevelInfo)), c)
		read := func(line string) map[string]any {
			var m map[string]any
			if err := json.Unmarshal([]byte(line), &m); err != nil || strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, "\n") {
				t.Fatalf("%v in %q", err, line)
			}
			if at, err := time.Parse(time.RFC3339Nano, m["time"].(string)); err != nil || time.Since(at) > time.Minute {
				t.Errorf("time %v, %v", m["time"], err)
			}
			delete(m, "time")
			return m
		}
		if a, b := read(slow.String()), read(fast.String()); !reflect.DeepEqual(a, b) {
			t.Errorf("slog %v\nfast %v", a, b)
		}
	}
	var off bytes.Buffer
	LogCall(t.Context(), slog.New(NewCallHandler(&off, slog.LevelWarn)), whole())
	if off.Len() > 0 {
		t.Errorf("written below the level: %s", &off)
	}
}

func TestLogCallIsFree_WhenTheLevelIsOff(t *testing.T) {
	l, c := slog.New(slog.DiscardHandler), whole()
	if n := testing.AllocsPerRun(100, func() { LogCall(t.Context(), l, c) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLogCall(b *testing.B) {
	for name, h := range map[string]slog.Handler{
		"slog":    slog.NewJSONHandler(io.Discard, nil),
		"by hand": NewCallHandler(io.Discard, slog.LevelInfo),
	} {
		b.Run(name, func(b *testing.B) {
			l, c, ctx := slog.New(h), whole(), b.Context()
			b.ReportAllocs()
			for b.Loop() {
				LogCall(ctx, l, c)
			}
		})
	}
}
