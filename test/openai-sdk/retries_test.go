package openaisdk

import (
	"testing"

	"github.com/openai/openai-go/v3/option"

	"kvasir/internal/testkit/scripted"
)

// TestRetries_DoNotMultiply: the SDK makes up to 3 attempts of a call, the gateway up to 3
// of each; 9 upstream calls for one is what must not be (field case F22).
func TestRetries_DoNotMultiply(t *testing.T) {
	const most = 3
	for _, test := range []struct {
		name   string
		script scripted.Script
	}{
		{"429", refuses(429)},
		{"503", refuses(503)},
		{"500", refuses(500)},
		{"reset", (*scripted.Call).RST},
	} {
		for endpoints := 1; endpoints <= 4; endpoints++ {
			t.Run(test.name+" of "+string(rune('0'+endpoints)), func(t *testing.T) {
				t.Parallel()
				scripts := make([]scripted.Script, endpoints)
				for i := range scripts {
					scripts[i] = test.script
				}
				r := withScript(t, "", scripts...)
				c := r.client(option.WithMaxRetries(2)) // the SDK's default
				if _, err := c.Chat.Completions.New(t.Context(), question("tiny", "hi", 1)); err == nil {
					t.Error("no error")
				}
				if n := r.upstreamCalls(); n > most {
					t.Errorf("one call became %d upstream calls, want at most %d", n, most)
				} else {
					t.Logf("one call became %d upstream calls", n)
				}
			})
		}
	}
}

// TestRetries_KeepToTheBudget: where everything fails all the time, the retries of both
// together are a share of the calls.
func TestRetries_KeepToTheBudget(t *testing.T) {
	const calls, ratio = 60, 0.1
	r := withScript(t, "retry: {ratio: 0.1, floor: 0}\nhealth: {failures: 1000, ratio: 0}\n", refuses(500), refuses(500), refuses(500))
	c := r.client(option.WithMaxRetries(2))
	for range calls {
		if _, err := c.Chat.Completions.New(t.Context(), question("tiny", "hi", 1)); err == nil {
			t.Fatal("no error")
		}
	}
	if n := r.upstreamCalls(); n > calls*(1+ratio)+1 {
		t.Errorf("%d calls became %d upstream calls with retry.ratio %v", calls, n, ratio)
	} else {
		t.Logf("%d calls became %d upstream calls", calls, n)
	}
}
