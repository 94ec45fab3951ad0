package config

import (
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes.
type Size int64

// The units of a Size.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
	TiB Size = 1 << 40
)

var sizeUnits = []struct {
	suffix string
	bytes  Size
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}}

// String returns the size in the largest unit that divides it, as a file may write it.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && s%u.bytes == 0 {
			return strconv.FormatInt(int64(s/u.bytes), 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// parseSize reads a whole number of bytes, or of one of the units.
func parseSize(text string) (Size, bool) {
	unit := Size(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(text, u.suffix); ok {
			text, unit = rest, u.bytes
			break
		}
	}
	n, ok := parseWhole(text)
	if !ok || n > uint64(math.MaxInt64/unit) {
		return 0, false
	}
	return Size(n) * unit, true
}

// parseWhole reads decimal digits and nothing else: no sign, no underscore, no base.
func parseWhole(text string) (uint64, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil
}
