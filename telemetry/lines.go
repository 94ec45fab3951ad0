package telemetry

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Lines is a writer for a log that must not hold up what it tells of: Write never waits.
// Where the writer behind it stalls (a full pipe that nobody reads), lines are kept up to
// a bound; further ones are dropped, and how many is written once there is room again.
// Lines that come while others are being written are written together. It is safe for
// concurrent use; each Write is one whole line.
type Lines struct {
	most  int
	ended chan struct{}

	mu      sync.Mutex
	more    sync.Cond
	kept    []byte
	count   int // of the lines in kept
	dropped int
	closed  bool
}

// flushTime is how long Close waits for the lines that are kept.
const flushTime = time.Second

// keptBuffer is how large a buffer may have grown that is used again.
const keptBuffer = 1 << 20

// NewLines returns a Lines in front of w that keeps up to most lines. Close it.
func NewLines(w io.Writer, most int) *Lines {
	l := &Lines{most: most, ended: make(chan struct{})}
	l.more.L = &l.mu
	go l.run(w)
	return l
}

// run writes until Close, and then what is left.
func (l *Lines) run(w io.Writer) {
	defer close(l.ended)
	var writing []byte
	for {
		l.mu.Lock()
		for l.count == 0 && !l.closed {
			l.more.Wait()
		}
		if l.count == 0 && l.dropped == 0 {
			l.mu.Unlock()
			return
		}
		writing, l.kept = l.kept, writing[:0]
		l.count = 0
		dropped := l.dropped
		l.dropped = 0
		l.mu.Unlock()

		_, _ = w.Write(writing) // there is nobody to tell that the log can't be written
		if dropped > 0 {
			fmt.Fprintf(w, "{\"level\":\"WARN\",\"msg\":\"log lines were dropped\",\"lines\":%d}\n", dropped)
		}
		if cap(writing) > keptBuffer {
			writing = nil
		}
	}
}

// Write keeps a copy of the line. It reports success also for a line that is dropped, as
// all are that come after Close has written the last.
func (l *Lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return len(line), nil
	case l.count >= l.most:
		l.dropped++
		return len(line), nil
	}
	l.kept = append(l.kept, line...)
	l.count++
	if l.count == 1 {
		l.more.Signal()
	}
	return len(line), nil
}

// Close waits for the lines that are kept to be written, up to a second. While the writer
// behind it stalls, one goroutine stays with it.
func (l *Lines) Close() {
	l.mu.Lock()
	l.closed = true
	l.more.Signal()
	l.mu.Unlock()
	select {
	case <-l.ended:
	case <-time.After(flushTime):
	}
}
