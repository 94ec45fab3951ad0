package emulator

import (
	"errors"
	"math"
	"net/http"

	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
)

// Faults has the probability, 0 to 1, of each way in which a call can be made to fail; a
// call fails in one of them at most, so they must not sum to more than 1. Which call fails
// how, and after which token, depends on the seed and the call's request id alone (without
// an id: on how many calls came before). Half of the faults in the middle of an answer come
// before its first token.
type Faults struct {
	Error       float64 // HTTP 500 instead of an answer
	Overload    float64 // HTTP 503 instead of an answer
	Stall       float64 // the answer stops and its connection stays open
	Reset       float64 // the connection is reset
	StreamError float64 // the stream ends with an error event; an answer that is no stream is an HTTP 500
}

// Validate reports every mistake, joined.
func (f Faults) Validate() error {
	var errs []error
	sum := 0.0
	for _, p := range f.list() {
		sum += p.rate
		if !(p.rate >= 0 && p.rate <= 1) {
			errs = append(errs, &ConfigError{"Faults." + p.name, p.rate, "0 to 1"})
		}
	}
	if len(errs) == 0 && sum > 1+1e-9 {
		errs = append(errs, &ConfigError{"Faults", sum, "rates that sum to 1 at most"})
	}
	return errors.Join(errs...)
}

type faultRate struct {
	name string
	kind faultKind
	rate float64
}

func (f Faults) list() [5]faultRate {
	return [5]faultRate{
		{"Error", errorFault, f.Error},
		{"Overload", overloadFault, f.Overload},
		{"Stall", stallFault, f.Stall},
		{"Reset", resetFault, f.Reset},
		{"StreamError", streamErrorFault, f.StreamError},
	}
}

type faultKind uint8

const (
	noFault faultKind = iota
	errorFault
	overloadFault
	stallFault
	resetFault
	streamErrorFault
)

// fault is what will go wrong with a call.
type fault struct {
	kind  faultKind
	after int // tokens that come before it
}

// draw decides the fate of a call. tokens is its answer's length.
func (f Faults) draw(root uint64, key string, tokens int) fault {
	r := seed.New(root, seed.Fault, uint64(kvblock.Seed(key)), 0)
	at := r.Float64()
	for _, p := range f.list() {
		if at -= p.rate; at < 0 {
			after := 0
			if early := r.Uint64()&1 == 0; !early && tokens > 1 {
				after = 1 + r.Intn(tokens-1)
			}
			return fault{p.kind, after}
		}
	}
	return fault{after: math.MaxInt}
}

// reset resets the connection under a reply, as the death of a process does. What was
// flushed may still arrive.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // HTTP/2: the stream is reset
	}
	if tcp, ok := conn.(interface{ SetLinger(int) error }); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
