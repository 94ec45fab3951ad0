// Package program runs kvasir, and the servers and clients beside it, as processes of their
// own, for tests over real sockets. It has no layer and is no part of the product.
//
// Everything that it starts ends with the test that asked for it.
package program

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// patience bounds every wait for something that must come. It keeps a test from hanging
	// and measures nothing.
	patience = 30 * time.Second
	// grace is what a process gets to end by itself.
	grace = 20 * time.Second
	// keptOutput bounds what is kept of a process's output for the log of a failed test.
	keptOutput = 256 << 10
)

// kvasir is the built program's path; Main sets it.
var kvasir string

// Main builds kvasir, runs the tests and returns their exit code. The variable KVASIR_BINARY
// names a program to be used in place of the one that would be built.
func Main(m *testing.M) int {
	if kvasir = os.Getenv("KVASIR_BINARY"); kvasir != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "kvasir-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	kvasir = filepath.Join(dir, "kvasir")
	if out, err := exec.Command("go", "build", "-C", root(), "-o", kvasir, "./cmd/kvasir").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// root is the repository's. Tests run in their package's folder, two below it.
func root() string { return filepath.Join("..", "..") }

// Process is a running program. Its methods may be called from any goroutine.
type Process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended; err is set then
	err  error

	mu   sync.Mutex
	more *sync.Cond // a line came, or no other will
	out  bytes.Buffer
	eof  bool
}

// Start runs a program. At the end of the test it is stopped, and what it printed is logged
// where the test failed.
func Start(t testing.TB, env []string, name string, args ...string) *Process {
	t.Helper()
	p := &Process{name: filepath.Base(name), cmd: exec.Command(name, args...), done: make(chan struct{})}
	p.more = sync.NewCond(&p.mu)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = attributes()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	err = p.cmd.Start()
	_ = w.Close()
	if err != nil {
		_ = r.Close()
		t.Fatalf("%s: %v", name, err)
	}
	var reading sync.WaitGroup
	reading.Go(func() { p.read(r) })
	go func() {
		err := p.cmd.Wait()
		reading.Wait()
		p.err = err
		close(p.done)
	}()
	t.Cleanup(func() {
		p.end()
		if t.Failed() {
			t.Logf("output of %s:\n%s", p.name, p.Output())
		}
	})
	return p
}

// read keeps the beginning and the end of what the process prints.
func (p *Process) read(r *os.File) {
	defer r.Close()
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		p.mu.Lock()
		p.out.WriteString(line)
		if extra := p.out.Len() - keptOutput; extra > 0 {
			p.out.Next(extra)
		}
		p.eof = err != nil
		p.more.Broadcast()
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Output returns what the process printed last.
func (p *Process) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// Find waits until the output matches and returns the match and its groups. The test ends
// where it does not.
func (p *Process) Find(t testing.TB, pattern string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	timer := time.AfterFunc(patience, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.eof = true
		p.more.Broadcast()
	})
	defer timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if m := re.FindSubmatch(p.out.Bytes()); m != nil {
			return texts(m)
		}
		if p.eof {
			t.Fatalf("%s did not print %s", p.name, pattern)
		}
		p.more.Wait()
	}
}

func texts(b [][]byte) []string {
	out := make([]string, len(b))
	for i := range b {
		out[i] = string(b[i])
	}
	return out
}

// Kill ends the process as kill -9 does, and waits until it has.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Signal sends a signal, such as SIGSTOP.
func (p *Process) Signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
}

// Stop asks the process to end and returns how it did.
func (p *Process) Stop() error {
	p.end()
	return p.err
}

// end stops the process, by force where it does not end by itself.
func (p *Process) end() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
		p.Kill()
	}
}

// Wait returns once the process has ended by itself, with all that it printed. The test ends
// where it takes longer than most.
func (p *Process) Wait(t testing.TB, most time.Duration) (output string, err error) {
	t.Helper()
	select {
	case <-p.done:
		return p.Output(), p.err
	case <-time.After(most):
		t.Fatalf("%s still runs after %v", p.name, most)
		return "", nil
	}
}

// Eventually asks again and again until ok holds. The test ends where it never does.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	EventuallyEvery(t, 20*time.Millisecond, what, ok)
}

// EventuallyEvery is Eventually with a pause of one's own between two questions.
func EventuallyEvery(t testing.TB, pause time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(pause) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// Installed returns the folder of what the suite's install script left, and skips the test
// where that script has not run. What it says that is there must be there.
func Installed(t testing.TB, suite string) (dir string) {
	t.Helper()
	dir = os.Getenv("KVASIR_TEST_CACHE")
	switch {
	case dir == "":
		dir = filepath.Join(root(), ".cache")
	case !filepath.IsAbs(dir):
		dir = filepath.Join(root(), dir)
	}
	dir, err := filepath.Abs(filepath.Join(dir, suite))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "installed")); os.IsNotExist(err) {
		t.Skipf("what this needs is not installed; `bash test/%s/install.sh` in the repository's root installs it", suite)
	} else if err != nil {
		t.Fatal(err)
	}
	return dir
}

func readAll(t testing.TB, r io.ReadCloser) []byte {
	t.Helper()
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
