package spec

import (
	"strings"
	"unicode/utf8"
)

// Format returns the text that Parse takes for a thing of the entry: its name and the keys
// that differ from the entry's defaults.
func (e Entry[T]) Format(thing T) string {
	var b strings.Builder
	b.WriteString(e.Name)
	given, defaults := fieldsOf(thing), fieldsOf(e.Make())
	separator := byte(':')
	for i, f := range given {
		if s := f.String(); s != defaults[i].String() {
			b.WriteByte(separator)
			b.WriteString(f.key + "=" + s)
			separator = ','
		}
	}
	return b.String()
}

// Describe returns the catalogue for a command's help: every name, and below it every key
// with its default and what it means.
func (c Catalog[T]) Describe() string {
	var b strings.Builder
	for _, e := range c.Entries {
		b.WriteString("  " + e.Name + "\n")
		wrap(&b, "    ", e.Doc+" ("+e.Source+")")
		for _, f := range fieldsOf(e.Make()) {
			lead := "      " + f.key + "=" + f.String()
			if n := utf8.RuneCountInString(lead); n < keyWidth {
				b.WriteString(lead + strings.Repeat(" ", keyWidth-n))
			} else {
				b.WriteString(lead + "\n" + strings.Repeat(" ", keyWidth))
			}
			wrapAfter(&b, keyWidth, strings.Repeat(" ", keyWidth), f.doc)
		}
	}
	return b.String()
}

const (
	keyWidth  = 34 // of a key and its default
	lineWidth = 100
)

// wrap writes a text in lines of at most lineWidth that begin with indent.
func wrap(b *strings.Builder, indent, text string) {
	b.WriteString(indent)
	wrapAfter(b, len(indent), indent, text)
}

// wrapAfter writes a text behind the at characters that its first line has.
func wrapAfter(b *strings.Builder, at int, indent, text string) {
	begun := false
	for word := range strings.FieldsSeq(text) {
		n := utf8.RuneCountInString(word)
		if begun && at+1+n > lineWidth {
			b.WriteString("\n" + indent)
			at, begun = len(indent), false
		}
		if begun {
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at, begun = at+n, true
	}
	b.WriteByte('\n')
}
