// Package proxies puts nginx and HAProxy before kvasir serve and behind it. install.sh
// installs them; where it has not run, the tests are skipped, and where it has, they fail
// for want of them. The proxies' configurations in testdata are what a site needs.
package proxies

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"text/template"

	"kvasir/test/program"
)

func TestMain(m *testing.M) { os.Exit(program.Main(m)) }

// start runs a proxy in front of the address next and returns the address where it listens.
type start func(t testing.TB, next string) (address string)

func nginx(t testing.TB, next string) string         { return runNginx(t, next, false) }
func nginxDefaults(t testing.TB, next string) string { return runNginx(t, next, true) }

func runNginx(t testing.TB, next string, defaults bool) string {
	t.Helper()
	file, address := configure(t, "nginx.conf", next, defaults)
	program.Start(t, nil, command(t, "nginx"), "-p", filepath.Dir(file), "-c", file)
	listens(t, address)
	return address
}

func haproxy(t testing.TB, next string) string {
	t.Helper()
	file, address := configure(t, "haproxy.cfg", next, false)
	program.Start(t, nil, command(t, "haproxy"), "-db", "-f", file)
	listens(t, address)
	return address
}

// command returns where the install script found a program.
func command(t testing.TB, name string) string {
	t.Helper()
	marker := filepath.Join(program.Installed(t, "proxies"), "installed")
	b, err := os.ReadFile(marker)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "path ")
		if ok && filepath.Base(path) == name {
			return path
		}
	}
	t.Fatalf("%s does not say where %s is", marker, name)
	return ""
}

// configure fills in a configuration of testdata.
func configure(t testing.TB, name, next string, defaults bool) (file, address string) {
	t.Helper()
	dir := t.TempDir()
	text, err := template.ParseFiles(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	file, address = filepath.Join(dir, name), program.FreeAddress(t)
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = text.Execute(f, map[string]any{"Dir": dir, "Root": os.Getuid() == 0, "Listen": address, "Next": next, "Defaults": defaults})
	if err != nil {
		t.Fatal(err)
	}
	return file, address
}

func listens(t testing.TB, address string) {
	t.Helper()
	program.Eventually(t, "a listener at "+address, func() bool {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
}

// arrangement is where proxies stand.
type arrangement struct {
	name           string
	before, behind start // nil: none
}

var arrangements = []arrangement{
	{"none", nil, nil},
	{"nginx before", nginx, nil},
	{"nginx with its defaults before", nginxDefaults, nil},
	{"haproxy before", haproxy, nil},
	{"nginx behind", nil, nginx},
	{"haproxy behind", nil, haproxy},
	{"nginx before, haproxy behind", nginx, haproxy},
	{"haproxy before, nginx behind", haproxy, nginx},
}

// chain is a gateway with an engine, and what the arrangement puts around it.
type chain struct {
	base    string // where clients call
	gateway *program.Gateway
	engine  *engine
	hops    []*relay // before each proxy and gateway that another one calls
}

func newChain(t testing.TB, a arrangement) *chain {
	t.Helper()
	program.Installed(t, "proxies")
	c := &chain{engine: newEngine(t)}
	next := c.engine.address
	if a.behind != nil {
		next = c.hop(t, a.behind(t, next))
	}
	c.gateway = program.Serve(t, fmt.Sprintf("models:\n  tiny:\n    endpoints: [\"http://%s\"]\n    signals: {scrape: 0s, max_age: 0s}\n", next))
	c.base = c.gateway.Base
	if a.before != nil {
		c.base = "http://" + a.before(t, c.hop(t, strings.TrimPrefix(c.base, "http://")))
	}
	return c
}

func (c *chain) hop(t testing.TB, next string) (address string) {
	r := newRelay(t, next)
	c.hops = append(c.hops, r)
	return r.address
}

// relay counts the connections that are made through it.
type relay struct {
	address string
	conns   atomic.Int64
}

func newRelay(t testing.TB, next string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	r := &relay{address: l.Addr().String()}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return // the test is over
			}
			r.conns.Add(1)
			out, err := net.Dial("tcp", next)
			if err != nil {
				_ = in.Close()
				continue
			}
			go pipe(out, in)
			go pipe(in, out)
		}
	}()
	return r
}

// pipe passes on what from says, its end included.
func pipe(to, from net.Conn) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if _, werr := to.Write(b[:n]); werr != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_ = from.Close()
	_ = to.Close()
}
