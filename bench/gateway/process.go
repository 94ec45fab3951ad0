package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a program that the run has started.
type process struct {
	name  string
	cmd   *exec.Cmd
	said  *os.File // its stderr, where kept
	ended chan struct{}
}

// start starts a program whose stderr goes to a file in dir, or nowhere where dir is
// empty. It ends with this one.
func start(name, dir string, cmd *exec.Cmd) (*process, error) {
	p := &process{name: name, cmd: cmd, ended: make(chan struct{})}
	if dir != "" {
		f, err := os.Create(filepath.Join(dir, name+".log"))
		if err != nil {
			return nil, err
		}
		p.said, cmd.Stderr = f, f
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// stop ends the process, gently first.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
	if p.said != nil {
		_ = p.said.Close()
	}
}

// await waits until the process accepts connections at addr.
func (p *process) await(ctx context.Context, addr string) error {
	for range 500 {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s has ended: %v\n%s", p.name, p.cmd.ProcessState, p.words())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s does not listen on %s\n%s", p.name, addr, p.words())
}

// words is the end of what the process wrote to stderr.
func (p *process) words() string {
	if p.said == nil {
		return ""
	}
	text, err := os.ReadFile(p.said.Name())
	if err != nil {
		return err.Error()
	}
	return string(text[max(len(text)-4*kib, 0):])
}

// freeAddrs returns n addresses of the loopback interface that are free.
func freeAddrs(n int) ([]string, error) {
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all at the end: they must differ
		out = append(out, l.Addr().String())
	}
	return out, nil
}

// family returns the process and its descendants.
func family(pid int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		_, rest, _ := strings.Cut(string(text[max(bytes.LastIndexByte(text, ')'), 0):]), ") ")
		fields := strings.Fields(rest) // state, parent, …
		if len(fields) < 2 {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		children[parent] = append(children[parent], child)
	}
	out := []int{pid}
	for i := 0; i < len(out); i++ {
		out = append(out, children[out[i]]...)
	}
	return out, nil
}

// cpuTime returns the CPU time of the processes so far, user and system, from the
// scheduler's count in nanoseconds: utime and stime of /proc/PID/stat count in ticks of
// 10 ms, too coarse for a slot. What ran in threads that have ended is missing; neither
// Go's runtime nor nginx ends threads while they serve.
func cpuTime(pids []int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		if err != nil || len(files) == 0 {
			return 0, fmt.Errorf("process %d has no /proc/%d/task/*/schedstat: it has ended, or the kernel lacks CONFIG_SCHED_INFO", pid, pid)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return 0, err
			}
			onCPU, _, _ := strings.Cut(string(text), " ")
			ns, err := strconv.ParseInt(onCPU, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %q", file, text)
			}
			sum += time.Duration(ns)
		}
	}
	return sum, nil
}

// command returns the output of a program that ends by itself.
func command(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
