package telemetry

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Lines is a writer for a log that must not hold up what it tells of: Write never waits.
// Where the writer behind it stalls (a full pipe that nobody reads), lines are kept up to
// a bound; further ones are dropped, and how many is written once there is room again.
// It is safe for concurrent use; each Write is one whole line.
type Lines struct {
	queue   chan []byte
	dropped atomic.Int64
	stop    chan struct{} // closed by Close
	stopped sync.Once
	ended   chan struct{}
}

// flushTime is how long Close waits for the lines that are kept.
const flushTime = time.Second

// NewLines returns a Lines in front of w that keeps up to most lines. Close it.
func NewLines(w io.Writer, most int) *Lines {
	l := &Lines{queue: make(chan []byte, most), stop: make(chan struct{}), ended: make(chan struct{})}
	go l.run(w)
	return l
}

// run writes until Close, and then what is left.
func (l *Lines) run(w io.Writer) {
	defer close(l.ended)
	write := func(line []byte) {
		_, _ = w.Write(line) // there is nobody to tell that the log can't be written
		if n := l.dropped.Swap(0); n > 0 {
			fmt.Fprintf(w, "{\"level\":\"WARN\",\"msg\":\"log lines were dropped\",\"lines\":%d}\n", n)
		}
	}
	for {
		select {
		case line := <-l.queue:
			write(line)
		case <-l.stop:
			for {
				select {
				case line := <-l.queue:
					write(line)
				default:
					return
				}
			}
		}
	}
}

// Write keeps a copy of the line. It reports success also for a line that is dropped, as
// all are that come after Close has written the last.
func (l *Lines) Write(line []byte) (int, error) {
	select {
	case l.queue <- bytes.Clone(line):
	default:
		l.dropped.Add(1)
	}
	return len(line), nil
}

// Close waits for the lines that are kept to be written, up to a second. While the writer
// behind it stalls, one goroutine stays with it.
func (l *Lines) Close() {
	l.stopped.Do(func() { close(l.stop) })
	select {
	case <-l.ended:
	case <-time.After(flushTime):
	}
}
