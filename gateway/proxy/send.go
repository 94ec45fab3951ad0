package proxy

import (
	"context"
	"net/http"
	"time"

	"kvasir/api"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
)

// answer is what one attempt brought, and how far it got.
type answer struct {
	endpoint *endpoint
	action   flow.Action
	explain  string // the decision, for the response header
	outcome  attempt.Outcome

	// What the endpoint said. Until committed, nothing of it has been passed on.
	status    int // 0: nothing
	header    http.Header
	whole     bool // kept holds all of its body
	committed bool

	stream   bool      // it is relayed as a stream of events
	blind    bool      // its events are no longer looked into
	begun    bool      // its first content came, or its end without any
	reported bool      // the machine knows
	first    time.Time // when it began
	last     time.Time // newest content
	contents int       // content events
	mark     int64     // where in the stream the last event was seen to end
	tally    api.Tally
	fault    attempt.Outcome // of the first error that tally saw
}

// send makes one attempt. When it returns with c.held set, nothing has reached the client
// and another attempt may follow; otherwise the call is over.
func (c *call) send(a flow.Action) {
	if c.ctx.Err() != nil { // after a client leaves no attempt starts
		c.left()
		c.finish(attempt.ClientGone)
		return
	}
	transport := c.g.cfg.Transport
	if c.answer.outcome == attempt.StaleConnection {
		transport = c.g.unpooled
	}
	c.open(a)
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel() // aborts the upstream wherever this attempt is left
	watch := &connWatch{}
	resp, err := transport.RoundTrip(c.upstreamRequest(watch.attach(ctx)))
	if err != nil {
		c.fail(watch.blame())
		return
	}
	defer resp.Body.Close()
	c.answer.status, c.answer.header = resp.StatusCode, resp.Header
	c.receive(resp, watch, cancel)
}

// open readies the record for an attempt.
func (c *call) open(a flow.Action) {
	e := &c.model.endpoints[a.Slot]
	c.answer = answer{endpoint: e, action: a}
	c.secret.reset(e.Key)
	c.giveKept()
	c.bookEvent(0)
	c.record.Attempts++
	c.record.Pool, c.record.Endpoint = c.model.Machine.Pools[a.Pool].Name, e.name
	c.record.Policy = c.model.Machine.Pools[a.Pool].PolicyName
	if a.Decision == nil {
		return
	}
	if c.request.Explain {
		c.answer.explain = explain(a.Decision)
	}
	if c.g.cfg.OnDecision != nil {
		c.g.cfg.OnDecision(c.model.Name, a.Decision)
	}
}

// upstreamRequest builds the request of the attempt: the client's bytes, but for the
// model's name where the endpoint knows it by another one.
func (c *call) upstreamRequest(ctx context.Context) *http.Request {
	pieces := [][]byte{c.body.data}
	if name := c.model.servedAs[c.answer.action.Pool]; name != string(c.asked) {
		parts := api.Splice(c.body.data, c.askedAt, api.AppendString(nil, name))
		pieces = parts[:]
	}
	var length int64
	for _, p := range pieces {
		length += int64(len(p))
	}
	e := c.answer.endpoint
	u := e.urls[c.route.index]
	r := &http.Request{
		Method: http.MethodPost, URL: u, Host: u.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        requestHeader(c.in.Header, c.id, e.authorization),
		ContentLength: length,
		Body:          c.body.reader(pieces...),
	}
	return r.WithContext(ctx)
}

// fail ends an attempt that brought no answer to pass on.
func (c *call) fail(o attempt.Outcome) {
	if c.ctx.Err() != nil {
		o = attempt.ClientGone
	}
	c.close(o)
	if o.Retryable() {
		return // the machine decides; c.held stays set
	}
	c.held = false
	if o == attempt.ClientGone {
		c.model.router.left(c.ticket)
	} else {
		c.model.router.report(flow.Done(c.ticket, c.answer.action.Attempt, o, flow.Usage{}))
	}
	c.finish(o)
}

// close books how the attempt ended.
func (c *call) close(o attempt.Outcome) {
	c.answer.outcome = o
	a := c.answer.action
	c.model.metrics[a.Pool].Attempt(c.answer.endpoint.name, a.Attempt, outcomeOf(o))
}
