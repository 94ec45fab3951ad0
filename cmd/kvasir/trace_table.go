package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"kvasir/client/workload/trace"
)

// print writes a table for people.
func (d *described) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s: %s, %s in %s\n", d.File, d.Format, count(d.Calls, "call"), count(d.Sessions, "session"))
	if d.BadRecords > 0 {
		fmt.Fprintf(w, "  %d of %d records are bad and left out\n", d.BadRecords, d.Records)
	}
	if d.Estimated {
		fmt.Fprintln(w, "  token counts are estimates, at four bytes a token")
	}
	if d.DrawnRate > 0 {
		fmt.Fprintf(w, "  the file has no times: sessions come at %.4g a second, as a Poisson process\n", d.DrawnRate)
	}
	if d.WasSpreadSeconds > 0 {
		fmt.Fprintf(w, "  calls were spread within %.3g s of a rounded timestamp before this was written\n", d.WasSpreadSeconds)
	}
	if d.SpreadSeconds > 0 {
		fmt.Fprintf(w, "  timestamps are rounded: calls are spread within %.3g s (--raw leaves them)\n", d.SpreadSeconds)
	}
	fmt.Fprint(t, "\narrivals\tspan s\ta second\tCV of gaps\tpeak/mean 1 s\t10 s\t60 s\t\n")
	arrivalsRow(t, "calls", d.CallArrivals)
	arrivalsRow(t, "calls, raw", d.Raw)
	if d.Sessions != d.Calls {
		arrivalsRow(t, "sessions", d.SessionArrivals)
	}
	fmt.Fprint(t, "\n\tmean\tCV\tp50\tp95\tp99\tmost\t\n")
	distributionRow(t, "prompt tokens", d.PromptTokens)
	distributionRow(t, "output tokens", d.OutputTokens)
	distributionRow(t, "calls a session", d.CallsPerSession)
	distributionRow(t, "gap s, from answer to next call", d.Gaps)
	if d.Reuse != nil {
		distributionRow(t, "reused prefix: calls ago", d.Reuse.CallsAgo)
		distributionRow(t, "reused prefix: seconds ago", d.Reuse.SecondsAgo)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, d.reuse(), "\n")
	return err
}

// brief writes a number with four digits, or all where it is whole.
func brief(f float64) string {
	if f >= 1000 || f == float64(int64(f)) {
		return fmt.Sprintf("%.0f", f)
	}
	return fmt.Sprintf("%.3g", f)
}

func arrivalsRow(w io.Writer, name string, a *trace.Arrivals) {
	if a == nil {
		return
	}
	fmt.Fprintf(w, "%s\t%.0f\t%.4g\t%.2f\t", name, a.SpanSeconds, a.PerSecond, a.InterarrivalCV)
	for _, p := range a.Peaks {
		if p.OfMean == nil {
			fmt.Fprint(w, "-\t")
		} else {
			fmt.Fprintf(w, "%.2f\t", *p.OfMean)
		}
	}
	fmt.Fprint(w, "\n")
}

func distributionRow(w io.Writer, name string, d *trace.Distribution) {
	if d == nil {
		return
	}
	fmt.Fprintf(w, "%s\t%s\t%.2f\t%s\t%s\t%s\t%s\t\n", name, brief(d.Mean), d.CV, brief(d.P50), brief(d.P95), brief(d.P99), brief(d.Max))
}

// reuse tells in words what caches would find.
func (d *described) reuse() string {
	r := d.Reuse
	if r == nil {
		return "\nnothing is known of prefixes\n"
	}
	var b strings.Builder
	share := func(f float64) string { return fmt.Sprintf("%.1f %%", 100*f) }
	fmt.Fprintf(&b, "\nreuse, of %d prompt blocks of %d tokens (%d distinct)\n", r.Blocks, d.BlockTokens, r.DistinctBlocks)
	fmt.Fprintf(&b, "  a cache that forgets nothing      %s (%s where answers are not cached)\n", share(r.Infinite), share(r.InfinitePrompts))
	fmt.Fprintf(&b, "  by call                           mean %s, p50 %s; %s of calls find something\n", share(r.PerCallMean), share(r.PerCallP50), share(r.CallsHit))
	for _, l := range r.LRU {
		fmt.Fprintf(&b, "  one LRU cache of %4.1f M tokens    %s\n", float64(l.CacheTokens)/1e6, share(l.Share))
	}
	if len(r.Top) > 0 {
		b.WriteString("\nshared prefixes that save most\n")
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprint(t, "tokens\tcalls\t\n")
		for _, p := range r.Top {
			fmt.Fprintf(t, "%d\t%d\t\n", p.Tokens, p.Calls)
		}
		_ = t.Flush() // a Builder never fails
	}
	return b.String()
}

// printHead writes sessions with a line for each call. It returns how many there were.
func printHead(w io.Writer, t *trace.Trace) (sessions int, err error) {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "session\tat\tclass\tcall\tafter\tgap\toffset\tprompt\toutput\tblocks\tanswer's\t\n")
	for s, err := range t.Sessions {
		if err != nil {
			return sessions, err
		}
		sessions++
		for i := range s.Calls {
			c := &s.Calls[i]
			id, at, class := "", "", ""
			if i == 0 {
				id, at, class = s.ID, s.At.Round(time.Millisecond).String(), s.Class
			}
			after := strings.Trim(fmt.Sprint(c.After), "[]")
			fmt.Fprintf(out, "%s\t%s\t%s\t%d\t%s\t%v\t%v\t%d\t%d\t%d\t%d\t\n", id, at, class, i, after,
				c.Gap.Round(time.Millisecond), c.Offset.Round(time.Millisecond), c.PromptTokens, c.OutputTokens, len(c.Blocks), len(c.AnswerBlocks))
		}
	}
	return sessions, out.Flush()
}
