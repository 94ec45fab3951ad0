package observe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"kvasir/internal/testkit/memnet"
	"kvasir/selection/signal"
	"kvasir/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const page = "vllm:num_requests_running 3\nvllm:num_requests_waiting 2\nvllm:kv_cache_usage_perc 0.5\n"

// outcome is what a Sink was told, and when.
type outcome struct {
	at, took time.Duration
	load     signal.Load
	err      error
}

// scrape lets a Scrape of handler run for a while in a bubble, over an in-memory
// network, and returns what the sink was told and when the handler was asked.
func scrape(t *testing.T, target Target, phase, during time.Duration, handler http.HandlerFunc) (outcomes []outcome, asked []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		network := memnet.New()
		l, err := network.Listen("engine:8000")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			asked = append(asked, time.Since(start))
			mu.Unlock()
			handler(w, r)
		})}
		var wg sync.WaitGroup
		wg.Go(func() { _ = server.Serve(l) })
		transport := &http.Transport{DialContext: network.DialContext}
		if target.URL == "" {
			target.URL = "http://engine:8000/metrics"
		}
		target.Name = "gpu-1"
		if target.Dialect.ReadLoad == nil {
			target.Dialect = upstream.VLLM()
		}
		ctx, cancel := context.WithTimeout(t.Context(), during)
		defer cancel()
		Scrape(ctx, &http.Client{Transport: transport}, target, phase, func(took time.Duration, load signal.Load, err error) {
			outcomes = append(outcomes, outcome{time.Since(start), took, load, err})
		})
		if got := time.Since(start); len(outcomes) > 0 && ctx.Err() != nil && got != during {
			t.Errorf("Scrape returned after %v, its context ended after %v", got, during)
		}
		transport.CloseIdleConnections()
		_ = server.Close()
		wg.Wait()
	})
	return outcomes, asked
}

func serve(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) }

// after returns a handler that answers after a delay, unless the client left.
func after(delay func(call int) time.Duration) http.HandlerFunc {
	var calls atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(delay(int(calls.Add(1) - 1))):
			serve(w, r)
		case <-r.Context().Done():
		}
	}
}

func ms(ns ...int) []time.Duration {
	var d []time.Duration
	for _, n := range ns {
		d = append(d, time.Duration(n)*time.Millisecond)
	}
	return d
}

func TestScrape_WhenTargetAnswers_KeepsTheGrid(t *testing.T) {
	phase := 250*time.Millisecond + 1
	got, asked := scrape(t, Target{}, phase, 5*time.Second, serve)
	want := []time.Duration{phase, phase + time.Second, phase + 2*time.Second, phase + 3*time.Second, phase + 4*time.Second}
	if !slices.Equal(asked, want) {
		t.Errorf("asked at %v, want %v", asked, want)
	}
	if len(got) != len(want) {
		t.Fatalf("%d outcomes, want %d", len(got), len(want))
	}
	for _, o := range got {
		if o.err != nil || o.load.Running != signal.Known(3, 0) || o.load.KVUsage != signal.Known(0.5, 0) || o.load.Started.Known || o.took != 0 {
			t.Errorf("%+v", o)
		}
	}
}

// TestScrape_WhenTargetIsSlow_SkipsBeats has an interval of 200 ms. An answer that would
// take longer is given up at 200 ms, and the beat that falls on its end is skipped; one
// that takes nearly as long leaves the grid as it is.
func TestScrape_WhenTargetIsSlow_SkipsBeats(t *testing.T) {
	delays := ms(300, 50, 199, 10)
	got, asked := scrape(t, Target{Interval: 200 * time.Millisecond}, 30*time.Millisecond, time.Second,
		after(func(call int) time.Duration { return delays[min(call, len(delays)-1)] }))
	if want := ms(30, 430, 630, 830); !slices.Equal(asked, want) {
		t.Errorf("asked at %v, want %v", asked, want)
	}
	if len(got) != 4 || !errors.Is(got[0].err, context.DeadlineExceeded) || got[0].took != 200*time.Millisecond || got[0].load != (signal.Load{}) {
		t.Fatalf("%+v", got)
	}
	for i, o := range got[1:] {
		if o.err != nil || o.took != delays[i+1] || !o.load.Waiting.Known {
			t.Errorf("%+v, want one that took %v", o, delays[i+1])
		}
	}
}

