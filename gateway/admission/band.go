package admission

import "math/bits"

// The bands of priority: the bounds of what is told apart. What lies outside is taken to be at
// the bound.
const (
	MinPriority = -8
	MaxPriority = 8

	bands = MaxPriority - MinPriority + 1
)

// Band returns the priority as the queue tells it apart.
func Band(priority int32) int32 { return min(max(priority, MinPriority), MaxPriority) }

func bandOf(priority int32) int { return int(Band(priority) - MinPriority) }

// band is who waits with one priority. A higher band goes first, but of every Config.Turn
// calls that go while a lower one waits, one is of a lower one: of the lower bands the one
// that was passed over most, and of those alike the highest.
//
// So nobody starves: while b bands wait and any endpoint may have any call, a band's first call
// goes within Turn·(b−1) departures. For there is a turn every Turn departures unless the band
// itself is the highest; a band that gets a turn before this one has been passed over at least
// as often and is then passed over less, so it gets no second one before this one; and the
// highest gets none.
type band struct {
	open   heap    // what any endpoint may have: calls, or, in a fair order, principals
	tied   []int32 // the other calls; in order, but for fair orders
	calls  int
	bytes  int64
	tokens int64
	oldest int32 // by Since; linked through places
	newest int32
	passed int // departures of other bands since it began to wait, or since its own last

	fair banker // of fair orders
}

// due returns whose turn is next of the bands below the highest that may go; none where nobody
// waits there.
func (q *Queue) due() int {
	at := none
	for left := q.waiting & (1<<q.top() - 1) &^ (1<<q.lowest - 1); left != 0; {
		b := bits.Len32(left) - 1
		left &^= 1 << b
		if at == none || q.bands[b].passed > q.bands[at].passed {
			at = b
		}
	}
	return at
}

// turns returns the band that goes before higher ones; none where it is nobody's turn.
func (q *Queue) turns() int {
	if q.cfg.Turn <= 0 || q.sinceTurn < q.cfg.Turn-1 {
		return none
	}
	return q.due()
}

// top returns the highest band that waits. Somebody must.
func (q *Queue) top() int { return bits.Len32(q.waiting) - 1 }

// departs counts that a call of the band goes. It waits still.
func (q *Queue) departs(b int) {
	if due := q.due(); due == none || due == b {
		q.sinceTurn = 0
	} else {
		q.sinceTurn = min(q.sinceTurn+1, q.cfg.Turn)
	}
	for left := q.waiting; left != 0; left &= left - 1 {
		q.bands[bits.TrailingZeros32(left)].passed++
	}
	q.bands[b].passed = 0
}

// Release says that calls below the priority stay for now, whatever room there is; who has
// less may go at another time.
func (q *Queue) Release(from int32) { q.lowest = bandOf(from) }
