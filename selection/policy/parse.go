package policy

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Parse reads a rule with parameters as a command line has it: name, or
// name:key=value;key=value. The errors name the rule or the parameter, what was given and
// what is allowed.
func Parse(text string) (Rule, Params, error) {
	name, settings, _ := strings.Cut(text, ":")
	rule, ok := Lookup(name)
	if !ok {
		var names []string
		for _, r := range Catalog() {
			names = append(names, r.Name)
		}
		return Rule{}, nil, fmt.Errorf("policy %q is unknown; allowed: %s", name, strings.Join(names, ", "))
	}
	params := rule.Params()
	for setting := range strings.SplitSeq(settings, ";") {
		if setting == "" {
			continue
		}
		key, value, ok := strings.Cut(setting, "=")
		if !ok {
			return Rule{}, nil, fmt.Errorf("policy %s: %q is no key=value", name, setting)
		}
		if err := setParam(params, key, value); err != nil {
			return Rule{}, nil, fmt.Errorf("policy %s: %w", name, err)
		}
	}
	if wrong := params.Validate(); len(wrong) > 0 {
		return Rule{}, nil, fmt.Errorf("policy %s: %w", name, wrong[0])
	}
	return rule, params, nil
}

// setParam gives a parameter a value.
func setParam(p Params, key, value string) error {
	v := reflect.ValueOf(p).Elem()
	var known []string
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag.Get("config")
		if known = append(known, tag); tag != key {
			continue
		}
		var err error
		want := ""
		switch f := v.Field(i); f.Interface().(type) {
		case time.Duration:
			var d time.Duration
			d, err = time.ParseDuration(value)
			f.SetInt(int64(d))
			want = "a duration such as 10s"
		case int:
			var n int64
			n, err = strconv.ParseInt(value, 10, 64)
			f.SetInt(n)
			want = "a whole number"
		case float64:
			var x float64
			x, err = strconv.ParseFloat(value, 64)
			f.SetFloat(x)
			want = "a number"
		case bool:
			var b bool
			b, err = strconv.ParseBool(value)
			f.SetBool(b)
			want = "true or false"
		default:
			f.SetString(value)
		}
		if err != nil {
			return ParamError{Param: key, Value: value, Allowed: want}
		}
		return nil
	}
	if len(known) == 0 {
		return fmt.Errorf("%s: it has no parameters", key)
	}
	return fmt.Errorf("%s is no parameter; allowed: %s", key, strings.Join(known, ", "))
}
