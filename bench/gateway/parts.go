package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// part is a piece of a Go gateway's work, told by functions that its stacks have.
type part struct {
	name   string
	frames []string // parts of functions' names; one in the stack is enough
}

// parts are asked in this order, so what others do on behalf of all, like the collector,
// comes first, and what holds everything, like the server's loop, comes last.
var parts = []part{
	{"runtime: collector", []string{"runtime.gcBgMarkWorker", "runtime.bgsweep", "runtime.gcAssist", "runtime.gcStart", "runtime.bgscavenge", "runtime.deductSweepCredit"}},
	{"runtime: sysmon", []string{"runtime.sysmon"}},
	{"kvasir: call log", []string{"telemetry.LogCall", "telemetry.(*Lines)"}},
	{"kvasir: scrapes and probes", []string{"selection/observe"}},
	{"kvasir: metrics", []string{"telemetry.(*Metrics)", "telemetry.(*Pool)"}},
	{"kvasir: read the body in", []string{"proxy.readBody"}},
	{"kvasir: find the fields", []string{"api.(*Reader).Read"}},
	{"kvasir: decode and hash the prompt", []string{"api.(*Reader).Prompt"}},
	{"kvasir: prefix index", []string{"selection/prefix."}},
	{"kvasir: pick and account", []string{"proxy.(*router)"}},
	{"kvasir: look into the answer", []string{"api.(*BodyScanner)", "proxy.(*call).look", "api/sse."}},
	{"kvasir: build headers", []string{"proxy.requestHeader", "proxy.copyResponseHeader"}},
	{"contexts, traces, deadlines", []string{"context.With", "context.(*", "httptrace.", "proxy.(*connWatch)", "proxy.(*call).readyToWrite", "SetReadDeadline", "SetWriteDeadline"}},
	{"client: send", []string{"http.(*persistConn).writeLoop"}},
	{"client: receive", []string{"http.(*persistConn).readLoop", "http.(*bodyEOFSignal)"}},
	{"client: round trip", []string{"http.(*Transport).RoundTrip", "http.(*Transport).roundTrip"}},
	{"server: answer", []string{"http.(*response)", "http.(*ResponseController).Flush"}},
	{"server: read the request", []string{"http.(*conn).readRequest", "http.(*connReader).backgroundRead"}},
	{"ReverseProxy: the rest", []string{"httputil."}},
	{"kvasir: the rest", []string{"kvasir/gateway/proxy."}},
	{"server: the rest", []string{"http.(*conn).serve"}},
	{"runtime: scheduler and network poller", []string{"runtime.mcall", "runtime.schedule", "runtime.morestack", "runtime.mstart"}},
}

const otherPart = "other"

// share is what one part takes of the samples, and how much of that in the kernel.
type share struct {
	name          string
	total, kernel int
}

// readStacks counts the samples that perf script prints, with -F comm,ip,sym: a line that
// names the process, a line a frame from the innermost on, a blank line.
func readStacks(r io.Reader) ([]share, int) {
	counts := map[string]*share{}
	samples := 0
	count := func(stack []string) {
		if len(stack) < 2 {
			return
		}
		samples++
		name := partOf(stack[1:])
		s := counts[name]
		if s == nil {
			s = &share{name: name}
			counts[name] = s
		}
		s.total++
		if slices.ContainsFunc(stack[1:], inKernel) {
			s.kernel++
		}
	}
	var stack []string
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" {
			stack = append(stack, line)
			continue
		}
		count(stack)
		stack = stack[:0]
	}
	count(stack)
	var out []share
	for _, s := range counts {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b share) int {
		if a.total != b.total {
			return b.total - a.total
		}
		return strings.Compare(a.name, b.name)
	})
	return out, samples
}

func partOf(stack []string) string {
	for _, p := range parts {
		for _, frame := range stack {
			if slices.ContainsFunc(p.frames, func(f string) bool { return strings.Contains(frame, f) }) {
				return p.name
			}
		}
	}
	return otherPart
}

// inKernel reports whether a frame is one of the kernel's entries.
func inKernel(frame string) bool {
	return strings.Contains(frame, "entry_SYSCALL") || strings.Contains(frame, "asm_")
}

// printParts prints the parts with their share of the CPU time of a call.
func printParts(w io.Writer, shares []share, samples int, call time.Duration) {
	us := float64(call) / float64(time.Microsecond) / float64(max(samples, 1))
	fmt.Fprintf(w, "%.1f µs a call, of that in the kernel in brackets; %d samples\n", us*float64(samples), samples)
	for _, s := range shares {
		fmt.Fprintf(w, "%5.1f %%  %8.2f µs  (%7.2f)  %s\n", 100*float64(s.total)/float64(samples), us*float64(s.total), us*float64(s.kernel), s.name)
	}
}
