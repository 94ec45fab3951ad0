package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"kvasir/selection/policy"
)

// TestSchema_IsCurrent keeps schema.json equal to what the structs say.
func TestSchema_IsCurrent(t *testing.T) {
	golden(t, "schema.json", schemaText(t))
}

// object is a JSON object. Its keys are written in alphabetical order.
type object = map[string]any

func schemaText(t *testing.T) string {
	t.Helper()
	w := schemaWriter{fieldComments(t)}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(w.root()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// schemaWriter turns structs into schemas.
type schemaWriter struct{ comments map[string]string }

func (w schemaWriter) root() object {
	root := w.mapping(Default())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Kvasir configuration"
	root["description"] = "The file that describes a router. kvasir config check FILE knows what no schema can say."
	root["$defs"] = object{
		"duration": object{"type": "string", "pattern": otherDurations},
		"endpoint": w.endpoint(),
		"pool":     w.mapping(DefaultPool()),
		"policy":   w.policy(),
		"model":    w.model(),
	}
	return root
}

// mapping is the schema of a mapping whose keys are those of structs, and what holds
// between them.
func (w schemaWriter) mapping(structs ...any) object {
	keys, rules := object{}, []any{}
	for _, s := range structs {
		v := reflect.ValueOf(s)
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if name, ok := f.Tag.Lookup("config"); ok {
				keys[name] = w.key(v, i)
			}
		}
		rules = append(rules, between[v.Type()]...)
	}
	out := object{"type": "object", "properties": keys, "additionalProperties": false}
	if len(rules) > 0 {
		out["allOf"] = rules
	}
	return out
}

// key is the schema of the value of one key.
func (w schemaWriter) key(in reflect.Value, i int) object {
	f, v := in.Type().Field(i), in.Field(i)
	var out object
	switch {
	case in.Type() == reflect.TypeFor[Model]() && f.Type == reflect.TypeFor[Timeouts]():
		out = withoutDefaults(w.mapping(v.Interface()))
	case f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[Policy]() && f.Type != reflect.TypeFor[Secret]():
		out = w.mapping(v.Interface())
	default:
		out = w.value(f.Type, f.Tag.Get("allowed"))
		if d := schemaDefault(v); d != nil {
			out["default"] = d
		}
	}
	text := w.comments[in.Type().Name()+"."+f.Name] + f.Tag.Get("doc")
	if allowed := f.Tag.Get("allowed"); strings.Contains(allowed, "..") {
		text += " Allowed: " + allowed + "."
	}
	out["description"] = text
	return out
}

func withoutDefaults(mapping object) object {
	for _, key := range mapping["properties"].(object) {
		delete(key.(object), "default")
	}
	return mapping
}

// schemaDefault is a default as a file may write it, nil where it says nothing.
func schemaDefault(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case Policy:
		return x.Name
	case time.Duration:
		return showDuration(x)
	case Size:
		return x.String()
	case string:
		if x == "" {
			return nil
		}
		return x
	case bool, int, uint64, float64:
		return x
	}
	return nil
}

func (w schemaWriter) value(t reflect.Type, allowed string) object {
	switch t {
	case reflect.TypeFor[Models]():
		return object{
			"type": "object", "minProperties": 1, "propertyNames": object{"minLength": 1, "maxLength": 256},
			"additionalProperties": object{"$ref": "#/$defs/model"},
		}
	case reflect.TypeFor[[]Pool]():
		return object{"type": "array", "minItems": 1, "items": object{"$ref": "#/$defs/pool"}}
	case reflect.TypeFor[[]Endpoint]():
		return object{"type": "array", "items": object{"$ref": "#/$defs/endpoint"}}
	case reflect.TypeFor[[]string]():
		return object{"type": "array", "items": object{"type": "string", "minLength": 1}}
	case reflect.TypeFor[ClientKeys]():
		return object{"type": "array", "items": w.mapping(DefaultClientKey())}
	case reflect.TypeFor[[]Tenant]():
		return object{"type": "array", "items": w.mapping(DefaultTenant())}
	case reflect.TypeFor[[]TenantModel]():
		return object{"type": "array", "items": w.mapping(DefaultTenantModel())}
	case reflect.TypeFor[[]Class]():
		return object{"type": "array", "items": w.mapping(Class{})}
	case reflect.TypeFor[BreakerRules]():
		rule := w.mapping(DefaultBreakerRule())
		return object{"anyOf": []any{rule, object{"type": "array", "items": rule}}}
	case reflect.TypeFor[[]Statuses]():
		one := "[345][0-9][0-9]"
		return object{"type": "array", "items": object{"anyOf": []any{
			object{"type": "integer", "minimum": leastStatus, "maximum": mostStatus},
			object{"type": "string", "pattern": "^" + one + "(-" + one + ")?$"},
		}}}
	case reflect.TypeFor[Policy]():
		return object{"$ref": "#/$defs/policy"}
	case reflect.TypeFor[Secret]():
		return object{"type": "string", "pattern": `^(env:[A-Za-z_][A-Za-z0-9_]*|file:[\s\S]+)$`}
	case reflect.TypeFor[KeyHash]():
		return object{"type": "string", "pattern": "^[0-9a-f]{64}$"}
	case reflect.TypeFor[time.Duration]():
		return durations(allowed)
	case reflect.TypeFor[Size]():
		return sizes(allowed)
	}
	switch t.Kind() {
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int:
		return numbers("integer", allowed)
	case reflect.Uint64:
		return object{"type": "integer", "minimum": 0, "maximum": uint64(math.MaxUint64)}
	case reflect.Float64:
		return numbers("number", allowed)
	case reflect.String:
		return texts(allowed)
	}
	panic(fmt.Sprintf("no schema for a %v", t))
}

