package proxy

import (
	"context"
	"io"
	"mime"
	"net/http"
	"time"

	"kvasir/api"
	"kvasir/gateway/attempt"
)

const (
	// maxHeldError bounds what is kept of a failed answer's body, in case it is the last
	// word, and of one that might quote a key.
	maxHeldError = 64 << 10
	// restGrace is how long the rest of a failed answer may take: another attempt waits
	// for it.
	restGrace = 200 * time.Millisecond
)

// receive deals with an answer whose header has come. cancel aborts the attempt.
func (c *call) receive(resp *http.Response, watch *connWatch, cancel context.CancelFunc) {
	ok := resp.StatusCode >= 200 && resp.StatusCode < 300
	switch o := attempt.FromStatus(resp.StatusCode); {
	case ok && c.wrongType(resp):
		c.unusable(attempt.Failed, wrongContentType(c.hideKey(resp.Header.Get("Content-Type")), c.request.Stream))
	case resp.StatusCode < 400 && !ok:
		c.unusable(attempt.Failed, noAnswer(resp.StatusCode))
	case o.Retryable():
		c.keepRest(resp.Body, cancel)
		c.fail(o)
	case ok && c.request.Stream && identity(resp.Header):
		c.relayStream(resp, cancel)
	default:
		c.relayPlain(resp, o, watch)
	}
}

// wrongType reports whether an answer is a stream where none was asked for, or the
// reverse: passing it on would make the client's parser fail in its own words.
func (c *call) wrongType(resp *http.Response) bool {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return (kind == "text/event-stream") != c.request.Stream
}

// identity reports whether an answer's bytes are what they say, not compressed.
func identity(h http.Header) bool {
	for _, enc := range h["Content-Encoding"] {
		if !plain(enc) {
			return false
		}
	}
	return true
}

// unusable ends the call on an answer that must not reach the client.
func (c *call) unusable(o attempt.Outcome, e api.Error) {
	c.fail(o)
	if c.answer.outcome != attempt.ClientGone {
		c.sendError(e)
	}
}

// keepRest holds the rest of a failed answer's body back, in case no other attempt
// follows. It waits for it no longer than restGrace.
func (c *call) keepRest(r io.Reader, cancel context.CancelFunc) {
	timer := time.AfterFunc(restGrace, cancel)
	defer timer.Stop()
	c.answer.whole = c.keepAll(r) == io.EOF
}

// keepAll holds back what r has, up to maxHeldError in all. It returns the error that
// ended r, nil where there is more, or errNoRoom, and then some of it is lost.
func (c *call) keepAll(r io.Reader) error {
	for {
		room := maxHeldError - len(c.kept)
		if room <= 0 {
			return nil
		}
		n, err := r.Read(c.buf[:min(len(c.buf), room)])
		if !c.keep(c.buf[:n]) {
			return errNoRoom
		}
		if err != nil {
			return err
		}
	}
}

// keep holds bytes back, within the bound on what all calls hold.
func (c *call) keep(p []byte) bool {
	if !c.g.buffered.take(int64(len(p))) {
		return false
	}
	c.kept = append(c.kept, p...)
	return true
}

// giveKept drops what was held back.
func (c *call) giveKept() {
	c.g.buffered.give(int64(len(c.kept)))
	c.kept = c.kept[:0]
}

// hideKey returns what may be quoted of an endpoint's words.
func (c *call) hideKey(said string) string {
	if c.secret.in([]byte(said)) {
		return "[withheld]"
	}
	return said
}

// keptQuotesKey reports whether what is held back quotes the endpoint's key: an engine
// that refuses a key likes to say which.
func (c *call) keptQuotesKey() bool { return c.secret.in(c.kept) }
