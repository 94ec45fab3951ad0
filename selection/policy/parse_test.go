package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Params{
		"random":                       &Random{},
		"cache-aware":                  &CacheAware{CacheThreshold: 0.3, BalanceAbsThreshold: 64, BalanceRelThreshold: 1.5},
		"ewma-latency:decay=3s":        &EWMALatency{Decay: 3 * time.Second},
		"power-of-two:choice_count=5;": &PowerOfTwo{ChoiceCount: 5},
		"cache-aware:cache_threshold=0.5;balance_abs_threshold=32": &CacheAware{CacheThreshold: 0.5, BalanceAbsThreshold: 32, BalanceRelThreshold: 1.5},
		"consistent-hash:key=header;header=x-user":                 &ConsistentHash{Key: "header", Header: "x-user", Blocks: 16, LoadFactor: 1.25},
	} {
		rule, got, err := Parse(text)
		if err != nil || rule.Name != strings.SplitN(text, ":", 2)[0] {
			t.Errorf("%s: %s, %v", text, rule.Name, err)
			continue
		}
		if got, want := show(got), show(want); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"rondom":                          `policy "rondom" is unknown; allowed: random, `,
		"random:x=1":                      "policy random: x: it has no parameters",
		"ewma-latency:decay=3":            `policy ewma-latency: decay: "3" is not allowed; want a duration such as 10s`,
		"ewma-latency:decay":              `policy ewma-latency: "decay" is no key=value`,
		"power-of-two:choice_count=1":     "choice_count: 1 is not allowed",
		"power-of-two:choice_count=x":     `choice_count: "x" is not allowed; want a whole number`,
		"cache-aware:threshold=1":         "threshold is no parameter; allowed: cache_threshold, ",
		"cache-aware:cache_threshold=NaN": "cache_threshold: NaN is not allowed",
	} {
		if _, _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func show(p Params) string { return fmt.Sprintf("%T %+v", p, p) }
