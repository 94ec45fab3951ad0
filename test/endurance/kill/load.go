package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kvasir/test/endurance/internal/client"
	"kvasir/test/endurance/internal/ledger"
)

// load is clients that make one call after the other until they are told to stop.
type load struct {
	k     *stage
	name  string
	next  atomic.Int64
	stop  atomic.Bool
	alive sync.WaitGroup

	mu    sync.Mutex
	calls map[string]*call // in flight
	ended []*call
}

// call is one call in flight, or over.
type call struct {
	id       string
	started  time.Time
	endpoint string // once the answer has begun
	begun    time.Time
	stream   bool
	result   *ledger.Result
}

// start starts n clients; with fresh each call has a connection of its own.
func (k *stage) load(name string, n int, fresh bool) *load {
	l := &load{k: k, name: name, calls: map[string]*call{}}
	for i := range n {
		l.alive.Go(func() { l.client(i, fresh) })
	}
	return l
}

// client makes calls. One that finds nobody listening stops.
func (l *load) client(i int, fresh bool) {
	r := rand.New(rand.NewPCG(l.k.o.seed, uint64(i)))
	w := &client.Worker{Addr: l.k.addr, Bound: 120 * time.Second}
	defer w.Close()
	time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
	for !l.stop.Load() {
		c := &call{id: fmt.Sprintf("%s-%d", l.name, l.next.Add(1)), started: time.Now(), stream: true}
		body := fmt.Sprintf(`{"model":"m","stream":true,"max_tokens":%d,"ignore_eos":true,"messages":[{"role":"user","content":"%d %s"}]}`,
			l.k.o.tokens, r.Uint64(), strings.Repeat("lorem ipsum ", 60+r.IntN(120)))
		b := &client.Behaviour{
			Wire:  fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nX-Request-Id: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", c.id, len(body), body),
			Reuse: !fresh && r.IntN(2) == 0,
			OnHead: func(h http.Header) {
				l.mu.Lock()
				defer l.mu.Unlock()
				c.endpoint, c.begun = h.Get("X-Kvasir-Endpoint"), time.Now()
			},
		}
		l.mu.Lock()
		l.calls[c.id] = c
		l.mu.Unlock()
		res := w.Do(b)
		l.mu.Lock()
		c.result = res
		delete(l.calls, c.id)
		l.ended = append(l.ended, c)
		l.mu.Unlock()
		if !res.Connected {
			return
		}
		if res.Status != http.StatusOK { // what clients do, so that they don't go round at once
			time.Sleep(time.Duration(200+r.IntN(300)) * time.Millisecond)
		}
	}
}

// flight returns the calls in flight: all, and those that an engine has begun to answer.
func (l *load) flight(endpoint string) (all, begun int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls {
		if c.endpoint == endpoint && !c.begun.IsZero() {
			begun++
		}
	}
	return len(l.calls), begun
}

// halt tells the clients to make no further call; wait waits for those that they have.
func (l *load) halt() { l.stop.Store(true) }

func (l *load) wait() []*call {
	l.alive.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// verdict is what became of a call.
type verdict string

const (
	whole       verdict = "whole"
	saved       verdict = "whole, saved by a retry"
	refused     verdict = "refused by the retry budget"
	failed      verdict = "another error before content"
	cut         verdict = "cut after content, typed error event"
	broken      verdict = "cut after content, broken connection"
	halfQuiet   verdict = "cut after content, nothing said"
	unanswered  verdict = "connection lost before any answer"
	unconnected verdict = "not accepted"
)

var errorEvent = regexp.MustCompile(`(?m)^data: (\{"error":.*\})$`)

// judge says what became of a call.
func (l *load) judge(c *call) (v verdict, detail string) {
	r := c.result
	body := string(r.Body)
	switch {
	case !r.Connected:
		return unconnected, r.Err
	case r.Status == 0:
		return unanswered, r.Err
	case r.Status != http.StatusOK:
		if strings.Contains(body, "retry_budget_spent") || strings.Contains(body, "budget") {
			return refused, body
		}
		return failed, fmt.Sprintf("status %d: %s", r.Status, body)
	}
	events := errorEvent.FindAllStringSubmatch(body, -1)
	done := strings.Contains(body, "data: [DONE]")
	switch {
	case r.Clean && done && len(events) == 0:
		if recs := l.k.record(c.id); len(recs) > 0 && recs[0].Attempts > 1 {
			return saved, ""
		}
		return whole, ""
	case r.Clean && !done && len(events) == 1:
		var e struct {
			Error struct{ Message, Type, Code string } `json:"error"`
		}
		if json.Unmarshal([]byte(events[0][1]), &e) == nil && e.Error.Type != "" && e.Error.Code != "" {
			return cut, e.Error.Code
		}
		return halfQuiet, "an error event without type or code: " + events[0][1]
	case !r.Clean:
		return broken, r.Err + fmt.Sprintf(": …%.200q", body[max(0, len(body)-200):])
	}
	return halfQuiet, fmt.Sprintf("[DONE] %v, %d error events, clean %v", done, len(events), r.Clean)
}
