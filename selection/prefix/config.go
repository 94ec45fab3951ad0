package prefix

import (
	"fmt"
	"time"
)

// What a Config's zero fields mean, and what it may hold.
const (
	DefaultBudgetBytes    = 256 << 20
	DefaultSpeculativeTTL = 30 * time.Second

	minBudgetBytes    = 1 << 20
	maxBudgetBytes    = 64 << 30 // positions are 32-bit numbers; this many bytes hold about 5×10^8 cells
	minSpeculativeTTL = 100 * time.Millisecond
	maxSpeculativeTTL = 24 * time.Hour
)

// Config says how much an Index may hold and for how long it believes a promise. A
// zero field means its default.
type Config struct {
	BudgetBytes    int64         // bytes the index may allocate, all counted; default 256 MiB, from 1 MiB to 64 GiB
	SpeculativeTTL time.Duration // the longest that an unconfirmed promise is believed; default 30s, from 100ms to 24h
	Endpoints      int           // slots to start with; the index grows by itself up to MaxEndpoints
}

// FieldError names a field of Config that cannot be used.
type FieldError struct {
	Field   string // as in the configuration file, in snake case
	Value   any
	Allowed string
}

// Error returns the field, its value and what is allowed.
func (e FieldError) Error() string {
	return fmt.Sprintf("%s: %v is not allowed; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Validate returns every mistake in c, and changes nothing.
func (c Config) Validate() []FieldError {
	var errs []FieldError
	d := c.withDefaults()
	if d.BudgetBytes < minBudgetBytes || d.BudgetBytes > maxBudgetBytes {
		errs = append(errs, FieldError{"budget_bytes", c.BudgetBytes, "1048576 (1 MiB) to 68719476736 (64 GiB), 0 for 256 MiB"})
	}
	if d.SpeculativeTTL < minSpeculativeTTL || d.SpeculativeTTL > maxSpeculativeTTL {
		errs = append(errs, FieldError{"speculative_ttl", c.SpeculativeTTL, "100ms to 24h, 0 for 30s"})
	}
	limit := Config{BudgetBytes: min(max(d.BudgetBytes, minBudgetBytes), maxBudgetBytes)}.MaxEndpoints()
	if d.Endpoints < 0 || d.Endpoints > limit {
		errs = append(errs, FieldError{"endpoints", c.Endpoints, fmt.Sprintf("0 to %d with this budget", limit)})
	}
	return errs
}

// MaxEndpoints returns how many slots an index of this budget can serve: what it needs
// a slot, as against a block, may take 1/16 of the budget (214 endpoints at 1 MiB,
// 54,800 at 256 MiB). What is said of a slot beyond is not recorded.
func (c Config) MaxEndpoints() int {
	return int(c.withDefaults().BudgetBytes / slotShare / slotBytes)
}

func (c Config) withDefaults() Config {
	if c.BudgetBytes == 0 {
		c.BudgetBytes = DefaultBudgetBytes
	}
	if c.SpeculativeTTL == 0 {
		c.SpeculativeTTL = DefaultSpeculativeTTL
	}
	return c
}
