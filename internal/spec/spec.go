// Package spec is pure: things with parameters as a command line names them,
//
//	name:key=value,key=value
//
// where every key that is left out keeps its default. Which names and keys there are is
// said once, by a catalogue of structs whose fields have tags; parsing, messages and help
// follow from it.
package spec

import (
	"errors"
	"fmt"
	"strings"
)

// Entry is a thing that can be named.
type Entry[T any] struct {
	Name   string // kebab-case
	Doc    string // what it is, in a sentence
	Source string // where it comes from

	// Make returns a pointer to a fresh struct that holds the defaults. What may be set has
	// its key in a `spec` tag and a line of explanation in a `doc` tag; fields of embedded
	// structs count as its own. Their types: int, float64, bool, string, time.Duration, and
	// those whose pointer is an encoding.TextUnmarshaler and a fmt.Stringer.
	Make func() T
}

// Pair is a key and the text of its value.
type Pair struct{ Key, Value string }

// Catalog is a list of things of one kind.
type Catalog[T any] struct {
	Kind    string // what they are, with its article: "a workload"; for messages
	Entries []Entry[T]
}

// Lookup returns the entry of that name.
func (c Catalog[T]) Lookup(name string) (Entry[T], bool) {
	for _, e := range c.Entries {
		if e.Name == name {
			return e, true
		}
	}
	return Entry[T]{}, false
}

// names lists what may be named.
func (c Catalog[T]) names() string {
	all := make([]string, 0, len(c.Entries))
	for _, e := range c.Entries {
		all = append(all, e.Name)
	}
	return strings.Join(all, ", ")
}

// Parse returns the entry that the text names and its thing with the values set. The error
// says of every mistake the key, the value and what is allowed.
func (c Catalog[T]) Parse(text string) (Entry[T], T, error) {
	name, pairs, err := Split(text)
	if err != nil {
		var none T
		return Entry[T]{}, none, err
	}
	return c.Fill(name, pairs)
}

// Fill returns the entry of that name and its thing with the values set.
func (c Catalog[T]) Fill(name string, pairs []Pair) (Entry[T], T, error) {
	var none T
	e, ok := c.Lookup(name)
	if !ok {
		return e, none, fmt.Errorf("%q is not %s; allowed: %s", clip(name), c.Kind, c.names())
	}
	thing := e.Make()
	if err := set(thing, pairs); err != nil {
		return e, none, Prefix(name, err)
	}
	return e, thing, nil
}

// maxText bounds what is parsed.
const maxText = 64 << 10

// Split cuts name:key=value,key=value into its parts.
func Split(text string) (name string, pairs []Pair, err error) {
	if len(text) > maxText {
		return "", nil, fmt.Errorf("%d bytes are too long; allowed: %d", len(text), maxText)
	}
	name, rest, listed := strings.Cut(text, ":")
	if !listed {
		return name, nil, nil
	}
	var problems []error
	for i, part := range strings.Split(rest, ",") {
		key, value, ok := strings.Cut(part, "=")
		switch {
		case !ok || key == "":
			problems = append(problems, fmt.Errorf("%s: part %d is %q; allowed: key=value, several of them separated by commas", clip(name), i+1, clip(part)))
		case has(pairs, key):
			problems = append(problems, fmt.Errorf("%s: %s is there twice", clip(name), clip(key)))
		default:
			pairs = append(pairs, Pair{key, value})
		}
	}
	return name, pairs, errors.Join(problems...)
}

func has(pairs []Pair, key string) bool {
	for _, p := range pairs {
		if p.Key == key {
			return true
		}
	}
	return false
}

// Take returns the value of a key and the pairs without it.
func Take(pairs []Pair, key string) (value string, found bool, rest []Pair) {
	for i, p := range pairs {
		if p.Key == key {
			return p.Value, true, append(append([]Pair{}, pairs[:i]...), pairs[i+1:]...)
		}
	}
	return "", false, pairs
}

// Prefix puts the thing's name before every line of an error.
func Prefix(name string, err error) error {
	return errors.New(name + ": " + strings.ReplaceAll(err.Error(), "\n", "\n"+name+": "))
}

// clip bounds how much of a text a message repeats.
func clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
