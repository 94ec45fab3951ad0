package web

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

var (
	someLabs    = []byte("\x00asm\x01\x00\x00\x00")
	someRuntime = []byte("globalThis.Go = class {};")
)

func TestExport_HasThePageAndWhatRunsTheLabs(t *testing.T) {
	files, err := Export(Program{someLabs, someRuntime})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{labsFile, licencesFile, runtimeFile}
	for _, f := range Files() {
		want = append(want, f.Path)
		if f.Path != "index.html" && !bytes.Equal(files[f.Path], f.Body) {
			t.Errorf("%s is not the page's", f.Path)
		}
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
	for name, content := range map[string][]byte{labsFile: someLabs, runtimeFile: someRuntime} {
		if !bytes.Equal(files[name], content) {
			t.Errorf("%s is %q", name, files[name])
		}
	}
	document := string(files["index.html"])
	policy := strings.Index(document, `<meta http-equiv="Content-Security-Policy" content="`+Policy(true)+`">`)
	switch first := strings.Index(document, "<script"); {
	case policy < 0 || first < 0 || policy > first:
		t.Errorf("the policy is at %d, the first script at %d", policy, first)
	case !strings.Contains(document, labsFromWASM) || strings.Contains(document, labsFromAPI):
		t.Error("the document does not say that it has no server")
	}
}

func TestExport_WhenSomethingIsWrong_SaysWhat(t *testing.T) {
	document := "<head>" + labsFromAPI + "<script src=a.js></script></head>"
	for _, c := range []struct {
		what, document, extra string
		program               Program
		want                  string
	}{
		{"no program", document, "a.js", Program{nil, someRuntime}, "kvasir.wasm: 0 bytes that are no WebAssembly"},
		{"no runtime", document, "a.js", Program{someLabs, []byte("x")}, "wasm_exec.js: 1 bytes that are not"},
		{"no document", "", "a.js", Program{someLabs, someRuntime}, "index.html: expected once"},
		{"told twice", document + document, "a.js", Program{someLabs, someRuntime}, "index.html: expected once"},
		{"script first", "<script></script>" + document, "a.js", Program{someLabs, someRuntime}, "before any script or link"},
		{"style first", "<link>" + document, "a.js", Program{someLabs, someRuntime}, "before any script or link"},
		{"a name taken", document, "kvasir.wasm", Program{someLabs, someRuntime}, "has a file kvasir.wasm of its own"},
	} {
		page := []File{{Path: c.extra, Body: []byte("x")}}
		if c.document != "" {
			page = append(page, File{Path: "index.html", Body: []byte(c.document)})
		}
		if _, err := export(page, c.program); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.what, err, c.want)
		}
	}
}

// The page may do the same in both forms, but run WebAssembly in one.
func TestPolicy_OfTheExport_AddsWebAssemblyAlone(t *testing.T) {
	served, exported := Policy(false), Policy(true)
	served = strings.Replace(served, "script-src 'self'", "script-src 'self' 'wasm-unsafe-eval'", 1)
	served = strings.Replace(served, "; frame-ancestors 'none'", "", 1)
	if served != exported {
		t.Errorf("%s\n%s", served, exported)
	}
	for _, loose := range []string{"unsafe-inline", "'unsafe-eval'", "*", "http", "blob:"} {
		if strings.Contains(exported, loose) {
			t.Errorf("the policy has %s", loose)
		}
	}
}

// Who passes kvasir.wasm on passes these on as well.
func TestExport_HasTheLicenceOfEveryModule(t *testing.T) {
	own, err := os.ReadFile("../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(licences, own) {
		t.Error("Kvasir's own licence is missing")
	}
	c := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", "./wasm")
	c.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range append(strings.Fields(string(out)), "Go:") {
		if !bytes.Contains(licences, []byte("==== "+module)) {
			t.Errorf("the licence of %s is missing", module)
		}
	}
}
