package proxy

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"kvasir/api"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
)

// answer is what one attempt brought, and how far it got.
type answer struct {
	endpoint *endpoint // nil: the attempt was never sent
	action   flow.Action
	sent     time.Time // when the attempt began
	explain  string    // the decision, for the response header
	outcome  attempt.Outcome
	wait     time.Duration // that the endpoint asks to be left alone; attempt.NoWait: it does not say
	unfit    *api.Error    // why its answer can't be passed on; nil: it can

	// What the endpoint said. Until committed, nothing of it has been passed on.
	status    int // 0: nothing
	header    http.Header
	whole     bool // kept holds all of its body
	committed bool

	stream     bool      // it is relayed as a stream of events
	blind      bool      // its events are no longer looked into
	begun      bool      // its first content came, or its end without any
	thinks     bool      // what was read last has reasoning that is held back
	told       bool      // the machine was, by a claim
	reported   bool      // the machine knows
	first      time.Time // when it began
	last       time.Time // newest content
	contents   int       // content events
	frame      int       // bytes of the shortest of them, mostFrame at most
	heardBytes int64     // of all of them
	progress   time.Time // when the machine was last told how far the answer is, or was not yet
	text       int64     // bytes of an answer of text that was not streamed
	mark       int64     // where in the stream the last event was seen to end
	tally      api.Tally
	fault      attempt.Outcome // of the first error that tally saw
}

// send makes one attempt. When it returns with c.held set, nothing has reached the client
// and another attempt may follow; otherwise the call is over.
func (c *call) send(a flow.Action) {
	if c.ctx.Err() != nil { // after a client leaves no attempt starts
		c.answer = answer{action: a, outcome: attempt.ClientGone}
		if c.takes() {
			c.left()
			c.finish(attempt.ClientGone)
		}
		return
	}
	stale := c.answer.outcome == attempt.StaleConnection
	c.open(a)
	transport := c.answer.endpoint.transport
	if stale {
		transport = c.answer.endpoint.unpooled
	}
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel() // aborts the upstream wherever this attempt is left
	c.dog.begin(a.Attempt, c.request.Stream, cancel)
	defer c.dog.over()
	if c.beaten() {
		c.fail(attempt.Beaten)
		return
	}
	if c.continuing() && !c.resumable() {
		c.fail(attempt.Recalled) // nobody's failure: it was not asked
		return
	}
	watch := &c.lent.watch
	request, again := c.upstreamRequest(watch.attach(ctx, c.svc.cfg.ServerIdle))
	defer c.takeBack(request, c.body, again)
	resp, err := transport.RoundTrip(request)
	if err != nil {
		c.fail(c.blame(watch, err))
		return
	}
	defer resp.Body.Close()
	c.dog.headerCame()
	c.answer.status, c.answer.header = resp.StatusCode, resp.Header
	c.receive(resp, watch, cancel)
}

// blame says what it means that the attempt's connection failed: the watchdog may have
// had a hand in it.
func (c *call) blame(watch *connWatch, err error) attempt.Outcome {
	if why := c.dog.why(); why != attempt.Success {
		return why
	}
	return watch.blame(err)
}

// open readies the record for an attempt.
func (c *call) open(a flow.Action) {
	e := c.model.endpoint(a.Slot)
	c.answer = answer{endpoint: e, action: a, sent: time.Now(), wait: attempt.NoWait}
	c.record.Sent, c.record.PredictedTTFT = c.answer.sent.Sub(c.arrived), 0
	if a.Predicted > 0 && c.request.Stream {
		c.record.PredictedTTFT = c.record.Sent + a.Predicted
	}
	c.secret.reset(e.Key)
	c.giveKept()
	c.bookEvent(0)
	if c.seam != nil {
		c.seam.begin()
	}
	c.record.Attempts++
	if c.record.Held != a.Wait {
		e.pool.metrics.QueueTime(a.Wait - c.record.Held)
		c.record.Held = a.Wait
	}
	c.record.Pool, c.record.Endpoint, c.record.Policy = e.pool.name, e.name, e.pool.policy
	if a.Decision == nil {
		return
	}
	if c.explains {
		c.answer.explain = explain(a.Decision)
	}
	c.showDecision(a.Decision)
	if on := c.svc.cfg.OnDecision; on != nil {
		on(c.model.Name, a.Decision)
	}
}

