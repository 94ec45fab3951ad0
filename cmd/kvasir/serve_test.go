package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// lockedBuffer collects what several goroutines write.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// A process that is told to drain and then, by a script that knows nothing of it, to read
// its file anew, goes on draining: SIGHUP would end it at once by default.
func TestServe_AHangupWhileItDrainsIsNotItsEnd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kvasir.yaml")
	write(t, file, fmt.Appendf(nil, "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\ndrain_delay: 500ms\nmodels: {m: [%q]}\n", engineServer(t).URL))
	ctx, drain := context.WithCancel(t.Context())
	var log lockedBuffer
	env := environment{stdout: &log, stderr: &log, getenv: func(string) string { return "" }}
	ended := make(chan int, 1)
	go func() { ended <- runServe(ctx, env, []string{"--config", file}) }()
	hangup := func(after string) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !strings.Contains(log.String(), after); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("no line with %s:\n%s", after, log.String())
			}
		}
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	hangup(`"msg":"serving"`)
	hangup(`"msg":"configuration applied"`)
	drain()
	hangup(`"msg":"draining"`)
	if code := <-ended; code != 0 || !strings.Contains(log.String(), `"msg":"stopped"`) {
		t.Errorf("exit code %d\n%s", code, log.String())
	}
}
