package admission

// The deficit longest prefix match (DLPM, arXiv 2501.14312). Strict fairness takes calls of
// one principal after another and so undoes what caches are for. Here a limit stands above the
// counters: of the principals below it any may go, and the call goes first whose longest prefix
// an endpoint with room holds. Where none is below it any more, the limit is set to the
// least counter and a quantum. So nobody who goes is ahead of anybody who waits by more than the
// quantum, and the bound of fairness holds up to that.

// mostLooked is how many calls are compared by their prefixes at a departure, each principal's
// in their order.
const mostLooked = 32

// Prefer says how the order FairLocal prefers calls: held returns how many tokens an endpoint
// with room holds of a waiting call's prompt. Without it the order is Fair.
func (q *Queue) Prefer(held func(call int32) int64) { q.held = held }

// nearest returns the call of the band that goes first.
func (q *Queue) nearest(b *band) int32 {
	f := &b.fair
	items := b.open.items
	least := q.principals[items[0]].counter
	if !(least < f.limit) {
		f.limit = least + q.cfg.Fairness.Quantum
	}
	best := q.principals[items[0]].first
	if q.held == nil {
		return best
	}
	// Who is below the limit in a heap has parents that are, too.
	var at [mostLooked]int     // places in the heap
	var next [mostLooked]int32 // the call of each that is compared next
	n := 1
	next[0] = best
	for i := 0; i < n; i++ {
		for child := 2*at[i] + 1; child <= 2*at[i]+2 && child < len(items) && n < mostLooked; child++ {
			if x := &q.principals[items[child]]; x.counter < f.limit {
				at[n], next[n] = child, x.first
				n++
			}
		}
	}
	most := int64(-1)
	for looked, more := 0, true; more && looked < mostLooked; {
		more = false
		for i := 0; i < n && looked < mostLooked; i++ {
			call := next[i]
			if call == none {
				continue
			}
			more = true
			next[i] = q.places[call].next
			looked++
			if held := q.held(call); held > most || held == most && q.compare(call, best) < 0 {
				best, most = call, held
			}
		}
	}
	return best
}
