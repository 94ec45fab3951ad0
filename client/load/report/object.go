package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
)

// object is a JSON object whose members keep their order.
type object struct {
	members []member
}

type member struct {
	key   string
	value any
}

// add adds a member. A key may be added once.
func (o *object) add(key string, value any) {
	if o.has(key) {
		panic("report: " + key + " twice in one object") // a fault of this package
	}
	o.members = append(o.members, member{key, value})
}

func (o *object) has(key string) bool {
	for _, m := range o.members {
		if m.key == key {
			return true
		}
	}
	return false
}

// MarshalJSON writes the members in their order.
func (o *object) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, m := range o.members {
		key, err := json.Marshal(m.key)
		if err != nil {
			return nil, err
		}
		value, err := marshal(m.value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.key, err)
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}'), nil
}

// marshal writes a value without escaping what HTML would need.
func marshal(v any) ([]byte, error) {
	if f, ok := v.(float64); ok {
		v = finite(f)
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}

// finite returns the number, or nil where it is none: what was not measured is null, not 0.
func finite(f float64) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil
	}
	return f
}
