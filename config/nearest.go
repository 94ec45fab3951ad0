package config

import (
	"slices"
	"strings"
)

// nearest returns the candidate with the smallest edit distance to name, or "" when
// none is near enough to be meant: half of the name may differ, two letters always.
func nearest(name string, candidates []string) string {
	const longest = 64 // bounds the work that a hostile file can ask for
	if len(name) > longest {
		return ""
	}
	best, bestDistance := "", max(2, len(name)/2)+1
	for _, c := range candidates {
		if d := editDistance(strings.ToLower(name), strings.ToLower(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// editDistance counts the insertions, deletions, substitutions and swaps of
// neighbours that turn a into b (optimal string alignment).
func editDistance(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		above := slices.Clone(row)
		row[0] = i + 1
		for j := range len(b) {
			substitute := above[j]
			if a[i] != b[j] {
				substitute++
			}
			row[j+1] = min(substitute, above[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before = above
	}
	return row[len(b)]
}

// didYouMean returns the end of a message about a word that isn't one of the allowed.
func didYouMean(name string, allowed []string) string {
	var b strings.Builder
	if n := nearest(name, allowed); n != "" {
		b.WriteString("; did you mean " + quote(n) + "?")
	}
	b.WriteString(" (allowed: " + strings.Join(allowed, ", ") + ")")
	return b.String()
}
