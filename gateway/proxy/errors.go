package proxy

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"kvasir/api"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/telemetry"
)

// What the gateway says in its own words. Each message names what was wrong and what is
// allowed; none quotes a body.

func tooManyCalls(limit int) api.Error {
	return api.Error{Status: http.StatusServiceUnavailable, Code: "too_many_calls",
		Message: fmt.Sprintf("The gateway has its %d calls in flight (limits.calls). Try again shortly.", limit)}
}

func bodyTooLarge(limit int64) api.Error {
	return api.Error{Status: http.StatusRequestEntityTooLarge, Code: "body_too_large",
		Message: fmt.Sprintf("The request body is larger than %d bytes (limits.body).", limit)}
}

func buffersFull() api.Error {
	return api.Error{Status: http.StatusServiceUnavailable, Code: "buffers_full",
		Message: "The gateway holds as many request bytes as it may (limits.buffered). Try again shortly."}
}

func bodyUnread(err error) api.Error {
	return api.Error{Status: http.StatusBadRequest, Code: "body_unread",
		Message: fmt.Sprintf("The request body could not be read: %v.", err)}
}

func bodyTooSlow(limit time.Duration) api.Error {
	return api.Error{Status: http.StatusRequestTimeout, Code: "body_too_slow",
		Message: fmt.Sprintf("The request body did not come within %v (client.body_timeout).", limit)}
}

func unsupportedEncoding(enc string) api.Error {
	return api.Error{Status: http.StatusUnsupportedMediaType, Code: "unsupported_content_encoding",
		Message: fmt.Sprintf("Content-Encoding %q is not supported; send the body as it is.", shorten(enc))}
}

func unknownModel(name string) api.Error {
	return api.Error{Status: http.StatusNotFound, Code: "model_not_found", Param: "model",
		Message: fmt.Sprintf("The model %q does not exist. GET /v1/models lists those that do.", shorten(name))}
}

func unknownRoute(method, path string) api.Error {
	return api.Error{Status: http.StatusNotFound, Code: "unknown_route",
		Message: fmt.Sprintf("No route %s %s. There are POST /v1/chat/completions, /v1/completions, /v1/embeddings and GET /v1/models.", shorten(method), shorten(path))}
}

func methodNotAllowed(method, path, allowed string) api.Error {
	return api.Error{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed",
		Message: fmt.Sprintf("%s is not allowed on %s; use %s.", shorten(method), shorten(path), allowed)}
}

func wrongContentType(got string, stream bool) api.Error {
	want := "a JSON answer"
	if stream {
		want = "a stream of events"
	}
	return api.Error{Status: http.StatusBadGateway, Code: "bad_upstream_answer",
		Message: fmt.Sprintf("The endpoint sent content type %q where %s was asked for.", shorten(got), want)}
}

func noAnswer(status int) api.Error {
	return api.Error{Status: http.StatusBadGateway, Code: "bad_upstream_answer",
		Message: fmt.Sprintf("The endpoint answered with status %d, which is no answer to a call; redirects are not followed.", status)}
}

// withheldError stands for an endpoint's error that quotes the endpoint's key, or that
// there was no room to look through.
func withheldError(status int) api.Error {
	return api.Error{Status: status, Code: "upstream_error_withheld",
		Message: fmt.Sprintf("The endpoint answered with status %d. What it said is withheld: it may hold a credential.", status)}
}

// unpassable stands for the answer of a last attempt that could not be kept whole.
func unpassable(status, attempts int, why flow.Reason) api.Error {
	what := fmt.Sprintf("answered with status %d", status)
	if status < 300 {
		status, what = http.StatusBadGateway, "sent an error in place of an answer"
	}
	return api.Error{Status: status, Code: "upstream_failed",
		Message: fmt.Sprintf("The endpoint %s; attempts made: %d, and no other follows (%s).", what, attempts, why)}
}

// cutShort is the event that ends a stream which its endpoint broke off.
func cutShort(id string) api.Error {
	return api.Error{Status: http.StatusBadGateway, Code: "upstream_broke_off", RequestID: id,
		Message: "The endpoint broke off in the middle of the answer; what came so far is incomplete."}
}

// refusal is the answer to a call that the machine refused.
func refusal(why flow.Reason, bound int) (telemetry.Refusal, api.Error) {
	if why == flow.TooManyCalls {
		return telemetry.TooManyCalls, api.Error{Status: http.StatusServiceUnavailable, Code: "too_many_calls",
			Message: fmt.Sprintf("The model has its %d calls in flight (calls). Try again shortly.", bound)}
	}
	return telemetry.NoEndpoint, api.Error{Status: http.StatusServiceUnavailable, Code: "no_endpoint",
		Message: "No endpoint of the model is in rotation. Try again shortly."}
}

// unreachable is the answer to a call whose attempts all failed without one.
func unreachable(o attempt.Outcome, attempts int, why flow.Reason) api.Error {
	what := "could not be reached"
	if o != attempt.ConnectFailed {
		what = "broke off before answering"
	}
	return api.Error{Status: http.StatusBadGateway, Code: "upstream_" + o.String(),
		Message: fmt.Sprintf("The endpoint %s; attempts made: %d, and no other follows (%s).", what, attempts, why)}
}

// shorten bounds what a message repeats of the client's own words.
func shorten(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// refuse answers a call that no attempt is made for. It returns false: the call is over.
func (c *call) refuse(kind telemetry.Refusal, e api.Error) bool {
	c.record.Refusal = kind
	c.record.Outcome = telemetry.Refused
	if e.Status == http.StatusServiceUnavailable {
		c.w.Header().Set("Retry-After", "1")
	}
	c.sendError(e)
	return false
}

// refuseUnread is refuse for a call whose body was not read to its end.
func (c *call) refuseUnread(kind telemetry.Refusal, e api.Error) bool {
	answerUnread(c.w, c.rc, c.in)
	return c.refuse(kind, e)
}

// sendError answers in the gateway's own words.
func (c *call) sendError(e api.Error) {
	e.RequestID = c.id
	c.record.Status = e.Status
	h := c.w.Header()
	c.stamp(h)
	c.readyToWrite()
	writeJSON(c.w, e.Status, api.AppendError(nil, e))
}

// giveUp answers a call that has no further attempt: with the last endpoint's own answer
// where it gave one.
func (c *call) giveUp(why flow.Reason) {
	c.finish(c.answer.outcome)
	h := c.w.Header()
	if why == flow.AttemptsSpent || why == flow.BudgetSpent {
		h.Set("X-Should-Retry", "false") // SDKs of OpenAI heed it: retries don't multiply
	}
	a := &c.answer
	switch {
	case a.status < 300 && !a.tally.Failed:
		c.sendError(unreachable(a.outcome, c.record.Attempts, why))
		return
	case !a.whole || c.keptQuotesKey():
		c.sendError(unpassable(a.status, c.record.Attempts, why))
		return
	}
	copyResponseHeader(h, a.header, a.endpoint.Key)
	h.Set("Content-Length", strconv.Itoa(len(c.kept)))
	c.stamp(h)
	c.record.Status = a.status
	c.w.WriteHeader(a.status)
	c.writeLast(c.kept)
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone; nothing is left to do for it
}
