package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"kvasir/client/arrival"
	"kvasir/client/load"
	"kvasir/client/load/report"
	"kvasir/client/workload"
	"kvasir/engine/emulator"
)

// demoFaults lists the faults of --fault by name.
var demoFaults = []struct {
	name string
	rate func(*emulator.Faults) *float64
}{
	{"stall", func(f *emulator.Faults) *float64 { return &f.Stall }},
	{"reset", func(f *emulator.Faults) *float64 { return &f.Reset }},
	{"error-event", func(f *emulator.Faults) *float64 { return &f.StreamError }},
	{"429", func(f *emulator.Faults) *float64 { return &f.Limit }},
	{"500", func(f *emulator.Faults) *float64 { return &f.Error }},
	{"503", func(f *emulator.Faults) *float64 { return &f.Overload }},
}

// parseDemoFaults reads faults with their shares, such as stall=0.01,429=0.05.
func parseDemoFaults(text string) (emulator.Faults, error) {
	f := emulator.Faults{Afresh: true}
	var names []string
	for _, d := range demoFaults {
		names = append(names, d.name)
	}
parts:
	for part := range strings.SplitSeq(text, ",") {
		name, share, _ := strings.Cut(strings.TrimSpace(part), "=")
		for _, d := range demoFaults {
			if d.name != name {
				continue
			}
			x, err := strconv.ParseFloat(share, 64)
			if err != nil || !(x >= 0 && x <= 1) {
				return f, fmt.Errorf("%s is %q; allowed: a share of the calls, 0 to 1", name, share)
			}
			*d.rate(&f) = x
			continue parts
		}
		return f, fmt.Errorf("%q is no fault; allowed: %s, each with a share of the calls, such as stall=0.01", name, strings.Join(names, ", "))
	}
	if err := f.Validate(); err != nil {
		return f, fmt.Errorf("%q: together they are more than all calls", text)
	}
	return f, nil
}

// openLoad sends calls at a rate, however slow or broken the answers are, and counts what its
// clients see of them.
type openLoad struct {
	seen chan clientView
	stop context.CancelFunc
}

// clientView is what clients saw of the calls that have ended.
type clientView struct {
	calls, whole int
	before       map[report.Failure]int // failed before any content
	after        map[report.Failure]int // failed afterwards
	example      string                 // of a failure before content
}

func (v *clientView) add(s *report.Sample) {
	switch {
	case s.Failure == report.Unfinished || s.Failure == report.Unsent:
		return // the run's end, not the gateway's
	case s.Failure == "":
		v.whole++
	case s.Outputs.N == 0:
		v.before[s.Failure]++
		v.example = s.Detail
	default:
		v.after[s.Failure]++
	}
	v.calls++
}

// startOpenLoad begins to send sessions of one chat turn each.
func startOpenLoad(ctx context.Context, base string, rate float64) (*openLoad, error) {
	mix, err := workload.Parse("chat-turn")
	if err != nil {
		return nil, err
	}
	const seed = 1
	process := arrival.Poisson{Rate: rate}
	source, err := workload.Generate("demo", mix, seed, process.Instants(seed))
	if err != nil {
		return nil, err
	}
	target := &load.Target{BaseURL: base, Backend: chatBackend(), Model: demoModel}
	if err := target.Prepare(); err != nil {
		return nil, err
	}
	o := &openLoad{seen: make(chan clientView, 1)}
	ctx, o.stop = context.WithCancel(ctx)
	v := clientView{before: map[report.Failure]int{}, after: map[report.Failure]int{}}
	client := load.NewClient()
	b := load.Bench{
		Target: target, Client: client, Source: source, Text: workload.Text{BlockTokens: source.BlockTokens},
		Arrivals: process.Instants(seed), Ended: v.add,
	}
	go func() {
		defer client.CloseIdleConnections()
		_, _ = b.Run(ctx) // why it ends is the demo's own end
		o.seen <- v
	}()
	return o, nil
}

func chatBackend() load.Backend {
	for _, b := range load.Backends() {
		if b.Name == "openai-chat" {
			return b
		}
	}
	panic("no backend openai-chat")
}

// end stops sending and returns what was seen.
func (o *openLoad) end() clientView {
	o.stop()
	return <-o.seen
}

// print says what clients saw: failures before content, which another attempt should have
// hidden, and how answers ended that broke after it.
func (v *clientView) print(out io.Writer) {
	sum := func(m map[report.Failure]int) (n int) {
		for _, c := range m {
			n += c
		}
		return n
	}
	share := func(n int) string { return fmt.Sprintf("%.3f %%", 100*float64(n)/float64(max(v.calls, 1))) }
	before, after := sum(v.before), sum(v.after)
	fmt.Fprintf(out, "what clients saw of %d calls:\n", v.calls)
	fmt.Fprintf(out, "  answered whole         %7d  %s\n", v.whole, share(v.whole))
	fmt.Fprintf(out, "  failed before content  %7d  %s%s\n", before, share(before), kinds(v.before))
	fmt.Fprintf(out, "  broke after content    %7d  %s%s\n", after, share(after), kinds(v.after))
	if v.example != "" {
		fmt.Fprintf(out, "  one that failed before content: %.160s\n", v.example)
	}
}

// kinds lists failures by kind.
func kinds(m map[report.Failure]int) string {
	var list []string
	for _, kind := range []report.Failure{report.StreamError, report.Broken, report.Empty, report.ConnectFailed, report.NoStream, report.Exhausted, report.Overdue} {
		if n := m[kind]; n > 0 {
			list = append(list, fmt.Sprintf("%s %d", kind, n))
		}
	}
	for status := http.StatusBadRequest; status < 600; status++ {
		if n := m[report.Failure(fmt.Sprintf("http_%d", status))]; n > 0 {
			list = append(list, fmt.Sprintf("status %d: %d", status, n))
		}
	}
	if len(list) == 0 {
		return ""
	}
	return "  (" + strings.Join(list, ", ") + ")"
}

// Under faults the demo gives up an answer sooner than the defaults do, so that one that
// stalls is seen in a run of a minute, and makes one attempt more: one call in fifteen fails before
// its content, and of so many in a row a call in a few thousand.
const (
	demoAttempts   = 3 // beside the first
	demoFirstToken = 5 * time.Second
	demoProgress   = 3 * time.Second
)
