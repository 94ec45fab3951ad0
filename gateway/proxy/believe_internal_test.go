package proxy

import (
	"net/http"
	"testing"

	"kvasir/api"
	"kvasir/gateway/flow"
	"kvasir/telemetry"
)

// TestUsage_IsBelievedWithinBounds: what an endpoint claims beyond them is charged neither to the
// tenant nor in the fair queue, and the record has it as reported.
func TestUsage_IsBelievedWithinBounds(t *testing.T) {
	const lie = 1 << 28
	for _, x := range []struct {
		name           string
		grammar        api.Grammar
		asked          api.Request
		prompt, answer int
	}{
		{"max_tokens is given", api.Chat, api.Request{MaxTokens: 5, N: 1}, 60 + 1<<16, 5},
		{"several answers", api.Chat, api.Request{MaxTokens: 5, N: 3}, 60 + 1<<16, 15},
		{"no bound is given", api.Chat, api.Request{N: 1}, 60 + 1<<16, 1 << 20},
		{"a bound beyond all answers", api.Chat, api.Request{MaxTokens: 1 << 40, N: 1 << 40}, 60 + 1<<16, 1 << 20},
		{"any number of prompts", api.Completions, api.Request{MaxTokens: 5, N: 1}, 60 + 1<<16, 1 << 20},
		{"what was said before", api.Responses, api.Request{MaxTokens: 5, N: 1}, 60 + 1<<20, 5},
	} {
		c := &call{route: &route{grammar: x.grammar}, asked: x.asked, try: newTry()}
		c.request.Bytes = 60
		c.record.Attempts, c.record.Outcome = 1, telemetry.Success
		told := c.usage(api.Usage{Input: lie, Output: lie, Cached: lie})
		if want := (flow.Usage{Known: true, CachedKnown: true, Prompt: x.prompt, Cached: x.prompt, Output: x.answer}); told != want {
			t.Errorf("%s: the machine is told %+v, want %+v", x.name, told, want)
		}
		if u := c.used(); u.Input != x.prompt || u.Cached != x.prompt || u.Output != x.answer {
			t.Errorf("%s: charged %+v, want %d and %d", x.name, u, x.prompt, x.answer)
		}
		if c.record.PromptTokens != lie || c.record.OutputTokens != lie {
			t.Errorf("%s: recorded %d and %d", x.name, c.record.PromptTokens, c.record.OutputTokens)
		}
	}
}

// TestHeard_CountsLargeEvents: an event is a token, one that brings much more than the shortest is
// as many as its content has.
func TestHeard_CountsLargeEvents(t *testing.T) {
	for _, x := range []struct {
		name   string
		events []int
		want   int
	}{
		{"none", nil, 0},
		{"a token each", []int{200, 202, 204, 201}, 4},
		{"one of 200 KB", []int{200_000}, (200_000 - mostFrame) / textOfToken},
		{"a small one first", []int{200, 200_200}, 50_000},
		{"a small one last", []int{200_200, 200}, 50_000},
	} {
		var a answer
		before := 0
		for _, n := range x.events {
			a.hear(n)
			if h := a.heard(); h < before {
				t.Errorf("%s: %d tokens after %d", x.name, h, before)
			}
			before = a.heard()
		}
		if got := a.heard(); got != x.want {
			t.Errorf("%s: %d tokens, want %d", x.name, got, x.want)
		}
	}
}

// TestRetryCount_OutOfRangeIsARetry and what is no number is none.
func TestRetryCount_OutOfRangeIsARetry(t *testing.T) {
	for v, again := range map[string]bool{"": false, "0": false, "1": true, "99999999999999999999": true, "-99999999999999999999": false, "x": false, "1x": false} {
		if got := retryCount(http.Header{"X-Stainless-Retry-Count": {v}}) > 0; got != again {
			t.Errorf("%q is a retry: %v, want %v", v, got, again)
		}
	}
}
