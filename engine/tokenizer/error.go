package tokenizer

import (
	"fmt"
	"strings"
)

// Error is a call that vLLM would refuse, with the parts of its error object.
type Error struct {
	Status  int    // HTTP status, and the object's code
	Type    string // vLLM's name of the kind: BadRequestError, NotFoundError; Malformed
	Message string
	Param   string // the field at fault; "" is null
}

// Malformed is the type of what FastAPI refuses before the route's own code sees the call.
const Malformed = "Bad Request"

func (e *Error) Error() string { return e.Message }

// badRequest is a well-formed call that cannot be served.
func badRequest(param, format string, args ...any) *Error {
	return &Error{Status: 400, Type: "BadRequestError", Message: fmt.Sprintf(format, args...), Param: param}
}

// fault is one mistake in a body, as pydantic reports it. The input that pydantic repeats
// beside it is left out, so that a prompt never comes back in an error.
type fault struct {
	kind, message string
	loc           []any // strings and ints, from "body" on
}

func (f fault) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "{'type': '%s', 'loc': (", f.kind)
	for i, p := range f.loc {
		if i > 0 {
			b.WriteString(", ")
		}
		if s, ok := p.(string); ok {
			b.WriteString("'" + s + "'")
		} else {
			fmt.Fprint(&b, p)
		}
	}
	if len(f.loc) == 1 {
		b.WriteString(",")
	}
	fmt.Fprintf(&b, "), 'msg': '%s'}", f.message)
	return b.String()
}

// maxFaults bounds how many mistakes one error lists.
const maxFaults = 16

// malformed is a body with mistakes, in the form of vLLM's validation errors.
func malformed(faults []fault) *Error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d validation error", len(faults))
	if len(faults) > 1 {
		b.WriteByte('s')
	}
	b.WriteByte(':')
	for _, f := range faults[:min(len(faults), maxFaults)] {
		b.WriteString("\n  " + f.String())
	}
	param := make([]string, len(faults[0].loc))
	for i, p := range faults[0].loc {
		param[i] = fmt.Sprint(p)
	}
	return &Error{Status: 400, Type: Malformed, Message: b.String(), Param: strings.Join(param, ".")}
}

// unknownModel is the answer to a name that the engine does not serve.
func unknownModel(name string) *Error {
	return &Error{Status: 404, Type: "NotFoundError", Param: "model",
		Message: "The model `" + name + "` does not exist."}
}

// tooLong is the answer to a prompt that leaves no room for the answer asked for. Of a text
// vLLM counts one token more than fit and no further.
func (r *reader) tooLong(input, output int) error {
	limit, least := r.limits.MaxModelLen, ""
	if r.cut {
		input = min(input, max(limit-output, 0)+1)
	}
	if input == limit-output+1 {
		least = "at least "
	}
	return badRequest("input_tokens", "This model's maximum context length is %d tokens. However, you requested %d output tokens "+
		"and your prompt contains %s%d input tokens, for a total of %s%d tokens. Please reduce the length of "+
		"the input prompt or the number of requested output tokens. (parameter=input_tokens, value=%d)",
		limit, output, least, input, least, input+output, input)
}
