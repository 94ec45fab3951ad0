package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Problem is one mistake. Line and Column count from 1, columns in characters; both
// are 0 where the configuration did not come from a file. Path names the value in the
// file's own nesting, such as models."llama-3.1".pools[0].policy; it is empty where
// the problem is the file's as a whole.
type Problem struct {
	File         string
	Line, Column int
	Path         string
	Message      string
}

// String returns FILE:LINE:COLUMN: path: message, without the parts that are unknown.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File + ":")
	}
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", p.Line, p.Column)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Problems are all mistakes of a configuration, sorted by file and position. It is the type of
// the error that Load, Parse and Validate return for a configuration that is wrong.
type Problems []Problem

// Error returns one line a problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

func (ps Problems) sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(
			strings.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			strings.Compare(a.Path, b.Path),
		)
	})
}

// path leads from the top of a file to a value. It is immutable: key and index return
// longer paths and leave the shorter one alone.
type path []string

func (p path) key(name string) path {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" || name == "" || len(name) > 64 {
		name = quote(name)
	}
	return append(slices.Clip(p), "."+name)
}

func (p path) index(i int) path {
	return append(slices.Clip(p), "["+strconv.Itoa(i)+"]")
}

// id is the path as a map's key. Distinct paths have distinct ids, but for names so
// long that quote cuts them.
func (p path) id() string { return strings.Join(p, "") }

func (p path) String() string { return strings.TrimPrefix(p.id(), ".") }

// shorten returns text as it is, cut where it is long.
func shorten(text string) string {
	const most = 80
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// quote returns text in quotes, on one line, and cut where it is long.
func quote(text string) string {
	return strconv.Quote(shorten(text))
}
