package telemetry

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestLimitRefused_HasEverySeriesFromTheStartAndNoOther: what is no scope or no limit makes
// no series.
func TestLimitRefused_HasEverySeriesFromTheStartAndNoOther(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := New(reg)
	m.LimitRefused("tenant", "tpm")
	m.LimitRefused("conversation", "waiting")
	m.LimitRefused("acme", "tpm")
	m.LimitRefused("conversation", "rpm")
	n := 0
	for name, v := range samples(t, reg) {
		if want, ok := map[string]float64{
			`kvasir_limit_refusals_total{limit="tpm",scope="tenant"}`: 1, `kvasir_limit_refusals_total{limit="waiting",scope="conversation"}`: 1,
			`kvasir_limit_refusals_total{limit="rpm",scope="key"}`: 0,
		}[name]; ok && v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
		if len(name) > 28 && name[:28] == "kvasir_limit_refusals_total{" {
			n++
		}
	}
	if n != 4*3+1 {
		t.Errorf("%d series, want three of each of four scopes and one of conversations", n)
	}
}
