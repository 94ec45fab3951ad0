package observe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"kvasir/selection/signal"
	"kvasir/upstream"
)

const (
	sglangMetrics = "sglang:num_running_reqs 1\nsglang:num_queue_reqs 2\nsglang:token_usage 0.5\nsglang:generation_tokens_total 9\n"
	sglangLoads   = `{"loads":[{"dp_rank":0,"num_running_reqs":3,"num_waiting_reqs":4,"token_usage":0.25},{"dp_rank":1,"num_running_reqs":5,"num_waiting_reqs":6,"token_usage":0.75}]}`
	sglangOld     = `[{"dp_rank":0,"num_reqs":7,"num_waiting_reqs":1}]`
)

// pageOf is what an engine answers on a path: with 200, this text; a status; or nothing.
type pageOf struct {
	text   string
	status int
	hangs  bool
}

// scrapePages lets a Scrape of an engine with these pages run, and returns what the sink
// and Warn were told and which paths were asked for when.
func scrapePages(t *testing.T, d upstream.Dialect, during time.Duration, pages map[string]pageOf) (got []outcome, reports []upstream.Report, paths []string, remotes []string) {
	t.Helper()
	target := Target{Base: "http://engine:8000", URL: "http://engine:8000/metrics", Dialect: d, Warn: func(r upstream.Report) { reports = append(reports, r) }}
	got, _ = scrape(t, target, 0, during, func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.RequestURI())
		remotes = append(remotes, r.RemoteAddr)
		p := pages[r.URL.Path]
		switch {
		case p.hangs:
			<-r.Context().Done()
		case p.status != 0:
			http.Error(w, "no", p.status)
		default:
			w.Header().Set("Process-Start-Time-Unix", "12345")
			_, _ = io.WriteString(w, p.text)
		}
	})
	return got, reports, paths, remotes
}

func TestScrape_WhenEngineHasALoadPage_JoinsBoth(t *testing.T) {
	got, reports, paths, remotes := scrapePages(t, upstream.SGLang(), 2*time.Second-1,
		map[string]pageOf{"/v1/loads": {text: sglangLoads}, "/metrics": {text: sglangMetrics}})
	if want := []string{"/v1/loads?include=core", "/metrics", "/v1/loads?include=core", "/metrics"}; !slices.Equal(paths, want) {
		t.Errorf("asked for %v, want %v", paths, want)
	}
	if len(slices.Compact(remotes)) != 1 {
		t.Errorf("connections %v, want one", remotes)
	}
	if len(got) != 2 || len(reports) != 0 {
		t.Fatalf("%+v, warned of %+v", got, reports)
	}
	for _, o := range got {
		l := o.load
		if o.err != nil || l.Running != signal.Known(8, 0) || l.Waiting != signal.Known(10, 0) || l.KVUsage != signal.Known(0.5, 0) ||
			l.Generated != signal.Known(9, 0) || l.Ranks.Len() != 2 || l.KVUsageMax() != signal.Known(0.75, 0) {
			t.Errorf("%+v", o)
		}
	}
}

// TestScrape_WhenTargetHasNoBase_ReadsMetricsAlone is how a page of metrics at another
// place than the engine's is scraped.
func TestScrape_WhenTargetHasNoBase_ReadsMetricsAlone(t *testing.T) {
	var paths []string
	got, _ := scrape(t, Target{Dialect: upstream.SGLang(), URL: "http://engine:8000/elsewhere"}, 0, time.Second/2, func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path)
		_, _ = io.WriteString(w, sglangMetrics)
	})
	if len(got) != 1 || got[0].err != nil || got[0].load.Running != signal.Known(1, 0) || !slices.Equal(paths, []string{"/elsewhere"}) {
		t.Errorf("%+v after asking for %v", got, paths)
	}
}

// count returns how often a path was asked for.
func count(paths []string, path string) int {
	n := 0
	for _, p := range paths {
		if strings.HasPrefix(p, path) {
			n++
		}
	}
	return n
}

