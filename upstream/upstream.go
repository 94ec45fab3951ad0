// Package upstream has no layer, pure: the dialects of what answers calls. A Dialect
// says where an engine reports its load and how to read that report. It knows bytes
// and numbers only; selection/observe does the asking.
package upstream

import (
	"fmt"
	"strings"

	"kvasir/internal/mono"
	"kvasir/selection/signal"
)

// MaxPage is the size in bytes up to which a page of metrics is read; a longer one is
// an error. vLLM's pages have 50 to 200 KiB, and grow with engines and adapters.
const MaxPage = 8 << 20

// Dialect is one engine's way of talking. A Dialect is a value without state: safe for
// concurrent use.
type Dialect struct {
	Name        string // as in the configuration file
	MetricsPath string // path of the metrics page under the endpoint's URL

	// ReadLoad reads a page of metrics that was true at the instant at. What the page
	// doesn't say, or says in numbers that can't be, stays unknown in the Load and is
	// named in the Report. The page isn't changed or kept.
	ReadLoad func(page []byte, at mono.Time) (signal.Load, Report)
}

// Report says what was amiss with a page of metrics. The zero Report: nothing.
type Report struct {
	Samples   int      // samples read that the dialect wants
	BadLines  int      // lines skipped as malformed
	BadValues int      // of the Samples, those ignored as impossible: NaN, infinite, negative, a share above 1
	Missing   []string // what of a Load's moving numbers the page doesn't tell: running, waiting, kv_usage
}

// Clean says whether the page was as it should be.
func (r Report) Clean() bool { return r.BadLines == 0 && r.BadValues == 0 && len(r.Missing) == 0 }

// catalog is the only list of dialects.
func catalog() []Dialect {
	return []Dialect{
		VLLM(),
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
