// Package upstream has no layer, pure: the dialects of what answers calls. A Dialect
// says where an engine reports its load and its health, and how to read that report. It
// knows bytes and numbers only; selection/observe does the asking.
package upstream

import (
	"fmt"
	"strings"

	"kvasir/internal/mono"
	"kvasir/selection/signal"
)

// MaxPage is the size in bytes up to which a page is read; a longer one is an error.
// vLLM's metrics have 50 to 200 KiB, and grow with engines and adapters.
const MaxPage = 8 << 20

// Dialect is one engine's way of talking. A Dialect is a value without state: safe for
// concurrent use. Paths are under the endpoint's URL.
type Dialect struct {
	Name        string // as in the configuration file
	HealthPath  string // answers 2xx to a GET while the engine can serve
	MetricsPath string // the metrics page

	// CacheSalt says whether the engine takes a body's field cache_salt, which keeps the
	// prefixes of calls with another one, or with none, apart.
	CacheSalt bool

	// GoOn are fields of a chat's body, each with a comma behind it, which make the engine go on
	// with the last message, the assistant's own, and not begin a new one; "": it can't.
	GoOn string

	// ReadLoad reads the metrics page.
	ReadLoad Reader

	// LoadPages are pages that tell the load better than the metrics do: fresher, by
	// rank, or more of it. Best first; the first one that an endpoint has is read
	// beside the metrics page (see Join), or alone where that isn't served.
	LoadPages []LoadPage
}

// LoadPage is a page that tells the load.
type LoadPage struct {
	Path string // with its query
	Read Reader
}

// Reader reads a page that was true at the instant at. What the page doesn't say, or
// says in numbers that can't be, stays unknown in the Load and is named in the Report.
// The page isn't changed or kept.
type Reader func(page Page, at mono.Time) (signal.Load, Report)

// Page is an engine's answer.
type Page struct {
	Body   []byte
	Header func(name string) string // a header field's first value, "" where there is none; may be nil
}

func (p Page) header(name string) string {
	if p.Header == nil {
		return ""
	}
	return p.Header(name)
}

// Report says what was amiss with what an engine said of its load. The zero Report:
// nothing.
type Report struct {
	Samples   int      // numbers read that the dialect wants
	BadLines  int      // lines skipped as malformed; a page of JSON is one line
	BadValues int      // of the Samples, those ignored as impossible: NaN, infinite, negative, a share above 1, no number at all
	Missing   []string // what of a Load's moving numbers isn't told: running, waiting, kv_usage
	Failed    error    // why one of two pages could not be had, though the endpoint should have it; set by who asks
}

// Clean says whether all was as it should be.
func (r Report) Clean() bool {
	return r.BadLines == 0 && r.BadValues == 0 && len(r.Missing) == 0 && r.Failed == nil
}

// Join makes one report of what an engine's metrics page and a better one of its pages
// said at one moment. What both tell is as the better page has it, and what one tells is
// kept; but constants are as the metrics page has them, for the better page may count
// the same cache in other blocks.
func Join(metrics signal.Load, r Report, better signal.Load, br Report) (signal.Load, Report) {
	ranks := metrics.Ranks.Join(better.Ranks)
	if metrics.KVBlocks.Known {
		better.KVBlocks, better.BlockTokens = signal.Gauge{}, signal.Gauge{}
	}
	metrics.Merge(better)
	metrics.Ranks = ranks
	joined := Report{
		Samples:   r.Samples + br.Samples,
		BadLines:  r.BadLines + br.BadLines,
		BadValues: r.BadValues + br.BadValues,
		Missing:   missing(&metrics),
		Failed:    r.Failed,
	}
	if joined.Failed == nil {
		joined.Failed = br.Failed
	}
	return metrics, joined
}

// missing names the moving numbers that a Load doesn't tell.
func missing(l *signal.Load) []string {
	var names []string
	for _, m := range [...]struct {
		name  string
		gauge *signal.Gauge
	}{{"running", &l.Running}, {"waiting", &l.Waiting}, {"kv_usage", &l.KVUsage}} {
		if !m.gauge.Known {
			names = append(names, m.name)
		}
	}
	return names
}

// catalog is the only list of dialects.
func catalog() []Dialect {
	return []Dialect{
		VLLM(),
		SGLang(),
		LlamaCPP(),
	}
}

// Lookup returns the dialect of a name, or an error that lists the names there are.
func Lookup(name string) (Dialect, error) {
	for _, d := range catalog() {
		if d.Name == name {
			return d, nil
		}
	}
	return Dialect{}, fmt.Errorf("engine: %q is not known; allowed: %s", name, strings.Join(Names(), ", "))
}

// Names returns the names of all dialects.
func Names() []string {
	var names []string
	for _, d := range catalog() {
		names = append(names, d.Name)
	}
	return names
}
