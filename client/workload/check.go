package workload

import (
	"errors"
	"fmt"
)

// check collects what is wrong with a generator's fields.
type check struct{ errs []error }

func (c *check) join() error { return errors.Join(c.errs...) }

func (c *check) say(format string, args ...any) { c.errs = append(c.errs, fmt.Errorf(format, args...)) }

func (c *check) whole(key string, v, least, most int) {
	if v < least || v > most {
		c.say("%s is %d; allowed: %d to %d", key, v, least, most)
	}
}

func (c *check) number(key string, v, least, most float64) {
	if !(least <= v && v <= most) {
		c.say("%s is %v; allowed: %v to %v", key, v, least, most)
	}
}

// lengths checks the bounds of what is drawn.
func (c *check) lengths(key string, l Lengths, least, most int) {
	if low, high := l.Bounds(); low < least || high > most {
		c.say("%s is %s; allowed: lengths within %d and %d", key, l.String(), least, max(most, least))
	}
}
