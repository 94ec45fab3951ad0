package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
)

// object is a JSON object that is being read. Its fields are matched exactly, unlike
// those of encoding/json's structs; unknown ones are ignored, and null is the same as
// absent, as in vLLM. Mistakes are collected.
type object struct {
	fields map[string]json.RawMessage
	loc    []any
	faults *[]fault
}

// body reads the object that a whole body is.
func body(data []byte, faults *[]fault) object {
	o := object{loc: []any{"body"}, faults: faults}
	if err := json.Unmarshal(data, &o.fields); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			*faults = append(*faults, fault{"json_invalid", "JSON decode error", []any{"body", max(syntax.Offset-1, 0)}})
		} else {
			o.fail("model_attributes_type", "Input should be a valid dictionary or object to extract fields from")
		}
	} else if o.fields == nil {
		o.fail("missing", "Field required")
	}
	return o
}

// child reads an object inside o.
func (o object) child(raw json.RawMessage, at ...any) object {
	c := object{loc: slices.Concat(o.loc, at), faults: o.faults}
	if err := json.Unmarshal(raw, &c.fields); err != nil || c.fields == nil {
		c.fail("dict_type", "Input should be a valid dictionary")
	}
	return c
}

func (o object) fail(kind, message string, at ...any) {
	*o.faults = append(*o.faults, fault{kind, message, slices.Concat(o.loc, at)})
}

// raw returns a field's text; false where it is absent or null.
func (o object) raw(name string) (json.RawMessage, bool) {
	raw, ok := o.fields[name]
	if !ok || bytes.Equal(raw, []byte("null")) {
		return nil, false
	}
	return raw, true
}

// str returns a string field, "" where it is absent.
func (o object) str(name string) string {
	raw, ok := o.raw(name)
	if !ok {
		return ""
	}
	s, ok := text(raw)
	if !ok {
		o.fail("string_type", "Input should be a valid string", name)
	}
	return s
}

// text reads a JSON string.
func text(raw json.RawMessage) (string, bool) {
	var s string
	if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
}

// flag returns a boolean field.
func (o object) flag(name string, absent bool) bool {
	raw, ok := o.raw(name)
	switch {
	case !ok:
		return absent
	case string(raw) == "true":
		return true
	case string(raw) != "false":
		o.fail("bool_type", "Input should be a valid boolean", name)
	}
	return false
}

// number returns an integer field; 1.0 is one.
func (o object) number(name string) (n int, given bool) {
	raw, ok := o.raw(name)
	if !ok {
		return 0, false
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return int(n), true
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		o.fail("int_type", "Input should be a valid integer", name)
		return 0, false
	}
	return int(f), true
}

// list returns an array field's elements.
func (o object) list(name string) []json.RawMessage {
	raw, ok := o.raw(name)
	if !ok {
		return nil
	}
	elements, ok := array(raw)
	if !ok {
		o.fail("list_type", "Input should be a valid list", name)
	}
	return elements
}

// array reads a JSON array.
func array(raw json.RawMessage) ([]json.RawMessage, bool) {
	var elements []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &elements) != nil {
		return nil, false
	}
	return elements, true
}
