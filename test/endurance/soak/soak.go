package main

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"slices"
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

// soak is one run.
type soak struct {
	o         options
	out       io.Writer
	binary    *program.Binary
	gateway   *program.Gateway
	book      *ledger.Book
	upstreams map[string]*upstream.Server
	caller    *caller
	tuned     tuned

	next       atomic.Uint64
	began      time.Time
	took       time.Duration
	base       program.Resources
	peak       program.Resources
	baseSeries map[string]bool // those that were there, or that were counted in grown
	grown      report.Counts
	after      program.Resources
	page       program.Page // the metrics at the end

	stop     chan struct{}
	watchers sync.WaitGroup
}

// metricsPage is what an upstream that is measured says of itself.
const metricsPage = `# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="x"} 3.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="x"} 1.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="x"} 0.25
`

func newSoak(out io.Writer, o options) (*soak, error) {
	var salt [6]byte
	if _, err := rand.Read(salt[:]); err != nil {
		return nil, err
	}
	hexed := hex.EncodeToString(salt[:])
	s := &soak{o: o, out: out, upstreams: map[string]*upstream.Server{}, stop: make(chan struct{})}
	s.caller = &caller{seed: o.seed, clientKey: "sk-client-" + hexed, canary: "PROMPT-CANARY-" + hexed, bound: o.bound}
	keys, env := map[string]string{}, []string(nil)
	var secrets []string
	for _, e := range endpointNames {
		if keyed[e] {
			keys[e] = "sk-endpoint-" + e + "-" + hexed
			env = append(env, keyVariable(e)+"="+keys[e])
			secrets = append(secrets, keys[e])
		}
	}
	s.caller.keys = personaKeys(hexed)
	private := append(slices.Sorted(maps.Values(s.caller.keys)), s.caller.clientKey, s.caller.canary)
	var err error
	if s.binary, err = program.Build(o.binary); err != nil {
		return nil, err
	}
	s.tuned = tune(s.binary)
	s.caller.tenants = s.tuned.tenants
	text, hedges, rates := "", map[string]bool{}, map[string]ledger.Rates{}
	if s.tuned.tenants {
		text = configureTenants(s.caller.keys, hashed)
		for _, t := range tenants {
			rates[t.name] = ledger.Rates{Requests: t.rpm, Tokens: t.tpm}
		}
	}
	for _, m := range models {
		hedges[m.name] = s.tuned.has["hedge"] && slices.Contains(uses[m.name], "hedge")
	}
	s.book = ledger.New(report.NewRules(ledger.Invariants...), ledger.Limits{
		Attempts: attempts, AbortBound: o.abort, CallBound: o.bound, Total: s.tuned.total, Settle: time.Second, Secrets: secrets, Private: private, Hedges: hedges, Rates: rates})
	plans := &faults{seed: o.seed, hangs: s.tuned.hangs}
	for _, e := range endpointNames {
		c := upstream.Config{Name: e, Sites: sites(e, keys[e]), Private: private, Script: plans.script, Metrics: metricsPage}
		if e == unmeasured {
			c.Metrics = ""
		}
		if unsteady[e] && o.call == 0 {
			c.Refuse = oneInFifty(mathrand.New(mathrand.NewPCG(o.seed, uint64(e[1])<<8)))
		}
		if s.upstreams[e], err = upstream.Start(s.book, c); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	text = configuration(o.seed, s.tuned, text, func(e string) string { return s.upstreams[e].Addr() })
	file, err := s.binary.WriteConfig("soak.yaml", text)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	line := func(text []byte) {
		if o.verbose && !bytes.Contains(text, []byte(`"msg":"call"`)) {
			fmt.Fprintf(os.Stderr, "%s\n", text)
		}
		s.book.Line(text)
	}
	if s.gateway, err = s.binary.StartGateway(s.binary.Dir, file, env, line); err != nil {
		return nil, errors.Join(err, s.close())
	}
	fmt.Fprintf(out, "soak: %v, seed %d, %d clients, %s\n", o.length, o.seed, o.clients, s.binary.Path)
	fmt.Fprintf(out, "settings that this gateway has: %s\n", strings.Join(s.tuned.used, ", "))
	if !s.tuned.hangs {
		fmt.Fprintln(out, "no timeouts: a hang meets only clients that leave")
	}
	return s, nil
}

// oneInFifty is for one goroutine at a time.
func oneInFifty(r *mathrand.Rand) func() bool { return func() bool { return r.IntN(50) == 0 } }

// sites returns the base paths of an endpoint.
func sites(endpoint, key string) map[string]upstream.Site {
	list := map[string]upstream.Site{}
	for _, m := range models {
		for _, p := range m.pools {
			for _, e := range p.endpoints {
				if e == endpoint {
					list["/"+p.name] = upstream.Site{Served: p.served, Key: key}
				}
			}
		}
	}
	return list
}

func (s *soak) close() error {
	var err error
	if s.gateway != nil {
		err = s.gateway.Stop(20 * time.Second)
	}
	for _, u := range s.upstreams {
		u.Close()
	}
	s.book.Close()
	return errors.Join(err, s.binary.Clean())
}

// candidates are the routes of calls; those that the gateway lacks are left out.
var candidates = []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages",
	"/v1/rerank", "/v2/rerank", "/rerank", "/v1/score", "/score", "/tokenize", "/detokenize"}

