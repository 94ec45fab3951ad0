package trace

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"kvasir/client/workload"
	"kvasir/internal/testkit/fulltrace"
)

// text is a file of the given text.
func text(name, s string) File {
	return File{Name: name, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader([]byte(s))), nil
	}}
}

// testdata is a file of testdata.
func testdata(tb testing.TB, name string) File {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	return text(name, string(b))
}

// public is a file of the traces themselves; where it is missing the test is skipped.
func public(tb testing.TB, path string) File {
	tb.Helper()
	name := fulltrace.Path(tb, path)
	return File{Name: filepath.Base(name), Open: func() (io.ReadCloser, error) { return os.Open(name) }}
}

// collect reads a source to its end.
func collect(tb testing.TB, s workload.Source) []workload.Session {
	tb.Helper()
	var all []workload.Session
	for session, err := range s.Sessions {
		if err != nil {
			tb.Fatal(err)
		}
		if err := session.Validate(s.BlockTokens); err != nil {
			tb.Fatalf("session %s: %v", session.ID, err)
		}
		if n := len(all); n > 0 && session.At <= all[n-1].At {
			tb.Fatalf("session %s comes at %v, the one before it at %v", session.ID, session.At, all[n-1].At)
		}
		all = append(all, session)
	}
	return all
}

// read opens a file, which must succeed, and collects it.
func read(tb testing.TB, f File, o Options) (*Trace, []workload.Session) {
	tb.Helper()
	t, err := Open(f, o)
	if err != nil {
		tb.Fatal(err)
	}
	return t, collect(tb, t.Source)
}
