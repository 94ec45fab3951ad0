package emulator

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/internal/testkit/memnet"
)

func TestRun_WhenItEnds_CallsInFlightEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, testConfig(t))
		var wg sync.WaitGroup
		wg.Go(func() {
			got, err := f.stream(chatBody("x", `,"max_tokens":4000,"ignore_eos":true,"stream":true`))
			want := `{"error": {"message": "EngineCore encountered an issue. See stack trace (above) for the root cause.", "type": "InternalServerError", "param": null, "code": 500}}`
			if n := len(got.event); err != nil || n < 3 || got.event[n-2] != want || got.event[n-1] != "[DONE]" {
				t.Errorf("%d events, the last %q, %v", n, got.event[max(n-2, 0):], err)
			}
		})
		wg.Go(func() {
			if status, body := f.do("/v1/chat/completions", chatBody("y", `,"max_tokens":4000,"ignore_eos":true`)); status != 500 || !strings.Contains(body, `"code":500`) {
				t.Errorf("%d %s", status, body)
			}
		})
		time.Sleep(100 * time.Millisecond)
		if status, body := f.get("/health"); status != 200 || body != "" {
			t.Errorf("health %d %q", status, body)
		}
		f.stop()
		wg.Wait()
		if status, _ := f.get("/health"); status != 503 {
			t.Errorf("health %d", status)
		}
		if status, body := f.do("/v1/chat/completions", chatBody("z", "")); status != 500 {
			t.Errorf("%d %s", status, body)
		}
		if status, _ := f.get("/metrics"); status != 503 {
			t.Errorf("metrics %d", status)
		}
		if err := f.server.Run(t.Context()); err == nil {
			t.Error("Run ran twice")
		}
	})
}

func TestServe_GivesCallsInFlightTheGrace(t *testing.T) {
	for _, c := range []struct {
		grace time.Duration
		whole bool
	}{{time.Minute, true}, {time.Second, false}} {
		synctest.Test(t, func(t *testing.T) {
			s, err := New(testConfig(t))
			if err != nil {
				t.Fatal(err)
			}
			n := memnet.New()
			l, err := n.Listen(address)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := s.Serve(ctx, l, c.grace); err != nil {
					t.Error(err)
				}
			})
			transport := &http.Transport{DialContext: n.DialContext}
			f := &fixture{t: t, server: s, client: &http.Client{Transport: transport}, epoch: time.Now()}
			wg.Go(func() {
				got, err := f.stream(chatBody("x", `,"max_tokens":1000,"ignore_eos":true,"stream":true`))
				if whole := len(got.text) == 4000; err != nil || whole != c.whole || (got.last.Error == nil) != c.whole {
					t.Errorf("grace %v: %d bytes of text, %v", c.grace, len(got.text), err)
				}
			})
			time.Sleep(time.Second)
			stop()
			synctest.Wait()
			if _, err := n.Dial("tcp", address); err == nil {
				t.Error("a call was taken after the end")
			}
			wg.Wait()
			transport.CloseIdleConnections()
		})
	}
}