func texts(allowed string) object {
	patterns := map[string]string{
		"host:port": "^.*:[0-9]{1,5}$",
		"name:port": "^(.+:[0-9]{1,5})?$",
		"NAME":      "^[A-Za-z0-9._-]*$",
		"/path":     "^(/[!-~]*)?$",
		// The range is left to the reader.
		"p50..p99.9 or 1ms..10m": `^(?:p0*[5-9][0-9](?:\.[0-9]*)?|\+?(?:(?:[0-9]+|` + fraction + ")" + anyUnit + ")+)$",
		"URL":                    "^[Hh][Tt][Tt][Pp][Ss]?://[^?#@]+$",
	}
	out := object{"type": "string"}
	switch {
	case patterns[allowed] != "":
		out["pattern"] = patterns[allowed]
	case allowed != "" && allowed != filePath:
		out["enum"] = strings.Split(allowed, ", ")
	}
	return out
}

func numbers(kind, allowed string) object {
	out := object{"type": kind}
	low, high, ok := strings.Cut(allowed, "..")
	if !ok {
		return out
	}
	low, above := strings.CutPrefix(low, ">")
	least := map[bool]string{false: "minimum", true: "exclusiveMinimum"}[above]
	out[least], out["maximum"] = json.Number(low), json.Number(high)
	return out
}

// What time.ParseDuration reads.
const (
	anyUnit  = `(?:ns|us|µs|μs|ms|s|m|h)`
	fraction = `(?:[0-9]+\.[0-9]*|\.[0-9]+)`
	// Sums, fractions and units below a millisecond; their range is left to the reader.
	otherDurations = `^\+?(?:` + fraction + anyUnit + `|(?:[0-9]+|` + fraction + `)` + anyUnit + `(?:(?:[0-9]+|` + fraction + `)` + anyUnit + `)+|[0-9]+(?:ns|us|µs|μs))$`
)

// durations accepts whole numbers of one unit within the range, and what else is a
// duration.
func durations(allowed string) object {
	low, high := time.Duration(0), time.Duration(math.MaxInt64)
	other, bounds, zero := strings.Cut(allowed, " or ")
	if !zero {
		bounds = other
	}
	if a, b, ok := strings.Cut(bounds, ".."); ok {
		low, high = mustDuration(a), mustDuration(b)
	}
	var forms []string
	for _, unit := range []string{"ms", "s", "m", "h"} {
		one := mustDuration("1" + unit)
		if least, most := (low+one-1)/one, high/one; least <= most {
			forms = append(forms, "0*(?:"+wholes(uint64(least), uint64(most))+")"+unit)
		}
		if zero {
			forms = append(forms, "0+"+unit)
		}
	}
	all := []any{
		object{"type": "string", "pattern": `^\+?(?:` + strings.Join(forms, "|") + ")$"},
		object{"$ref": "#/$defs/duration"},
	}
	if zero || low == 0 {
		all = append(all, object{"const": 0})
	}
	return object{"anyOf": all}
}

func mustDuration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

