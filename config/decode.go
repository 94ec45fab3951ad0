package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// decoder turns a tree of YAML into structs and collects what is wrong with it.
type decoder struct {
	file     string
	env      Env
	problems Problems
	dropped  int               // problems beyond maxProblems
	places   map[string]place  // by canonical path: where a value stands in the file
	failed   map[string]bool   // by canonical path: reported, so its value means nothing
	meant    map[string]bool   // by canonical path: what an unknown key seems to mean
	hidden   bool              // what is read may be a secret, so messages show nothing of it
	files    []string          // that the configuration names
	contents map[string][]byte // of those that were read
	timeouts *Timeouts         // the router's, which its models start with
	later    []func()          // what needs the rest of the file to be read first
}

// place is where a value stands, and the path that leads there as the file nests it.
type place struct {
	file         string
	line, column int
	shown        path
}

// where is a value under its two names: the canonical one, which Validate uses, and
// the one in the file, which differs where the file uses a short form.
type where struct{ canon, shown path }

func (w where) key(name string) where { return where{w.canon.key(name), w.shown.key(name)} }
func (w where) index(i int) where     { return where{w.canon.index(i), w.shown.index(i)} }

// decodable is a type that has a form of its own in the file.
type decodable interface {
	decode(d *decoder, n *yaml.Node, at where)
}

// field is one key that a mapping may have, and where its value goes.
type field struct {
	name    string
	dst     reflect.Value
	allowed string
	in      path // canonical path of the struct that holds it
}

// fieldsOf lists the fields of the struct behind pointer that have a config tag.
func fieldsOf(pointer any, in path) []field {
	v := reflect.ValueOf(pointer).Elem()
	var fields []field
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		if name, ok := tag.Lookup("config"); ok {
			fields = append(fields, field{name, v.Field(i), tag.Get("allowed"), in})
		}
	}
	return fields
}

func names(fields []field) []string {
	var out []string
	for _, f := range fields {
		out = append(out, f.name)
	}
	return out
}

// maxProblems bounds the report on a hostile file.
const maxProblems = 1000

func (d *decoder) report(p place, message string) {
	if len(d.problems) == maxProblems {
		d.dropped++
		return
	}
	d.problems = append(d.problems, Problem{p.file, p.line, p.column, p.shown.String(), message})
}

func (d *decoder) reportAt(line, column int, shown path, message string) {
	d.report(place{d.file, line, column, shown}, message)
}

// fail reports that the value at w is wrong, once, and keeps what follows from it
// from being reported as well.
func (d *decoder) fail(n *yaml.Node, w where, format string, args ...any) {
	d.failed[w.canon.id()] = true
	d.reportAt(n.Line, n.Column, w.shown, fmt.Sprintf(format, args...))
}

func (d *decoder) mark(w where, n *yaml.Node) {
	d.places[w.canon.id()] = place{d.file, n.Line, n.Column, w.shown}
}

// value decodes n into dst. What n doesn't say stays as it is in dst.
func (d *decoder) value(dst reflect.Value, allowed string, n *yaml.Node, at where) {
	if n.Kind == yaml.AliasNode { // refuse has reported it
		d.failed[at.canon.id()] = true
		return
	}
	if own, ok := dst.Addr().Interface().(decodable); ok {
		own.decode(d, n, at)
		return
	}
	switch dst.Kind() {
	case reflect.Struct:
		d.fields(n, at, fieldsOf(dst.Addr().Interface(), at.canon))
	case reflect.Slice:
		d.list(dst, n, at)
	default:
		if expected, ok := setScalar(dst, n); !ok {
			d.mismatch(n, at, expected, allowed)
		} else if allowed == filePath {
			d.refer(dst, n, at)
		}
	}
}

func (d *decoder) mismatch(n *yaml.Node, at where, expected, allowed string) {
	if allowed != "" {
		expected += " (allowed: " + allowed + ")"
	}
	d.fail(n, at, "expected %s, got %s", expected, d.describe(n))
}

func (d *decoder) list(dst reflect.Value, n *yaml.Node, at where) {
	if n.Kind != yaml.SequenceNode {
		d.mismatch(n, at, "a list", "")
		return
	}
	if dst.SetZero(); len(n.Content) == 0 {
		return
	}
	dst.Set(reflect.MakeSlice(dst.Type(), len(n.Content), len(n.Content)))
	for i, c := range n.Content {
		d.mark(at.index(i), c)
		d.value(dst.Index(i), "", c, at.index(i))
	}
}

// fields decodes a mapping whose keys are known.
func (d *decoder) fields(n *yaml.Node, at where, fields []field) {
	known := names(fields)
	if n.Kind != yaml.MappingNode {
		d.mismatch(n, at, "a mapping", strings.Join(known, ", "))
		return
	}
	d.entries(n, at, func(key, value *yaml.Node) {
		i := slices.Index(known, key.Value)
		if i < 0 {
			d.unknown(key, at, fields)
			return
		}
		f := fields[i]
		w := where{f.in.key(f.name), at.shown.key(f.name)}
		d.markEntry(w, key, value)
		d.value(f.dst, f.allowed, value, w)
	})
}

