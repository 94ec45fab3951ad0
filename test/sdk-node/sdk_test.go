// Package sdknode drives kvasir serve with OpenAI's and Anthropic's Node SDKs, in a current
// version and in an old one. install.sh installs them; where it has not run, the test is
// skipped.
package sdknode

import (
	"os"
	"testing"

	"kvasir/test/program"
	"kvasir/test/program/sdk"
)

func TestMain(m *testing.M) { os.Exit(program.Main(m)) }

func TestNode(t *testing.T) {
	dir := program.Installed(t, "sdk-node")
	for _, age := range []string{"new", "old"} {
		t.Run(age, func(t *testing.T) {
			t.Parallel()
			sdk.Run(t, "node", "suite.mjs", dir, age)
		})
	}
}