// warm finds out what the gateway has, and how it is at rest.
func (s *soak) warm() error {
	var lacks []string
	for _, route := range candidates {
		text, status, err := s.post(route, `{"model":"nobody"}`, "")
		if err != nil {
			return err
		}
		if status == http.StatusNotFound && strings.Contains(text, "unknown_route") {
			lacks = append(lacks, route)
			continue
		}
		s.caller.routes = append(s.caller.routes, route)
	}
	if len(s.caller.routes) == 0 {
		return errors.New("the gateway has no route")
	}
	// A gateway that takes compressed bodies finds this one broken, not unknown.
	text, status, err := s.post(candidates[0], "\x1f\x8b", "gzip")
	if err != nil {
		return err
	}
	s.caller.gzip = status != http.StatusUnsupportedMediaType
	fmt.Fprintf(s.out, "routes: %s; it lacks: %s; compressed bodies: %v (%.80q)\n", strings.Join(s.caller.routes, " "), strings.Join(lacks, " "), s.caller.gzip, text)
	time.Sleep(1500 * time.Millisecond) // every scraper has been round
	var page program.Page
	s.base, page, err = s.gateway.Resources()
	s.baseSeries = map[string]bool{}
	for series := range page.Series {
		s.baseSeries[series] = true
	}
	return err
}

func (s *soak) post(route, body, coding string) (string, int, error) {
	r, err := http.NewRequest(http.MethodPost, "http://"+s.gateway.Addr+route, strings.NewReader(body))
	if err != nil {
		return "", 0, err
	}
	r.Close = true
	r.Header.Set("Content-Type", "application/json")
	if coding != "" {
		r.Header.Set("Content-Encoding", coding)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), resp.StatusCode, err
}

// load makes calls until the time is over.
func (s *soak) load() {
	s.began = time.Now()
	s.watchers.Go(s.watch)
	for _, e := range endpointNames {
		if !unsteady[e] || s.o.call > 0 {
			continue
		}
		u := s.upstreams[e]
		r := mathrand.New(mathrand.NewPCG(s.o.seed, uint64(e[1])))
		s.watchers.Go(func() {
			if err := u.Flap(r, 3*time.Second, 700*time.Millisecond, s.stop); err != nil {
				s.book.Rules.Check(false, "join", "", "the harness can listen again", "%v", err)
			}
		})
	}
	var clients sync.WaitGroup
	if s.o.call > 0 {
		w := &client.Worker{Addr: s.gateway.Addr, Bound: s.o.bound + 5*time.Second}
		for i := range s.o.repeat {
			s.one(w, s.o.call, fmt.Sprintf("soak-%d.%d", i, s.o.call))
		}
		w.Close()
	} else {
		for i := range s.o.clients {
			clients.Go(func() { s.client(i) })
		}
	}
	clients.Wait()
	s.took = time.Since(s.began)
	close(s.stop)
	s.watchers.Wait()
}

