package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// target is what the client calls.
type target struct {
	name    string
	addr    string
	process *process // nil: the upstream itself, whose CPU is nobody's cost
	pids    []int    // of the process and its children
}

const (
	direct   = "direct"
	baseline = "reverse-proxy"
)

// endpoints is how many addresses the upstream has. Kvasir and nginx balance over all of
// them; the bare proxy knows one.
const endpoints = 4

// workers is what each target may use of the machine: GOMAXPROCS and worker_processes.
var workers = min(2, runtime.NumCPU())

// bench is the processes of a run.
type bench struct {
	dir       string // for what they need on disk
	self      string // this program
	kvasir    string
	upstreams []string // addresses
	processes []*process
	targets   []target
}

func (b *bench) stop() {
	for i := len(b.processes) - 1; i >= 0; i-- {
		b.processes[i].stop()
	}
}

// startAll starts the upstream and every target that is asked for.
func (b *bench) startAll(ctx context.Context, o options) error {
	addrs, err := freeAddrs(endpoints)
	if err != nil {
		return err
	}
	b.upstreams = addrs
	cmd := exec.Command(b.self, append([]string{"upstream"}, addrs...)...)
	if _, err := b.start(ctx, "upstream", b.dir, addrs[endpoints-1], cmd); err != nil {
		return err
	}
	b.targets = append(b.targets, target{name: direct, addr: addrs[0]})
	starters := []struct {
		name  string
		start func(ctx context.Context, name string) error
	}{
		{baseline, b.startReverseProxy},
		{"nginx", b.startNginx},
		{"kvasir", b.kvasirStarter(b.kvasir, "cache-aware")},
		{"kvasir-rr", b.kvasirStarter(b.kvasir, "round-robin")},
	}
	for _, s := range starters {
		if s.name == baseline || o.targets.MatchString(s.name) {
			if err := s.start(ctx, s.name); err != nil {
				return err
			}
		}
	}
	for _, x := range o.beside {
		if err := b.kvasirStarter(x.binary, "cache-aware")(ctx, x.name); err != nil {
			return err
		}
	}
	return nil
}

// start starts a process and waits until it listens.
func (b *bench) start(ctx context.Context, name, logs, addr string, cmd *exec.Cmd) (*process, error) {
	cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", workers))
	p, err := start(name, logs, cmd)
	if err != nil {
		return nil, err
	}
	b.processes = append(b.processes, p)
	return p, p.await(ctx, addr)
}

// startTarget is start for what is measured.
func (b *bench) startTarget(ctx context.Context, name, logs, addr string, cmd *exec.Cmd) error {
	p, err := b.start(ctx, name, logs, addr, cmd)
	if err != nil {
		return err
	}
	pids, err := family(p.cmd.Process.Pid)
	b.targets = append(b.targets, target{name, addr, p, pids})
	return err
}

func (b *bench) startReverseProxy(ctx context.Context, name string) error {
	addrs, err := freeAddrs(1)
	if err != nil {
		return err
	}
	return b.startTarget(ctx, name, b.dir, addrs[0], exec.Command(b.self, "reverse-proxy", addrs[0], b.upstreams[0]))
}

const nginxConfig = `daemon off;
worker_processes %d;
pid nginx.pid;
error_log stderr error;
events { worker_connections 4096; }
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    client_max_body_size 32m;
    keepalive_timeout 1h;
    keepalive_requests 1000000000;
    tcp_nodelay on;
    upstream engines {
        %s
        keepalive 1024;
        keepalive_requests 1000000000;
        keepalive_timeout 1m;
    }
    server {
        listen %s;
        location / {
            proxy_pass http://engines;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_request_buffering off;
        }
    }
}
`

func (b *bench) startNginx(ctx context.Context, name string) error {
	addrs, err := freeAddrs(1)
	if err != nil {
		return err
	}
	binary, err := exec.LookPath("nginx")
	if err != nil {
		return fmt.Errorf("nginx is not installed (bench/gateway/run installs it; -targets leaves it out): %w", err)
	}
	var servers []string
	for _, addr := range b.upstreams {
		servers = append(servers, "server "+addr+";")
	}
	dir := filepath.Join(b.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	file := filepath.Join(dir, "nginx.conf")
	config := fmt.Sprintf(nginxConfig, workers, strings.Join(servers, "\n        "), addrs[0])
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return err
	}
	return b.startTarget(ctx, name, b.dir, addrs[0], exec.Command(binary, "-p", dir, "-c", file))
}

const kvasirConfig = `listen: %s
admin: %s
upstream:
  idle_timeout: 1m
models:
  bench:
    policy: %s
    endpoints: [%s]
`

// kvasirStarter starts kvasir as it is by default: scrapes, metrics and a line a call in
// a log that nobody keeps.
func (b *bench) kvasirStarter(binary, policy string) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		addrs, err := freeAddrs(2)
		if err != nil {
			return err
		}
		var urls []string
		for _, addr := range b.upstreams {
			urls = append(urls, fmt.Sprintf("%q", "http://"+addr))
		}
		file := filepath.Join(b.dir, name+".yaml")
		config := fmt.Sprintf(kvasirConfig, addrs[0], addrs[1], policy, strings.Join(urls, ", "))
		if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
			return err
		}
		if _, err := command(ctx, binary, "config", "check", file); err != nil {
			return err
		}
		return b.startTarget(ctx, name, "", addrs[0], exec.Command(binary, "serve", "--config", file))
	}
}

// buildKvasir builds the static binary from the tree that this program is in.
func buildKvasir(ctx context.Context, dir string) (string, error) {
	out := filepath.Join(dir, "kvasir-binary")
	here, err := command(ctx, "go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return "", err
	}
	root := filepath.Join(here, "..", "..")
	cmd := exec.CommandContext(ctx, "go", "build", "-C", root, "-o", out, "./cmd/kvasir")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build kvasir: %w\n%s", err, text)
	}
	return out, nil
}
