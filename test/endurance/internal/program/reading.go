package program

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

var admin = &http.Client{Timeout: 20 * time.Second}

// Get returns the body of a path of the admin listener, and its status.
func (g *Gateway) Get(path string) ([]byte, int, error) {
	resp, err := admin.Get("http://" + g.Admin + path)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return body, resp.StatusCode, err
}

// Page is a metrics page: values by series as they are printed, name{labels}.
type Page struct {
	Series map[string]float64
	Text   []byte
}

// Metrics reads /metrics.
func (g *Gateway) Metrics() (Page, error) {
	text, status, err := g.Get("/metrics")
	if err != nil || status != http.StatusOK {
		return Page{}, fmt.Errorf("GET /metrics: status %d, %w", status, err)
	}
	return ParsePage(text)
}

// ParsePage reads a page in Prometheus' text format.
func ParsePage(text []byte) (Page, error) {
	p := Page{Series: map[string]float64{}, Text: text}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			return Page{}, fmt.Errorf("no value in the line %q", line)
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return Page{}, fmt.Errorf("value of the line %q: %w", line, err)
		}
		p.Series[line[:at]] = v
	}
	return p, lines.Err()
}

// Sum adds up the series of a name that have all the labels, each as name="value".
func (p Page) Sum(name string, labels ...string) float64 {
	sum := 0.0
	p.Each(name, func(series string, v float64) {
		for _, l := range labels {
			if !strings.Contains(series, l) {
				return
			}
		}
		sum += v
	})
	return sum
}

// Each calls f with every series of a name.
func (p Page) Each(name string, f func(series string, v float64)) {
	for series, v := range p.Series {
		if rest, ok := strings.CutPrefix(series, name); ok && (rest == "" || rest[0] == '{') {
			f(series, v)
		}
	}
}

// Label returns the value of a label of a series as it is printed; "": it has none.
func Label(series, name string) string {
	_, rest, found := strings.Cut(series, name+`="`)
	if !found {
		return ""
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// Kvasir returns how many of the page's series are the program's own.
func (p Page) Kvasir() int {
	n := 0
	for s := range p.Series {
		if strings.HasPrefix(s, "kvasir_") {
			n++
		}
	}
	return n
}

// Model is a model in the answer of /v1/pools.
type Model struct {
	Model    string `json:"model"`
	InFlight int    `json:"in_flight"`
	Pools    []struct {
		Pool      string     `json:"pool"`
		Endpoints []Endpoint `json:"endpoints"`
	} `json:"pools"`
}

// Endpoint is an endpoint in the answer of /v1/pools.
type Endpoint struct {
	Endpoint string   `json:"endpoint"`
	State    string   `json:"state"`
	Failures int      `json:"consecutive_failures"`
	InFlight int      `json:"in_flight"`
	Running  *float64 `json:"running"`
	Waiting  *float64 `json:"waiting"`
	KVUsage  *float64 `json:"kv_usage"`
	Age      *float64 `json:"signal_age_seconds"`
}

// Pools reads /v1/pools.
func (g *Gateway) Pools() ([]Model, error) {
	text, status, err := g.Get("/v1/pools")
	if err != nil || status != http.StatusOK {
		return nil, fmt.Errorf("GET /v1/pools: status %d, %w", status, err)
	}
	var list []Model
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("/v1/pools: %w", err)
	}
	return list, nil
}

// Resources is what a process holds.
type Resources struct {
	Goroutines int
	Sockets    int
	Files      int   // open file descriptors, sockets included
	RSS        int64 // bytes
	Heap       int64 // bytes of the Go heap in use
	Stacks     int64 // bytes of goroutines' stacks
	Series     int   // of the program's own on the metrics page
}

// Resources looks at the gateway's process.
func (g *Gateway) Resources() (Resources, Page, error) {
	p, err := g.Metrics()
	if err != nil {
		return Resources{}, p, err
	}
	r := Resources{
		Goroutines: int(p.Series["go_goroutines"]),
		Heap:       int64(p.Series["go_memstats_heap_inuse_bytes"]),
		Stacks:     int64(p.Series["go_memstats_stack_inuse_bytes"]),
		Series:     p.Kvasir(),
	}
	if r.Sockets, r.Files, err = files(g.PID); err != nil {
		return r, p, err
	}
	r.RSS, err = rss(g.PID)
	return r, p, err
}

// Max returns the larger of each.
func (r Resources) Max(o Resources) Resources {
	return Resources{max(r.Goroutines, o.Goroutines), max(r.Sockets, o.Sockets), max(r.Files, o.Files),
		max(r.RSS, o.RSS), max(r.Heap, o.Heap), max(r.Stacks, o.Stacks), max(r.Series, o.Series)}
}

// files counts the descriptors of a process.
func files(pid int) (sockets, all int, err error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	list, err := os.ReadDir(dir)
	if err != nil {
		return 0, 0, err
	}
	for _, e := range list {
		to, err := os.Readlink(dir + "/" + e.Name())
		if err != nil {
			continue // closed meanwhile
		}
		all++
		if strings.HasPrefix(to, "socket:") {
			sockets++
		}
	}
	return sockets, all, nil
}

// rss returns a process's resident memory.
func rss(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if kb, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmRSS", pid)
}

// Collected makes the gateway's process allocate, by reading its metrics, until its
// garbage collector has run twice: what is left in its heap then is in use.
func (g *Gateway) Collected(limit time.Duration) error {
	cycles := func() (float64, error) {
		p, err := g.Metrics()
		return p.Series["go_gc_duration_seconds_count"], err
	}
	first, err := cycles()
	for end := time.Now().Add(limit); err == nil && time.Now().Before(end); {
		var now float64
		if now, err = cycles(); now >= first+2 {
			return nil
		}
	}
	return err
}

// MiB prints bytes in MiB.
func MiB(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// Settled waits until ok says yes of the gateway's resources and page, and returns the last
// of both. It gives up after the limit; the bool says whether ok said yes.
func (g *Gateway) Settled(limit time.Duration, ok func(Resources, Page) bool) (Resources, Page, bool, error) {
	for end := time.Now().Add(limit); ; time.Sleep(200 * time.Millisecond) {
		r, p, err := g.Resources()
		if err != nil || ok(r, p) {
			return r, p, err == nil, err
		}
		if time.Now().After(end) {
			return r, p, false, nil
		}
	}
}
