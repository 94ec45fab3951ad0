package emulator

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"sync"

	"kvasir/engine/tokenizer"
	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
)

// A call can be made to fail in two ways: Faults draws the fate of every call by
// probability; a Fault is imposed on all calls, or the next few, until it is lifted, and
// goes before what was drawn.

// Faults has the probability, 0 to 1, of each way in which a call can be made to fail; a
// call fails in one of them at most, so they must not sum to more than 1. Which call fails
// how, and after which token, depends on the seed and the call's request id alone (without
// an id: on how many calls came before). Half of the faults in the middle of an answer come
// before its first token.
type Faults struct {
	Error       float64 // HTTP 500 instead of an answer
	Overload    float64 // HTTP 503 instead of an answer
	Limit       float64 // HTTP 429 instead of an answer, with Retry-After: 1
	Stall       float64 // the answer stops and its connection stays open
	Reset       float64 // the connection is reset
	StreamError float64 // the stream ends with an error event; an answer that is no stream is an HTTP 500

	// Seed is beside the engine's own: engines that say the same then fail at different calls.
	Seed uint64

	// Afresh draws by how many calls came before alone: a call that is tried again here may
	// fare better, as it may at a real engine.
	Afresh bool
}

// Any reports whether calls may fail.
func (f Faults) Any() bool {
	for _, p := range f.list() {
		if p.rate > 0 {
			return true
		}
	}
	return false
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
	name  string
	fault fault
	rate  float64
}

func (f Faults) list() [6]faultRate {
	return [6]faultRate{
		{"Error", fault{kind: refuseFault, refusal: errInternal}, f.Error},
		{"Overload", fault{kind: refuseFault, refusal: errOverload}, f.Overload},
		{"Limit", fault{kind: refuseFault, refusal: errLimit, retryAfter: "1"}, f.Limit},
		{"Stall", fault{kind: stallFault}, f.Stall},
		{"Reset", fault{kind: resetFault}, f.Reset},
		{"StreamError", fault{kind: streamErrorFault}, f.StreamError},
	}
}

type faultKind string

const (
	noFault          faultKind = ""
	hangFault        faultKind = "hang"         // the call is read and never answered
	refuseFault      faultKind = "refuse"       // an HTTP status instead of an answer
	stallFault       faultKind = "stall"        // the answer stops and its connection stays open
	resetFault       faultKind = "reset"        // the connection is reset
	streamErrorFault faultKind = "stream-error" // the stream ends with an error event
)

// fault is what will go wrong with a call.
type fault struct {
	kind       faultKind
	after      int              // tokens that come before it
	refusal    *tokenizer.Error // of refuse
	retryAfter string           // of refuse: the header's value; "" sends none
}

// draw decides the fate of a call. tokens is its answer's length.
func (f Faults) draw(root uint64, key string, tokens int) fault {
	r := seed.New(root^f.Seed, seed.Fault, uint64(kvblock.Seed(key)), 0)
	at := r.Float64()
	for _, p := range f.list() {
		if at -= p.rate; at < 0 {
			drawn := p.fault
			if early := r.Uint64()&1 == 0; !early && tokens > 1 {
				drawn.after = 1 + r.Intn(tokens-1)
			}
			return drawn
		}
	}
	return fault{after: math.MaxInt}
}

// Fault is a way in which calls that compute fail while it is imposed. Health and metrics
// go on as if nothing were wrong. The JSON names are those of the control path.
type Fault struct {
	// Kind is "hang" (the call is read and never answered), "refuse" (an HTTP status
	// instead of an answer), "stall" (the answer stops and its connection stays open),
	// "reset" (the connection is reset) or "stream-error" (the stream ends with an error
	// event). "" is no fault.
	Kind string `json:"kind"`

	// After is how many tokens of the answer come before a stall, a reset or a stream
	// error; with 0 not even the first event comes.
	After int `json:"after,omitempty"`

	Status     int    `json:"status,omitempty"`      // of "refuse": 400 to 599
	RetryAfter string `json:"retry_after,omitempty"` // of "refuse": the header's value, in any form; "" sends none

	// Calls is how many calls meet the fault before it is lifted; 0: all until then.
	Calls int `json:"calls,omitempty"`
}

// fault returns what happens to one call, or the mistake.
func (f Fault) fault() (fault, error) {
	drawn := fault{kind: faultKind(f.Kind), after: f.After, retryAfter: f.RetryAfter}
	switch drawn.kind {
	case noFault, hangFault, stallFault, resetFault, streamErrorFault:
	case refuseFault:
		if f.Status < 400 || f.Status > 599 {
			return fault{}, &ConfigError{"Fault.Status", f.Status, "400 to 599"}
		}
		drawn.refusal = &tokenizer.Error{Status: f.Status, Type: statusType(f.Status),
			Message: "The emulator was told to refuse this call."}
	default:
		return fault{}, &ConfigError{"Fault.Kind", strconv.Quote(f.Kind), "hang, refuse, stall, reset, stream-error, or nothing"}
	}
	if f.After < 0 {
		return fault{}, &ConfigError{"Fault.After", f.After, "0 or more"}
	}
	if f.Calls < 0 {
		return fault{}, &ConfigError{"Fault.Calls", f.Calls, "0 or more"}
	}
	return drawn, nil
}

// statusType returns vLLM's name of a status where it has one, else HTTP's.
func statusType(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "BadRequestError"
	case http.StatusNotFound:
		return "NotFoundError"
	case http.StatusInternalServerError:
		return "InternalServerError"
	case http.StatusServiceUnavailable:
		return "ServiceUnavailableError"
	}
	if text := http.StatusText(status); text != "" {
		return text
	}
	return "Error"
}

// imposition is the fault that is imposed. The zero value is none. It is safe for concurrent
// use.
type imposition struct {
	mu    sync.Mutex
	shown Fault // Calls is how many are left
	fault fault
}

// Impose makes the calls that come from here on fail so, in place of what was imposed
// before; those that run are left alone. The zero Fault lifts it. The error is a
// *ConfigError.
func (s *Server) Impose(f Fault) error {
	drawn, err := f.fault()
	if err != nil {
		return err
	}
	s.imposed.mu.Lock()
	defer s.imposed.mu.Unlock()
	s.imposed.shown, s.imposed.fault = f, drawn
	return nil
}

// Imposed returns the fault that the next call will meet; Calls is how many are left.
func (s *Server) Imposed() Fault {
	s.imposed.mu.Lock()
	defer s.imposed.mu.Unlock()
	return s.imposed.shown
}

// take returns what happens to one call, if a fault is imposed.
func (m *imposition) take() (fault, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.fault
	if f.kind == noFault {
		return f, false
	}
	if m.shown.Calls > 0 {
		if m.shown.Calls--; m.shown.Calls == 0 {
			m.shown, m.fault = Fault{}, fault{}
		}
	}
	return f, true
}
