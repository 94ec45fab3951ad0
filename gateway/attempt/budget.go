package attempt

import (
	"time"

	"kvasir/internal/mono"
)

// budgetWindow is how long a call's share of the ratio can be spent (Finagle: 10 s).
const budgetWindow = 10

// credit is one retry, in the budget's integer unit.
const credit = int64(time.Second)

// Budget bounds the retries of all calls together. Every accepted call adds Ratio of a
// retry, which can be spent for 10 seconds; beside that Floor retries a second are
// allowed, so that a quiet router can retry at all. The two add up, as in Finagle's
// RetryBudget: in steady failure upstream attempts stay below calls × (1 + Ratio) +
// Floor × seconds. Not safe for concurrent use.
type Budget struct {
	perCall int64 // credits
	floor   int64 // credits a second, and the most that the floor saves up

	saved   int64     // of the floor
	savedAt mono.Time // when saved was true

	cells  [budgetWindow]int64 // credits earned by calls, by second
	second int64               // of the newest cell
}

// NewBudget returns a budget with one second's floor saved up.
func NewBudget(c Config) *Budget {
	floor := int64(c.Floor * float64(credit))
	return &Budget{perCall: int64(c.Ratio * float64(credit)), floor: floor, saved: floor}
}

// Earn books one accepted call.
func (b *Budget) Earn(now mono.Time) {
	b.advance(now)
	b.cells[b.second%budgetWindow] += b.perCall
}

// Spend takes one retry and reports whether there was one to take.
func (b *Budget) Spend(now mono.Time) bool {
	b.advance(now)
	if b.saved >= credit {
		b.saved -= credit
		return true
	}
	var earned int64
	for _, c := range b.cells {
		earned += c
	}
	if earned < credit {
		return false
	}
	// Oldest first: what would expire next is spent first.
	owed := credit
	for i := int64(1); owed > 0; i++ {
		c := &b.cells[(b.second+i)%budgetWindow]
		take := min(*c, owed)
		*c -= take
		owed -= take
	}
	return true
}

func (b *Budget) advance(now mono.Time) {
	if dt := now.Sub(b.savedAt); dt > 0 {
		if dt >= time.Second {
			b.saved = b.floor
		} else {
			b.saved = min(b.floor, b.saved+int64(float64(b.floor)/float64(credit)*float64(dt)))
		}
		b.savedAt = now
	}
	second := int64(now.Duration() / time.Second)
	if second-b.second >= budgetWindow {
		b.cells = [budgetWindow]int64{}
		b.second = second
		return
	}
	for b.second < second {
		b.second++
		b.cells[b.second%budgetWindow] = 0
	}
}
