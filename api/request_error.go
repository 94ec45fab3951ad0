package api

import (
	"cmp"
	"errors"
	"fmt"
	"unicode/utf8"
)

// SyntaxError says where a body stops being one JSON object, or one upload. It quotes
// nothing of it.
type SyntaxError struct {
	Offset int    // bytes before the mistake
	Want   string // what should have stood there
	Format string // what the body is not; empty: JSON
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid %s at byte %d: expected %s", cmp.Or(e.Format, "JSON"), e.Offset, e.Want)
}

// Problem is what is wrong with a field.
type Problem uint8

// The problems of a field.
const (
	WrongValue Problem = iota
	Missing
	Twice
)

// FieldError says which field of a body is wrong and what is allowed. It never holds a
// piece of the prompt.
type FieldError struct {
	Field   string // for example stream_options.include_usage
	Problem Problem
	Value   string // for WrongValue: what was given, at most 64 bytes of it, or its type alone
	Allowed string // for WrongValue
}

func (e *FieldError) Error() string {
	switch e.Problem {
	case Missing:
		return fmt.Sprintf("%q is required", e.Field)
	case Twice:
		return fmt.Sprintf("%q is given twice; it must be given once", e.Field)
	default:
		return fmt.Sprintf("%q must be %s, got %s", e.Field, e.Allowed, e.Value)
	}
}

func wrongValue(f field, value []byte, allowed string) *FieldError {
	return &FieldError{Field: names[f], Value: shown(value), Allowed: allowed}
}

// shownBytes is how much of a value an error shows.
const shownBytes = 64

// shown describes a valid JSON value for an error.
func shown(v []byte) string {
	switch v[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return short(v) + " (a string)"
	default:
		return short(v)
	}
}

func short(v []byte) string {
	if len(v) <= shownBytes {
		return string(v)
	}
	cut := shownBytes
	for cut > 0 && !utf8.RuneStart(v[cut]) {
		cut--
	}
	return string(v[:cut]) + "…"
}

// BadRequest turns an error of a Reader into the envelope for the client, status 400.
func BadRequest(err error, requestID string) Error {
	e := Error{Status: 400, Message: err.Error(), RequestID: requestID}
	if field, ok := errors.AsType[*FieldError](err); ok {
		e.Param = field.Field
	}
	return e
}
