package spec

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// field is one key of a thing.
type field struct {
	key, doc string
	value    reflect.Value
}

// fieldsOf lists the fields of the struct behind pointer that have a spec tag.
func fieldsOf(pointer any) []field { return appendFields(nil, reflect.ValueOf(pointer).Elem()) }

func appendFields(fields []field, v reflect.Value) []field {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if key, ok := f.Tag.Lookup("spec"); ok {
			fields = append(fields, field{key, f.Tag.Get("doc"), v.Field(i)})
		} else if f.Anonymous {
			fields = appendFields(fields, v.Field(i))
		}
	}
	return fields
}

// set gives fields their values and reports every pair that fits none.
func set(pointer any, pairs []Pair) error {
	fields := fieldsOf(pointer)
	var problems []error
	for _, p := range pairs {
		known := false
		for _, f := range fields {
			if f.key != p.Key {
				continue
			}
			known = true
			if allowed := f.read(p.Value); allowed != "" {
				problems = append(problems, fmt.Errorf("%s is %q; allowed: %s", p.Key, clip(p.Value), allowed))
			}
		}
		if !known {
			problems = append(problems, fmt.Errorf("%q is no key; allowed: %s", clip(p.Key), keys(fields)))
		}
	}
	return errors.Join(problems...)
}

func keys(fields []field) string {
	all := make([]string, 0, len(fields))
	for _, f := range fields {
		all = append(all, f.key)
	}
	return strings.Join(all, ", ")
}

// read sets the field, or returns what is allowed.
func (f field) read(text string) (allowed string) {
	switch v := f.value.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		if err := v.UnmarshalText([]byte(text)); err != nil {
			return err.Error()
		}
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return "a duration such as 90s or 1h30m"
		}
		*v = d
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return "a whole number"
		}
		*v = n
	case *float64:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return "a number"
		}
		*v = x
	case *bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return "true or false"
		}
		*v = b
	case *string:
		*v = text
	default:
		panic(fmt.Sprintf("spec: the field of key %s has a type that no text is read into: %s", f.key, f.value.Type()))
	}
	return ""
}

// String returns the text that read takes for the field's value.
func (f field) String() string {
	switch v := f.value.Addr().Interface().(type) {
	case fmt.Stringer:
		return v.String()
	case *float64:
		return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(*v, 'g', -1, 64), "+"))
	default:
		return fmt.Sprint(f.value.Interface())
	}
}
