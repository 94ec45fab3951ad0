package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress tells a person at a terminal how far a long command is; it writes nothing to a
// file or a pipe. Its zero value does nothing until begin. It is safe for concurrent use.
type progress struct {
	mu        sync.Mutex
	out       io.Writer // nil: nobody watches
	began     time.Time
	over, all int
	shown     time.Time
	everShown bool
}

// begin starts the clock where out is a terminal.
func (p *progress) begin(out io.Writer) {
	if !isTerminal(out) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out, p.began = out, time.Now()
}

// expect adds to what there is to do.
func (p *progress) expect(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all += n
}

// done counts one more as done.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over++
	now := time.Now()
	if p.out == nil || now.Sub(p.began) < time.Second || now.Sub(p.shown) < 200*time.Millisecond {
		return
	}
	p.shown, p.everShown = now, true
	const width = 30
	full := width * p.over / max(p.all, 1)
	fmt.Fprintf(p.out, "\r[%-*.*s] %d of %d runs, %.0f s ", width, full, "##############################", p.over, p.all, now.Sub(p.began).Seconds())
}

// end clears the line.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.everShown {
		fmt.Fprintf(p.out, "\r%60s\r", "")
	}
	p.out, p.everShown = nil, false
}