// unknown reports a key that isn't one of fields. The field that it seems to mean is
// not reported as missing on top.
func (d *decoder) unknown(key *yaml.Node, at where, fields []field) {
	known := names(fields)
	d.reportAt(key.Line, key.Column, at.shown, "unknown key"+d.name(key)+didYouMean(key.Value, known))
	if i := slices.Index(known, nearest(key.Value, known)); i >= 0 {
		d.meant[fields[i].in.key(fields[i].name).id()] = true
	}
}

// entries calls each with every pair of a mapping whose key is a text that occurs for
// the first time, and reports the others.
func (d *decoder) entries(n *yaml.Node, at where, each func(key, value *yaml.Node)) {
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch before := first[key.Value]; {
		case key.Kind == yaml.AliasNode || isMerge(key): // refuse has reported it
		case key.Kind != yaml.ScalarNode || key.Tag != strTag:
			d.reportAt(key.Line, key.Column, at.shown, "expected a text as key, got "+d.describe(key))
		case before != nil:
			d.reportAt(key.Line, key.Column, at.shown,
				fmt.Sprintf("the key%s is here twice, first in line %d", d.name(key), before.Line))
		default:
			first[key.Value] = key
			each(key, value)
		}
	}
}

// markEntry notes where a mapping's value stands: at the value if it is one word, at
// its key otherwise, since what is missing inside has no place of its own.
func (d *decoder) markEntry(w where, key, value *yaml.Node) {
	if value.Kind == yaml.ScalarNode {
		key = value
	}
	d.mark(w, key)
}

// The library's names for what a plain scalar is.
const (
	strTag   = "!!str"
	intTag   = "!!int"
	floatTag = "!!float"
	boolTag  = "!!bool"
	nullTag  = "!!null"
)

// setScalar sets dst from a scalar. If it can't, it says what it expects.
func setScalar(dst reflect.Value, n *yaml.Node) (expected string, ok bool) {
	tag, text := n.Tag, n.Value
	if n.Kind != yaml.ScalarNode {
		tag = ""
	}
	number := tag == intTag || tag == floatTag
	word := tag == strTag || number
	switch target := dst.Addr().Interface().(type) {
	case *string:
		expected, ok = "a text", tag == strTag
		if number || tag == boolTag {
			expected = "a text (in quotes)"
		}
		setIf(target, text, ok)
	case *bool:
		expected, ok = "true or false", tag == boolTag && (text == "true" || text == "false")
		setIf(target, text == "true", ok)
	case *int:
		v, err := strconv.Atoi(text)
		expected, ok = "a whole number", tag == intTag && err == nil && strconv.Itoa(v) == text
		setIf(target, v, ok)
	case *uint64:
		v, isWhole := parseWhole(text)
		expected, ok = "a whole number", tag == intTag && isWhole
		setIf(target, v, ok)
	case *float64:
		v, isFloat := parseFloat(text)
		expected, ok = "a number", number && isFloat
		setIf(target, v, ok)
	case *time.Duration:
		v, err := time.ParseDuration(text)
		expected, ok = "a duration such as 500ms or 2s", word && err == nil
		setIf(target, v, ok)
	case *Size:
		v, isSize := parseSize(text)
		expected, ok = "a size such as 512KiB, 32MiB, 1GiB or a number of bytes", word && isSize
		setIf(target, v, ok)
	default:
		panic(fmt.Sprintf("config: a field has the type %v, which no file can hold", dst.Type()))
	}
	return expected, ok
}

func setIf[T any](dst *T, v T, ok bool) {
	if ok {
		*dst = v
	}
}

// parseFloat reads a finite decimal number, without underscores and other bases.
func parseFloat(text string) (float64, bool) {
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil && strings.Trim(text, "0123456789+-.eE") == "" && !math.IsInf(v, 0)
}

// name returns a mapping's key for a message, after a space.
func (d *decoder) name(key *yaml.Node) string {
	if d.hidden {
		return ""
	}
	return " " + quote(key.Value)
}

// describe says what a node is, in words for a message.
func (d *decoder) describe(n *yaml.Node) string {
	switch {
	case d.hidden && n.Kind == yaml.ScalarNode:
		return "something else, which is not shown"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind != yaml.ScalarNode:
		return "an alias"
	case n.Tag == strTag || n.Style&yaml.TaggedStyle != 0: // a tag says nothing about the text
		return "the text " + quote(n.Value)
	case n.Tag == nullTag:
		return "nothing"
	case n.Tag == intTag || n.Tag == floatTag:
		return "the number " + shorten(n.Value)
	default:
		return shorten(n.Value)
	}
}