func TestScrape_WhenIntervalIsLong_TimesOutAfterFiveSeconds(t *testing.T) {
	got, asked := scrape(t, Target{Interval: time.Minute}, 0, 3*time.Minute-1, after(func(int) time.Duration { return time.Hour }))
	if want := ms(0, 60_000, 120_000); !slices.Equal(asked, want) {
		t.Errorf("asked at %v, want %v", asked, want)
	}
	for _, o := range got {
		if o.took != 5*time.Second || !errors.Is(o.err, context.DeadlineExceeded) {
			t.Errorf("%+v", o)
		}
	}
}

// TestScrape_WhenPageNeverEnds_TimesOut sends a byte a second.
func TestScrape_WhenPageNeverEnds_TimesOut(t *testing.T) {
	got, _ := scrape(t, Target{Interval: 3 * time.Second}, 0, 10*time.Second, func(w http.ResponseWriter, r *http.Request) {
		serve(w, r)
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, "#")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Second)
		}
	})
	if len(got) != 2 {
		t.Fatalf("%d outcomes", len(got))
	}
	for _, o := range got {
		if o.took != 3*time.Second || !errors.Is(o.err, context.DeadlineExceeded) || o.load != (signal.Load{}) {
			t.Errorf("%+v", o)
		}
	}
}

func TestScrape_WhenNobodyListens_FailsAtEachBeat(t *testing.T) {
	got, _ := scrape(t, Target{URL: "http://nobody:1/metrics"}, 0, 4*time.Second-1, serve)
	if len(got) != 4 {
		t.Fatalf("%d outcomes, want 4", len(got))
	}
	for i, o := range got {
		if o.at != time.Duration(i)*time.Second || o.err == nil || !strings.Contains(o.err.Error(), "gpu-1") || o.load != (signal.Load{}) {
			t.Errorf("%+v", o)
		}
	}
}

func TestScrape_WhenContextEnds_TellsNothingMore(t *testing.T) {
	// During the wait for a beat, and during a scrape.
	for _, during := range ms(2500, 2100) {
		got, asked := scrape(t, Target{}, 0, during, after(func(call int) time.Duration {
			return []time.Duration{0, 0, 400 * time.Millisecond}[call]
		}))
		if len(asked) != 3 || len(got) != map[time.Duration]int{2500 * time.Millisecond: 3, 2100 * time.Millisecond: 2}[during] {
			t.Errorf("after %v: asked %d times, told %d outcomes", during, len(asked), len(got))
		}
		for _, o := range got {
			if o.err != nil {
				t.Errorf("%v", o.err)
			}
		}
	}
}

func TestScrape_WhenAnswerIsOfNoUse_IsAnError(t *testing.T) {
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		want    string
	}{
		{"status", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, page)
		}, "status 503"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/metrics" {
				http.Redirect(w, r, "/elsewhere", http.StatusFound)
				return
			}
			serve(w, r)
		}, "status 302"},
		{"too long", func(w http.ResponseWriter, r *http.Request) {
			serve(w, r)
			_, _ = io.WriteString(w, strings.Repeat("# a comment\n", 1+upstream.MaxPage/12))
		}, "longer than 8388608 bytes"},
		{"no series", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>\n") }, "none of the numbers of vllm"},
		{"cut short", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(page)+100))
			_, _ = io.WriteString(w, page)
		}, "unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _ := scrape(t, Target{}, 0, time.Second/2, c.handler)
			if len(got) != 1 || got[0].err == nil || !strings.Contains(got[0].err.Error(), c.want) || got[0].load != (signal.Load{}) {
				t.Errorf("%+v, want an error with %q", got, c.want)
			}
		})
	}
}

func TestScrape_WhenTargetCannotBeAsked_FailsOnce(t *testing.T) {
	for _, c := range []struct {
		target Target
		want   string
	}{
		{Target{URL: "ftp://user:secret@h/metrics"}, "url"},
		{Target{URL: "http:///metrics"}, "url"},
		{Target{URL: "http://user:secret@[::1/metrics"}, "url"},
		{Target{Interval: -1}, "interval"},
	} {
		got, asked := scrape(t, c.target, 0, time.Minute, serve)
		if len(got) != 1 || len(asked) != 0 || got[0].err == nil || !strings.Contains(got[0].err.Error(), c.want) || strings.Contains(got[0].err.Error(), "secret") {
			t.Errorf("%+v: %+v", c.target, got)
		}
	}
	Scrape(t.Context(), http.DefaultClient, Target{Name: "gpu-1", URL: "http://h"}, 0, func(_ time.Duration, _ signal.Load, err error) {
		if err == nil || !strings.Contains(err.Error(), "dialect") {
			t.Errorf("a target without a dialect: %v", err)
		}
	})
}

