package policy

import (
	"time"

	"kvasir/internal/portable"
)

const (
	decaySteps = 256 // how finely an age is resolved, to one time constant
	decayTimes = 16  // time constants after which nothing is left, instead of 1e-7
)

// decay is exp(-age / time constant). A pick needs one for every endpoint, and looking them
// up makes it half as long.
type decay struct {
	steps   float64 // a nanosecond
	weights [decaySteps * decayTimes]float64
}

// newDecay returns the decay with the time constant, which must be above 0.
func newDecay(constant time.Duration) *decay {
	d := &decay{steps: decaySteps / float64(constant)}
	for n := range d.weights {
		d.weights[n] = portable.Exp(-float64(n) / decaySteps)
	}
	return d
}

// weight returns what is left after so long; a negative age is none.
func (d *decay) weight(age time.Duration) float64 {
	at := float64(max(age, 0)) * d.steps
	if at >= float64(len(d.weights)) {
		return 0
	}
	return d.weights[int(at)]
}
