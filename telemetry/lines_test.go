package telemetry

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// gate is a writer that waits until it is opened.
type gate struct {
	open chan struct{}
	bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	return g.Buffer.Write(p)
}

func TestLines_NeverWaitAndCountWhatIsDropped(t *testing.T) {
	g := &gate{open: make(chan struct{})}
	l := NewLines(g, 10)
	for i := range 100 { // would never return if it waited
		if n, err := fmt.Fprintf(l, "line %d\n", i); n == 0 || err != nil {
			t.Fatalf("line %d: %d, %v", i, n, err)
		}
	}
	close(g.open)
	l.Close()
	lines := strings.Split(strings.TrimSpace(g.String()), "\n")
	kept, dropped := 0, 0
	for _, line := range lines {
		var n int
		if _, err := fmt.Sscanf(line, `{"level":"WARN","msg":"log lines were dropped","lines":%d}`, &n); err == nil {
			dropped += n
		} else {
			kept++
		}
	}
	// Ten are kept, and up to ten more may be in the write that hangs.
	if lines[0] != "line 0" || kept < 10 || kept > 20 || kept+dropped != 100 {
		t.Errorf("%d kept and %d dropped of 100:\n%s", kept, dropped, g.String())
	}
}

func TestLines_CloseWritesWhatIsKept(t *testing.T) {
	var b bytes.Buffer
	l := NewLines(&b, 100)
	for range 50 {
		fmt.Fprintln(l, "line")
	}
	l.Close()
	l.Close()               // twice is once
	fmt.Fprintln(l, "late") // a handler that ends after the server was closed
	if n := strings.Count(b.String(), "line\n"); n != 50 {
		t.Errorf("%d of 50 lines were written", n)
	}
}
