package program

import (
	"strings"
	"testing"
	"time"
)

// Suite runs a script of cases in another language. It prints one line a case,
//
//	ok NAME
//	skip NAME: why
//	failed NAME: what was wrong
//
// and ends with 0, whatever came of them; anything else that it prints is talk. Each case
// becomes a test.
func Suite(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	out, err := Start(t, env, name, args...).Wait(t, 5*time.Minute)
	if err != nil {
		t.Errorf("the suite broke off: %v", err)
	}
	cases := 0
	for line := range strings.SplitSeq(out, "\n") {
		verdict, rest, _ := strings.Cut(line, " ")
		if verdict != "ok" && verdict != "skip" && verdict != "failed" {
			continue
		}
		title, why, _ := strings.Cut(rest, ": ")
		cases++
		t.Run(title, func(t *testing.T) {
			switch verdict {
			case "skip":
				t.Skip(why)
			case "failed":
				t.Error(why)
			}
		})
	}
	if cases == 0 {
		t.Errorf("the suite ran no case:\n%s", out)
	}
}