func TestScrape_WhenPagesAreAbsent_AsksForThemAgainAfterAMinute(t *testing.T) {
	const minutes, beats = 3, 180
	absent, not := pageOf{status: http.StatusNotFound}, pageOf{status: http.StatusNotImplemented}
	for _, c := range []struct {
		name    string
		dialect upstream.Dialect
		pages   map[string]pageOf
		asked   map[string]int
		running float64
	}{
		{"sglang of today without metrics", upstream.SGLang(),
			map[string]pageOf{"/v1/loads": {text: sglangLoads}, "/metrics": absent},
			map[string]int{"/v1/loads": beats, "/get_load": 0, "/metrics": minutes}, 8},
		{"sglang of yesterday", upstream.SGLang(),
			map[string]pageOf{"/v1/loads": absent, "/get_load": {text: sglangOld}, "/metrics": {text: sglangMetrics}},
			map[string]int{"/v1/loads": minutes, "/get_load": beats, "/metrics": beats}, 6},
		{"sglang of long ago", upstream.SGLang(),
			map[string]pageOf{"/v1/loads": absent, "/get_load": absent, "/metrics": {text: sglangMetrics}},
			map[string]int{"/v1/loads": minutes, "/get_load": minutes, "/metrics": beats}, 1},
		{"llama.cpp without slots", upstream.LlamaCPP(),
			map[string]pageOf{"/slots": not, "/metrics": {text: "llamacpp:requests_processing 2\n"}},
			map[string]int{"/slots": minutes, "/metrics": beats}, 2},
		{"llama.cpp without metrics", upstream.LlamaCPP(),
			map[string]pageOf{"/slots": {text: `[{"n_ctx":10,"is_processing":false}]`}, "/metrics": not},
			map[string]int{"/slots": beats, "/metrics": minutes}, 0},
		{"vllm", upstream.VLLM(), map[string]pageOf{"/metrics": {text: page}}, map[string]int{"/metrics": beats}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, reports, paths, _ := scrapePages(t, c.dialect, minutes*time.Minute-1, c.pages)
			for path, want := range c.asked {
				if n := count(paths, path); n != want {
					t.Errorf("asked %d times for %s, want %d", n, path, want)
				}
			}
			if len(got) != beats {
				t.Errorf("%d outcomes", len(got))
			}
			for _, o := range got {
				if o.err != nil || o.load.Running != signal.Known(c.running, 0) {
					t.Fatalf("%+v", o)
				}
			}
			for _, r := range reports {
				if r.Failed != nil {
					t.Fatalf("an absent page was taken for a failure: %+v", r)
				}
			}
		})
	}
}

// TestScrape_WhenEveryPageIsAbsent_FailsAtEachBeat goes on asking for the metrics page.
func TestScrape_WhenEveryPageIsAbsent_FailsAtEachBeat(t *testing.T) {
	not := pageOf{status: http.StatusNotImplemented}
	got, _, paths, _ := scrapePages(t, upstream.LlamaCPP(), 5*time.Second-1, map[string]pageOf{"/slots": not, "/metrics": not})
	if len(got) != 5 || count(paths, "/metrics") != 5 || count(paths, "/slots") != 1 {
		t.Errorf("%d outcomes after %v", len(got), paths)
	}
	for _, o := range got {
		if o.err == nil || !strings.Contains(o.err.Error(), "/metrics: status 501") {
			t.Errorf("%+v", o)
		}
	}
}

// TestScrape_WhenOnePageFails_ReadsTheOtherAndTells has an interval of a second, of which
// the first page may take half and the second what is left.
func TestScrape_WhenOnePageFails_ReadsTheOtherAndTells(t *testing.T) {
	good, loads := pageOf{text: sglangMetrics}, pageOf{text: sglangLoads}
	for _, c := range []struct {
		name           string
		loads, metrics pageOf
		running        float64
		took           time.Duration
		failed         string
	}{
		{"loads hang", pageOf{hangs: true}, good, 1, 500 * time.Millisecond, "/v1/loads?include=core: no whole answer within 500ms"},
		{"loads break", pageOf{status: http.StatusInternalServerError}, good, 1, 0, "/v1/loads?include=core: status 500"},
		{"loads aren't JSON", pageOf{text: "<html>"}, good, 1, 0, "/v1/loads?include=core: the page has none of the numbers of sglang"},
		{"metrics hang", loads, pageOf{hangs: true}, 8, time.Second, "/metrics: no whole answer within 1s"},
		{"metrics break", loads, pageOf{status: http.StatusUnauthorized}, 8, 0, "/metrics: status 401"},
		{"metrics are something else", loads, pageOf{text: "<html>"}, 8, 0, "/metrics: the page has none of the numbers of sglang"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, reports, _, _ := scrapePages(t, upstream.SGLang(), 1500*time.Millisecond, map[string]pageOf{"/v1/loads": c.loads, "/metrics": c.metrics})
			if len(got) == 0 || got[0].err != nil || got[0].took != c.took || got[0].load.Running != signal.Known(c.running, 0) {
				t.Fatalf("%+v", got)
			}
			if len(reports) == 0 || reports[0].Failed == nil || !strings.HasSuffix(reports[0].Failed.Error(), c.failed) || reports[0].Clean() {
				t.Errorf("warned of %+v, want %q", reports, c.failed)
			}
		})
	}
}