// client makes one call after the other.
func (s *soak) client(i int) {
	w := &client.Worker{Addr: s.gateway.Addr, Bound: s.o.bound + 5*time.Second}
	defer w.Close()
	r := mathrand.New(mathrand.NewPCG(s.o.seed, uint64(1000+i)))
	for time.Since(s.began) < s.o.length {
		s.one(w, s.next.Add(1), "")
		time.Sleep(time.Duration(r.IntN(120)) * time.Millisecond)
	}
}

func (s *soak) one(w *client.Worker, n uint64, id string) {
	c, b := s.caller.call(n)
	if id != "" {
		b.Wire = bytes.ReplaceAll(b.Wire, []byte("X-Request-Id: "+c.ID+"\r\n"), []byte("X-Request-Id: "+id+"\r\n"))
		c.ID = id
	}
	s.book.Begin(c)
	s.book.Finish(c, w.Do(b))
}

// settle waits until everything is judged and the gateway at rest, and checks the sums.
func (s *soak) settle() error {
	for end := time.Now().Add(s.o.abort + s.o.bound + 15*time.Second); s.book.Open() > 0 && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	s.book.Rules.Check(s.book.Open() == 0, "2", "", "every call is over", "%d are not", s.book.Open())
	atRest := func(r program.Resources, p program.Page) bool {
		return p.Sum("kvasir_in_flight") == 0 && p.Sum("kvasir_calls_in_flight") == 0 && p.Sum("kvasir_buffered_bytes") == 0 && p.Sum("kvasir_tenant_calls") == 0 && p.Sum("kvasir_queue_calls") == 0 &&
			r.Goroutines <= s.base.Goroutines+slackGoroutines && r.Files <= s.base.Files+slackFiles
	}
	if err := s.gateway.Collected(20 * time.Second); err != nil {
		return err
	}
	after, page, ok, err := s.gateway.Settled(20*time.Second, atRest)
	if err != nil {
		return err
	}
	s.after, s.page = after, page
	if !ok {
		for _, name := range counted {
			page.Each(name, func(series string, v float64) {
				s.book.Rules.Check(v == 0, "3", "", series+" 0 at the end", "%v", v)
			})
		}
	}
	rules := s.book.Rules
	rules.Check(page.Sum("kvasir_in_flight") == 0 && page.Sum("kvasir_calls_in_flight") == 0, "3", "", "nothing in flight at the end", "%v, %v", page.Sum("kvasir_in_flight"), page.Sum("kvasir_calls_in_flight"))
	rules.Check(after.Goroutines <= s.base.Goroutines+slackGoroutines, "10", "", fmt.Sprintf("goroutines back to %d", s.base.Goroutines), "%d", after.Goroutines)
	rules.Check(after.Files <= s.base.Files+slackFiles, "10", "", fmt.Sprintf("open files back to %d", s.base.Files), "%d", after.Files)
	rules.Check(s.peak.RSS <= s.o.rss<<20, "10", "", fmt.Sprintf("at most %d MiB resident", s.o.rss), "%s", program.MiB(s.peak.RSS))
	s.sums(page)
	s.tenants(true)
	return nil
}

// counted are the gauges of what goes on, which are 0 when nothing does.
var counted = []string{"kvasir_in_flight", "kvasir_calls_in_flight", "kvasir_buffered_bytes", "kvasir_tenant_calls", "kvasir_queue_calls", "kvasir_queue_bytes"}