// upstreamRequest builds the request of the attempt: the client's bytes, but for the
// model's name where the endpoint knows it by another one, and the cache salt where the
// gateway sets it. What it returns is for takeBack.
func (c *call) upstreamRequest(ctx context.Context) (*http.Request, *rereader) {
	e := c.answer.endpoint
	u := e.urls[c.route.index]
	r := &http.Request{
		Method: http.MethodPost, URL: u, Host: cmp.Or(e.host, u.Host),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        c.lent.header,
		ContentLength: int64(len(c.body.data)),
	}
	c.lent.id[0] = c.id
	fillRequestHeader(r.Header, c.in.Header, c.lent.id[:], e.authorization)
	if e.pool.PassPriority {
		r.Header[engineHeader] = []string{strconv.Itoa(c.enginePriority())}
	}
	pieces := [][]byte{c.body.data}
	edits := c.edit(e)
	if len(edits) > 0 {
		pieces, r.ContentLength = api.Splice(c.body.data, edits...), 0
		for _, p := range pieces {
			r.ContentLength += int64(len(p))
		}
	}
	switch {
	case e.multiplexed:
		// A stream that the server refuses, or that came too late for a connection that is
		// going away, was not processed: to send it again over another connection is no new
		// attempt. Nothing else is sent again (net/http's internal http2 package).
		again := &rereader{body: c.body, pieces: pieces}
		r.GetBody = again.open
		r.Body, _ = again.open()
		return r.WithContext(ctx), again
	case len(edits) == 0:
		r.Body = c.body.lend()
	default:
		r.Body = c.body.reader(pieces...)
	}
	return r.WithContext(ctx), nil
}

// edit says what of the body is another for the endpoint, in the order of the places.
func (c *call) edit(e *endpoint) []api.Edit {
	edits := c.edits[:0]
	if name := cmp.Or(c.adapter, e.pool.servedAs); name != string(c.asked.Model) { // an adapter's name is the endpoints' own
		edits = append(edits, api.Edit{At: c.asked.ModelAt, Value: api.AppendModelName(nil, c.bodyGrammar(), name)})
	}
	if c.salted(e) {
		edits = append(edits, api.CacheSaltEdit(c.body.data, &c.asked, c.cacheSalt()))
	}
	if g := c.bodyGrammar(); e.pool.PassPriority && g.TakesPriority() {
		edits = append(edits, api.PriorityEdit(c.body.data, &c.asked, c.enginePriority()))
	}
	if s := c.seam; c.continuing() {
		more, _ := s.plan.Edits(s.said[:s.sure], s.whole.Output, e.pool.Dialect.GoOn) // there was some left
		edits = append(edits, more...)
	}
	slices.SortStableFunc(edits, func(a, b api.Edit) int { return a.At.Start - b.At.Start })
	return edits
}

// lent is what the transport is given with a request, and may use for longer than the
// attempt lasts. It is used again once the transport has shown that it is done with it.
type lent struct {
	watch  connWatch
	header http.Header
	id     [1]string
}

func newLent() *lent {
	l := &lent{header: make(http.Header, len(forwarded)+3)}
	l.watch.init()
	return l
}

// takeBack ends the attempt's hold on the body and on what else was lent.
func (c *call) takeBack(r *http.Request, b *body, again *rereader) {
	w := &c.lent.watch
	_, told := r.Body.(*bodyReader)
	switch {
	case again != nil:
		again.end()
	case told: // the transport closes it when it is done with it
	case w.connected.Load() && !w.written.Load():
		b.keep()
	default:
		b.giveBack()
	}
	if again == nil && w.through() {
		clear(c.lent.header)
		w.reset()
	} else {
		c.lent = newLent()
	}
}

// fail ends an attempt that brought no answer to pass on.
func (c *call) fail(o attempt.Outcome) {
	if c.ctx.Err() != nil {
		o = attempt.ClientGone
	}
	if o == attempt.ClientGone && !c.takes() {
		o = attempt.Beaten
	}
	c.close(o)
	if o.Retryable() || c.race != nil && o != attempt.ClientGone {
		return // the machine decides, or who runs beside it; c.held stays set
	}
	c.held = false
	if o == attempt.ClientGone {
		c.model.router.left(c)
		c.finish(o)
		return
	}
	c.model.router.ended(c, c.ending(flow.Usage{}))
	c.finish(o)
	if !c.answer.committed {
		c.tellFailure(flow.NoReason)
	}
}

// ending is the event that tells the machine of the attempt's end.
func (c *call) ending(u flow.Usage) flow.Event {
	a := &c.answer
	if a.outcome.Pushed() {
		return flow.Pushed(c.ticket, a.action.Attempt, a.outcome, a.wait).Answered(a.status)
	}
	e := flow.Done(c.ticket, a.action.Attempt, a.outcome, u).Answered(a.status)
	if a.committed && c.continuing() && c.seam.open {
		return e.Resumes()
	}
	return e
}

// close books how the attempt ended.
func (c *call) close(o attempt.Outcome) {
	c.answer.outcome = o
	kind := ""
	if o != attempt.Success {
		kind = o.String()
	}
	e := c.answer.endpoint
	number := c.answer.action.Attempt
	if c.answer.action.Hedge {
		number = 0 // it is no retry
	}
	e.pool.metrics.Attempt(e.name, number, outcomeOf(o), kind)
}