func TestScrape_WhenBothPagesFail_IsAnError(t *testing.T) {
	for _, c := range []struct {
		loads, metrics pageOf
		want           string
	}{
		{pageOf{status: 500}, pageOf{status: 503}, "/metrics: status 503"},
		{pageOf{hangs: true}, pageOf{hangs: true}, "/metrics: no whole answer within 500ms"},
		{pageOf{status: 500}, pageOf{status: 404}, "/v1/loads?include=core: status 500"}, // without metrics it has the loads to give
		{pageOf{status: 404}, pageOf{status: 500}, "/metrics: status 500"},
	} {
		got, reports, _, _ := scrapePages(t, upstream.SGLang(), 1500*time.Millisecond, map[string]pageOf{
			"/v1/loads": c.loads, "/get_load": {status: 404}, "/metrics": c.metrics})
		if len(got) == 0 || got[0].err == nil || !strings.Contains(got[0].err.Error(), c.want) || got[0].load != (signal.Load{}) || len(reports) != 0 {
			t.Errorf("%+v, warned of %+v, want %q", got, reports, c.want)
		}
	}
}

// TestScrape_ReadsTheHeader has a start in the answer's header.
func TestScrape_ReadsTheHeader(t *testing.T) {
	got, _, _, _ := scrapePages(t, upstream.LlamaCPP(), time.Second/2, map[string]pageOf{
		"/slots": {status: 501}, "/metrics": {text: "llamacpp:requests_processing 2\n"}})
	if len(got) != 1 || got[0].load.Started != signal.Known(12345, 0) {
		t.Errorf("%+v", got)
	}
}

// TestScrape_FindsMetricsUnderBase has a URL with a path and a key, and no URL of metrics.
func TestScrape_FindsMetricsUnderBase(t *testing.T) {
	var paths, users []string
	got, _ := scrape(t, Target{Base: "http://u:p@engine:8000/replica", URL: "http://u:p@engine:8000/replica/metrics", Dialect: upstream.LlamaCPP()}, 0, time.Second/2,
		func(w http.ResponseWriter, r *http.Request) {
			user, password, _ := r.BasicAuth()
			paths, users = append(paths, r.URL.Path), append(users, user+":"+password)
			http.Error(w, "no", http.StatusTeapot)
		})
	if want := []string{"/replica/slots", "/replica/metrics"}; !slices.Equal(paths, want) || !slices.Equal(users, []string{"u:p", "u:p"}) {
		t.Errorf("asked for %v as %v", paths, users)
	}
	if len(got) != 1 || got[0].err == nil || strings.Contains(got[0].err.Error(), ":p@") {
		t.Errorf("%+v", got)
	}
	s, err := newScraper(http.DefaultClient, Target{Base: "http://h:1/replica", Dialect: upstream.SGLang()})
	if err != nil || s.metrics.url.String() != "http://h:1/replica/metrics" || s.better[0].url.String() != "http://h:1/replica/v1/loads?include=core" {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err = newScraper(http.DefaultClient, Target{Base: "h:1", URL: "http://h:1/metrics", Dialect: upstream.SGLang()}); err == nil {
		t.Error("a base that is no URL")
	}
}

// TestFail_QuotesNoAnswer holds that an error's words are few and never an endpoint's own.
func TestFail_QuotesNoAnswer(t *testing.T) {
	for _, text := range []string{
		"HTTP/1.1 secret secret\r\n\r\n", "secret\r\n\r\n", "HTTP/1.1 200 OK\r\nsecret\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: secret\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: secret\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nsecret\r\n", "",
	} {
		err := fail(rawAnswer(t, text), time.Second)
		if err == nil || strings.Contains(err.Error(), "secret") || len(err.Error()) > wordsMost || err.Error() == "" {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := fail(&net.OpError{Op: "dial", Net: "tcp", Err: errors.New(strings.Repeat("x", 1000))}, time.Second); len(err.Error()) != wordsMost {
		t.Errorf("%d bytes of words", len(err.Error()))
	}
	long := fail(fmt.Errorf("%w: %w", errors.New("secret"), io.ErrUnexpectedEOF), time.Second)
	if long.Error() != "unexpected EOF" || !errors.Is(long, io.ErrUnexpectedEOF) {
		t.Errorf("%v", long)
	}
	if late := fail(fmt.Errorf("secret: %w", context.DeadlineExceeded), time.Second); !strings.Contains(late.Error(), "within 1s") || !errors.Is(late, context.DeadlineExceeded) {
		t.Errorf("%v", late)
	}
}
