package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"kvasir/test/endurance/internal/program"
)

// harmless are kinds of clients and plans of upstreams in which nothing is wrong.
var harmless = map[string]bool{"plain": true, "chunked body": true, "gzip body": true, "expect continue": true, "lists models": true, "whole": true, "endless": true}

// summary prints what a run comes to, in a few lines.
func (s *soak) summary() {
	t := s.book.Totals()
	line := func(what, format string, args ...any) {
		fmt.Fprintf(s.out, "%-16s %s\n", what, fmt.Sprintf(format, args...))
	}
	calls := 0
	for name, n := range s.book.Counts.All() {
		if strings.HasSuffix(name, "|calls") {
			calls += n
		}
	}
	line("calls", "%d in %v, %d clients at a time; %d records, %d attempts", calls, s.took.Round(time.Second), s.o.clients, t.Records, t.Attempts)
	line("upstream faults", "%s", injected(s.book.Faults.All(), "|last", "|retried", "|aborted"))
	line("client faults", "%s", injected(s.book.Counts.All(), "|calls"))
	hedges := func(outcome string) float64 { return s.page.Sum("kvasir_hedges_total", `outcome="`+outcome+`"`) }
	line("hedges", "%.0f won, %.0f lost, %.0f failed; the other attempt was aborted %s after the first content", hedges("won"), hedges("lost"), hedges("failed"), spread(t.Beaten))
	line("refused", "%s", listed(t.Refusals))
	line("over a limit", "%s", s.limited())
	line("out of rotation", "%.0f times, by a breaker or by health; %.0f calls ended at a model's second pool", s.page.Sum("kvasir_ejections_total"), s.spilled())
	line("retries", "%d; %.0f calls came again", t.Retries, s.page.Sum("kvasir_incoming_retries_total"))
	line("aborts", "%s", spread(t.Aborts))
	line("violations", "%d", s.book.Rules.Broken())
}

// injected lists the kinds that are a fault, of counters "kind|column" the sums of the columns.
func injected(all map[string]int, columns ...string) string {
	kinds, sum := map[string]int{}, 0
	for name, n := range all {
		kind, column, _ := strings.Cut(name, "|")
		if !harmless[kind] && slices.Contains(columns, "|"+column) {
			kinds[kind] += n
			sum += n
		}
	}
	return fmt.Sprintf("%d of %d kinds: %s", sum, len(kinds), listed(kinds))
}

// listed lists counters, the largest first.
func listed(counts map[string]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, counts[name])
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// spilled returns how many calls ended at a pool that is not its model's first.
func (s *soak) spilled() float64 {
	n := 0.0
	for _, m := range models {
		for _, p := range m.pools[1:] {
			n += s.page.Sum("kvasir_calls_total", `pool="`+p.name+`"`)
		}
	}
	return n
}

// limited lists what limits have refused, by whose limit it was and which.
func (s *soak) limited() string {
	counts := map[string]int{}
	s.page.Each("kvasir_limit_refusals_total", func(series string, v float64) {
		if v > 0 {
			counts[program.Label(series, "scope")+" "+program.Label(series, "limit")] += int(v)
		}
	})
	return listed(counts)
}

// spread is the median and the ends of what is sorted.
func spread(sorted []time.Duration) string {
	n := len(sorted)
	if n == 0 {
		return "never"
	}
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	return fmt.Sprintf("%d: %v (median), %v (99 %%), %v at most", n, round(sorted[n/2]), round(sorted[n*99/100]), round(sorted[n-1]))
}
