package proxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"kvasir/api"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/gateway/limit"
	"kvasir/internal/kvblock"
	"kvasir/selection"
	"kvasir/telemetry"
)

// call is one client's call on its way through the gateway. Records and their buffers
// are reused.
type call struct {
	g     *Gateway
	svc   *service
	route *route
	in    *http.Request
	ctx   context.Context

	id      string
	arrived time.Time
	model   *model
	asked   api.Request // what the body says
	adapter string      // that is asked for; "": the model itself
	salt    string      // for the engines' caches; "": not made yet

	again       bool // its client has sent it before
	gaveUp      bool // no further attempt of it is made
	unexplained bool // the client has asked for what it may not know
	explains    bool // it has asked why its call goes where it goes, and may know
	tap         *Tap // whoever else is to know; nil: nobody
	body        *body
	request     selection.Request
	ticket      flow.Ticket
	held        bool // the machine holds the call: it must hear of its end
	record      telemetry.Call

	standing    standing
	grant       limit.Grant   // of the book of limits; settled once, at the end
	rates       rates         // of the caller's own
	lined       time.Duration // spent behind its siblings
	accompanied bool          // the watch over it has begun

	seam   *seam // with what follows where the answer breaks off; nil: nothing does
	race   *race // with an attempt beside the first; nil: there will be none
	runner int   // of the race

	counted bool // among the calls in flight
	large   bool // its body was
	abort   bool // the connection to the client must not end cleanly
	leaked  bool // the answer quotes its endpoint's key: it was cut before that

	*scratch
	*try // of the running attempt
}

// scratch is what a call's record keeps for the next call.
type scratch struct {
	out     outlet
	word    chan flow.Action   // the machine's; one at a time
	turn    chan limit.Verdict // the book of limits', to a call that waits for its siblings; likewise
	reader  api.Reader
	blocks  kvblock.Writer
	session []byte // what names the conversation
}

const readBuffer = 32 << 10

// keptScratch bounds what a record keeps: after a body larger than that, or so many
// bytes held back, its memory starts anew.
const keptScratch = 1 << 20

func newScratch() *scratch {
	return &scratch{word: make(chan flow.Action, 1), turn: make(chan limit.Verdict, 1)}
}

// serve is a call's whole life: read, identify, place, attempt until committed, account.
func (g *Gateway) serve(s *service, w http.ResponseWriter, rc *http.ResponseController, r *http.Request, rt *route) {
	c := g.kept.Get().(*call)
	c.begin(g, s, w, rc, r, rt)
	defer c.end()
	client, known := s.cfg.Access.admit(r)
	if !known {
		w.Header().Set("Www-Authenticate", "Bearer")
		c.refuseUnread(telemetry.Unauthorized, unauthorized(r))
		return
	}
	c.record.Client = client
	var wrong *api.Error
	if c.standing, wrong = s.cfg.Tenancy.standing(client, r.Header); wrong != nil {
		c.refuseUnread(telemetry.BadRequest, *wrong)
		return
	}
	c.record.Tenant, c.record.Class = c.standing.tenant, c.standing.class
	c.counted = true
	if may := callsFor(c.standing.priority, s.cfg.Limits.Calls); g.calls.Add(1) > int64(may) {
		c.uncount() // who is refused takes no room while the rest of its body comes
		c.refuseUnread(telemetry.TooManyCalls, tooManyCalls(s.cfg.Limits.Calls, may))
		return
	}
	if !c.read() {
		return
	}
	c.recognise()
	if c.identify() && c.allowed() {
		c.place()
	}
}

func (c *call) begin(g *Gateway, s *service, w http.ResponseWriter, rc *http.ResponseController, r *http.Request, rt *route) {
	n := g.lastCall.Add(1)
	c.g, c.svc, c.in, c.route, c.ctx = g, s, r, rt, r.Context()
	c.arrived = time.Now()
	c.id = r.Header.Get("X-Request-Id")
	if !usableRequestID(c.id) {
		c.id = g.newRequestID(n)
	}
	c.request = selection.Request{ID: selection.CallID(n)}
	c.record = telemetry.Call{ID: c.id, Route: rt.path, Peer: peerOf(r)}
	tellRequestID(w.Header(), rt.grammar, c.id)
	c.out.reset(c.request.ID, w, rc, s.cfg.WriteTimeout, r.ProtoMajor > 1)
	c.out.readyNow() // a 100 Continue comes first
}