func TestScrape_SendsHeadersAndKeepsTheConnection(t *testing.T) {
	var remotes, accepts, keys []string
	status := http.StatusOK
	header := http.Header{"Authorization": {"Bearer k"}}
	_, asked := scrape(t, Target{Header: header}, 0, 4*time.Second-1, func(w http.ResponseWriter, r *http.Request) {
		remotes = append(remotes, r.RemoteAddr)
		accepts = append(accepts, r.Header.Get("Accept"))
		keys = append(keys, r.Header.Get("Authorization"))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, strings.Repeat("# x\n", 1000)+page)
		status = http.StatusInternalServerError // the next ones are errors, which must not cost the connection
	})
	if len(asked) != 4 || len(slices.Compact(remotes)) != 1 || slices.Compact(accepts)[0] != accept || slices.Compact(keys)[0] != "Bearer k" {
		t.Errorf("connections %v, Accept %v, Authorization %v", remotes, accepts, keys)
	}
	if len(header) != 1 {
		t.Errorf("the caller's header was changed: %v", header)
	}
}

func TestScrape_WhenPageIsUnclean_WarnsOfIt(t *testing.T) {
	var reports []upstream.Report
	target := Target{Warn: func(r upstream.Report) { reports = append(reports, r) }}
	clean := true
	got, _ := scrape(t, target, 0, 2*time.Second-1, func(w http.ResponseWriter, r *http.Request) {
		if !clean {
			_, _ = io.WriteString(w, "vllm:num_requests_running NaN\n")
		}
		serve(w, r)
		clean = false
	})
	if len(got) != 2 || got[1].err != nil || len(reports) != 1 || reports[0].BadValues != 1 {
		t.Errorf("outcomes %+v, reports %+v", got, reports)
	}
}

// TestScrape_OverSockets scrapes a real server, to see that nothing stays behind.
func TestScrape_OverSockets(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(serve))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	scrapes := 0
	Scrape(ctx, server.Client(), Target{Name: "gpu-1", URL: server.URL, Dialect: upstream.VLLM(), Interval: 5 * time.Millisecond}, 0,
		func(_ time.Duration, load signal.Load, err error) {
			if err == nil && !load.Running.Known {
				t.Errorf("no load and no error")
			}
			if scrapes++; scrapes == 5 {
				cancel()
			}
		})
	if scrapes != 5 {
		t.Errorf("%d scrapes", scrapes)
	}
}

// TestPhase_SpreadsRouters puts 100 routers into ten tenths of the interval, for each of
// 50 endpoints: chi-squared with 9 degrees of freedom is above 27.9 once in a thousand.
func TestPhase_SpreadsRouters(t *testing.T) {
	const interval, routers = time.Second, 100
	for e := range 50 {
		endpoint := fmt.Sprintf("gpu-%d", e)
		var tenths [10]int
		seen := map[time.Duration]bool{}
		for r := range routers {
			p := Phase(fmt.Sprintf("router-%d", r), endpoint, interval)
			if p < 0 || p >= interval {
				t.Fatalf("phase %v of %v", p, interval)
			}
			if p != Phase(fmt.Sprintf("router-%d", r), endpoint, interval) {
				t.Fatal("a phase that changes")
			}
			tenths[p*10/interval]++
			seen[p] = true
		}
		chi := 0.0
		for _, n := range tenths {
			chi += math.Pow(float64(n)-routers/10, 2) / (routers / 10)
		}
		if chi > 27.9 || len(seen) != routers {
			t.Errorf("%s: tenths %v, chi-squared %.1f, %d different phases", endpoint, tenths, chi, len(seen))
		}
	}
	if Phase("a", "b", interval) == Phase("a", "c", interval) || Phase("a", "b", interval) == Phase("b", "a", interval) || Phase("ab", "c", interval) == Phase("a", "bc", interval) {
		t.Error("names that differ have one phase")
	}
}
