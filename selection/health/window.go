package health

import (
	"time"

	"kvasir/internal/mono"
)

const cells = 10

// window counts the calls of the last interval of a rule, in ten cells that expire one by one.
// The zero window is empty.
type window struct {
	newest int64 // number of the newest cell since the clock's zero
	calls  [cells]uint32
	failed [cells]uint32
}

func (w *window) add(interval time.Duration, now mono.Time, failed bool) {
	cell := int64(now.Duration() / max(interval/cells, time.Nanosecond))
	if cell-w.newest >= cells {
		*w = window{newest: cell}
	}
	for w.newest < cell {
		w.newest++
		w.calls[w.newest%cells], w.failed[w.newest%cells] = 0, 0
	}
	w.calls[w.newest%cells]++
	if failed {
		w.failed[w.newest%cells]++
	}
}

// counted returns how many calls there were, and how many of them failed.
func (w *window) counted() (calls, failed int64) {
	for i := range cells {
		calls += int64(w.calls[i])
		failed += int64(w.failed[i])
	}
	return calls, failed
}
