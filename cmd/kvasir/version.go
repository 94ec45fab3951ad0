package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set when a release is built: -ldflags "-X main.version=1.2.3".
var version string

// buildVersion says which source the binary was built from: a release's number, else the
// commit that the go command has noted, marked where the tree had changes.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, changed := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				changed = "+changes"
			}
		}
	}
	if revision == "" {
		return "unknown"
	}
	return revision[:min(12, len(revision))] + changed
}

// runVersion is kvasir version.
func runVersion(_ context.Context, env environment, _ []string) int {
	fmt.Fprintf(env.stdout, "kvasir %s, %s %s/%s\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return 0
}
