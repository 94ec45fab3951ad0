package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"kvasir/gateway/attempt"
)

// allowed reports every field whose value is not what its allowed tag says. The tag
// is one of:
//
//	1KiB..1GiB           from the first to the second, both included
//	>0..1000             the first excluded
//	0s or 100ms..5m      one more value
//	debug, info, warn    one of these words
//	host:port            a form, as forms lists them
//	URL, PATH, SHA-256   checked where the file is read, or with what it belongs to
func (k *checker) allowed(v reflect.Value, at path) {
	for i := range v.NumField() {
		f, tag := v.Field(i), v.Type().Field(i).Tag
		name, ok := tag.Lookup("config")
		if !ok {
			continue
		}
		in, allowed := at.key(name), tag.Get("allowed")
		switch {
		case f.Type() == reflect.TypeFor[Models]():
			for _, m := range f.Interface().(Models) {
				k.allowed(reflect.ValueOf(m), in.key(m.Name))
			}
		case v.Type() == reflect.TypeFor[Model]() && f.Type() == reflect.TypeFor[Timeouts](): // timeouts checks what is a model's own
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			for i := range f.Len() {
				k.allowed(f.Index(i), in.index(i))
			}
		case f.Kind() == reflect.Struct:
			k.allowed(f, in)
		case allowed == "" || allowed == "URL" || allowed == filePath || allowed == "SHA-256":
		case forms[allowed].check != nil:
			if err := forms[allowed].check(f.String()); err != nil {
				k.add(in, "%s is no %s: %v", quote(f.String()), forms[allowed].noun, err)
			}
		case strings.Contains(allowed, ".."):
			if !inRange(f, allowed) {
				k.add(in, "%s is out of range (allowed: %s)", show(f), allowed)
			}
		default:
			if words := strings.Split(allowed, ", "); !slices.Contains(words, f.String()) {
				k.add(in, "%s is not accepted%s", quote(f.String()), didYouMean(f.String(), words))
			}
		}
	}
}

// forms are the allowed tags of texts that must have a form, and what has it.
var forms = map[string]struct {
	noun  string
	check func(text string) error
}{
	"host:port": {"address to listen on", checkAddress},
	"name:port": {"address to call", optional(checkTarget)},
	"NAME":      {"name of a host", optional(checkName)},
	"/path":     {"path of a request", optional(checkPath)},

	"p50..p99.9 or 1ms..10m": {"time after which to hedge", checkHedgeAfter},
}

func checkHedgeAfter(text string) error { return new(attempt.HedgeConfig).SetAfter(text) }

func optional(check func(string) error) func(string) error {
	return func(text string) error {
		if text == "" {
			return nil
		}
		return check(text)
	}
}

func inRange(v reflect.Value, allowed string) bool {
	x := asNumber(v)
	if other, bounds, ok := strings.Cut(allowed, " or "); ok {
		if x == number(v.Type(), other) {
			return true
		}
		allowed = bounds
	}
	low, high, _ := strings.Cut(allowed, "..")
	low, above := strings.CutPrefix(low, ">")
	least := number(v.Type(), low)
	return (x > least || !above && x == least) && x <= number(v.Type(), high)
}

func asNumber(v reflect.Value) float64 {
	if v.CanInt() {
		return float64(v.Int())
	}
	return v.Float()
}

// number reads a bound of a tag as a value of type t. It panics where it can't: the
// tags are constants.
func number(t reflect.Type, text string) float64 {
	var x float64
	ok := false
	switch t {
	case reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(text)
		x, ok = float64(d), err == nil
	case reflect.TypeFor[Size]():
		var s Size
		s, ok = parseSize(text)
		x = float64(s)
	default:
		x, ok = parseFloat(text)
	}
	if !ok || math.IsNaN(x) {
		panic(fmt.Sprintf("config: %q is no bound for a %v", text, t))
	}
	return x
}

// show returns a value as a file may write it.
func show(v reflect.Value) string {
	if !v.IsValid() {
		return "nothing"
	}
	switch x := v.Interface().(type) {
	case string:
		return quote(x)
	case time.Duration:
		return showDuration(x)
	default:
		return fmt.Sprint(x)
	}
}

// showDuration is d.String() without units that are zero: 2h, not 2h0m0s.
func showDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
