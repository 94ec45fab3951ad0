package health

import (
	"testing"
	"time"

	"kvasir/internal/mono"
)

// BenchmarkBreaker is what a call's end costs under the default rules and one for statuses.
func BenchmarkBreaker(b *testing.B) {
	c := Default()
	rules := c.Rules([]Rule{limited})
	var breaker Breaker
	now := mono.Time(0)
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Millisecond)
		breaker.Answered(rules, now, 503, -1, false)
		breaker.Succeed(rules, now, false)
	}
}
