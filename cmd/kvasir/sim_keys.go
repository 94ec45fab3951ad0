package main

import (
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"
)

// keys reads a flag's KEY=VALUE, separated by commas, and collects every mistake.
type keys struct {
	flag string          // as it is written, such as --queue
	seen map[string]bool // keys that were given
	errs []error
}

// all yields each key with its value.
func (k *keys) all(text string) iter.Seq2[string, string] {
	k.seen = map[string]bool{}
	return func(yield func(key, value string) bool) {
		for part := range strings.SplitSeq(text, ",") {
			key, value, _ := strings.Cut(part, "=")
			if k.seen[key] {
				k.wrong("%s is given twice", key)
			}
			k.seen[key] = true
			if !yield(key, value) {
				return
			}
		}
	}
}

// wrong notes a mistake.
func (k *keys) wrong(format string, args ...any) {
	k.errs = append(k.errs, fmt.Errorf(k.flag+": "+format, args...))
}

// bad notes a value that is not allowed.
func (k *keys) bad(key, value, allowed string) {
	k.wrong("%s: %q is not allowed; allowed: %s", key, value, allowed)
}

// integer returns the value as a number from least to most.
func (k *keys) integer(key, value string, least, most int) int {
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > most {
		k.bad(key, value, fmt.Sprintf("%d to %d", least, most))
	}
	return n
}

// duration likewise; allowed names the bounds.
func (k *keys) duration(key, value string, least, most time.Duration, allowed string) time.Duration {
	d, err := time.ParseDuration(value)
	if err != nil || d < least || d > most {
		k.bad(key, value, allowed)
	}
	return d
}

// err returns every mistake; nil where there is none.
func (k *keys) err() error { return errors.Join(k.errs...) }
