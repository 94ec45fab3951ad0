// Package sdkpython drives kvasir serve with OpenAI's and Anthropic's Python SDKs, in a
// current version and in an old one. install.sh installs them; where it has not run, the
// test is skipped.
package sdkpython

import (
	"os"
	"path/filepath"
	"testing"

	"kvasir/test/program"
	"kvasir/test/program/sdk"
)

func TestMain(m *testing.M) { os.Exit(program.Main(m)) }

func TestPython(t *testing.T) {
	dir := program.Installed(t, "sdk-python")
	for _, age := range []string{"new", "old"} {
		t.Run(age, func(t *testing.T) {
			t.Parallel()
			sdk.Run(t, filepath.Join(dir, age, "bin", "python"), "suite.py")
		})
	}
}
