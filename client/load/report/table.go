package report

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// tableWidth is how wide vLLM's table is; ours has a second column beside it.
const tableWidth = 64

// Table writes the result as vLLM's benchmark prints it, with two columns for what is
// counted from two instants.
func (r *Result) Table(w io.Writer) error {
	t := table{r: r}
	t.title(" Serving Benchmark Result ", '=')
	t.verdict()
	t.counts()
	t.rates()
	for _, m := range r.shown() {
		t.metric(m)
	}
	t.generator()
	t.groups("Endpoint", r.Endpoints)
	t.groups("Class", r.Classes)
	t.sessions()
	t.spans()
	t.add("%s\n", strings.Repeat("=", tableWidth))
	_, err := io.WriteString(w, t.text.String())
	return err
}

type table struct {
	r    *Result
	text strings.Builder
}

func (t *table) add(format string, args ...any) { fmt.Fprintf(&t.text, format, args...) }

func (t *table) title(s string, fill byte) {
	room := max(tableWidth-len([]rune(s)), 0)
	t.add("%s%s%s\n", strings.Repeat(string(fill), room/2), s, strings.Repeat(string(fill), room-room/2))
}

func (t *table) row(name string, values ...string) {
	t.add("%-40s", name)
	for _, v := range values {
		t.add(" %11s", v)
	}
	t.add("\n")
}

// verdict says what keeps the numbers from meaning what they seem to.
func (t *table) verdict() {
	for _, why := range t.r.Invalid() {
		t.add("INVALID: %s\n", why)
	}
	if t.r.late() {
		t.add("  what helps: %s\n", againstLag)
	}
	if !t.r.Complete() {
		why := t.r.Stopped
		if why == "" {
			why = "calls were cut off"
		}
		t.add("INCOMPLETE: %s\n", why)
	}
	if t.r.Failed > 0 {
		t.add("FAILURES: %d of %d calls failed; no latency below has them in it\n", t.r.Failed, t.r.Completed+t.r.Failed)
	}
	if t.r.ClosedLoop != "" {
		t.add("CLOSED LOOP: %s\n", t.r.ClosedLoop)
	}
}

func (t *table) counts() {
	r := t.r
	t.row("Successful requests:", count(r.Completed))
	t.row("Failed requests:", count(r.Failed))
	for _, f := range r.Failures {
		t.row("  "+string(f.Kind)+":", count(f.Calls))
		t.add("    first: %s\n", f.Example)
	}
	t.some("Bad events, which are no outputs:", r.BadEvents)
	t.some("Cut off by the run's end:", r.Unfinished)
	t.some("Not yet sent at the run's end:", r.Unsent)
	t.some("Not sent after an earlier call failed:", r.Skipped)
	if r.MaxConcurrency > 0 {
		t.row("Maximum request concurrency:", count(r.MaxConcurrency))
	}
	switch {
	case r.Ramp.Strategy != "":
		t.row("Request rate configured (RPS):", number(r.Ramp.Start)+" to "+number(r.Ramp.End))
	case math.IsInf(r.Rate, 1):
		t.row("Request rate configured (RPS):", "inf")
	case !math.IsNaN(r.Rate):
		t.row("Request rate configured (RPS):", number(r.Rate))
	}
	t.row("Benchmark duration (s):", number(r.Duration.Seconds()))
	t.row("Total input tokens:", count(r.Tokens.Input))
	t.row("Total generated tokens:", count(r.Tokens.Output))
	t.some("  requests without usage of input:", r.Tokens.NoInput)
	t.some("  requests without usage of output:", r.Tokens.NoOutput)
	if r.Tokens.CachedOf > 0 {
		t.row("Cached input tokens:", count(r.Tokens.Cached), share(r.Tokens.CachedRatio()))
	}
}

func (t *table) rates() {
	r := t.r
	t.row("Request rate offered (req/s):", number(r.Offered()))
	t.row("Request rate sent (req/s):", number(r.SendRate()))
	t.row("Request throughput (req/s):", number(r.Throughput()))
	if len(r.SLO) > 0 {
		t.row("Request goodput (req/s):", number(r.Goodput()), share(r.Attainment()))
		t.add("  of all that ended, those with %s\n", r.SLO)
	}
	t.row("Output token throughput (tok/s):", number(r.perSecond(r.Tokens.Output)))
	t.row("Peak streamed outputs per second:", number(r.peakOutputs()))
	t.row("Peak concurrent requests:", count(r.Peak))
	t.row("Total token throughput (tok/s):", number(r.perSecond(r.Tokens.Input+r.Tokens.Output)))
}

