package web

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
)

// Program is the labs for a browser.
type Program struct {
	Labs    []byte // kvasir.wasm: web/wasm, compiled to WebAssembly
	Runtime []byte // wasm_exec.js of the Go release that compiled it; of another one it does not fit
}

// What an export has beside the page's own files.
const (
	labsFile     = "kvasir.wasm"
	runtimeFile  = "wasm_exec.js"
	licencesFile = "licences.txt"
)

// licences are those of what an export passes on.
//
//go:embed export_licences.txt
var licences []byte

// The page's document says who answers for the labs, and is told otherwise in an export.
const (
	labsFromAPI  = `<meta name="kvasir-labs" content="api">`
	labsFromWASM = `<meta name="kvasir-labs" content="wasm">`
)

// Export returns the page as a static site: the files by their slash-separated paths. Any file
// server can serve them, under any path; the labs run in the browser, and there is no live
// system. The error says which part of the program is not what it should be.
func Export(p Program) (map[string][]byte, error) { return export(Files(), p) }

func export(page []File, p Program) (map[string][]byte, error) {
	if !bytes.HasPrefix(p.Labs, []byte("\x00asm")) {
		return nil, fmt.Errorf("%s: %d bytes that are no WebAssembly", labsFile, len(p.Labs))
	}
	if !bytes.Contains(p.Runtime, []byte("globalThis.Go = ")) {
		return nil, fmt.Errorf("%s: %d bytes that are not Go's support for WebAssembly", runtimeFile, len(p.Runtime))
	}
	files := map[string][]byte{labsFile: p.Labs, runtimeFile: p.Runtime, licencesFile: licences}
	for _, f := range page {
		if _, ok := files[f.Path]; ok {
			return nil, fmt.Errorf("the page has a file %s of its own", f.Path)
		}
		files[f.Path] = f.Body
	}
	var err error
	files["index.html"], err = serverless(files["index.html"])
	return files, err
}

// serverless returns the page's document for a site without a server. Its policy comes before
// whatever it is to hold for.
func serverless(document []byte) ([]byte, error) {
	before, after, ok := bytes.Cut(document, []byte(labsFromAPI))
	switch {
	case !ok || bytes.Contains(after, []byte(labsFromAPI)):
		return nil, errors.New("index.html: expected once: " + labsFromAPI)
	case bytes.Contains(before, []byte("<script")) || bytes.Contains(before, []byte("<link")):
		return nil, errors.New("index.html: expected before any script or link: " + labsFromAPI)
	}
	policy := `<meta http-equiv="Content-Security-Policy" content="` + Policy(true) + `">`
	return bytes.Join([][]byte{before, []byte(policy), []byte(labsFromWASM), after}, nil), nil
}