// recognise finds out whether the call's client tries again.
func (c *call) recognise() {
	sign := c.againBy()
	c.again = sign != telemetry.NotRepeated
	c.record.Retry = c.again
	c.g.metrics.Repeated(sign)
}

// peerOf returns the address that a request's connection comes from.
func peerOf(r *http.Request) string {
	if i := strings.LastIndexByte(r.RemoteAddr, ':'); i > 0 {
		return strings.Trim(r.RemoteAddr[:i], "[]")
	}
	return r.RemoteAddr
}

// end accounts for the call exactly once, on every path, a panic's included: that one
// leaves the call held and its outcome unclassified.
func (c *call) end() {
	if c.held {
		c.left()
	}
	panicked := c.endRace()
	switch {
	case c.record.Outcome == telemetry.ClientGone && c.wasCut():
		c.tellCut()
	case c.leaked && c.record.Status == 0:
		c.abort = false
		c.sendError(withheldError(max(c.answer.status, http.StatusBadGateway)))
	}
	c.dog.disarm()
	c.out.release()
	g := c.g
	c.giveKept()
	c.bookEvent(0)
	c.endSeam()
	big := c.big() || c.large
	c.dropBody()
	c.record.Held += c.lined
	c.settle()
	c.record.E2E = time.Since(c.arrived)
	g.metrics.Call(&c.record)
	c.showEnd()
	if c.svc.cfg.LogCalls {
		telemetry.LogCall(c.ctx, g.log, &c.record)
	}
	c.uncount() // in flight until accounted for
	abort := c.abort
	c.forget(big)
	g.kept.Put(c)
	if panicked != nil {
		panic(panicked)
	}
	if abort {
		panic(http.ErrAbortHandler)
	}
}

// uncount ends the call's count among those in flight.
func (c *call) uncount() {
	if c.counted {
		c.counted = false
		c.g.calls.Add(-1)
	}
}

// forget drops what must not outlive the call and keeps the buffers, unless they grew big.
func (c *call) forget(big bool) {
	if big {
		c.scratch, c.try = newScratch(), newTry()
	}
	c.reader.Reset() // it still points to the body
	c.try.forget()
	*c = call{scratch: c.scratch, try: c.try}
}

// read takes the body in. It reports whether the call goes on.
func (c *call) read() bool {
	codings, err := codingsOf(c.in.Header["Content-Encoding"])
	if err != nil {
		return c.refuseUnread(telemetry.BadRequest, unsupportedEncoding(err))
	}
	cfg, rc := &c.svc.cfg, c.out.rc
	_ = rc.SetReadDeadline(time.Now().Add(cfg.BodyTimeout))
	if n := c.in.ContentLength; n < 0 || n > firstBuffer { // it may take a while, and the gateway may stop
		stop := context.AfterFunc(c.g.base, func() { _ = rc.SetReadDeadline(time.Unix(1, 0)) })
		defer stop()
	}
	b, err := readBody(c.out.w, c.in, cfg.Limits.Body, &c.g.buffered, codings)
	coding, badly := errors.AsType[*errCoding](err)
	switch {
	case err == nil:
		// From here on the server reads to see the client leave.
		_ = rc.SetReadDeadline(time.Time{})
		c.body, c.large = b, len(b.data) > keptScratch
		return true
	case err == errTooLarge:
		return c.refuseUnread(telemetry.BodyTooLarge, bodyTooLarge(cfg.Limits.Body))
	case err == errNoRoom:
		return c.refuseUnread(telemetry.BuffersFull, buffersFull())
	case errors.Is(err, os.ErrDeadlineExceeded) && c.wasCut():
		answerUnread(c.out.w, rc, c.in)
		c.finish(attempt.ClientGone) // who was cut, and is told so at the end
		return false
	case errors.Is(err, os.ErrDeadlineExceeded):
		return c.refuseUnread(telemetry.BadRequest, bodyTooSlow(cfg.BodyTimeout))
	case badly:
		return c.refuseUnread(telemetry.BadRequest, badCoding(coding))
	case leftWhileSending(err):
		c.finish(attempt.ClientGone)
		return false
	default:
		return c.refuseUnread(telemetry.BadRequest, bodyUnread(err))
	}
}

// leftWhileSending reports whether a body's read error says that its client is gone, and
// not that the body's framing is wrong.
func leftWhileSending(err error) bool {
	_, broken := errors.AsType[*net.OpError](err)
	return broken || errors.Is(err, io.ErrUnexpectedEOF)
}

