package main

import "testing"

// FuzzParseQueue: what is accepted is a queue within the bounds that the file has.
func FuzzParseQueue(f *testing.F) {
	for _, text := range []string{"", "work=500ms", "tokens=8192,order=least-slack,length=1,max-wait=10ms", "work=1ns", "work=1h,work", "=,=", "length=99999999999999999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseQueue(text)
		if err != nil || text == "" {
			return
		}
		if !c.On() || c.Work < 0 || c.Tokens < 0 || c.Length < 1 || c.MaxWait <= 0 || c.Work > longestHold || c.MaxWait > longestHold {
			t.Errorf("%q is accepted as %+v", text, c)
		}
	})
}

// FuzzParseFlights: likewise.
func FuzzParseFlights(f *testing.F) {
	for _, text := range []string{"", "min-tokens=1024", "min-tokens=1,max-wait=1s,max-siblings=2", "max-wait=", "min-tokens=-1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseFlights(text)
		if err != nil || text == "" {
			return
		}
		if !c.On() || c.MaxSiblings < 1 || c.MaxWait <= 0 || c.MaxWait > longestHold {
			t.Errorf("%q is accepted as %+v", text, c)
		}
	})
}
