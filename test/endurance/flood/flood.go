package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kvasir/test/endurance/internal/client"
	"kvasir/test/endurance/internal/ledger"
	"kvasir/test/endurance/internal/program"
	"kvasir/test/endurance/internal/report"
	"kvasir/test/endurance/internal/upstream"
)

// flood is one run.
type flood struct {
	o         options
	out       io.Writer
	binary    *program.Binary
	gateway   *program.Gateway
	book      *ledger.Book
	upstreams []*upstream.Server

	next              atomic.Uint64
	open              atomic.Int64
	base, peak, after program.Resources
	inFlight          float64 // most calls in flight seen
	took              time.Duration
	files             uint64
	settled           time.Duration

	stop     chan struct{}
	watchers sync.WaitGroup
}

const endpoints = 4

func newFlood(out io.Writer, o options) (*flood, error) {
	f := &flood{o: o, out: out, stop: make(chan struct{})}
	var err error
	// A stream is three descriptors here, two in the gateway, and as many again are idle.
	if f.files, err = program.RaiseFiles(uint64(o.streams)*8 + 1024); err != nil {
		return nil, err
	}
	if f.files < uint64(o.streams)*4 {
		return nil, fmt.Errorf("%d streams need %d open files, the system allows %d", o.streams, o.streams*4, f.files)
	}
	f.book = ledger.New(report.NewRules(ledger.Invariants...), ledger.Limits{
		Attempts: 3, AbortBound: o.abort, CallBound: streamBound(o), Settle: 2 * time.Second})
	if f.binary, err = program.Build(o.binary); err != nil {
		return nil, err
	}
	var list []string
	for i := range endpoints {
		u, err := upstream.Start(f.book, upstream.Config{Name: fmt.Sprintf("e%d", i), Sites: map[string]upstream.Site{"/f": {Served: "flood"}}, Script: f.plan})
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		f.upstreams = append(f.upstreams, u)
		list = append(list, fmt.Sprintf("{url: \"http://%s/f\", name: e%d}", u.Addr(), i))
	}
	config := fmt.Sprintf("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nseed: %d\nprefix:\n  index: 8MiB\nmodels:\n  flood:\n    policy: least-outstanding\n    signals: {scrape: 0s}\n    endpoints: [%s]\n",
		o.seed, strings.Join(list, ", "))
	file, err := f.binary.WriteConfig("flood.yaml", config)
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	if f.gateway, err = f.binary.StartGateway(f.binary.Dir, file, nil, f.book.Line); err != nil {
		return nil, errors.Join(err, f.close())
	}
	time.Sleep(time.Second)
	f.base, _, err = f.gateway.Resources()
	return f, err
}

// streamBound is how long a stream may take at most: its own pace, and as much again.
func streamBound(o options) time.Duration {
	return 2*time.Duration(o.events)*o.every + 30*time.Second
}

func (f *flood) close() error {
	var err error
	if f.gateway != nil {
		err = f.gateway.Stop(40 * time.Second)
	}
	for _, u := range f.upstreams {
		u.Close()
	}
	f.book.Close()
	return errors.Join(err, f.binary.Clean())
}

// plan paces a stream: an event each so often.
func (f *flood) plan(_ *upstream.Server, _ string, c *ledger.Call, mark string, _ int) *upstream.Plan {
	r := rand.New(rand.NewPCG(f.o.seed, c.Number<<1|1))
	n, size := 2+r.IntN(f.o.events-1), 20+r.IntN(200)
	p := &upstream.Plan{Fault: c.Kind, Status: 200, Rand: r, Whole: true, Final: true, Classes: []string{"success"}}
	if c.Kind == kindNames[slow] {
		size = 4096
	}
	a := upstream.Events(r, c.Route, "flood", mark, n, size)
	p.Type, p.Text, p.Cut = a.Type, []byte(a.Text), len(a.Text)
	p.MaxPiece, p.Each = len(a.Text)/n+1, f.o.every
	if c.Kind == kindNames[stuck] {
		text := strings.ReplaceAll(upstream.Events(r, c.Route, "flood", mark, 4, 16<<10).Text, "data: [DONE]\n\n", "")
		p.Text, p.Endless = []byte(text), true
	}
	return p
}

const (
	stays = iota
	leaves
	slow
	stuck
)

var kindNames = []string{"stays", "leaves", "slow reader", "does not read"}

