package proxy

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"kvasir/api"
	"kvasir/gateway/admission"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/telemetry"
)

// What the gateway says in its own words. Each message names what was wrong and what is
// allowed; none quotes a body.

// tooManyCalls is for a call of a priority below 0 where others might still be let in: may is how
// many of the limit's calls may be in flight then.
func tooManyCalls(limit, may int) api.Error {
	e := api.Error{Status: http.StatusServiceUnavailable, Code: "too_many_calls",
		Message: fmt.Sprintf("The gateway has its %d calls in flight (limits.calls). Try again shortly.", limit)}
	if may < limit {
		e.Message = fmt.Sprintf("Of the gateway's %d calls in flight (limits.calls) those of a priority below 0 find room only in the first %d, and these are taken. Try again shortly.", limit, may)
	}
	return e
}

func headerTooLarge(size, limit int) api.Error {
	return api.Error{Status: http.StatusRequestHeaderFieldsTooLarge, Code: "header_too_large",
		Message: fmt.Sprintf("The request's header has %d bytes; allowed: %d (limits.headers).", size, limit)}
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

func unsupportedEncoding(err error) api.Error {
	return api.Error{Status: http.StatusUnsupportedMediaType, Code: "unsupported_content_encoding",
		Message: fmt.Sprintf("Content-Encoding: %v (allowed: %s, at most %d of them).", err, codingNames, mostCodings)}
}

func badCoding(err error) api.Error {
	return api.Error{Status: http.StatusBadRequest, Code: "bad_content_encoding",
		Message: fmt.Sprintf("The request body is not what its Content-Encoding says: %v.", err)}
}

// unauthorized is the answer to who shows no key, or one that is not known.
func unauthorized(r *http.Request) api.Error {
	what := "There is no API key"
	if presented(r.Header) != "" {
		what = "The API key is not known"
	}
	return api.Error{Status: http.StatusUnauthorized, Code: "invalid_api_key",
		Message: what + ". Send yours as Authorization: Bearer KEY, or as x-api-key."}
}

func unknownModel(name string) api.Error {
	return api.Error{Status: http.StatusNotFound, Code: "model_not_found", Param: "model",
		Message: fmt.Sprintf("The model %q does not exist. GET /v1/models lists those that do.", shorten(name))}
}

func unknownRoute(method, path string) api.Error {
	return api.Error{Status: http.StatusNotFound, Code: "unknown_route",
		Message: fmt.Sprintf("No route %s %s. There are GET /v1/models and POST %s.", shorten(method), shorten(path), routeNames)}
}

var routeNames = func() string {
	var names []string
	for i := range callRoutes {
		names = append(names, callRoutes[i].path)
	}
	return strings.Join(names, ", ")
}()

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

// emptyAnswer is for one that ended without a word: no call is answered with nothing.
func emptyAnswer() api.Error {
	return api.Error{Status: http.StatusBadGateway, Code: "bad_upstream_answer",
		Message: "The endpoint sent an empty answer."}
}

// compressedStream is for a stream that can't follow the comments it was opened with.
func compressedStream(h http.Header) api.Error {
	return api.Error{Status: http.StatusBadGateway, Code: "bad_upstream_answer",
		Message: fmt.Sprintf("The endpoint compressed its stream (%q), which was not asked for, and the answer had begun without.", shorten(h.Get("Content-Encoding")))}
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

// cutShort is the event that ends a stream which its endpoint broke off, or which took too
// long.
func cutShort(id string, why attempt.Outcome, limits Timeouts) api.Error {
	e := api.Error{Status: http.StatusBadGateway, Code: "upstream_broke_off", RequestID: id,
		Message: "The endpoint broke off in the middle of the answer; what came so far is incomplete."}
	switch why {
	case attempt.Stalled:
		e.Status, e.Code = http.StatusGatewayTimeout, "upstream_stalled"
		e.Message = fmt.Sprintf("The endpoint sent nothing more of the answer for too long (timeouts.progress: %v, timeouts.idle: %v); what came so far is incomplete.",
			limits.Progress, limits.Idle)
	case attempt.Overdue:
		e.Status, e.Code = http.StatusGatewayTimeout, "upstream_overdue"
		e.Message = fmt.Sprintf("The call took longer than calls may (timeouts.total: %v); what came so far is incomplete.", limits.Total)
	}
	return e
}

// bounds are what a refusal names: those of the call's model.
type bounds struct {
	calls    int              // in flight
	queue    admission.Config // of its pools; the zero one where these differ
	deadline time.Duration    // of the call
}

func (c *call) bounds() bounds {
	b := bounds{calls: c.model.Machine.Calls, deadline: c.deadline()}
	for i, p := range c.model.Machine.Pools {
		q := admission.Config{Length: p.Queue.Length, Bytes: p.Queue.Bytes, MaxWait: p.Queue.MaxWait}
		if i > 0 && q != b.queue {
			b.queue = admission.Config{}
			break
		}
		b.queue = q
	}
	return b
}

// named writes a bound by its key, with its value where that is known.
func named[T int | int64 | time.Duration](key string, value T) string {
	if value == 0 {
		return key
	}
	return fmt.Sprintf("%s: %v", key, value)
}

// refusal is the answer to a call that the machine refused, or held and gave up.
func refusal(why flow.Reason, b bounds) (telemetry.Refusal, api.Error) {
	e := api.Error{Status: http.StatusServiceUnavailable, Code: why.String()}
	switch why {
	case flow.TooManyCalls:
		e.Message = fmt.Sprintf("The model has its %d calls in flight (calls). Try again shortly.", b.calls)
		return telemetry.TooManyCalls, e
	case flow.QueueFull:
		e.Status = http.StatusTooManyRequests
		e.Message = fmt.Sprintf("As many calls as may wait do so already (%s). Try again later.", named("queue.length", b.queue.Length))
		return telemetry.QueueFull, e
	case flow.QueueBytes:
		e.Status = http.StatusTooManyRequests
		e.Message = fmt.Sprintf("The calls that wait are as large together as they may be (%s). Try again later.", named("queue.bytes", b.queue.Bytes))
		return telemetry.QueueBytes, e
	case flow.QueueWait:
		e.Status = http.StatusTooManyRequests
		e.Message = fmt.Sprintf("The call would have to wait longer than calls may (%s). Try again later.", named("queue.max_wait", b.queue.MaxWait))
		return telemetry.QueueWait, e
	case flow.QueueTimeout:
		e.Message = fmt.Sprintf("No endpoint had room for the call for as long as calls may wait (%s). Try again later.", named("queue.max_wait", b.queue.MaxWait))
		return telemetry.QueueTimeout, e
	case flow.Shed:
		e.Status = http.StatusTooManyRequests
		e.Message = "There is too little room, and calls of higher priority come first. Try again later."
		return telemetry.Shed, e
	case flow.DeadlineUnmet:
		e.Message = fmt.Sprintf("The call's first token would come after its deadline, %v from its coming. Nothing was sent to an endpoint.", b.deadline)
		return telemetry.DeadlineUnmet, e
	case flow.DeadlinePassed:
		e.Status = http.StatusGatewayTimeout
		e.Message = fmt.Sprintf("The call's deadline, %v from its coming, has passed while it waited. Nothing was sent to an endpoint.", b.deadline)
		return telemetry.DeadlinePassed, e
	}
	e.Code, e.Message = "no_endpoint", "No endpoint of the model takes calls. Try again shortly."
	return telemetry.NoEndpoint, e
}

// refuseFor answers a call for which the machine has no attempt. wait is how long those are
// predicted to wait who wait already; 0: that is not known.
func (c *call) refuseFor(why flow.Reason, wait time.Duration) {
	kind, e := refusal(why, c.bounds())
	c.retryAfter(wait)
	c.noRetry(why)
	c.refuse(kind, e)
}

// retryAfter tells the client to come back no sooner than in a second. What was said before
// stays; a heartbeat may have opened the answer meanwhile.
func (c *call) retryAfter(wait time.Duration) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if h := c.out.w.Header(); !c.out.ahead && h.Get("Retry-After") == "" {
		h.Set("Retry-After", strconv.Itoa(int(flow.RetryAfter(wait)/time.Second)))
	}
}

// failure is the answer to a call whose last attempt ended so without an answer.
func (c *call) failure(o attempt.Outcome, why flow.Reason) api.Error {
	e := api.Error{Status: http.StatusBadGateway, Code: "upstream_" + o.String()}
	l, what := c.model.timeouts, ""
	late := func(key string, limit time.Duration) string {
		e.Status = http.StatusGatewayTimeout
		return fmt.Sprintf("(timeouts.%s: %v)", key, limit)
	}
	switch o {
	case attempt.ConnectFailed:
		what = "The endpoint could not be reached"
	case attempt.ConnectTimeout:
		e.Status = http.StatusGatewayTimeout
		what = "The endpoint could not be reached in time (upstream.connect_timeout)"
	case attempt.Exhausted:
		e.Status = http.StatusServiceUnavailable
		what = "The gateway has no descriptor or port left for a connection to the endpoint"
	case attempt.HeaderTimeout:
		what = "The endpoint did not begin to answer in time " + late("header", l.Header)
	case attempt.FirstTokenTimeout:
		what = "The endpoint sent no content in time " + late("first_token", l.FirstToken)
	case attempt.Stalled:
		what = "The endpoint stopped in the middle of its answer " + late("idle", l.Idle)
	case attempt.Overdue:
		what = "The call took longer than calls may " + late("total", l.Total)
	case attempt.Denied:
		what = fmt.Sprintf("The endpoint does not accept the gateway's key (status %d)", c.answer.status)
	case attempt.Recalled:
		e.Status = http.StatusServiceUnavailable
		what = "The endpoint left, or went silent, before it answered"
	default:
		what = "The endpoint broke off before answering"
	}
	if c.answer.unfit != nil {
		e = *c.answer.unfit
		what = strings.TrimSuffix(e.Message, ".")
	}
	e.Message = fmt.Sprintf("%s; attempts made: %d, and no other follows", what, c.record.Attempts)
	if why != flow.NoReason {
		e.Message += fmt.Sprintf(" (%s)", why)
	}
	e.Message += "."
	return e
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
	if e.Status == http.StatusServiceUnavailable || e.Status == http.StatusTooManyRequests {
		c.retryAfter(0)
	}
	c.sendError(e)
	return false
}

// refuseUnread is refuse for a call whose body was not read to its end.
func (c *call) refuseUnread(kind telemetry.Refusal, e api.Error) bool {
	answerUnread(c.out.w, c.out.rc, c.in)
	c.refuse(kind, e)
	takeUnread(c.in)
	return false
}

// sendError answers in the gateway's own words: in the stream, where a heartbeat has
// opened one.
func (c *call) sendError(e api.Error) {
	e.RequestID = c.id
	c.record.Status = e.Status
	text := api.AppendError(nil, c.route.grammar, e)
	opened := c.out.open(e.Status, func(h http.Header) {
		c.stamp(h)
		if e.Status == http.StatusServiceUnavailable && h.Get("Retry-After") == "" {
			h.Set("Retry-After", "1")
		}
		h.Set("Content-Type", "application/json")
		h.Set("Content-Length", strconv.Itoa(len(text)))
	})
	if !opened {
		c.record.Status = http.StatusOK
		text = api.AppendErrorEvent(nil, c.route.grammar, e, 0)
	}
	c.out.seal()
	_ = c.out.write(text, time.Now(), true) // the client may be gone; nothing is left to do for it
}

// giveUp answers a call that has no further attempt.
func (c *call) giveUp(why flow.Reason) {
	c.gaveUp = true
	c.finish(c.answer.outcome)
	c.tellFailure(why)
}

// tellFailure answers with the last endpoint's own words, where it gave any that may be
// passed on.
func (c *call) tellFailure(why flow.Reason) {
	if c.continuing() {
		c.tellBroken()
		return
	}
	a := &c.answer
	// That an endpoint denies the gateway is no word to the client about its own key.
	own := a.unfit == nil && a.outcome != attempt.Denied && (a.status >= 300 || a.tally.Failed)
	whole := own && a.whole && !c.keptQuotesKey()
	switch {
	case !own:
		c.noRetry(why)
		c.sendError(c.failure(a.outcome, why))
	case !whole:
		c.noRetry(why)
		c.sendError(unpassable(a.status, c.record.Attempts, why))
	case c.out.isAhead():
		c.tellInStream()
	default:
		c.record.Status = a.status
		opened := c.out.open(a.status, func(h http.Header) {
			copyResponseHeader(h, a.header, a.endpoint.Key)
			h.Set("Content-Length", strconv.Itoa(len(c.kept)))
			if why.Final(c.record.Attempts) {
				h.Set("X-Should-Retry", "false")
			} else if a.outcome.Pushed() && a.wait < 0 {
				h.Set("Retry-After", "1") // the endpoint names no time, and at once is too soon
			}
			c.stamp(h)
		})
		if !opened { // by a heartbeat, just now
			c.tellInStream()
			return
		}
		c.writeLast(c.kept)
	}
}

// tellInStream passes an endpoint's own error on to a client whose stream a heartbeat has
// opened.
func (c *call) tellInStream() {
	c.record.Status = http.StatusOK
	if c.answer.stream {
		c.writeLast(c.kept) // it is a stream's events already
		return
	}
	e := unpassable(c.answer.status, c.record.Attempts, flow.NoReason)
	e.RequestID = c.id
	c.writeLast(api.ErrorEventFromBody(nil, c.route.grammar, c.kept, e))
}

func (c *call) noRetry(why flow.Reason) {
	if why.Final(c.record.Attempts) && !c.out.isAhead() {
		c.out.mu.Lock()
		defer c.out.mu.Unlock()
		c.out.w.Header().Set("X-Should-Retry", "false")
	}
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone; nothing is left to do for it
}
