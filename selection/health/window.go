package health

import (
	"time"

	"kvasir/internal/mono"
)

const cells = 10

// window counts the calls of the last Config.Window, in ten cells that expire one by one.
// The zero window is empty.
type window struct {
	newest int64 // number of the newest cell since the clock's zero
	calls  [cells]uint32
	failed [cells]uint32
}

func (w *window) add(c Config, now mono.Time, failed bool) {
	cell := int64(now.Duration() / max(c.Window/cells, time.Nanosecond))
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

// failing reports whether too many of the counted calls failed.
func (w *window) failing(c Config) bool {
	var calls, failed uint32
	for i := range cells {
		calls += w.calls[i]
		failed += w.failed[i]
	}
	return c.Ratio > 0 && int64(calls) >= int64(c.Volume) && float64(failed) >= c.Ratio*float64(calls)
}
