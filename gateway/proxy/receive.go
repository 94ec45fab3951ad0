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
	o := attempt.FromStatus(resp.StatusCode)
	streamed := isStream(resp.Header)
	switch {
	case o == attempt.Unusable:
		c.unusable(noAnswer(resp.StatusCode))
	case o == attempt.Success && c.route.strict() && streamed != c.request.Stream:
		// Passing it on would make the client's parser fail in its own words.
		c.unusable(wrongContentType(c.hideKey(resp.Header.Get("Content-Type")), c.request.Stream))
	case o == attempt.Success && streamed && identity(resp.Header):
		c.relayStream(resp, watch, cancel)
	case o != attempt.Success && (o.Retryable() || c.racing() || c.continuing()): // the other one may have an answer
		c.keepFailure(resp, o, cancel)
	case c.continuing():
		c.unusable(compressedStream(resp.Header))
	case !c.out.seal(): // no heartbeat comes between what is asked here and what follows
		c.relayPlain(resp, o, watch)
	case o != attempt.Success:
		c.keepFailure(resp, o, cancel)
	case streamed:
		c.unusable(compressedStream(resp.Header))
	default:
		c.unusable(wrongContentType(c.hideKey(resp.Header.Get("Content-Type")), true))
	}
}

// keepFailure ends an attempt that was answered with a failure, and keeps what was said.
func (c *call) keepFailure(resp *http.Response, o attempt.Outcome, cancel context.CancelFunc) {
	if o.Pushed() {
		c.answer.wait = attempt.RetryAfter(resp.Header.Get("Retry-After-Ms"), resp.Header.Get("Retry-After"), time.Now())
	}
	c.keepRest(resp.Body, cancel)
	c.fail(o)
}

// isStream reports whether an answer is a stream of events.
func isStream(h http.Header) bool {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return kind == "text/event-stream"
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

// unusable ends an attempt whose answer must not reach the client.
func (c *call) unusable(e api.Error) {
	c.answer.unfit = &e
	c.fail(attempt.Unusable)
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
