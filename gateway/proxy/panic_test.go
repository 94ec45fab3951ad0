package proxy_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
	"kvasir/selection"
)

// A panic anywhere in a call gives back all that the call held, and is recorded.
func TestPanicGivesEverythingBack(t *testing.T) {
	var armed atomic.Bool
	boom := func() {
		if armed.CompareAndSwap(true, false) {
			panic("boom")
		}
	}
	for name, config := range map[string]func(*proxy.Config){
		"after the charge": func(c *proxy.Config) {
			c.Models[0].Machine.Explain = true
			c.OnDecision = func(string, *selection.Decision) { boom() }
		},
		"in the transport": func(c *proxy.Config) {
			inner := c.Transport
			c.Transport = transportFunc(func(q *http.Request) (*http.Response, error) {
				if armed.Load() {
					_ = q.Body.Close() // whatever else a transport does, it closes the body
				}
				boom()
				return inner.RoundTrip(q)
			})
		},
		"in the answer's body": func(c *proxy.Config) {
			inner := c.Transport
			c.Transport = transportFunc(func(q *http.Request) (*http.Response, error) {
				resp, err := inner.RoundTrip(q)
				if err == nil {
					resp.Body = &explosive{resp.Body, boom, 0}
				}
				return resp, err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := pooled(func(c *scripted.Call) { c.Stream(wholeStream("a", "b")...) })
			s.config = config
			r := newRig(t, s)
			defer r.close()
			armed.Store(true)
			if a, err := r.do(t.Context(), "POST", chatPath, strings.NewReader(streamed)); err == nil && a.err == nil {
				t.Errorf("a panic became status %d", a.status)
			}
			r.settle()
			all := r.records.all()
			if len(all) != 1 || all[0].string("outcome") != "unclassified" {
				t.Errorf("records %v", all)
			}
			if !strings.Contains(r.serverLog.String(), "boom") {
				t.Error("the server's log does not tell")
			}
			if a := r.post(chatPath, streamed); a.status != 200 || a.err != nil {
				t.Errorf("afterwards: status %d, %v", a.status, a.err)
			}
		})
	}
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

// explosive is a body that blows up at the second read.
type explosive struct {
	body interface {
		Read([]byte) (int, error)
		Close() error
	}
	boom  func()
	reads int
}

func (e *explosive) Read(p []byte) (int, error) {
	if e.reads++; e.reads == 2 {
		e.boom()
	}
	return e.body.Read(p[:min(len(p), 200)])
}

func (e *explosive) Close() error { return e.body.Close() }
