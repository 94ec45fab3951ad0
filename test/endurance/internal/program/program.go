// Package program builds the kvasir binary and runs it in processes of its own, and reads
// what such a process tells of itself: its log, its metrics, its pools, and what the
// system knows of it.
package program

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Binary is a built kvasir.
type Binary struct {
	Path string
	Dir  string // scratch, where processes run and configurations lie
}

// Build returns the binary at path, or builds one from the source tree that the working
// directory lies in where path is empty. Remove what it leaves with Clean.
func Build(path string) (*Binary, error) {
	dir, err := os.MkdirTemp("", "kvasir-endurance-")
	if err != nil {
		return nil, err
	}
	b := &Binary{Path: path, Dir: dir}
	if path != "" {
		b.Path, err = filepath.Abs(path)
		return b, err
	}
	root, err := sourceRoot()
	if err != nil {
		return nil, errors.Join(err, b.Clean())
	}
	b.Path = filepath.Join(dir, "kvasir")
	cmd := exec.Command("go", "build", "-C", root, "-trimpath", "-o", b.Path, "./cmd/kvasir")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("go build ./cmd/kvasir: %w\n%s", err, out), b.Clean())
	}
	return b, nil
}

// Clean removes the scratch directory.
func (b *Binary) Clean() error { return os.RemoveAll(b.Dir) }

// sourceRoot finds the folder of module kvasir above the working directory.
func sourceRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(text, []byte("module kvasir\n")) {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("the working directory is not in kvasir's source tree; name a binary with -binary")
		}
		dir = up
	}
}

// Accepts reports whether kvasir config check accepts the configuration.
func (b *Binary) Accepts(config string) bool {
	file := filepath.Join(b.Dir, "probe.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return false
	}
	return exec.Command(b.Path, "config", "check", "-no-secrets", file).Run() == nil
}

// WriteConfig writes a configuration to the scratch directory and returns its path.
func (b *Binary) WriteConfig(name, text string) (string, error) {
	file := filepath.Join(b.Dir, name)
	return file, os.WriteFile(file, []byte(text), 0o600)
}

// Process is a running kvasir.
type Process struct {
	PID     int
	Started time.Time
	cmd     *exec.Cmd
	output  sync.WaitGroup
	exited  chan struct{}
	err     error
}

// Start runs kvasir with the arguments in the directory dir, with env added to the
// environment, and calls line for each line that it writes to stdout or stderr, one at a
// time.
func (b *Binary) Start(dir string, env []string, line func([]byte), args ...string) (*Process, error) {
	cmd := exec.Command(b.Path, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	errs, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{PID: cmd.Process.Pid, Started: time.Now(), cmd: cmd, exited: make(chan struct{})}
	var one sync.Mutex
	for _, pipe := range []io.Reader{out, errs} {
		p.output.Go(func() {
			in := bufio.NewReaderSize(pipe, 1<<20)
			for {
				text, err := in.ReadBytes('\n')
				if text = bytes.TrimRight(text, "\n"); len(text) > 0 {
					one.Lock()
					line(text)
					one.Unlock()
				}
				if err != nil {
					return
				}
			}
		})
	}
	go func() {
		p.output.Wait()
		p.err = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// Signal sends a signal to the process.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Exited is closed when the process has ended and its output was read.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Wait waits for the process to end, kills it where that takes longer than the limit, and
// returns how it ended.
func (p *Process) Wait(limit time.Duration) error {
	select {
	case <-p.exited:
		return p.err
	case <-time.After(limit):
		_ = p.cmd.Process.Kill()
		<-p.exited
		return fmt.Errorf("process %d had not ended after %v", p.PID, limit)
	}
}

// Stop ends the process with SIGTERM and waits.
func (p *Process) Stop(limit time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return p.Wait(limit)
}

// FreeAddr returns a loopback address that nothing listens on at the moment.
func FreeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// Gateway is a running kvasir serve.
type Gateway struct {
	*Process
	Addr  string // of clients
	Admin string
}

// serving is the line of its log with which kvasir serve says where it listens.
type serving struct{ Msg, Listen, Admin string }

// StartGateway runs kvasir serve and waits until it says where it listens. line gets each
// line of its log.
func (b *Binary) StartGateway(dir, configFile string, env []string, line func([]byte)) (*Gateway, error) {
	g := &Gateway{}
	ready := make(chan struct{})
	var said []string
	p, err := b.Start(dir, env, func(text []byte) {
		if g.Addr == "" {
			var l serving
			if json.Unmarshal(text, &l) == nil && l.Msg == "serving" {
				g.Addr, g.Admin = l.Listen, l.Admin
				close(ready)
			} else {
				said = append(said, string(text))
			}
		}
		line(text)
	}, "serve", "--config", configFile)
	if err != nil {
		return nil, err
	}
	g.Process = p
	select {
	case <-ready:
		return g, nil
	case <-p.exited:
		return nil, fmt.Errorf("kvasir serve ended: %v\n%s", p.err, strings.Join(said, "\n"))
	case <-time.After(30 * time.Second):
		return nil, errors.Join(errors.New("kvasir serve does not say where it listens"), p.Stop(time.Second))
	}
}

// Engine is a running kvasir engine.
type Engine struct {
	*Process
	Addr string
}

var engineLine = regexp.MustCompile(`answers at http://([^/]+)/`)

// StartEngine runs kvasir engine and waits until it says where it listens.
func (b *Binary) StartEngine(args ...string) (*Engine, error) {
	e := &Engine{}
	ready := make(chan struct{})
	var said []string
	p, err := b.Start(b.Dir, nil, func(text []byte) {
		if m := engineLine.FindSubmatch(text); m != nil && e.Addr == "" {
			e.Addr = string(m[1])
			close(ready)
		} else if len(said) < 20 {
			said = append(said, string(text))
		}
	}, append([]string{"engine"}, args...)...)
	if err != nil {
		return nil, err
	}
	e.Process = p
	select {
	case <-ready:
		return e, nil
	case <-p.exited:
		return nil, fmt.Errorf("kvasir engine ended: %v\n%s", p.err, strings.Join(said, "\n"))
	case <-time.After(30 * time.Second):
		return nil, errors.Join(errors.New("kvasir engine does not say where it listens"), p.Stop(time.Second))
	}
}
