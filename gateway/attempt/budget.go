package attempt

import (
	"time"

	"kvasir/internal/mono"
)

// budgetWindow is how long a success's share of the ratio can be spent (Finagle: 10 s).
const budgetWindow = 10

// credit is one retry, in the budget's integer unit.
const credit = int64(time.Second)

// Budget bounds the retries of many calls together. Every success adds Ratio of a retry,
// which can be spent for 10 seconds; beside that Floor retries a second are allowed, so
// that a quiet router, or one that has just begun, can retry at all. The two add up:
// retries ≤ Ratio × successes + Floor × (1 + seconds). It is successes that earn, and not
// calls, because in an outage calls go on: a tenth of them would still be sent twice to
// what answers none.
//
// Sources: article section 9.1 ("at most 10% of successful calls"); Finagle's RetryBudget
// for the window and the floor. Not safe for concurrent use.
type Budget struct {
	each  int64 // credits that a success adds
	floor int64 // credits a second, and the most that the floor saves up

	saved   int64     // of the floor
	savedAt mono.Time // when saved was true

	cells  [budgetWindow]int64 // credits earned by successes, by second
	second int64               // of the newest cell
}

// NewBudget returns a budget of the Ratio and the Floor, with one second's floor saved up.
func NewBudget(c Config) *Budget {
	floor := int64(c.Floor * float64(credit))
	return &Budget{each: int64(c.Ratio * float64(credit)), floor: floor, saved: floor}
}

// Earn books one success.
func (b *Budget) Earn(now mono.Time) {
	b.advance(now)
	b.cells[b.second%budgetWindow] += b.each
}

// Has reports whether there is a retry to take.
func (b *Budget) Has(now mono.Time) bool {
	b.advance(now)
	return b.saved >= credit || b.earned() >= credit
}

// Ample reports whether successes alone have earned a retry that nobody has taken: what is
// tried again is answered.
func (b *Budget) Ample(now mono.Time) bool {
	b.advance(now)
	return b.earned() >= credit
}

// Spend takes one retry, of the floor before what was earned, and reports whether there
// was one to take.
func (b *Budget) Spend(now mono.Time) bool {
	b.advance(now)
	if b.saved >= credit {
		b.saved -= credit
		return true
	}
	return b.spendEarned()
}

// SpendEarned takes one retry of what successes have earned, never of the floor, and reports
// whether there was one to take.
func (b *Budget) SpendEarned(now mono.Time) bool {
	b.advance(now)
	return b.spendEarned()
}

func (b *Budget) spendEarned() bool {
	if b.earned() < credit {
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

func (b *Budget) earned() int64 {
	var sum int64
	for _, c := range b.cells {
		sum += c
	}
	return sum
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
