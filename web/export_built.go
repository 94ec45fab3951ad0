//go:build webassembly

package web

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
)

// What `make build` has built for this tag.
var (
	//go:embed built/kvasir.wasm.gz
	builtLabs []byte
	//go:embed built/wasm_exec.js
	builtRuntime []byte
)

// BuiltIn returns the program that was built into this binary, and whether there is one: without
// the build tag webassembly there is none. The error says that it is broken.
func BuiltIn() (p Program, ok bool, err error) {
	r, err := gzip.NewReader(bytes.NewReader(builtLabs))
	if err == nil {
		p.Labs, err = io.ReadAll(r)
	}
	if err != nil {
		return Program{}, false, fmt.Errorf("%s of this binary: %w", labsFile, err)
	}
	p.Runtime = builtRuntime
	return p, true, nil
}
