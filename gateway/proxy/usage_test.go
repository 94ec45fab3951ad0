package proxy

import (
	"testing"

	"kvasir/api"
	"kvasir/gateway/flow"
)

// TestUsage_WhatIsNotToldIsNotZero: vLLM tells cached tokens only when it is set to.
func TestUsage_WhatIsNotToldIsNotZero(t *testing.T) {
	for _, c := range []struct {
		told api.Usage
		want flow.Usage
	}{
		{api.Usage{Input: 10, Output: 2, Cached: 8}, flow.Usage{Known: true, CachedKnown: true, Prompt: 10, Cached: 8, Output: 2}},
		{api.Usage{Input: 10, Output: 2, Cached: 0}, flow.Usage{Known: true, CachedKnown: true, Prompt: 10, Output: 2}},
		{api.Usage{Input: 10, Output: 2, Cached: api.Unknown}, flow.Usage{Known: true, Prompt: 10, Output: 2}},
		{api.Usage{Input: 10, Output: api.Unknown, Cached: 3}, flow.Usage{Known: true, CachedKnown: true, Prompt: 10, Cached: 3}},
		{api.Usage{Input: api.Unknown, Output: 2, Cached: 3}, flow.Usage{}},
	} {
		if got := (&call{route: &route{grammar: api.Chat}}).usage(c.told); got != c.want {
			t.Errorf("%+v is taken as %+v, want %+v", c.told, got, c.want)
		}
	}
}
