package proxy

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestKeyWatch_SeesTheKeyForAnyBorders cuts a text anyhow: the watch stops exactly where the
// key would be complete.
func TestKeyWatch_SeesTheKeyForAnyBorders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringMatching(`[ab]{1,6}`).Draw(t, "key")
		text := rapid.StringMatching(`[abc]{0,40}`).Draw(t, "text")
		var w keyWatch
		w.reset(key)
		passed := ""
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			if w.sees([]byte(rest[:n])) {
				if !strings.Contains(passed+rest[:n], key) {
					t.Fatalf("saw %q in %q, after %q", key, rest[:n], passed)
				}
				return
			}
			passed, rest = passed+rest[:n], rest[n:]
		}
		if strings.Contains(passed, key) {
			t.Fatalf("%q passed, with %q in it", passed, key)
		}
	})
}
