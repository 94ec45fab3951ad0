// Package policy is layer 3 (endpoint selection), pure: the selection rules, one file
// each, and the catalogue that lists them (catalog.go is the only list).
//
// A rule has a Params type, whose fields are what a configuration file may set and
// whose New builds the policy itself. All policies keep the same manners:
//
//   - equals are chosen among at random, uniformly, by the stream that Pick is given;
//   - the score is lower-is-better in every rule, NaN where an endpoint was not looked
//     at, and the endpoint chosen has the lowest one;
//   - what is unknown or stale is never read as zero;
//   - floating-point arithmetic gives the same bits on every platform: no function of
//     package math that has assembly and rounds, and no product that a compiler may
//     fuse into a sum.
//
// Nothing here is safe for concurrent use; a machine calls its policies under its lock.
package policy

import (
	"fmt"
	"math"

	"kvasir/internal/seed"
	"kvasir/selection"
)

// Rule is an entry of the catalogue.
type Rule struct {
	Name    string             // kebab-case; in files, on the command line and in metrics
	Doc     string             // what it picks, in a sentence
	Source  string             // where the rule comes from
	Reasons []selection.Reason // every reason that its choices can carry
	Params  func() Params      // a fresh pointer to a struct that holds the defaults
}

// Params are a rule's parameters: a pointer to a struct whose fields (float64, int,
// string, bool or time.Duration) carry their snake_case name in a `config` tag and a
// line of explanation in a `doc` tag.
type Params interface {
	// Validate reports every parameter that is out of range. It changes nothing.
	Validate() []ParamError
	// New returns a policy in its initial state. It may assume that Validate
	// reported nothing.
	New() selection.Policy
}

// ParamError is a parameter that a rule doesn't accept.
type ParamError struct {
	Param   string // the parameter's name in the file
	Value   any    // what was given
	Allowed string // what may be given
}

// Error returns the parameter, the value and what is allowed, in a line.
func (e ParamError) Error() string {
	if s, ok := e.Value.(string); ok {
		return fmt.Sprintf("%s: %q is not allowed; want %s", e.Param, s, e.Allowed)
	}
	return fmt.Sprintf("%s: %v is not allowed; want %s", e.Param, e.Value, e.Allowed)
}

// finite reports whether x is neither NaN nor infinite.
func finite(x float64) bool { return x-x == 0 }

// isShare reports whether x is from 0 to 1.
func isShare(x float64) bool { return 0 <= x && x <= 1 }

// argmin returns the index of the lowest score, of equals one at random. Scores that
// are NaN don't take part; at least one must not be.
func argmin(scores []float64, r *seed.Rand) int {
	best, at, ties := math.Inf(1), 0, 0
	for i, s := range scores {
		if s <= best {
			if s < best || ties == 0 {
				best, at, ties = s, i, 0
			}
			ties++
		}
	}
	if ties == 1 {
		return at
	}
	for nth := r.Intn(ties); ; at++ {
		if scores[at] == best {
			if nth == 0 {
				return at
			}
			nth--
		}
	}
}

// unscored marks every candidate as not looked at.
func unscored(v *selection.View) {
	for i := range v.Scores {
		v.Scores[i] = math.NaN()
	}
}

// outstanding scores every candidate by its accepted and not yet finished calls.
func outstanding(v *selection.View) {
	scores, book := v.Scores, v.Book
	for i, slot := range v.Candidates {
		scores[i] = float64(book[slot].Outstanding)
	}
}