// plain reports whether a Content-Encoding leaves a body as it is.
func plain(encoding string) bool { return encoding == "" || strings.EqualFold(encoding, "identity") }

// identify finds out what routing needs of the call.
func (c *call) identify() bool {
	c.request = selection.Request{ID: c.request.ID, Retry: c.again}
	q, err := c.asks()
	if err != nil {
		return c.refuse(telemetry.BadRequest, api.BadRequest(err, c.id))
	}
	m := c.svc.byName[string(q.Model)]
	if m == nil {
		return c.refuse(telemetry.UnknownModel, unknownModel(string(q.Model)))
	}
	c.model = m
	a := c.svc.adapters[string(q.Model)]
	c.adapter, c.request.Adapter = a.name, a.hash
	var opening kvblock.Hash
	if c.bodyGrammar() != api.Upload {
		p, err := c.reader.Prompt(&c.blocks, cmp.Or(c.adapter, m.Name), c.sharer(), c.svc.cfg.BlockBytes)
		if err != nil {
			return c.refuse(telemetry.BadRequest, api.BadRequest(err, c.id))
		}
		c.request.InputTokens = p.InputTokens
		c.request.Head = p.Head
		if !q.Opaque { // else nothing is matched, recorded or compared
			c.request.Blocks, c.request.BlockTokens = p.Blocks, p.BlockTokens
		}
		opening = p.Opening
	}
	c.request.Conversation = c.conversation(&q, opening)
	stream := q.Stream && c.route.kind == selection.Generate // engines ignore it elsewhere
	c.request.Kind, c.request.Stream, c.request.OutputTokens = c.route.kind, stream, q.MaxTokens
	if h := m.KeyHeader; h != "" {
		if v := c.in.Header.Get(h); v != "" {
			c.request.Key = kvblock.Seed(v)
		}
	}
	if len(q.PreviousResponseID) > 0 {
		if o, ok := c.g.owners.find(c.record.Client, q.PreviousResponseID, m.core); ok {
			c.request.Owned, c.request.Owner, c.request.OwnerGeneration = true, o.slot, o.generation
		}
	}
	asks := c.in.Header.Get("X-Kvasir-Explain") == "1"
	c.explains = asks && c.svc.cfg.Access.explains(c.in, c.record.Client)
	c.unexplained = asks && !c.explains
	c.request.Bytes = int64(len(c.body.data))
	c.urgent(time.Since(c.arrived))
	c.asked, c.salt = q, ""
	c.record.Model, c.record.Stream, c.record.InputTokens = m.Name, stream, c.request.InputTokens
	c.record.Conversation = uint64(c.request.Conversation)
	return true
}

// sharer names those among whom prefixes are shared. Other clients' calls have other chains
// for the same text, so that none is sent where it would be found computed.
func (c *call) sharer() string {
	if c.svc.cfg.SharePrefixes {
		return ""
	}
	return c.record.Client
}

// bodyGrammar returns the language of the body. Image edits come as a form or as JSON.
func (c *call) bodyGrammar() api.Grammar {
	if c.route.grammar != api.Upload {
		return c.route.grammar
	}
	if kind, _, _ := mime.ParseMediaType(c.in.Header.Get("Content-Type")); kind == "application/json" {
		return api.Images
	}
	return api.Upload
}

// asks reads what the body says to routing.
func (c *call) asks() (api.Request, error) {
	if g := c.bodyGrammar(); g != api.Upload {
		return c.reader.Read(g, c.body.data)
	}
	return api.ReadUpload(c.in.Header.Get("Content-Type"), c.body.data)
}

// place asks the machine for an endpoint and makes attempts until one is committed, or
// the machine allows no other.
func (c *call) place() {
	before := time.Now()
	c.offer()
	c.prepare()
	a := c.model.router.arrive(c)
	if s := c.g.service.Load(); a.Kind == flow.Refuse && a.Reason == flow.NoEndpoint && s != c.svc {
		// A reload came while the body did: the model may be there under another name now.
		c.svc = s
		if !c.identify() {
			return
		}
		c.offer()
		c.prepare()
		a = c.model.router.arrive(c)
	}
	pick := time.Since(before)
	if a.Kind == flow.Refuse {
		c.refuseFor(a.Reason, a.Wait)
		return
	}
	c.ticket, c.held = a.Ticket, true
	c.record.Pick = pick
	c.accompany()
	if a.Kind == flow.Hold {
		var ok bool
		if a, ok = c.hear(); !ok {
			return
		}
	} else {
		c.model.endpoint(a.Slot).pool.metrics.PickTime(pick)
	}
	for a.Kind != flow.GiveUp {
		c.send(a)
		if !c.held {
			return
		}
		c.reportFailure()
		var ok bool
		if a, ok = c.hear(); !ok {
			return
		}
	}
	c.held = false
	c.record.Held = a.Wait
	if c.record.Attempts == 0 {
		c.refuseFor(a.Reason, a.Again)
		return
	}
	c.giveUp(a.Reason)
}