// call makes call number n.
func (f *flood) call(n uint64) (*ledger.Call, *client.Behaviour) {
	r := rand.New(rand.NewPCG(f.o.seed, n<<1))
	kind := stays
	switch k := r.IntN(1000); {
	case k < 250:
		kind = leaves
	case k < 350:
		kind = slow
	case k < 355:
		kind = stuck
	}
	c := &ledger.Call{ID: fmt.Sprintf("flood-%d", n), Number: n, Kind: kindNames[kind], Ask: ledger.Ask{
		Route: "/v1/chat/completions", Model: "flood", Stream: true,
		Body: fmt.Appendf(nil, `{"model":"flood","stream":true,"messages":[{"role":"user","content":"%s"}]}`, strings.Repeat("word ", r.IntN(200)))}}
	b := &client.Behaviour{Wire: fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: gateway\r\nX-Request-Id: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", c.Route, c.ID, len(c.Body), c.Body)}
	switch kind {
	case stays:
		b.Reuse = r.IntN(2) == 0
	case leaves:
		c.Expect.Leaves = true
		b.Leave, b.Delay = client.AfterTime, time.Duration(r.Int64N(int64(f.o.every)*int64(f.o.events)/2))+20*time.Millisecond
		b.How = []client.How{client.FIN, client.RST}[r.IntN(2)]
	case slow:
		b.Receive, b.ReadPiece, b.ReadPause = 4096, 1024, time.Duration(5+r.IntN(40))*time.Millisecond
	case stuck:
		c.Expect.Leaves = true
		b.Receive, b.Stuck, b.StuckFor = 2048, true, time.Duration(2+r.IntN(6))*time.Second
		b.StuckFor = min(b.StuckFor, f.o.length)
	}
	return c, b
}

// load keeps the streams open until the time is over, then lets them end.
func (f *flood) load() {
	fmt.Fprintf(f.out, "flood: %d streams for %v, seed %d, an event each %v, up to %d a stream; %d open files allowed\n\n", f.o.streams, f.o.length, f.o.seed, f.o.every, f.o.events, f.files)
	began := time.Now()
	f.watchers.Go(f.watch)
	var clients sync.WaitGroup
	ramp := min(f.o.length/6, 5*time.Second)
	for i := range f.o.streams {
		clients.Go(func() {
			time.Sleep(ramp * time.Duration(i) / time.Duration(f.o.streams))
			w := &client.Worker{Addr: f.gateway.Addr, Bound: streamBound(f.o)}
			defer w.Close()
			for time.Since(began) < f.o.length {
				c, b := f.call(f.next.Add(1))
				f.book.Begin(c)
				f.open.Add(1)
				r := w.Do(b)
				f.open.Add(-1)
				f.book.Finish(c, r)
			}
		})
	}
	clients.Wait()
	f.took = time.Since(began)
	close(f.stop)
	f.watchers.Wait()
}

// watch samples what the gateway holds.
func (f *flood) watch() {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-f.stop:
			return
		case <-tick.C:
		}
		r, page, err := f.gateway.Resources()
		if !f.book.Rules.Check(err == nil, "join", "", "the gateway's metrics", "%v", err) {
			continue
		}
		f.peak = f.peak.Max(r)
		f.inFlight = max(f.inFlight, page.Sum("kvasir_calls_in_flight"))
		for _, name := range []string{"kvasir_in_flight", "kvasir_calls_in_flight", "kvasir_buffered_bytes"} {
			page.Each(name, func(series string, v float64) {
				f.book.Rules.Check(v >= 0, "3", "", series+" not negative", "%v", v)
			})
		}
	}
}

// What the runtime and idle connections may hold more than at the start.
const (
	slackGoroutines = 12
	slackFiles      = 6
	slackRSS        = 128 << 20 // the runtime gives memory back to the system slowly
)

