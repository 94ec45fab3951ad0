package upstream

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"kvasir/test/endurance/internal/ledger"
)

// wire writes one attempt's answer.
type wire struct {
	conn    *conn
	call    *ledger.Call
	attempt *ledger.Attempt
	gone    chan struct{} // closed when the peer is gone
	again   chan bool     // whether another request's first byte came
	own     atomic.Bool   // the plan itself ends the connection
}

// watch waits for the next request's first byte, or for the peer to go.
func (w *wire) watch(in *bufio.Reader) {
	_, err := in.Peek(1)
	if err != nil {
		w.lost()
		close(w.gone)
	}
	w.again <- err == nil
}

func (w *wire) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.gone:
		return false
	}
}

// maxEndless bounds an endless body.
const maxEndless = 64 << 20

// run does what the plan says. It reports whether the connection can have another request.
func (w *wire) run(p *Plan) bool {
	if p.Wait > 0 && !w.pause(p.Wait) {
		return false
	}
	if p.Silent {
		return w.end(p)
	}
	if p.Early != "" {
		_, _ = io.WriteString(w.conn, p.Early)
	}
	var h strings.Builder
	fmt.Fprintf(&h, "HTTP/1.1 %d %s\r\n", p.Status, http.StatusText(p.Status))
	if p.Type != "" {
		h.WriteString("Content-Type: " + p.Type + "\r\n")
	}
	for _, line := range p.Header {
		h.WriteString(line + "\r\n")
	}
	switch p.Framing {
	case Chunked:
		h.WriteString("Transfer-Encoding: chunked\r\n")
	case Length:
		fmt.Fprintf(&h, "Content-Length: %d\r\n", p.Cut+p.Short)
	case UntilClose:
		h.WriteString("Connection: close\r\n")
	}
	if _, err := io.WriteString(w.conn, h.String()+"\r\n"); err != nil {
		return false
	}
	write := func(piece []byte) bool { return w.write(p, piece) }
	if p.Endless {
		for sent := 0; sent < maxEndless; sent += len(p.Text) {
			if !write(p.Text) {
				return false
			}
		}
		return false
	}
	if !p.pieces(write, w.pause) {
		return false
	}
	return w.end(p)
}

// write writes a piece of the body in its framing, in one write.
func (w *wire) write(p *Plan, piece []byte) bool {
	out := piece
	if p.Framing == Chunked {
		out = fmt.Appendf(nil, "%x\r\n", len(piece))
		out = append(append(out, piece...), "\r\n"...)
	}
	if !p.Endless {
		// Before the write: the client may have it before the write returns.
		w.call.Note(func() {
			a := w.attempt
			a.Sent = append(a.Sent, piece...)
			if sent := len(a.Sent); a.Content.IsZero() && (p.Preamble > 0 && sent > p.Preamble || sent == len(p.Text)) {
				a.Content = time.Now()
			}
		})
	}
	_, err := w.conn.Write(out)
	if err != nil {
		w.lost()
	}
	return err == nil
}

// lost notes that the peer is gone before the attempt's end.
func (w *wire) lost() {
	now := time.Now()
	w.call.Note(func() {
		a := w.attempt
		if a.Ended.IsZero() && a.Aborted.IsZero() && !w.own.Load() && !a.Killed {
			a.Aborted = now
		}
	})
}

func (w *wire) end(p *Plan) bool {
	switch p.Ending {
	case Hang:
		<-w.gone
		return false
	case RST:
		w.own.Store(true)
		reset(w.conn.Conn)
		return false
	case FIN:
		w.own.Store(true)
		return false
	}
	switch p.Framing {
	case Chunked:
		_, err := io.WriteString(w.conn, "0\r\n\r\n")
		return err == nil
	case UntilClose:
		w.own.Store(true)
		return false
	}
	return true
}
