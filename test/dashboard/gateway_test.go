package dashboard

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kvasir/test/program"
)

// run is a gateway with its engines, and what has been scraped of it.
type run struct {
	*program.Gateway
	store *store
	page  page // the newest
}

func begin(t testing.TB, configuration string) *run {
	t.Helper()
	return &run{Gateway: program.Serve(t, "log: {calls: false}\n"+configuration), store: newStore(time.Now())}
}

// look returns the metrics page as it is now.
func (r *run) look(t testing.TB) page {
	t.Helper()
	return parsePage(t, program.Get(t, r.Admin+"/metrics"))
}

// scrapes alternates traffic and scrapes. Scrapes count as an interval apart, however long
// the traffic took.
func (r *run) scrapes(t testing.TB, times int, traffic func()) {
	t.Helper()
	for range times {
		traffic()
		r.page = r.look(t)
		r.store.scrape(r.page)
	}
}

// prompt is long enough for the prefix index to know blocks of it.
var prompt = strings.Repeat("A load balancer puts each call where it is answered soonest. ", 40)

// Fields of a call's body.
const (
	whole    = `"max_tokens":8`
	streamed = `"max_tokens":8,"stream":true,"stream_options":{"include_usage":true}`
	endless  = `"max_tokens":2000,"stream":true`
)

func (r *run) post(t testing.TB, model, fields string) *http.Response {
	t.Helper()
	body := fmt.Sprintf(`{"model":%q,%s,"messages":[{"role":"user","content":%q}]}`, model, fields, prompt)
	resp, err := http.Post(r.Base+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// call reads the whole answer of one call.
func (r *run) call(t testing.TB, model, fields string) {
	t.Helper()
	resp := r.post(t, model, fields)
	_, _ = io.Copy(io.Discard, resp.Body) // some are cut on purpose
	_ = resp.Body.Close()
}

// leave goes away in the middle of an answer.
func (r *run) leave(t testing.TB, model string) {
	t.Helper()
	resp := r.post(t, model, endless)
	_, _ = resp.Body.Read(make([]byte, 1)) // an error is answered at once
	_ = resp.Body.Close()
}

// listed writes a file that discovery reads.
func listed(t testing.TB, endpoints ...string) (name string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "endpoints.txt")
	if err := os.WriteFile(name, []byte(strings.Join(endpoints, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// In a run where nothing goes wrong no alert fires, and what is not exported from the start
// is documented to come later.
func TestHealthyRun(t *testing.T) {
	one := program.Engine(t, "--model", "chat", "--speed", "20")
	two := program.Engine(t, "--model", "chat", "--speed", "20")
	r := begin(t, fmt.Sprintf(`
models:
  chat: [%q, %q]
  found: {served_as: chat, discover: {file: %q, interval: 100ms}}
`, one, two, listed(t, one)))
	first := r.look(t)
	program.Eventually(t, "a load report of every endpoint", func() bool {
		return len(r.look(t)["kvasir_signal_age_seconds"].GetMetric()) == 3
	})
	r.scrapes(t, 60, func() {
		r.call(t, "chat", streamed)
		r.call(t, "chat", whole)
		r.call(t, "found", streamed)
	})
	for _, rule := range alerts(t) {
		if firing := r.store.fires(t, rule.Expr, time.Minute); len(firing) > 0 { // none is even pending for so long
			t.Errorf("%s fires in a healthy run: %v", rule.Alert, firing)
		}
	}
	for name, s := range catalogue(t) {
		later := strings.Contains(s.meaning, "No sample") || strings.Contains(s.meaning, "once it has happened")
		if first[name] == nil && !later {
			t.Errorf("%s is not exported from the start, and %s does not say so", name, metricsFile)
		}
	}
}

// In a run with every kind of trouble all series are exported as documented, every expression
// finds something, and alerts name the endpoints and models that are in trouble.
func TestTroubledRun(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "1GiB") // the dashboard shows it where it is set
	good := program.Engine(t, "--model", "chat", "--speed", "20")
	bad := program.Engine(t, "--model", "chat", "--speed", "20",
		"--fault-error-rate", "0.3", "--fault-overload-rate", "0.2", "--fault-stream-error-rate", "0.2")
	dead := "http://" + program.FreeAddress(t)
	r := begin(t, fmt.Sprintf(`
tenants: [{name: guests, anonymous: true, caps: {concurrency: 1000, rpm: 100000, tpm: 100000000}}]
models:
  chat:
    endpoints: [{url: %q, name: good}, {url: %q, name: bad}, {url: %q, name: dead}]
    policy: round-robin
    probe: {interval: 100ms}
    hedge: {after: 1ms, budget: 0.5}
  found:
    served_as: chat
    discover: {file: %q, interval: 100ms}
    queue: {work: 1s, limit: gradient}
    single_flight: {min_tokens: 1024}
    slo: {ttft: 10s}
  lost: {endpoints: [{url: %q, name: gone}], probe: {interval: 100ms}}
`, good, bad, dead, listed(t, good), dead))
	program.Eventually(t, "health paths that fail, and load reports", func() bool {
		page := r.look(t)
		failing := 0
		for _, m := range page["kvasir_endpoint_healthy"].GetMetric() {
			if m.Gauge.GetValue() == 0 {
				failing++
			}
		}
		return failing == 2 && len(page["kvasir_signal_age_seconds"].GetMetric()) == 3
	})
	traffic := func() {
		for range 3 {
			r.call(t, "chat", streamed)
		}
		r.call(t, "chat", whole)
		r.leave(t, "chat")
		r.call(t, "found", streamed)
		r.call(t, "lost", streamed)
		r.call(t, "nobody", whole)
	}
	r.scrapes(t, 30, traffic)
	r.Signal(t, syscall.SIGHUP)
	r.scrapes(t, 30, traffic)

	t.Run("series", func(t *testing.T) { checkSeries(t, r.page) })
	for _, e := range expressions(t) {
		t.Run(e.name, func(t *testing.T) { e.check(t, r) })
	}
	t.Run("alerts", func(t *testing.T) {
		firing := func(alert, label string) (values []string) {
			for _, rule := range alerts(t) {
				if rule.Alert != alert {
					continue
				}
				for _, lset := range r.store.fires(t, rule.Expr, time.Duration(rule.For)) {
					values = append(values, lset.Get(label))
				}
			}
			return values
		}
		for _, alert := range []string{"KvasirModelWithoutEndpoint", "KvasirModelNotAnswering"} {
			if models := firing(alert, "model"); !slices.Equal(models, []string{"lost"}) {
				t.Errorf("%s fires for %q, want lost alone", alert, models)
			}
		}
		if models := firing("KvasirCallsFail", "model"); !slices.Contains(models, "lost") {
			t.Errorf("KvasirCallsFail fires for %q, want lost among them", models)
		}
		out := firing("KvasirEndpointOut", "endpoint")
		if !slices.Contains(out, "dead") || !slices.Contains(out, "gone") || slices.Contains(out, "good") {
			t.Errorf("KvasirEndpointOut fires for %q, want dead and gone among them, and not good", out)
		}
	})
}
