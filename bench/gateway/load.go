package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The client's process takes orders, one JSON line each, and answers each with two: an
// empty report when its connections are warm, and, after a line to go on, the report.

// order is calls to be made: closed loop, as many in flight as the cell says.
type order struct {
	Addr  string
	Cell  cell
	Calls int
}

// report is what an order brought.
type report struct {
	Error string `json:",omitempty"`

	Wall               time.Duration
	First50, First99   time.Duration
	Median, Percent99  time.Duration
	AnswerBytes, Calls int64
}

const bodySeed = 20

// serveLoad is the client.
func serveLoad(in io.Reader, out io.Writer) error {
	l := load{bodies: map[int][]conversation{}}
	lines := bufio.NewScanner(in)
	answers := json.NewEncoder(out)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return fmt.Errorf("order %q: %w", lines.Text(), err)
		}
		r, err := l.do(o, func() error {
			if err := answers.Encode(report{}); err != nil {
				return err
			}
			lines.Scan()
			return lines.Err()
		})
		if err != nil {
			r.Error = err.Error()
		}
		if err := answers.Encode(r); err != nil {
			return err
		}
	}
	return lines.Err()
}

type load struct {
	bodies  map[int][]conversation // by size
	numbers atomic.Uint64          // of calls; each body has one of its own
}

// do opens connections, warms them up, waits for the word, and makes the calls.
func (l *load) do(o order, ready func() error) (report, error) {
	if l.bodies[o.Cell.Body] == nil {
		l.bodies[o.Cell.Body] = makeConversations(o.Cell.Body, bodySeed)
	}
	clients := make([]*client, o.Cell.concurrency())
	for i := range clients {
		c, err := dial(o.Addr)
		if err != nil {
			return report{}, err
		}
		defer c.conn.Close()
		clients[i] = c
	}
	if _, err := l.make(clients, o.Cell.short(), len(clients)); err != nil {
		return report{}, fmt.Errorf("while warming up: %w", err)
	}
	if err := ready(); err != nil {
		return report{}, err
	}
	start := time.Now()
	took, err := l.make(clients, o.Cell, o.Calls)
	if err != nil {
		return report{}, err
	}
	r := report{Wall: time.Since(start), Calls: int64(len(took)), AnswerBytes: expectedAnswer(o.Cell).bytes}
	slices.SortFunc(took, func(a, b timing) int { return int(a.first - b.first) })
	r.First50, r.First99 = took[len(took)/2].first, took[len(took)*99/100].first
	slices.SortFunc(took, func(a, b timing) int { return int(a.whole - b.whole) })
	r.Median, r.Percent99 = took[len(took)/2].whole, took[len(took)*99/100].whole
	return r, nil
}

// make makes n calls over the clients; the first error ends it.
func (l *load) make(clients []*client, c cell, n int) ([]timing, error) {
	requests, want := prepare(c, l.bodies[c.Body]), expectedAnswer(c)
	took := make([]timing, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	var once sync.Once
	var failed error
	for _, conn := range clients {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				number := l.numbers.Add(1)
				t, err := conn.call(&requests[number%uint64(len(requests))], number, want)
				if err != nil {
					once.Do(func() { failed = fmt.Errorf("call %d of %d: %w", i+1, n, err) })
					next.Store(int64(n))
					return
				}
				took[i] = t
			}
		})
	}
	wg.Wait()
	return took, failed
}
