package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"kvasir/api"
	"kvasir/api/sse"
	"kvasir/client/load/report"
)

const (
	readBytes  = 16 << 10 // at once of an answer
	saidBytes  = 200      // kept of what a failed call was answered
	lingering  = time.Second
	maxSpans   = 8       // of one answer
	mostIdle   = 1 << 14 // connections that are kept
	idleLimit  = 3 * time.Second
	dialLimit  = 30 * time.Second
	keptText   = 64 << 10 // of an answer, where details are kept
	headerMost = 64 << 10
)

// NewClient returns a client for many calls at once: HTTP/1.1, a connection a call in
// flight, kept for the next one. A connection that nobody used for three seconds is closed,
// before servers begin to close it (uvicorn does after five), so that no call is lost on it.
func NewClient() *http.Client {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	return &http.Client{
		Transport: &http.Transport{
			Proxy:       http.ProxyFromEnvironment,
			DialContext: (&net.Dialer{Timeout: dialLimit}).DialContext,
			Protocols:   protocols, DisableCompression: true,
			MaxIdleConns: mostIdle, MaxIdleConnsPerHost: mostIdle, IdleConnTimeout: idleLimit,
			MaxResponseHeaderBytes: headerMost, ReadBufferSize: readBytes, WriteBufferSize: readBytes,
		},
		// What a redirect answers is not what was asked.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// errOverdue ends a call that takes longer than it may.
var errOverdue = errors.New("the call took longer than it may")

// caller sends calls and measures them.
type caller struct {
	target   *Target
	client   *http.Client
	timeout  time.Duration // of a call; 0: none
	detailed bool
	started  time.Time
}

// now returns the time since the run's start.
func (c *caller) now() time.Duration { return time.Since(c.started) }

// scratch is what reading an answer needs, used again and again.
type scratch struct {
	sample report.Sample
	events sse.Reader
	buf    [readBytes]byte
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// begin makes the scratch ready for another call and keeps its memory.
func (s *scratch) begin(sample report.Sample, detailed bool) {
	outputs, spans := s.sample.Outputs, s.sample.Spans[:0]
	outputs.KeepAll = detailed
	outputs.Reset()
	s.sample = sample
	s.sample.Outputs, s.sample.Spans = outputs, spans
	s.sample.Usage = (&api.Tally{}).Usage() // unknown
}

// call sends a body and reads the answer, and fills the scratch's sample from Sent on. before
// is called when Sent is known.
func (c *caller) call(ctx context.Context, body []byte, s *scratch, before func()) {
	callCtx, cancel := context.WithCancel(ctx)
	if c.timeout > 0 {
		callCtx, cancel = context.WithTimeoutCause(ctx, c.timeout, errOverdue)
	}
	defer cancel()
	sample := &s.sample
	req, err := http.NewRequestWithContext(callCtx, http.MethodPost, c.target.url, bytes.NewReader(body))
	if err != nil {
		sample.Sent = c.now()
		before()
		c.fail(ctx, callCtx, sample, report.ConnectFailed, err)
		return
	}
	req.GetBody = nil // so that a call is sent once
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	c.target.address(req)
	sample.Sent = c.now()
	before()
	resp, err := c.client.Do(req)
	if err != nil {
		c.fail(ctx, callCtx, sample, blame(err), err)
		return
	}
	defer resp.Body.Close()
	sample.Endpoint = printable(resp.Header.Get("X-Kvasir-Endpoint"))
	sample.Spans = serverTiming(sample.Spans[:0], resp.Header.Values("Server-Timing"))
	if resp.StatusCode != http.StatusOK {
		kind := report.Failure("http_" + strconv.Itoa(resp.StatusCode))
		if said := refusal(resp, cancel); ctx.Err() == nil {
			c.end(sample, kind, said) // however long its words take
		} else {
			c.end(sample, report.Unfinished, said)
		}
		return
	}
	if t := resp.Header.Get("Content-Type"); !strings.HasPrefix(t, "text/event-stream") {
		c.fail(ctx, callCtx, sample, report.NoStream, fmt.Errorf("Content-Type is %q", t))
		return
	}
	if kind, err := c.receive(resp.Body, s, cancel); err != nil {
		c.fail(ctx, callCtx, sample, kind, err)
	}
}

// receive reads a streamed answer to its end. Where the answer is whole and the transfer
// does not end, it gives up the connection by cancel.
func (c *caller) receive(r io.Reader, s *scratch, cancel func()) (report.Failure, error) {
	sample, grammar := &s.sample, c.target.Backend.Grammar
	s.events.Reset(0)
	var tally api.Tally
	var text []byte
	for {
		n, err := r.Read(s.buf[:])
		now := c.now()
		s.events.Feed(s.buf[:n])
		for ev, ok := s.events.Next(); ok; ev, ok = s.events.Next() {
			chunk := api.ReadChunk(grammar, ev.Type, ev.Data)
			if chunk.Kind != api.Failure && chunk.Kind != api.Done && malformed(ev.Data) {
				sample.BadEvents++
				continue
			}
			wasDone := tally.Done
			tally.Add(chunk)
			switch chunk.Kind {
			case api.Failure:
				return report.StreamError, errors.New(string(ev.Data[:min(len(ev.Data), saidBytes)]))
			case api.Content:
				sample.Outputs.Add(now)
				if chunk.Visible && sample.Visible == 0 {
					sample.Visible = now
				}
				if c.detailed && len(text) < keptText {
					text = appendText(text, grammar, ev.Data)
				}
			case api.Done:
				if !wasDone {
					sample.End = now
					defer time.AfterFunc(lingering, cancel).Stop()
				}
			}
		}
		if err == nil {
			continue
		}
		sample.Usage, sample.Text = tally.Usage(), string(text)
		switch {
		case tally.Done:
		case err != io.EOF:
			return report.Broken, err
		case grammar.HasDone() && !tally.Finished:
			return report.Broken, errCut
		default: // it said why it ends, and then ended
			sample.End = now
		}
		if sample.Outputs.N == 0 {
			return report.Empty, errors.New("the answer ended without content")
		}
		return "", nil
	}
}

// fail ends a sample with what went wrong, of which the run's end is no failure of the call.
func (c *caller) fail(run, call context.Context, s *report.Sample, kind report.Failure, err error) {
	switch {
	case run.Err() != nil:
		kind = report.Unfinished
	case context.Cause(call) == errOverdue:
		kind = report.Overdue
	}
	c.end(s, kind, err.Error())
}

// end ends a sample with a failure and what a server or the system says of it.
func (c *caller) end(s *report.Sample, kind report.Failure, detail string) {
	s.Failure, s.Detail, s.End = kind, printable(detail[:min(len(detail), saidBytes)]), c.now()
}

// refusal returns what an answer says that is no success: of a redirect where to, and the
// beginning of its body. A body that does not end is given up by cancel.
func refusal(resp *http.Response, cancel func()) string {
	defer time.AfterFunc(lingering, cancel).Stop()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, saidBytes))
	words := []string{string(body)}
	if to := resp.Header.Get("Location"); to != "" {
		words = []string{"redirect to " + to, string(body)}
	}
	if said := strings.TrimSpace(strings.Join(words, " ")); said != "" {
		return said
	}
	return "no words"
}

// blame says which failure an error of a connection is.
func blame(err error) report.Failure {
	for _, shortage := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS} {
		if errors.Is(err, shortage) {
			return report.Exhausted
		}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return report.ConnectFailed
	}
	return report.Broken
}

// serverTiming reads the durations of a Server-Timing header (W3C Server Timing: entries of a
// name and parameters, dur in milliseconds). What it cannot read it leaves out.
func serverTiming(spans []report.Span, values []string) []report.Span {
	for _, value := range values {
		for entry := range strings.SplitSeq(value, ",") {
			name, parameters, _ := strings.Cut(entry, ";")
			for p := range strings.SplitSeq(parameters, ";") {
				key, v, _ := strings.Cut(p, "=")
				if !strings.EqualFold(strings.TrimSpace(key), "dur") {
					continue
				}
				ms, err := strconv.ParseFloat(strings.Trim(strings.TrimSpace(v), `"`), 64)
				if err == nil && ms >= 0 && ms < 1e9 && len(spans) < maxSpans {
					spans = append(spans, report.Span{Name: printable(strings.TrimSpace(name)), Time: time.Duration(ms * 1e6)})
				}
				break
			}
		}
	}
	return spans
}
