package telemetry

// Continuation is what became of a streamed answer that broke off and was to go on elsewhere.
type Continuation uint8

// What may become of it.
const (
	Continued     Continuation = iota // another endpoint's content went on
	NotContinued                      // nobody's did, and it ended with an error
	LeftMeanwhile                     // its client left before

	continuations
)

var continuationNames = [continuations]string{"continued", "failed", "client_gone"}

// String returns what became of it as the metrics show it.
func (c Continuation) String() string { return continuationNames[c] }

// Continuation counts an answer that broke off at an endpoint of the pool, once it is known what
// became of it.
func (p *Pool) Continuation(c Continuation) { p.continuations[c].Inc() }
