// Package validate is layer 4 (the inference engine), pure: the engine model beside logs of
// real engines. It gives the model the requests of a log at the instants at which the real
// engine got them, and compares how long both took. The model is the one that the simulator
// and the emulator drive.
package validate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// Request is one line of a log. Its instants are seconds on the engine's monotonic clock.
type Request struct {
	Prompt     int     `json:"input_toks"`
	Output     int     `json:"output_toks"`
	Queued     float64 `json:"queued_ts"`      // when the scheduler got it, between two steps
	FirstToken float64 `json:"first_token_ts"` // when the step with its first token had ended
	LastToken  float64 `json:"last_token_ts"`
}

// Bounds of a log.
const (
	maxLine     = 1 << 16 // bytes
	maxRequests = 1 << 20
)

// Read reads a log in the form that LLMServingSim's bench writes (casys-kaist/LLMServingSim,
// request logs): a JSON object a line, in the order of their queuing; further fields are
// left unread. The error names the line, the field, its value and what is allowed.
func Read(r io.Reader) ([]Request, error) {
	var log []Request
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		var q Request
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		after := math.Inf(-1)
		if len(log) > 0 {
			after = log[len(log)-1].Queued
		}
		if err := q.check(after); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if len(log) == maxRequests {
			return nil, fmt.Errorf("line %d: the log has more than %d requests", n, maxRequests)
		}
		log = append(log, q)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w; allowed: at most %d bytes a line", len(log)+1, err, maxLine)
	}
	if len(log) == 0 {
		return nil, fmt.Errorf("the log is empty; allowed: one request or more")
	}
	return log, nil
}

// maxSeconds bounds an instant: a century, whose microseconds a float64 still tells apart.
const maxSeconds = 3.2e9

func (q *Request) check(after float64) error {
	bad := func(field string, value any, allowed string) error {
		return fmt.Errorf("%s is %v; allowed: %s", field, value, allowed)
	}
	switch {
	case q.Prompt < 1 || q.Prompt > math.MaxInt32:
		return bad("input_toks", q.Prompt, fmt.Sprintf("1 to %d", math.MaxInt32))
	case q.Output < 1 || q.Output > math.MaxInt32:
		return bad("output_toks", q.Output, fmt.Sprintf("1 to %d", math.MaxInt32))
	case !(q.Queued >= 0 && q.Queued <= maxSeconds):
		return bad("queued_ts", q.Queued, fmt.Sprintf("0 to %g seconds", maxSeconds))
	case q.Queued < after:
		return bad("queued_ts", q.Queued, fmt.Sprintf("%v, the line's before, or later", after))
	case !(q.FirstToken > q.Queued && q.FirstToken <= maxSeconds):
		return bad("first_token_ts", q.FirstToken, "after queued_ts")
	case !(q.LastToken >= q.FirstToken && q.LastToken <= maxSeconds):
		return bad("last_token_ts", q.LastToken, "first_token_ts or later")
	case q.Output > 1 && q.LastToken == q.FirstToken:
		return bad("last_token_ts", q.LastToken, "after first_token_ts, the answer has more than a token")
	}
	return nil
}
