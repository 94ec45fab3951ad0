// Package page opens Kvasir's page in a browser and uses it as people do, as kvasir demo and
// kvasir serve serve it and as kvasir lab export writes it. install.sh installs the browser; where
// it has not run, the tests are skipped.
package page

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"kvasir/test/program"
)

func TestMain(m *testing.M) {
	code := program.Main(m)
	closeBrowser()
	removeExport()
	os.Exit(code)
}

// demo runs kvasir demo and returns the page's address.
func demo(t *testing.T, args ...string) string {
	t.Helper()
	p := program.Kvasir(t, append([]string{"demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
	return p.Find(t, `(http://127\.0\.0\.1:\d+/)metrics`)[1]
}

// exported is what kvasir lab export has written, once for all tests.
var exported struct {
	once sync.Once
	dir  string
}

func removeExport() {
	if exported.dir != "" {
		_ = os.RemoveAll(exported.dir)
	}
}

// exportDir returns the folder of the exported site.
func exportDir(t *testing.T) string {
	t.Helper()
	exported.once.Do(func() {
		dir, err := os.MkdirTemp("", "kvasir-page-")
		if err != nil {
			t.Fatal(err)
		}
		exported.dir = dir
		program.Output(t, "lab", "export", filepath.Join(dir, "site"))
	})
	site := filepath.Join(exported.dir, "site")
	if _, err := os.Stat(site); err != nil {
		t.Fatalf("there is no export: %v", err)
	}
	return site
}

// staticFolder is where the exported site is served: it works from anywhere.
const staticFolder = "/some/folder/"

// static serves the exported site from a file server and returns its address.
func static(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(staticFolder, http.StripPrefix(strings.TrimSuffix(staticFolder, "/"), http.FileServer(http.Dir(exportDir(t)))))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL + staticFolder
}

// bothForms runs a test on the page with a server behind it and on the exported one.
func bothForms(t *testing.T, test func(t *testing.T, base string)) {
	program.Installed(t, "page")
	t.Run("served", func(t *testing.T) { test(t, demo(t, "--no-traffic")) })
	t.Run("exported", func(t *testing.T) { test(t, static(t)) })
}
