package main

import (
	"flag"
	"strings"
	"testing"
)

// binary is a kvasir to test in place of one that is built here.
var binary = flag.String("kvasir", "", "a kvasir to run; empty builds one")

// A small run, from the flags to the tables. `make soak` runs a whole one.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	o, err := parse([]string{"-for", "3s", "-clients", "24", "-seed", "11"}, func(string) string { return "" })
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
	for _, args := range [][]string{{"x"}, {"-nonsense"}, {"-clients", "0"}} {
		if _, err := parse(args, func(string) string { return "" }); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}

func TestParse_TakesTheLengthFromTheEnvironment(t *testing.T) {
	o, err := parse(nil, func(string) string { return "7s" })
	if err != nil || o.length.Seconds() != 7 {
		t.Errorf("SOAK=7s: %v, %v", o.length, err)
	}
	if _, err := parse(nil, func(string) string { return "soon" }); err == nil || !strings.Contains(err.Error(), "soon") {
		t.Errorf("SOAK=soon: %v", err)
	}
}
