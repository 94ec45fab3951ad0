package proxy_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
)

// An answer without a word is none: a proxy in front of an engine, or what is left of one,
// sends such. Somebody else is asked.
func TestEmptyAnswersAreNone(t *testing.T) {
	stream := func(events ...string) scripted.Script {
		return func(c *scripted.Call) { c.Stream(events...) }
	}
	for name, x := range map[string]struct {
		script   scripted.Script
		request  string
		unusable bool
	}{
		"no content": {func(c *scripted.Call) { c.Head(204) }, unstreamed, true},
		"no bytes":   {func(c *scripted.Call) { c.Head(200, "Content-Type: application/json", "Content-Length: 0") }, unstreamed, true},
		"no chunks": {func(c *scripted.Call) {
			c.Head(200, "Content-Type: application/json", "Transfer-Encoding: chunked")
			c.LastChunk()
		}, unstreamed, true},
		"no events":         {stream(), streamed, true},
		"an end mark alone": {stream("data: [DONE]\n\n"), streamed, true},
		"an end mark, then a wait": {func(c *scripted.Call) {
			c.EventStream()
			_ = c.Chunk("data: [DONE]\n\n") // who does not read on may leave
			c.Pause(300 * time.Millisecond)
			c.LastChunk()
		}, streamed, true},
		"comments alone":        {stream(": wait\n\n", "data: [DONE]\n\n"), streamed, true},
		"a role, and no reason": {stream("data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\"},\"finish_reason\":\"stop\"}]}\n\n", "data: [DONE]\n\n"), streamed, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ordered(x.script))
			a := r.post(chatPath, x.request)
			r.close()
			if x.unusable && (a.status != 502 || envelope(t, a.body).Code != "bad_upstream_answer") || !x.unusable && a.status != 200 {
				t.Errorf("alone: status %d, %s", a.status, a.body)
			}
			second := good
			if x.request == streamed {
				second = stream(wholeStream("yes")...)
			}
			r = newRig(t, ordered(x.script, second))
			defer r.close()
			if a := r.post(chatPath, x.request); a.status != 200 || a.body == "" || len(r.upstreams[1].Calls()) == 0 == x.unusable {
				t.Errorf("with another one: status %d, %q, %d calls there", a.status, a.body, len(r.upstreams[1].Calls()))
			}
		})
	}
}

// A health path that may not exist says nothing until it has answered well once; no
// connection, and a status of a server in trouble, say something at once.
func TestHealthPathThatMayNotExistSaysNothing(t *testing.T) {
	for name, x := range map[string]struct {
		first, then int // statuses of the path
		out         bool
	}{
		"no page":             {404, 404, false},
		"no page for us":      {401, 401, false},
		"a page that is lost": {200, 404, true},
		"in trouble":          {503, 503, true},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			s := ordered(func(c *scripted.Call) {
				if !strings.HasPrefix(c.Record().Target, "/health") {
					good(c)
					return
				}
				code := x.then
				if asked.Add(1) == 1 {
					code = x.first
				}
				status(code)(c)
			}, good)
			s.config = func(c *proxy.Config) {
				c.Models[0].Pools[0].Probe = proxy.Probe{Path: "/health", Interval: 20 * time.Millisecond, Timeout: time.Second}
				c.Models[0].Machine.Pools[0].Misses = 3
			}
			r := newRig(t, s)
			defer r.close()
			stop := r.watching()
			defer stop()
			eventually(t, 10*time.Second, func() bool { return asked.Load() > 6 }, func() string { return "the path is not asked" })
			if n := r.metric("kvasir_endpoint_in_rotation", "endpoint=e1"); (n == 0) != x.out {
				t.Errorf("in rotation: %v", n)
			}
		})
	}
}