// metric writes a quantity, of two kinds first from the intended send.
func (t *table) metric(m shownMetric) {
	t.title(m.title, '-')
	columns := []*Distribution{m.actual}
	if m.intended != nil {
		columns = []*Distribution{m.intended, m.actual}
		t.row("counted from", "intended", "actual send")
	}
	line := func(what string, of func(*Distribution) float64) {
		var values []string
		for _, d := range columns {
			values = append(values, number(of(d)*1e3))
		}
		t.row(what+" "+m.short+" (ms):", values...)
	}
	line("Mean", (*Distribution).Mean)
	line("Median", func(d *Distribution) float64 { return d.Quantile(0.5) })
	for _, p := range t.r.Percentiles {
		if p != 50 {
			line(strings.ToUpper(percentile(p)), func(d *Distribution) float64 { return d.Quantile(p / 100) })
		}
	}
	line("Max", (*Distribution).Max)
}

// generator says how well calls were sent when they should have been.
func (t *table) generator() {
	lag := &t.r.Lag
	t.title("Generator", '-')
	t.row("Lag P50, P99 (ms):", number(lag.Quantile(0.5)*1e3), number(lag.Quantile(0.99)*1e3))
	t.row("Lag max, bound on P99 (ms):", number(lag.Max()*1e3), number(t.r.LagBound.Seconds()*1e3))
	if t.r.MaxConcurrency > 0 {
		t.row("Wait for concurrency P50, P99 (ms):", number(t.r.Held.Quantile(0.5)*1e3), number(t.r.Held.Quantile(0.99)*1e3))
	}
}

func (t *table) groups(what string, groups []*Group) {
	if len(groups) == 0 {
		return
	}
	t.title(what, '-')
	t.add("%-24s %8s %7s %10s %10s\n", "", "requests", "failed", "P99 TTFT", "cached")
	for _, g := range groups {
		t.add("%-24s %8d %7d %10s %10s\n", g.Name, g.Completed, g.Failed, number(g.TTFT.Quantile(0.99)*1e3), share(g.Tokens.CachedRatio()))
	}
}

// sessions writes how long sessions took, where they are more than single calls.
func (t *table) sessions() {
	r := t.r
	if r.Sessions == 0 || r.Sessions == r.Sent {
		return
	}
	t.title("Sessions", '-')
	t.row("Completed, failed:", count(r.Sessions-r.FailedSessions), count(r.FailedSessions))
	t.row("Completion mean, median (s):", number(r.Completion.Mean()), number(r.Completion.Quantile(0.5)))
	t.row("Completion P95, max (s):", number(r.Completion.Quantile(0.95)), number(r.Completion.Max()))
}

func (t *table) spans() {
	if len(t.r.Spans) == 0 {
		return
	}
	t.title("Where the time went, in the mean", '-')
	t.row("TTFT at the client, actual send (ms):", number(t.r.TTFT.Actual.Mean()*1e3))
	for _, s := range t.r.Spans {
		t.row(s.Name+" (ms):", number(s.Mean*1e3))
		t.add("  says %s, of %d calls\n", s.Source, s.Calls)
	}
}

// some writes a count that is not 0.
func (t *table) some(name string, n int) {
	if n > 0 {
		t.row(name, count(n))
	}
}

func count(n int) string { return fmt.Sprint(n) }

// number writes with two decimals; "-" where nothing was measured.
func number(v float64) string {
	if finite(v) == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}

// againstLag is what helps a generator that falls behind.
const againstLag = "fewer calls a second of one generator (several share a rate), more CPU for it, or a wider --lag-bound"

// percent writes a bound as short as it is exact.
func percent(v float64) string {
	return strconv.FormatFloat(math.Round(v*1e8)/1e6, 'f', -1, 64) + " %"
}

func share(v float64) string {
	if finite(v) == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*v)
}
