package observe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/internal/testkit/memnet"
)

// rawAnswer asks a server that answers with text, and returns the error.
func rawAnswer(t *testing.T, text string) error {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer l.Close()
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, text)
			_ = c.Close()
		}
	})
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	_, err = get(t.Context(), &http.Client{Transport: transport}, &url.URL{Scheme: "http", Host: l.Addr().String()}, nil, "*/*", new(bytes.Buffer), 100, 100)
	return err
}

// verdict is what a probe's sink was told, and when.
type verdict struct {
	at  time.Duration
	ok  bool
	err error
}

// probe lets a Probe of handler run for a while in a bubble, over an in-memory network,
// and returns what the sink was told and when the handler was asked.
func probe(t *testing.T, target ProbeTarget, phase, during time.Duration, handler http.HandlerFunc) (verdicts []verdict, asked []time.Duration) {
	t.Helper()
	return probeDoubted(t, target, false, phase, during, handler)
}

// probeDoubted is probe, where somebody may have raised a doubt before it begins.
func probeDoubted(t *testing.T, target ProbeTarget, doubted bool, phase, during time.Duration, handler http.HandlerFunc) (verdicts []verdict, asked []time.Duration) {
	t.Helper()
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		var under atomic.Int32
		network := memnet.New()
		l, err := network.Listen("engine:8000")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if under.Add(1) > 1 {
				t.Error("two probes overlap")
			}
			defer under.Add(-1)
			mu.Lock()
			asked = append(asked, time.Since(start))
			mu.Unlock()
			handler(w, r)
		})}
		var wg sync.WaitGroup
		wg.Go(func() { _ = server.Serve(l) })
		transport := &http.Transport{DialContext: network.DialContext}
		if target.URL == "" {
			target.URL = "http://engine:8000/health"
		}
		target.Name = "gpu-1"
		if doubted {
			doubt := make(chan struct{}, 1) // of the bubble
			doubt <- struct{}{}
			target.Doubt = doubt
		}
		ctx, cancel := context.WithTimeout(t.Context(), during)
		defer cancel()
		Probe(ctx, &http.Client{Transport: transport}, target, phase, func(ok bool, err error) {
			verdicts = append(verdicts, verdict{time.Since(start), ok, err})
		})
		if got := time.Since(start); len(verdicts) > 0 && ctx.Err() != nil && got != during {
			t.Errorf("Probe returned after %v, its context ended after %v", got, during)
		}
		transport.CloseIdleConnections()
		_ = server.Close()
		wg.Wait()
	})
	return verdicts, asked
}

func well(http.ResponseWriter, *http.Request) {}

func TestProbe_WhenTargetIsWell_KeepsTheGrid(t *testing.T) {
	phase := 250*time.Millisecond + 1
	var methods, remotes, keys []string
	got, asked := probe(t, ProbeTarget{Header: http.Header{"Authorization": {"Bearer k"}}}, phase, 4*time.Second, func(w http.ResponseWriter, r *http.Request) {
		methods, remotes, keys = append(methods, r.Method+" "+r.URL.Path), append(remotes, r.RemoteAddr), append(keys, r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusNoContent)
	})
	if want := []time.Duration{phase, phase + time.Second, phase + 2*time.Second, phase + 3*time.Second}; !slices.Equal(asked, want) {
		t.Errorf("asked at %v, want %v", asked, want)
	}
	if len(slices.Compact(methods)) != 1 || methods[0] != "GET /health" || len(slices.Compact(remotes)) != 1 || slices.Compact(keys)[0] != "Bearer k" {
		t.Errorf("%v over %v with %v", methods, remotes, keys)
	}
	if len(got) != 4 {
		t.Fatalf("%+v", got)
	}
	for _, v := range got {
		if !v.ok || v.err != nil {
			t.Errorf("%+v", v)
		}
	}
}

