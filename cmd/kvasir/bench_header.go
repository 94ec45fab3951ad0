package main

import (
	"fmt"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// readHeader takes in the words of --header. It reports every mistake.
func (o *benchOptions) readHeader(words []string) (errs []error) {
	for _, word := range words {
		name, value, ok := strings.Cut(word, "=")
		allowed := ""
		switch {
		case !ok || !httpguts.ValidHeaderFieldName(name):
			allowed = "NAME=VALUE, where NAME is a header's name"
		case !httpguts.ValidHeaderFieldValue(value):
			allowed = "values without control characters"
		case strings.EqualFold(name, "Content-Length"), strings.EqualFold(name, "Transfer-Encoding"), strings.EqualFold(name, "Trailer"):
			allowed = "names of headers that do not frame the body"
		case strings.EqualFold(name, "Host") && (value == "" || strings.ContainsAny(value, "/ @?#") || !httpguts.ValidHostHeader(value)):
			allowed = "a host, and perhaps :PORT"
		case strings.EqualFold(name, "Host") && o.target.Header.Get("Host") != "":
			allowed = "one Host"
		}
		if allowed != "" {
			errs = append(errs, fmt.Errorf("--header is %q; allowed: %s", word, allowed))
			continue
		}
		o.target.Header.Add(name, value)
	}
	return errs
}
