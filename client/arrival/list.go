package arrival

import (
	"fmt"
	"iter"
	"time"
)

// List is sessions at instants that are known, such as those of a trace. It ends with the
// list. Instants that are equal, or that come closer than a nanosecond to one that was
// moved, are moved to the next nanosecond.
type List struct {
	At []time.Duration // since the start, none before the one in front of it
}

// Validate reports the first instant that is negative or earlier than the one before.
func (l List) Validate() error {
	last := time.Duration(0)
	for i, at := range l.At {
		if at < last {
			return fmt.Errorf("at[%d] is %v; allowed: %v or later, the instant before it", i, at, last)
		}
		last = at
	}
	return nil
}

// Instants yields the list; the seed is not used.
func (l List) Instants(uint64) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		last := time.Duration(-1)
		for _, at := range l.At {
			if last = max(at, last+1); !yield(last) {
				return
			}
		}
	}
}
