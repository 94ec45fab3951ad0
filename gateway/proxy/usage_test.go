package proxy_test

import (
	"testing"

	"kvasir/internal/testkit/scripted"
)

// Field case F58, third variant: without usage the counts stay unknown.
func TestStreamWithoutUsageCountsUnknown(t *testing.T) {
	r := newRig(t, ordered(func(c *scripted.Call) { c.Stream(roleEvent, textEvent("a"), textEvent("b"), finishEvent, doneEvent) }))
	defer r.close()
	r.post(chatPath, streamed)
	if c := r.record(); c.has("prompt_tokens") || c.has("output_tokens") || c.int("input_tokens_estimated") == 0 {
		t.Errorf("record %v", c)
	}
	if n := r.metric("kvasir_tokens_total", "kind=output") + r.metric("kvasir_tokens_total", "kind=input"); n != 0 {
		t.Errorf("%v tokens counted", n)
	}
	if n := r.metric("kvasir_tokens_total", "kind=input_estimated"); n == 0 {
		t.Error("no estimate counted")
	}
}

// Field case F59: zeros are not believed, the last usage that is not empty wins, and
// several are not added up.
func TestUsageOfZerosIsUnknown(t *testing.T) {
	usage := func(value string) string {
		return `data: {"id":"c1","object":"chat.completion.chunk","choices":[],"usage":` + value + "}\n\n"
	}
	text := textEvent("a hundred words")
	for name, x := range map[string]struct {
		events         []string
		known          bool
		prompt, output int
	}{
		"zeros":             {events: []string{text, usage(`{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`)}},
		"output zero":       {events: []string{text, usage(`{"prompt_tokens":9,"completion_tokens":0}`)}},
		"negative":          {events: []string{text, usage(`{"prompt_tokens":-9,"completion_tokens":-1}`)}},
		"null between":      {events: []string{usage(`{"prompt_tokens":9,"completion_tokens":1}`), text, usage(`null`)}, known: true, prompt: 9, output: 1},
		"cumulative":        {events: []string{usage(`{"prompt_tokens":9,"completion_tokens":1}`), text, usage(`{"prompt_tokens":9,"completion_tokens":2}`)}, known: true, prompt: 9, output: 2},
		"zeros at the end":  {events: []string{text, usage(`{"prompt_tokens":9,"completion_tokens":2}`), usage(`{"prompt_tokens":0,"completion_tokens":0}`)}, known: true, prompt: 9, output: 2},
		"empty answer":      {events: []string{usage(`{"prompt_tokens":9,"completion_tokens":0}`)}, known: true, prompt: 9},
		"not an object":     {events: []string{text, usage(`"none"`)}},
		"prompt is missing": {events: []string{text, usage(`{"completion_tokens":5}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ordered(func(c *scripted.Call) {
				c.Stream(append(append([]string{roleEvent}, x.events...), finishEvent, doneEvent)...)
			}))
			defer r.close()
			r.post(chatPath, streamed)
			c := r.record()
			if c.has("output_tokens") != x.known || x.known && (c.int("prompt_tokens") != x.prompt || c.int("output_tokens") != x.output) {
				t.Errorf("record %v", c)
			}
		})
	}
}
