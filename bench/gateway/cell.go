package main

import (
	"fmt"
	"regexp"
	"time"
)

// cell is one kind of call that is measured.
type cell struct {
	Body   int           `json:"body"`   // bytes of the request's body
	Events int           `json:"events"` // content events of a streamed answer; 0: not streamed
	Pace   time.Duration `json:"pace"`   // between two events, in nanoseconds; 0: as fast as they go
	Quick  bool          `json:"-"`      // part of a quick run
}

const kib = 1 << 10

// allCells are the cells of a full run. The last two are about the relay: their answers
// are so long that the call itself hardly counts.
var allCells = []cell{
	{Body: 4 * kib, Quick: true},
	{Body: 40 * kib},
	{Body: 400 * kib, Quick: true},
	{Body: 4 * kib, Events: 64, Pace: time.Millisecond, Quick: true},
	{Body: 40 * kib, Events: 64, Pace: time.Millisecond},
	{Body: 400 * kib, Events: 64, Pace: time.Millisecond},
	{Body: 4 * kib, Events: 512, Pace: time.Millisecond, Quick: true},
	{Body: 4 * kib, Events: 512},
}

// String is the cell's name in tables and for -cells.
func (c cell) String() string {
	switch {
	case c.Events == 0:
		return fmt.Sprintf("%d KB, plain", c.Body/kib)
	case c.Pace == 0:
		return fmt.Sprintf("%d KB, stream of %d, burst", c.Body/kib, c.Events)
	default:
		return fmt.Sprintf("%d KB, stream of %d", c.Body/kib, c.Events)
	}
}

// concurrency is how many calls are in flight. Paced streams mostly wait, so there are
// more of them.
func (c cell) concurrency() int {
	if c.Pace > 0 {
		return 32
	}
	return 8
}

// short is the cell with an answer that is soon over, to warm connections up.
func (c cell) short() cell {
	c.Events = min(c.Events, 4)
	return c
}

func chosenCells(quick bool, only *regexp.Regexp) []cell {
	var out []cell
	for _, c := range allCells {
		if (c.Quick || !quick) && only.MatchString(c.String()) {
			out = append(out, c)
		}
	}
	return out
}
