package load

import (
	"strconv"
	"strings"
	"unicode"
)

// printable returns what a server says as one line that does nothing to a terminal: spaces
// in place of line breaks, other control characters as Go writes them.
func printable(s string) string {
	plain := true
	for i := range len(s) {
		plain = plain && ' ' <= s[i] && s[i] <= '~'
	}
	if plain {
		return strings.TrimSpace(s)
	}
	var b strings.Builder
	for _, c := range strings.TrimSpace(strings.ToValidUTF8(s, "\uFFFD")) {
		switch {
		case unicode.IsPrint(c):
			b.WriteRune(c)
		case unicode.IsSpace(c):
			b.WriteByte(' ')
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(c), "'"))
		}
	}
	return b.String()
}