// What the Go runtime and idle connections may hold more or less than at the start.
const (
	slackGoroutines = 12
	slackFiles      = 6
)

// sums compares the log with the metrics, and the retries with their budget.
func (s *soak) sums(page program.Page) {
	t, rules := s.book.Totals(), s.book.Rules
	for outcome, n := range t.Outcomes {
		if outcome == "refused" {
			continue // the metrics count those that are no calls too
		}
		got := page.Sum("kvasir_calls_total", `outcome="`+outcome+`"`)
		rules.Check(int(got) == n, "join", "", fmt.Sprintf("%d calls of outcome %s in the metrics, as in the log", n, outcome), "%v", got)
	}
	got := page.Sum("kvasir_attempts_total")
	rules.Check(int(got) == t.Attempts, "join", "", fmt.Sprintf("%d attempts in the metrics, as in the log", t.Attempts), "%v", got)
	// Of a hedge whose client left before it was sent there is no attempt, so a record may tell of one
	// retry less.
	hedged := 0
	for _, m := range t.Models {
		hedged += m.Hedged
	}
	got = page.Sum("kvasir_retries_total")
	rules.Check(int(got) >= t.Retries && int(got) <= t.Retries+hedged, "join", "", fmt.Sprintf("%d retries in the metrics, as in the log", t.Retries), "%v", got)
	s.budgets(t)
	s.mechanisms(page, t)
	rules.Check(t.Dropped == 0, "2", "", "no line of the log dropped", "%d times", t.Dropped)
	rules.Check(s.o.call > 0 || t.Outcomes["success"] > 0, "join", "", "calls that succeed", "none")
}

// budgets holds further attempts against what answers earn and the floors allow, by model and
// in all, and hedges against their share of the calls.
func (s *soak) budgets(t ledger.Totals) {
	seconds, all, answered, free := s.took.Seconds()+1, 0, 0, 0
	for _, m := range models {
		n := t.Models[m.name]
		retries := n.Retries
		all, answered, free = all+retries, answered+n.Answered, free+n.Free
		floors := floor * float64(len(m.pools)) // each pool has one
		most := ratio*float64(n.Answered) + floors*seconds + float64(n.Free)
		s.book.Rules.Check(float64(retries) <= most, "6", "", fmt.Sprintf("at most %.0f retries for %s: %v of its %d answers, %v a second, and %d after stale connections", most, m.name, ratio, n.Answered, floors, n.Free), "%d", retries)
		share := 0.0
		if s.tuned.has["hedge"] && slices.Contains(uses[m.name], "hedge") {
			share = hedgeBudget
		}
		s.book.Rules.Check(float64(n.Hedged) <= share*float64(n.Calls), "6", "", fmt.Sprintf("at most %v of the %d calls for %s hedged", share, n.Calls, m.name), "%d", n.Hedged)
	}
	if most := ratio*float64(answered) + totalFloor*seconds + float64(free); s.tuned.totalFloor {
		s.book.Rules.Check(float64(all) <= most, "6", "", fmt.Sprintf("at most %.0f retries of all models", most), "%d", all)
	}
}

