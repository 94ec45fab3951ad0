package engine

import (
	"testing"

	"kvasir/internal/mono"
)

// What the device had no room for comes back from the host, at the host's pace, and counts
// apart.
func TestHostTier_GivesBackWhatTheDeviceLost(t *testing.T) {
	first, other := text{family: 1, shared: 1000}, text{family: 2, shared: 1000}
	for _, c := range []struct {
		name         string
		host         int
		device, back int64     // tokens found in the prefix cache, and at the host
		step         mono.Time // length of the last prefill's step
		otherPrompt  int       // tokens served in between
	}{
		{"no host", 0, 0, 0, 1016 * microsecond, 32},
		// A block has 4 bytes, which take 4 µs; a token is left to compute.
		{"all of it", 16, 0, 16, 1000*microsecond + 4*4*microsecond, 32},
		{"the head, which is evicted last", 2, 0, 8, 1008*microsecond + 2*4*microsecond, 32},
		{"the tail behind the device's head", 16, 8, 8, 1000*microsecond + 2*4*microsecond, 24},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := small()
			cfg.NumBlocks = 8
			if c.host > 0 {
				cfg.Host = HostTier{Blocks: c.host, Bandwidth: 1e6}
			}
			e := mustNew(t, cfg)
			serve(t, e, 0, first.request('a', 17, 1, 4))
			serve(t, e, second, other.request('b', c.otherPrompt, 1, 4))
			if s := e.Stats(); s.PrefixHits != 0 || s.HostHits != 0 {
				t.Fatalf("%+v", s)
			}
			mustSubmit(t, e, 2*second, first.request('c', 17, 1, 4))
			out := drain(e)[0]
			if out.Cached != int(c.device+c.back) {
				t.Errorf("%d tokens cached, want %d and %d", out.Cached, c.device, c.back)
			}
			if d := out.At - out.Scheduled; d != c.step {
				t.Errorf("the step takes %d µs, want %d", d/microsecond, c.step/microsecond)
			}
			if s := e.Stats(); s.PrefixHits != c.device || s.HostHits != c.back {
				t.Errorf("hits of %d and %d tokens, want %d and %d", s.PrefixHits, s.HostHits, c.device, c.back)
			}
			audit(t, e)
		})
	}
}

// What was loaded is on the device again.
func TestHostTier_LoadsOnce(t *testing.T) {
	cfg := small()
	cfg.NumBlocks, cfg.Host = 8, HostTier{Blocks: 16, Bandwidth: 1e6}
	e := mustNew(t, cfg)
	first := text{family: 1, shared: 1000}
	serve(t, e, 0, first.request('a', 17, 1, 4))
	serve(t, e, second, text{family: 2, shared: 1000}.request('b', 32, 1, 4))
	serve(t, e, 2*second, first.request('c', 17, 1, 4))
	serve(t, e, 3*second, first.request('d', 17, 1, 4))
	if s := e.Stats(); s.PrefixHits != 16 || s.HostHits != 16 {
		t.Errorf("hits of %d and %d tokens, want 16 and 16", s.PrefixHits, s.HostHits)
	}
}
