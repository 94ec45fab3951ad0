package program

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Gateway is a running kvasir serve.
type Gateway struct {
	*Process
	Base  string // URL of the clients' listener
	Admin string // URL of the operators' listener
}

// Serve runs kvasir serve on free ports. configuration is the rest of its file.
func Serve(t testing.TB, configuration string) *Gateway {
	t.Helper()
	p := Start(t, nil, kvasir, "serve", "--config", file(t, configuration))
	m := p.Find(t, `"listen":"([^"]+)","admin":"([^"]+)"`)
	return &Gateway{Process: p, Base: "http://" + m[1], Admin: "http://" + m[2]}
}

// Accepts reports whether kvasir takes the configuration: a build knows keys that an older
// one does not.
func Accepts(t testing.TB, configuration string) bool {
	t.Helper()
	return exec.Command(kvasir, "config", "check", file(t, configuration)).Run() == nil
}

func file(t testing.TB, configuration string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "kvasir.yaml")
	if err := os.WriteFile(name, []byte("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n"+configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Engine runs an emulated engine on a free port and returns its URL.
func Engine(t testing.TB, args ...string) string {
	t.Helper()
	p := Start(t, nil, kvasir, append([]string{"engine", "--listen", "127.0.0.1:0"}, args...)...)
	return p.Find(t, `answers at (http://[^/]+)/v1`)[1]
}

// Kvasir runs any other of the program's commands.
func Kvasir(t testing.TB, args ...string) *Process {
	t.Helper()
	return Start(t, nil, kvasir, args...)
}

// Output runs a command of the program that ends by itself, and returns what it printed on its
// standard output. It runs in the repository's root. The test ends where it fails.
func Output(t testing.TB, args ...string) []byte {
	t.Helper()
	name, err := filepath.Abs(kvasir)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(name, args...)
	var talk strings.Builder
	c.Dir, c.Stderr = root(), &talk
	out, err := c.Output()
	if err != nil {
		t.Fatalf("kvasir %s: %v\n%s", strings.Join(args, " "), err, talk.String())
	}
	return out
}

// Endpoint is what /v1/pools says of one endpoint.
type Endpoint struct {
	Name     string   `json:"endpoint"`
	State    string   `json:"state"`
	InFlight int      `json:"in_flight"`
	Sent     int      `json:"dispatched"`
	Running  *float64 `json:"running"`
	Waiting  *float64 `json:"waiting"`
	KVUsage  *float64 `json:"kv_usage"`
}

// Endpoints returns what /v1/pools says of a model's endpoints, by name.
func (g *Gateway) Endpoints(t testing.TB, model string) map[string]Endpoint {
	t.Helper()
	var models []struct {
		Model string `json:"model"`
		Pools []struct {
			Endpoints []Endpoint `json:"endpoints"`
		} `json:"pools"`
	}
	if err := json.Unmarshal(Get(t, g.Admin+"/v1/pools"), &models); err != nil {
		t.Fatal(err)
	}
	out := map[string]Endpoint{}
	for _, m := range models {
		for _, p := range m.Pools {
			for _, e := range p.Endpoints {
				if m.Model == model {
					out[e.Name] = e
				}
			}
		}
	}
	return out
}

// Metric sums up the gateway's series of a name whose labels have all the parts.
func (g *Gateway) Metric(t testing.TB, name string, parts ...string) float64 {
	t.Helper()
	return Metric(t, g.Admin+"/metrics", name, parts...)
}

// Metric sums up the series of a name, on a Prometheus page, whose labels have all the parts.
func Metric(t testing.TB, url, name string, parts ...string) (sum float64) {
	t.Helper()
	for line := range strings.SplitSeq(string(Get(t, url)), "\n") {
		series, value, ok := strings.Cut(line, " ")
		base, labels, _ := strings.Cut(series, "{")
		if !ok || base != name {
			continue
		}
		for _, part := range parts {
			ok = ok && strings.Contains(labels, part)
		}
		var v float64
		if _, err := fmt.Sscan(value, &v); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if ok {
			sum += v
		}
	}
	return sum
}

// Get returns a page that must be there.
func Get(t testing.TB, url string) []byte {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	b := readAll(t, resp.Body)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: status %d: %s", url, resp.StatusCode, b)
	}
	return b
}

// Answers waits until a GET of the URL is answered with 200.
func Answers(t testing.TB, url string) {
	t.Helper()
	Eventually(t, "an answer of "+url, func() bool {
		resp, err := http.Get(url)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// FreeAddress returns an address on loopback at which nobody listens at the moment.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
