package attempt

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// NoWait says that an answer names no time to come back.
const NoWait = time.Duration(-1)

// longest is what a longer time to wait counts as.
const longest = 365 * 24 * time.Hour

// RetryAfter reads how long an answer asks to be left alone: the values of the headers
// retry-after-ms and retry-after, and the wall clock's now for a date. Milliseconds win,
// being the finer word. 0 means at once and is not the same as no word; what is negative,
// not a number or no date says nothing; what is too long to count is a year. A date in
// the past is 0.
//
// Sources: RFC 9110 section 10.2.3; retry-after-ms as OpenAI's and Azure's services send
// it and OpenAI's SDKs read it; fractions of a second as in field case F24.
func RetryAfter(ms, after string, now time.Time) time.Duration {
	if d := wait(ms, time.Millisecond); d >= 0 {
		return d
	}
	if d := wait(after, time.Second); d >= 0 {
		return d
	}
	if at, ok := httpDate(strings.TrimSpace(after)); ok {
		return min(max(at.Sub(now), 0), longest)
	}
	return NoWait
}

// wait reads a number of units, or returns NoWait.
func wait(s string, unit time.Duration) time.Duration {
	x, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil && !math.IsInf(x, 1) || math.IsNaN(x) || x < 0 {
		return NoWait
	}
	if x >= float64(longest/unit) {
		return longest
	}
	return time.Duration(math.Ceil(x * float64(unit)))
}

// httpDate reads the three forms of a date that HTTP knows.
func httpDate(s string) (time.Time, bool) {
	for _, layout := range [...]string{"Mon, 02 Jan 2006 15:04:05 GMT", time.RFC850, time.ANSIC} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}
