package main

import (
	"testing"

	"kvasir/config"
)

// Only a key that says so gives a right to explanations.
func TestAccess_OfTheConfiguration(t *testing.T) {
	c := &config.Config{Clients: config.Clients{Keys: config.ClientKeys{
		{Name: "ops", SHA256: config.HashKey("a"), Explain: true}, {Name: "team", SHA256: config.HashKey("b")},
	}}}
	a := access(c)
	if a.Anonymous || len(a.Keys) != 2 || !a.Explain["ops"] || a.Explain["team"] || a.Explain[""] {
		t.Errorf("%+v", a)
	}
}
