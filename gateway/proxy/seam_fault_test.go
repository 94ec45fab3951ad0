package proxy_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kvasir/gateway/attempt"
	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
	"kvasir/upstream"
)

// saysOf returns the text of a stream's chunks, and whether it ends as a whole answer does, or
// with an error event.
func saysOf(t *testing.T, body string) (text string, whole, failed bool) {
	t.Helper()
	for line := range strings.Lines(body) {
		data, ok := strings.CutPrefix(line, "data: ")
		switch {
		case !ok:
			continue
		case whole || failed:
			t.Fatalf("%q after the end of %q", line, body)
		case strings.TrimSpace(data) == "[DONE]":
			whole = true
			continue
		}
		var x struct {
			Choices []struct {
				Text  string
				Delta struct{ Content string }
			}
			Error any
		}
		if err := json.Unmarshal([]byte(data), &x); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		failed = x.Error != nil
		for _, c := range x.Choices {
			text += c.Text + c.Delta.Content
		}
	}
	return text, whole, failed
}

// Under random faults, at random places, no answer has a word twice or lacks one: it is whole, or
// it is the beginning of the whole and an error event.
func TestContinue_UnderRandomFaults(t *testing.T) {
	const calls, clients, endpoints = 300, 12, 5
	var number atomic.Uint64
	script := func(who string) scripted.Script {
		return func(c *scripted.Call) {
			r := rand.New(rand.NewPCG(7, number.Add(1)))
			q := read(c)
			if r.IntN(3) == 0 {
				author(who)(c)
				return
			}
			if r.IntN(8) == 0 {
				c.Reply([]int{400, 429, 500, 503}[r.IntN(4)], "application/json", `{"error":{"message":"no"}}`)
				return
			}
			to := q.before + r.IntN(authorWords-q.before+1)
			q.write(c, who, to)
			if r.IntN(2) == 0 {
				c.Pause(time.Duration(r.IntN(5)) * time.Millisecond)
			}
			if to < authorWords && r.IntN(2) == 0 {
				e := q.wordEvent(who, to)
				_ = c.Chunk(e[:r.IntN(len(e))]) // a piece of an event, or of its end
				if r.IntN(2) == 0 {
					c.Pause(time.Millisecond)
				}
			} else if r.IntN(3) == 0 {
				_ = c.Chunk(errorEvent)
			}
			switch r.IntN(4) {
			case 0:
				c.FIN()
			case 1:
				c.RST()
			case 2:
				c.LastChunk()
			default:
				c.Hold() // until it is taken for stalled
			}
		}
	}
	var scripts []scripted.Script
	for i := range endpoints {
		scripts = append(scripts, script(fmt.Sprintf("endpoint-%d", i)))
	}
	s := pooled(scripts...)
	s.config = func(c *proxy.Config) {
		m := &c.Models[0]
		m.Continue, m.Pools[0].Dialect = proxy.Continue{Times: 3, Bytes: 1 << 20}, upstream.VLLM()
		m.Machine.Retry.Attempts = attempt.MaxAttempts
		m.Machine.Health.Failures = 1 << 20 // nobody leaves
		c.Heartbeat = 20 * time.Millisecond
		c.Timeouts = proxy.Timeouts{Header: 2 * time.Second, FirstToken: 300 * time.Millisecond, Progress: 150 * time.Millisecond, Idle: 150 * time.Millisecond}
	}
	r := newRig(t, s)
	r.attempts = attempt.MaxAttempts + 1
	defer r.close()
	var whole, cut atomic.Int64
	var next atomic.Int64
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			for {
				n := next.Add(1)
				if n > calls {
					return
				}
				path := []string{chatPath, completionPath}[n%2]
				a := r.post(path, asks[path])
				if !strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream") {
					continue // an error in place of an answer
				}
				text, ended, failed := saysOf(t, a.body)
				switch {
				case a.err != nil || ended == failed || !strings.HasPrefix(words(0, authorWords), text) || ended && text != words(0, authorWords):
					t.Errorf("%v, whole %v, failed %v: …%q; %v", a.err, ended, failed, a.body[max(len(a.body)-500, 0):], a.header)
				case ended:
					whole.Add(1)
				default:
					cut.Add(1)
				}
			}
		})
	}
	running.Wait()
	parts := 0
	for _, c := range r.records.all() {
		if c.string("outcome") == "success" && c.has("continued") {
			parts++
		}
	}
	if whole.Load() < calls/3 || parts < calls/10 {
		t.Errorf("of %d calls %d are answered whole, %d of them in parts, and %d break off", calls, whole.Load(), parts, cut.Load())
	}
	t.Logf("of %d calls %d are answered whole, %d of them in parts, and %d break off", calls, whole.Load(), parts, cut.Load())
}