// settle waits until the gateway is at rest, and checks that it is where it was.
func (f *flood) settle() error {
	over := time.Now()
	for end := over.Add(f.o.abort + streamBound(f.o)); f.book.Open() > 0 && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	rules := f.book.Rules
	rules.Check(f.book.Open() == 0, "2", "", "every call is over", "%d are not", f.book.Open())
	time.Sleep(4500 * time.Millisecond) // idle connections to endpoints are closed after 4 s
	if err := f.gateway.Collected(30 * time.Second); err != nil {
		return err
	}
	heap := f.base.Heap + f.base.Stacks + f.o.heap<<20
	after, page, _, err := f.gateway.Settled(20*time.Second, func(r program.Resources, p program.Page) bool {
		return p.Sum("kvasir_in_flight") == 0 && p.Sum("kvasir_calls_in_flight") == 0 && p.Sum("kvasir_buffered_bytes") == 0 &&
			r.Goroutines <= f.base.Goroutines+slackGoroutines && r.Files <= f.base.Files+slackFiles && r.Heap+r.Stacks <= heap && r.RSS <= f.base.RSS+slackRSS
	})
	if err != nil {
		return err
	}
	f.after, f.settled = after, time.Since(over)
	for _, name := range []string{"kvasir_in_flight", "kvasir_calls_in_flight", "kvasir_buffered_bytes"} {
		page.Each(name, func(series string, v float64) {
			rules.Check(v == 0, "3", "", series+" 0 at the end", "%v", v)
		})
	}
	rules.Check(after.Goroutines <= f.base.Goroutines+slackGoroutines, "10", "", fmt.Sprintf("goroutines back to %d", f.base.Goroutines), "%d", after.Goroutines)
	rules.Check(after.Files <= f.base.Files+slackFiles, "10", "", fmt.Sprintf("open files back to %d", f.base.Files), "%d", after.Files)
	rules.Check(after.Heap+after.Stacks <= heap, "10", "", "heap and stacks back to "+program.MiB(heap), "%s", program.MiB(after.Heap+after.Stacks))
	rules.Check(after.RSS <= f.base.RSS+slackRSS, "10", "", "resident memory back to "+program.MiB(f.base.RSS+slackRSS), "%s", program.MiB(after.RSS))
	rules.Check(f.peak.RSS <= f.o.rss<<20, "10", "", fmt.Sprintf("at most %d MiB resident", f.o.rss), "%s", program.MiB(f.peak.RSS))
	rules.Check(f.inFlight >= 0.9*float64(f.o.streams), "join", "", fmt.Sprintf("about %d streams at a time", f.o.streams), "%.0f at most", f.inFlight)
	t := f.book.Totals()
	rules.Check(t.Dropped == 0, "2", "", "no line of the log dropped", "%d times", t.Dropped)
	for outcome, n := range t.Outcomes {
		got := page.Sum("kvasir_calls_total", `outcome="`+outcome+`"`)
		rules.Check(int(got) == n, "join", "", fmt.Sprintf("%d calls of outcome %s in the metrics, as in the log", n, outcome), "%v", got)
	}
	return nil
}

func (f *flood) print() {
	t := f.book.Totals()
	fmt.Fprintf(f.out, "%d calls in %v, up to %.0f at a time; recorded %d, attempts %d, seen upstream %d; at rest %v after the last\n\n",
		f.next.Load(), f.took.Round(time.Second), f.inFlight, t.Records, t.Attempts, t.Seen, f.settled.Round(100*time.Millisecond))
	f.book.Counts.Print(f.out, "client", "calls", "2xx whole", "2xx broken", "4xx", "5xx", "left", "no answer")
	f.book.Ends.Print(f.out, "outcome", "calls", "retried")
	if n := len(t.Aborts); n > 0 {
		fmt.Fprintf(f.out, "aborts: %d reached an upstream, after %v (median), %v (99 %%), %v at most; bound %v\n\n",
			n, t.Aborts[n/2].Round(10*time.Microsecond), t.Aborts[n*99/100].Round(10*time.Microsecond), t.Aborts[n-1].Round(10*time.Microsecond), f.o.abort)
	}
	table := report.NewTable("gateway", "base", "peak", "after")
	table.Row("goroutines", f.base.Goroutines, f.peak.Goroutines, f.after.Goroutines)
	table.Row("sockets", f.base.Sockets, f.peak.Sockets, f.after.Sockets)
	table.Row("open files", f.base.Files, f.peak.Files, f.after.Files)
	table.Row("RSS", program.MiB(f.base.RSS), program.MiB(f.peak.RSS), program.MiB(f.after.RSS))
	table.Row("heap in use", program.MiB(f.base.Heap), program.MiB(f.peak.Heap), program.MiB(f.after.Heap))
	table.Row("stacks", program.MiB(f.base.Stacks), program.MiB(f.peak.Stacks), program.MiB(f.after.Stacks))
	table.Row("series", f.base.Series, f.peak.Series, f.after.Series)
	table.Print(f.out)
	f.book.Rules.Print(f.out)
}
