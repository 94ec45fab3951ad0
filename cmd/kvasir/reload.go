package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"kvasir/config"
)

// apply puts a configuration in service in place of the one before, as far as it can be
// changed without a restart. With an error the one before stays.
func (n *node) apply(c *config.Config) error {
	n.applying.Lock()
	defer n.applying.Unlock()
	c.Seed = n.config.Seed // what it decides is under way
	cfg, err := n.gatewayConfig(c)
	if err != nil {
		return err
	}
	if c.TLS.Cert != "" && n.config.TLS.Cert != "" {
		if err := n.certs.load(c.TLS); err != nil {
			return err
		}
	}
	if err := n.gateway.Apply(cfg); err != nil {
		return err
	}
	if n.level != nil {
		n.level.Set(logLevel(c))
	}
	if keys := needRestart(n.started, c); len(keys) > 0 {
		n.log.Warn("some changes take effect with a restart only", "keys", strings.Join(keys, ", "))
	}
	n.labs.Store(c.Page.Labs)
	n.config = c
	return nil
}

// current returns the configuration in service.
func (n *node) current() *config.Config {
	n.applying.Lock()
	defer n.applying.Unlock()
	return n.config
}

// needRestart names the keys that differ and are fixed while the process lives.
func needRestart(before, after *config.Config) []string {
	var keys []string
	check := func(key string, a, b any) {
		if !reflect.DeepEqual(a, b) {
			keys = append(keys, key)
		}
	}
	check("listen", before.Listen, after.Listen)
	check("admin", before.Admin, after.Admin)
	check("admin_token", before.AdminToken.Reveal(), after.AdminToken.Reveal())
	check("admin_open", before.AdminOpen, after.AdminOpen)
	check("watch_file", before.WatchFile, after.WatchFile)
	check("tls", before.TLS.Cert == "", after.TLS.Cert == "")
	check("limits.connections", before.Limits.Connections, after.Limits.Connections)
	check("client.header_timeout", before.Client.HeaderTimeout, after.Client.HeaderTimeout)
	check("client.idle_timeout", before.Client.IdleTimeout, after.Client.IdleTimeout)
	check("client.http2", before.Client.HTTP2, after.Client.HTTP2)
	return keys
}

// reloader reads a node's configuration anew: on SIGHUP, when a file of it changes, and
// when an operator asks.
type reloader struct {
	path string
	env  environment
	node *node
}

// reload reads the file and puts it in service. A file that is wrong changes nothing.
func (r *reloader) reload() error {
	c, err := config.Load(r.path, config.Env{Getenv: r.env.getenv})
	if err == nil {
		err = r.node.apply(c)
	}
	r.node.metrics.Reloaded(err == nil)
	if err != nil {
		r.node.log.Error("the configuration was refused; the one before stays in service", "file", r.path, "error", explainProblems(err))
		return err
	}
	r.node.metrics.Applied(time.Now())
	r.node.log.Info("configuration applied", "file", r.path)
	return nil
}

// explainProblems writes all problems of a file on one line, for the log.
func explainProblems(err error) string {
	if problems, ok := errors.AsType[config.Problems](err); ok {
		var all []string
		for _, p := range problems {
			all = append(all, p.String())
		}
		return strings.Join(all, "; ")
	}
	return err.Error()
}

// watchEvery is how often files are looked at.
const watchEvery = time.Second

// run reloads until ctx ends.
func (r *reloader) run(ctx context.Context, hangups <-chan os.Signal, watch bool) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	served := r.look()
	seen := served
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			_ = r.reload() // it is in the log
			served = r.look()
			seen = served
		case <-ticker.C:
			if !watch {
				continue
			}
			// What is being written is seen in halves: a change counts once two looks in a row
			// have seen the same.
			now := r.look()
			if !slices.Equal(now, served) && slices.Equal(now, seen) {
				served = now
				_ = r.reload() // likewise
			}
			seen = now
		}
	}
}

// look returns what tells whether a file has changed, without reading it: a link that was
// turned to another file shows as that one.
func (r *reloader) look() []string {
	files := append([]string{r.path}, r.node.current().Files()...)
	var out []string
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			out = append(out, name+": gone")
			continue
		}
		inode := uint64(0)
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			inode = s.Ino
		}
		out = append(out, fmt.Sprintf("%s: %d bytes, %v, %d", name, info.Size(), info.ModTime().UnixNano(), inode))
	}
	return out
}
