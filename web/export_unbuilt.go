//go:build !webassembly

package web

// BuiltIn returns the program that was built into this binary, and whether there is one: without
// the build tag webassembly there is none.
func BuiltIn() (p Program, ok bool, err error) { return Program{}, false, nil }