func sizes(allowed string) object {
	low, high, _ := strings.Cut(allowed, "..")
	from, _ := parseSize(low)
	to, _ := parseSize(high)
	forms := []string{"0*(?:" + wholes(uint64(from), uint64(to)) + ")"}
	for _, u := range sizeUnits {
		if least, most := (from+u.bytes-1)/u.bytes, to/u.bytes; least <= most {
			forms = append(forms, "0*(?:"+wholes(uint64(least), uint64(most))+")"+u.suffix)
		}
	}
	return object{"anyOf": []any{
		object{"type": "string", "pattern": "^(?:" + strings.Join(forms, "|") + ")$"},
		object{"type": "integer", "minimum": from, "maximum": to},
	}}
}

// wholes is a pattern of the decimal numbers from low to high, without zeros before
// them. It goes up in the largest steps that end within the range: tens once the ones
// are at 0, hundreds once the tens are, and so on.
func wholes(low, high uint64) string {
	var forms []string
	for low <= high {
		step, free := uint64(1), 0 // the digits that may be anything
		for low != 0 && low%(step*10) == 0 && low+(step*10-1) <= high {
			step, free = step*10, free+1
		}
		first := low / step % 10 // the digit above them, and how far it may go
		last := min(9, first+(high-low+1)/step-1)
		form, most := "", free
		if low/step >= 10 {
			form = strconv.FormatUint(low/step/10, 10)
		} else if first == 1 && last == 9 {
			for step*100-1 <= high { // numbers of one digit more are all within, too
				step, most = step*10, most+1
			}
		}
		form += digits(first, last)
		switch {
		case most > free:
			form += fmt.Sprintf("[0-9]{%d,%d}", free, most)
		case free > 1:
			form += fmt.Sprintf("[0-9]{%d}", free)
		case free == 1:
			form += "[0-9]"
		}
		forms = append(forms, form)
		if low = (low/step/10*10 + last + 1) * step; most > free {
			low = step * 10
		}
	}
	return strings.Join(forms, "|")
}

func digits(first, last uint64) string {
	if first == last {
		return strconv.FormatUint(first, 10)
	}
	return fmt.Sprintf("[%d-%d]", first, last)
}

// given requires a key, and a text in it where it holds one.
func given(name string) object {
	return object{"required": []string{name}, "properties": object{name: object{"minLength": 1}}}
}

func needs(name, other string) object { return object{"if": given(name), "then": given(other)} }

// between holds what a schema can say of the keys of one mapping together.
var between = map[reflect.Type][]any{
	reflect.TypeFor[Config]():      {object{"required": []string{"models"}}},
	reflect.TypeFor[TLS]():         {needs("cert", "key"), needs("key", "cert"), needs("client_ca", "cert")},
	reflect.TypeFor[PoolTLS]():     {needs("cert", "key"), needs("key", "cert")},
	reflect.TypeFor[ClientKey]():   {given("name"), given("sha256")},
	reflect.TypeFor[Endpoint]():    {given("url")},
	reflect.TypeFor[Tenant]():      {given("name")},
	reflect.TypeFor[TenantModel](): {given("model")},
	reflect.TypeFor[Class]():       {given("name")},
	reflect.TypeFor[Discover]():    {object{"oneOf": []any{given("dns"), given("srv"), given("file")}}},
	reflect.TypeFor[Pool](): {object{"anyOf": []any{
		object{"required": []string{"endpoints"}, "properties": object{"endpoints": object{"minItems": 1}}},
		object{"required": []string{"discover"}},
	}}},
}

func (w schemaWriter) endpoint() object {
	url := texts("URL")
	url["description"] = "The endpoint's URL."
	return object{"anyOf": []any{url, w.mapping(DefaultEndpoint())}}
}

// model is a model in its three forms: the list of its endpoints, with pools, or with
// the keys of its only pool among its own.
func (w schemaWriter) model() object {
	long := w.mapping(DefaultModel())
	long["required"] = []string{"pools"}
	short := w.mapping(DefaultModel(), DefaultPool())
	delete(short["properties"].(object), "pools")
	delete(short["properties"].(object), "name")
	list := w.value(reflect.TypeFor[[]Endpoint](), "")
	list["minItems"] = 1
	return object{"anyOf": []any{list, long, short}}
}

// policy is a policy's name, or a mapping of it and of that policy's parameters.
func (w schemaWriter) policy() object {
	var names, mappings []any
	for _, rule := range policy.Catalog() {
		name := object{"const": rule.Name, "description": "Picks " + rule.Doc + "."}
		names = append(names, name)
		m := w.mapping(reflect.ValueOf(rule.Params()).Elem().Interface())
		m["properties"].(object)["name"] = name
		m["required"] = []string{"name"}
		mappings = append(mappings, m)
	}
	return object{"anyOf": slices.Concat(names, mappings)}
}