func TestProbe_WhenTargetIsNotWell_SaysWhy(t *testing.T) {
	for _, c := range []struct {
		name    string
		target  ProbeTarget
		handler http.HandlerFunc
		want    string
	}{
		{"dead engine", ProbeTarget{}, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret", http.StatusServiceUnavailable) }, "status 503"},
		{"no page", ProbeTarget{}, http.NotFound, "status 404: no such page"},
		{"no page for us", ProbeTarget{}, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret", http.StatusUnauthorized) }, "status 401: no such page"},
		{"redirect", ProbeTarget{}, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/health" {
				http.Redirect(w, r, "/secret", http.StatusTemporaryRedirect)
			}
		}, "status 307"},
		{"not modified", ProbeTarget{}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }, "status 304"},
		{"nobody", ProbeTarget{URL: "http://u:secret@nobody:1/health"}, well, "connection refused"},
		{"late", ProbeTarget{}, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no whole answer within 1s"},
		{"late body", ProbeTarget{}, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, "no whole answer within 1s"},
		{"cut short", ProbeTarget{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "secret")
		}, "unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _ := probe(t, c.target, 0, 1900*time.Millisecond, c.handler)
			if len(got) == 0 || got[0].ok || got[0].err == nil {
				t.Fatalf("%+v", got)
			}
			text := got[0].err.Error()
			if !strings.HasPrefix(text, "probe gpu-1: http://") || !strings.Contains(text, c.want) || strings.Contains(text, "secret") || len(text) > 300 {
				t.Errorf("%q, want %q", text, c.want)
			}
			if none := strings.Contains(c.want, "no such page"); errors.Is(got[0].err, ErrNoPage) != none {
				t.Errorf("%q is about a page that is not there: %v", text, !none)
			}
			if late := strings.Contains(c.want, "within"); errors.Is(got[0].err, context.DeadlineExceeded) != late {
				t.Errorf("%q is about time: %v", text, !late)
			}
		})
	}
}

// TestProbe_WhenAnswerIsLong_ReadsItsStart has an answer of a status of its own and
// endless length, of which 4 KiB suffice.
func TestProbe_WhenAnswerIsLong_ReadsItsStart(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusAccepted, http.StatusInternalServerError} {
		got, _ := probe(t, ProbeTarget{}, 0, time.Second/2, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat("x", probeMost)); err != nil {
					return
				}
			}
		})
		if len(got) != 1 || got[0].at != 0 || got[0].ok != (status < 300) {
			t.Errorf("%d: %+v", status, got)
		}
	}
}

func TestProbe_WhenTargetIsSlow_SkipsBeats(t *testing.T) {
	delays := ms(0, 250, 350, 90)
	target := ProbeTarget{Interval: 100 * time.Millisecond, Timeout: 300 * time.Millisecond}
	var calls int
	got, asked := probe(t, target, 30*time.Millisecond, time.Second, func(_ http.ResponseWriter, r *http.Request) {
		delay := delays[min(calls, len(delays)-1)]
		calls++
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
		}
	})
	if want := ms(30, 130, 430, 830, 930); !slices.Equal(asked, want) {
		t.Errorf("asked at %v, want %v", asked, want)
	}
	if len(got) != 4 || !got[0].ok || !got[1].ok || got[2].ok || got[2].at != 730*time.Millisecond || !got[3].ok {
		t.Errorf("%+v", got)
	}
}