// mechanisms compares the log with the metrics of tenants, limits and hedges.
func (s *soak) mechanisms(page program.Page, t ledger.Totals) {
	rules, hedged := s.book.Rules, 0
	for _, m := range t.Models {
		hedged += m.Hedged
	}
	got := page.Sum("kvasir_hedges_total")
	rules.Check(int(got) == hedged, "join", "", fmt.Sprintf("%d hedges in the metrics, as in the log", hedged), "%v", got)
	for reason, n := range t.Refusals {
		if slices.Contains(alsoOfNoCalls, reason) {
			continue
		}
		got := page.Sum("kvasir_refusals_total", `reason="`+reason+`"`)
		rules.Check(int(got) == n, "join", "", fmt.Sprintf("%d calls refused as %s in the metrics, as in the log", n, reason), "%v", got)
	}
	limits := t.Refusals["rate_limited"] + t.Refusals["fan_out_timeout"]
	got = page.Sum("kvasir_limit_refusals_total")
	rules.Check(int(got) == limits, "join", "", fmt.Sprintf("%d refusals by limits in the metrics, as in the log", limits), "%v", got)
	if !s.tuned.tenants {
		return
	}
	for _, x := range tenants {
		n, label := t.Tenants[x.name], `tenant="`+x.name+`"`
		got := page.Sum("kvasir_tenant_requests_total", label)
		rules.Check(int(got) == n.Sent, "join", "", fmt.Sprintf("%d calls of tenant %s in the metrics, as in the log", n.Sent, x.name), "%v", got)
		got = page.Sum("kvasir_tenant_refused_total", label)
		rules.Check(int(got) == n.Limited, "join", "", fmt.Sprintf("%d calls of tenant %s over a limit in the metrics, as in the log", n.Limited, x.name), "%v", got)
		if x.rpm > 0 {
			// What is saved up, and what the time brings: from the first probe on, before the load.
			most := float64(x.rpm) / 60 * (burstSeconds + s.took.Seconds() + 5)
			rules.Check(float64(n.Sent) <= most, "10", "", fmt.Sprintf("at most %.0f calls of tenant %s: %d a minute", most, x.name, x.rpm), "%d", n.Sent)
		}
	}
}

// alsoOfNoCalls are reasons for which requests are refused too that are no calls.
var alsoOfNoCalls = []string{"bad_request", "unknown_route", "unauthorized"}

func (s *soak) print() {
	t := s.book.Totals()
	reset := int64(0)
	for _, u := range s.upstreams {
		reset += u.Refused()
	}
	fmt.Fprintf(s.out, "\n%d calls in %v; recorded %d (%d of other ids), attempts %d, retries %d; seen upstream %d (the others met a closed port or a dead connection; %d connections were reset at once)\n\n",
		s.next.Load(), s.took.Round(time.Second), t.Records, t.Foreign, t.Attempts, t.Retries, t.Seen, reset)
	s.book.Counts.Print(s.out, "client", "calls", "2xx whole", "2xx broken", "4xx", "5xx", "left", "no answer", "heartbeat first")
	s.book.Faults.Print(s.out, "upstream", "attempts", "last", "retried", "aborted")
	s.book.Own.Print(s.out, "errors of the gateway's own, of good calls", "calls")
	s.book.Ends.Print(s.out, "outcome", "calls", "retried")
	if n := len(t.Aborts); n > 0 {
		fmt.Fprintf(s.out, "aborts: %d reached an upstream, after %v (median), %v (99 %%), %v at most; bound %v\nslowest: %s\n\n",
			n, t.Aborts[n/2].Round(10*time.Microsecond), t.Aborts[n*99/100].Round(10*time.Microsecond), t.Aborts[n-1].Round(10*time.Microsecond), s.o.abort, t.SlowestAbort)
	}
	table := report.NewTable("gateway", "base", "peak", "after")
	table.Row("goroutines", s.base.Goroutines, s.peak.Goroutines, s.after.Goroutines)
	table.Row("sockets", s.base.Sockets, s.peak.Sockets, s.after.Sockets)
	table.Row("open files", s.base.Files, s.peak.Files, s.after.Files)
	table.Row("RSS", program.MiB(s.base.RSS), program.MiB(s.peak.RSS), program.MiB(s.after.RSS))
	table.Row("heap in use", program.MiB(s.base.Heap), program.MiB(s.peak.Heap), program.MiB(s.after.Heap))
	table.Row("series", s.base.Series, s.peak.Series, s.after.Series)
	table.Print(s.out)
	if len(s.grown.All()) > 0 {
		fmt.Fprintln(s.out, "series that were not there at 0 from the start:")
		s.grown.Print(s.out, "family", "series")
	}
	s.book.Rules.Print(s.out)
}
