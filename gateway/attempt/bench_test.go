package attempt

import (
	"testing"
	"time"

	"kvasir/internal/mono"
)

// BenchmarkBudget is a success and a retry that is asked for, a thousand of them a second.
func BenchmarkBudget(b *testing.B) {
	budget, now := NewBudget(Default()), mono.Time(0)
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Millisecond)
		budget.Earn(now)
		if budget.Has(now) {
			budget.Spend(now)
		}
	}
}
