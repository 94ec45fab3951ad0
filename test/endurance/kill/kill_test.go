package main

import (
	"flag"
	"strings"
	"testing"
)

// binary is a kvasir to test in place of one that is built here.
var binary = flag.String("kvasir", "", "a kvasir to run; empty builds one")

// A small run, from the flags to the tables. `make kill` runs a whole one.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	o, err := parse([]string{"-clients", "80", "-in-flight", "40", "-awaiting", "8", "-seqs", "6", "-speed", "0.5", "-tokens", "20", "-ejection", "500ms", "-hold", "1s", "-seed", "11"})
	if err != nil {
		t.Fatal(err)
	}
	o.binary = *binary
	var out strings.Builder
	broken, err := run(&out, o)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if broken > 0 {
		t.Errorf("%d violations\n%s", broken, out.String())
	}
	t.Log(out.String())
}

func TestParse_SaysWhatIsWrong(t *testing.T) {
	for _, args := range [][]string{{"x"}, {"-nonsense"}, {"-clients", "1"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}
