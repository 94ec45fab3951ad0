package attempt

import (
	"testing"
	"time"
)

func TestF24_RetryAfterInAllForms(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	date := func(d time.Duration) string { return now.Add(d).Format("Mon, 02 Jan 2006 15:04:05 GMT") }
	for _, c := range []struct {
		ms, after string
		want      time.Duration
	}{
		{"", "", NoWait},
		{"", "0", 0},
		{"", "1", time.Second},
		{"", " 1.5 ", 1500 * time.Millisecond},
		{"", "-5", NoWait},
		{"", "abc", NoWait},
		{"", "NaN", NoWait},
		{"", "+Inf", longest},
		{"", "99999999999", longest},
		{"", "1e400", longest},
		{"", date(-time.Hour), 0},
		{"", date(2 * time.Second), 2 * time.Second},
		{"", date(24 * time.Hour), 24 * time.Hour},
		{"", now.Add(2 * time.Second).Format(time.RFC850), 2 * time.Second},
		{"150", "2", 150 * time.Millisecond},
		{"0", "2", 0},
		{"soon", "2", 2 * time.Second},
		{"-1", "", NoWait},
		{"99999999999999999999", "", longest},
	} {
		if got := RetryAfter(c.ms, c.after, now); got != c.want {
			t.Errorf("retry-after-ms %q, retry-after %q: %v, want %v", c.ms, c.after, got, c.want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("150", "2")
	f.Add("", "Mon, 30 Nov 2026 12:00:00 GMT")
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, ms, after string) {
		if d := RetryAfter(ms, after, now); d != NoWait && (d < 0 || d > longest) {
			t.Errorf("%q, %q: %v", ms, after, d)
		}
	})
}