// accompany begins the watch over the call, and sees to it that a client that waits hears
// something.
func (c *call) accompany() {
	if c.accompanied {
		return
	}
	c.accompanied = true
	c.dog.arm(c.request.ID, c.model.timeouts, c.arrived)
	if every := c.svc.cfg.Heartbeat; every > 0 && c.request.Stream && c.route.strict() {
		c.dog.company(every, &c.out, c.g.metrics.Heartbeat)
	}
}

// reportFailure tells the machine of an attempt that has failed.
func (c *call) reportFailure() {
	if c.answer.outcome.Retryable() || c.racing() { // else it is the last
		c.noteTried(&c.answer)
	}
	c.model.router.failed(c, c.ending(flow.Usage{}))
	c.record.Thought = 0 // what it was is nobody's answer
}

func (c *call) noteTried(a *answer) {
	if a.endpoint == nil {
		return
	}
	if c.record.Tried != "" {
		c.record.Tried += ", "
	}
	c.record.Tried += a.endpoint.name + " " + a.outcome.String()
}

// hear waits for the machine's word, or for the client to leave, or for the end of the time
// that the whole call may take, or for the attempt that runs beside the one that has failed.
func (c *call) hear() (flow.Action, bool) {
	second := c.race.ended()
	last := c.record.Attempts > 0 && !c.answer.outcome.Retryable() // no other follows
	if last && second == nil {
		c.conclude(c)
		return flow.Action{}, false
	}
	var overdue <-chan time.Time
	if total := c.model.timeouts.Total; total > 0 {
		timer := time.NewTimer(time.Until(c.arrived.Add(total)))
		defer timer.Stop()
		overdue = timer.C
	}
	for {
		select {
		case <-second:
			switch s := &c.race.second; {
			case c.join():
				return flow.Action{}, false
			case last:
				c.conclude(c)
				return flow.Action{}, false
			case !s.answer.outcome.Retryable():
				c.conclude(s)
				return flow.Action{}, false
			}
			second = nil // both have failed: the machine says what follows
		case <-overdue:
			if !c.takes() {
				c.join()
				return flow.Action{}, false
			}
			c.left()
			e := c.failure(attempt.Overdue, flow.NoReason)
			if c.record.Attempts == 0 {
				c.refuse(telemetry.QueueTimeout, e)
			} else {
				c.finish(attempt.Overdue)
				c.sendError(e)
			}
			return flow.Action{}, false
		case next := <-c.word:
			if second != nil { // it has failed, or there would be no word, and is about to end
				c.join()
			}
			return next, true
		case <-c.ctx.Done():
			if !c.takes() {
				c.join()
				return flow.Action{}, false
			}
			c.left()
			c.finish(attempt.ClientGone)
			return flow.Action{}, false
		}
	}
}

// left tells the machine that the client is gone.
func (c *call) left() {
	c.held = false
	c.model.router.left(c)
}

// finish books the outcome that the call as a whole had.
func (c *call) finish(o attempt.Outcome) {
	if c.leaked {
		o = attempt.Failed // whatever it looks like to those who could not write on
	}
	c.record.Outcome = outcomeOf(o)
	// A client that only closed its side must not take silence for an empty answer.
	c.abort = c.abort || o == attempt.ClientGone
}

func outcomeOf(o attempt.Outcome) telemetry.Outcome {
	switch o.Class() {
	case attempt.ClassSuccess:
		return telemetry.Success
	case attempt.ClassBackPressure:
		return telemetry.BackPressure
	case attempt.ClassCallerFault:
		return telemetry.CallerFault
	case attempt.ClassClientGone:
		return telemetry.ClientGone
	case attempt.ClassBeaten:
		return telemetry.Beaten
	default:
		return telemetry.EndpointFailure
	}
}
