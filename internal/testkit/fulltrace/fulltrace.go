// Package fulltrace finds the whole public traces, which are too large for testdata, for
// the tests and benchmarks that read them.
package fulltrace

import (
	"os"
	"path/filepath"
	"testing"
)

// Path is where the file at path lies in the folder that KVASIR_TRACES names. A test that
// needs a file which is not there is skipped: nobody has to have the traces, or all of
// them. docs/traces.md says where they come from.
func Path(tb testing.TB, path string) string {
	tb.Helper()
	folder := os.Getenv("KVASIR_TRACES")
	if folder == "" {
		tb.Skipf("needs %s of the public traces: set KVASIR_TRACES to their folder (docs/traces.md)", path)
	}
	name := filepath.Join(folder, filepath.FromSlash(path))
	if _, err := os.Stat(name); err != nil {
		tb.Skipf("needs %s of the public traces, which KVASIR_TRACES=%s has not: %v", path, folder, err)
	}
	return name
}
