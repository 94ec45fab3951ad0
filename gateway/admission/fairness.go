package admission

import (
	"fmt"
	"strings"
)

// Fairness says between whom service is shared, and what service is.
type Fairness struct {
	By Principal

	// What a token weighs: of a prompt, of an answer, and of a prompt's part that an engine
	// finds in its prefix cache. A call's service is the sum, divided by its share.
	Input, Output, Cached float64

	// Quantum is how far, in weighted tokens, a principal may be ahead of the one that has had
	// least and still go first because an endpoint holds its prefix. Of the order FairLocal.
	Quantum float64
}

// DefaultFairness returns the weights of the VTC paper, 1 and 2, which are those of prices: an
// output token holds its place in a batch for a step of its own. A cached token weighs a tenth,
// as providers charge for it: nothing is computed for it, but it is kept and attended to. The
// quantum is some eight prompts of 2,048 tokens.
func DefaultFairness() Fairness {
	return Fairness{Input: 1, Output: 2, Cached: 0.1, Quantum: 16384}
}

// Prompt returns what a prompt weighs of which so many tokens are cached.
func (f Fairness) Prompt(tokens, cached int) float64 {
	return float64(float64(tokens-cached)*f.Input) + float64(float64(cached)*f.Cached)
}

// Answer returns what so many tokens of an answer weigh.
func (f Fairness) Answer(tokens int) float64 { return float64(float64(tokens) * f.Output) }

// Principal says between whom service is shared.
type Principal uint8

// The principals.
const (
	ByTenant       Principal = iota // who pays
	ByConversation                  // the calls that grow one prefix
)

var principalNames = [...]string{"tenant", "conversation"}

// String returns the principal's name as files and flags have it.
func (p Principal) String() string { return principalNames[p] }

// ParsePrincipal returns the principal of that name.
func ParsePrincipal(name string) (Principal, error) {
	for i, n := range principalNames {
		if n == name {
			return Principal(i), nil
		}
	}
	return 0, fmt.Errorf("principal: %q is not allowed; allowed: %s", name, strings.Join(principalNames[:], ", "))
}