func TestProbe_WhenIntervalIsLong_TimesOutAfterFiveSeconds(t *testing.T) {
	got, _ := probe(t, ProbeTarget{Interval: time.Minute}, 0, 30*time.Second, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	if len(got) != 1 || got[0].at != 5*time.Second || !strings.Contains(got[0].err.Error(), "within 5s") {
		t.Errorf("%+v", got)
	}
}

func TestProbe_WhenContextEnds_TellsNothingMore(t *testing.T) {
	// During the wait for a beat, and during a probe.
	for _, during := range ms(1500, 1100) {
		calls := 0
		got, asked := probe(t, ProbeTarget{}, 0, during, func(_ http.ResponseWriter, r *http.Request) {
			if calls++; calls == 2 {
				select {
				case <-time.After(400 * time.Millisecond):
				case <-r.Context().Done():
				}
			}
		})
		if len(asked) != 2 || len(got) != map[time.Duration]int{1500 * time.Millisecond: 2, 1100 * time.Millisecond: 1}[during] {
			t.Errorf("after %v: asked %d times, told %+v", during, len(asked), got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	Probe(ctx, http.DefaultClient, ProbeTarget{URL: "http://nobody:1"}, 0, func(bool, error) { t.Error("told after the end") })
}

func TestProbe_WhenTargetCannotBeAsked_FailsOnce(t *testing.T) {
	for _, c := range []struct {
		target ProbeTarget
		want   string
	}{
		{ProbeTarget{URL: "ftp://user:secret@h/health"}, "url"},
		{ProbeTarget{URL: "http:///health"}, "url"},
		{ProbeTarget{URL: "http://user:secret@[::1/health"}, "url"},
		{ProbeTarget{Interval: -1}, "interval"},
		{ProbeTarget{Timeout: -1}, "timeout"},
	} {
		got, asked := probe(t, c.target, 0, time.Minute, well)
		if len(got) != 1 || len(asked) != 0 || got[0].ok || !strings.Contains(got[0].err.Error(), c.want) || strings.Contains(got[0].err.Error(), "secret") {
			t.Errorf("%+v: %+v", c.target, got)
		}
	}
}

// TestProbe_OverSockets probes a real server, to see that nothing stays behind.
func TestProbe_OverSockets(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(well))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	probes := 0
	Probe(ctx, server.Client(), ProbeTarget{Name: "gpu-1", URL: server.URL, Interval: 5 * time.Millisecond, Timeout: time.Minute}, 0, func(ok bool, err error) {
		if !ok || err != nil {
			t.Errorf("%v", err)
		}
		if probes++; probes == 5 {
			cancel()
		}
	})
	if probes != 5 {
		t.Errorf("%d probes", probes)
	}
}

// Nobody listens: the next probes come soon, whatever the interval, and end up on the grid
// again where nobody comes.
func TestProbe_AsksAgainSoon_WhereNobodyListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		refusing := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}}
		doubt := make(chan struct{}, 1)
		target := ProbeTarget{Name: "gpu-1", URL: "http://engine:8000/health", Interval: 10 * time.Second, Doubt: doubt}
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Second)
		defer cancel()
		time.AfterFunc(2*time.Second, func() { doubt <- struct{}{} })
		Probe(ctx, &http.Client{Transport: refusing}, target, 5*time.Second, func(ok bool, err error) {
			if ok || !Refused(err) {
				t.Errorf("%v %v", ok, err)
			}
			at = append(at, time.Since(start))
		})
		var want []time.Duration
		for i := range 21 { // the doubt's, and 20 after it; the phase's falls on one of them
			want = append(want, 2*time.Second+time.Duration(i)*refusedAgain)
		}
		want = append(want, 15*time.Second)
		if !slices.Equal(at, want) {
			t.Errorf("asked at %v\nwant %v", at, want)
		}
	})
}

// Somebody who answers, badly or well, is asked on the beat alone, also after a doubt.
func TestProbe_KeepsToItsBeat_WhereSomebodyAnswers(t *testing.T) {
	for _, status := range []int{200, 503} {
		_, asked := probeDoubted(t, ProbeTarget{Interval: 10 * time.Second}, true, 5*time.Second, 26*time.Second, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
		})
		if want := []time.Duration{0, 5 * time.Second, 15 * time.Second, 25 * time.Second}; !slices.Equal(asked, want) {
			t.Errorf("status %d: asked at %v, want %v", status, asked, want)
		}
	}
}
