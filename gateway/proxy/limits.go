package proxy

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"kvasir/api"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/gateway/limit"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/telemetry"
)

// FanOut bounds the calls of one conversation.
type FanOut struct {
	Concurrency int           // at a time; 0: no bound
	Waiting     int           // that wait
	MaxWait     time.Duration // of one of them
}

// allowance is the live shell round the book of limits: its lock, and the calls that wait
// for a word of it.
type allowance struct {
	clock func() mono.Time

	mu      sync.Mutex
	book    *limit.Book
	waiting []*call // by their grants' index
}

func (a *allowance) configure(c limit.Config) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.book == nil {
		a.book = limit.New(a.clock(), c)
		return
	}
	a.tell(a.book.Configure(a.clock(), c))
}

// take asks for a call to be let in. Where it has to wait the word comes over its turn.
func (a *allowance) take(c *call, who *limit.Caller, e limit.Estimate) limit.Verdict {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.book.Take(a.clock(), who, e)
	if v.Outcome == limit.Wait {
		i := v.Grant.Index()
		for len(a.waiting) <= i {
			a.waiting = append(a.waiting, nil)
		}
		a.waiting[i] = c
	}
	return v
}

// settle ends a grant, and tells those whose turn it is then.
func (a *allowance) settle(g limit.Grant, u limit.Usage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end(g, u)
}

func (a *allowance) end(g limit.Grant, u limit.Usage) { a.tell(a.book.Settle(a.clock(), g, u)) }

// tell lets those who wait hear of their words.
func (a *allowance) tell(words []limit.Word) {
	for _, w := range words {
		i := w.Grant.Index()
		c := a.waiting[i]
		a.waiting[i] = nil
		c.turn <- w.Verdict // capacity 1, and each waits for one word
	}
}

// leave ends a grant that waits. Where the word has come meanwhile it is taken back.
func (a *allowance) leave(c *call) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end(c.grant, limit.Usage{Unsent: true})
	if i := c.grant.Index(); a.waiting[i] == c {
		a.waiting[i] = nil
	}
	select {
	case <-c.turn:
	default:
	}
}

func (a *allowance) states() []limit.State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.book.States(a.clock())
}

// mostAsked bounds what a client's numbers are taken for; it is more than any answer has.
const mostAsked = 1 << 24

// allowed asks whether the call's tenant, key and model have room for it, and waits where
// its conversation has none. It reports whether the call goes on.
func (c *call) allowed() bool {
	who := limit.Caller{Tenant: c.standing.tenant, Key: c.record.Client, Model: c.model.Name, Conversation: c.request.Conversation}
	v := c.g.allowance.take(c, &who, limit.Estimate{
		Input: c.request.InputTokens, MaxOutput: min(c.asked.MaxTokens, mostAsked) * min(c.asked.N, mostAsked), NoOutput: c.request.Kind == selection.Embed,
	})
	c.grant, c.rates = v.Grant, rates{v.Requests, v.Tokens}
	c.rates.show(c.out.w.Header())
	if v.Outcome == limit.Wait {
		began := time.Now()
		var ok bool
		v, ok = c.waitTurn()
		c.lined = time.Since(began)
		if !ok {
			return false
		}
		c.urgent(time.Since(c.arrived))
	}
	if v.Outcome == limit.Refused {
		c.grant = limit.Grant{}
		return c.refuseLimited(&v)
	}
	if c.late() { // in line, or while its body came
		c.refuseFor(flow.DeadlinePassed, 0)
		return false
	}
	return true
}

// waitTurn waits until a sibling has ended, for as long as the call may.
func (c *call) waitTurn() (limit.Verdict, bool) {
	c.accompany()
	most := c.svc.cfg.FanOut.MaxWait
	if total := c.model.timeouts.Total; total > 0 {
		most = min(most, max(total-time.Since(c.arrived), 0))
	}
	if d := c.deadline(); d > 0 {
		most = min(most, max(d-time.Since(c.arrived), 0))
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case v := <-c.turn:
		return v, true
	case <-timer.C:
		c.leaveLine()
		if c.late() {
			c.refuseFor(flow.DeadlinePassed, 0)
			break
		}
		c.g.metrics.LimitRefused(limit.Conversation.String(), limit.Waiting.String())
		c.refuse(telemetry.FanOutTimeout, fanOutTimeout(c.svc.cfg.FanOut))
	case <-c.ctx.Done():
		c.leaveLine()
		c.finish(attempt.ClientGone)
	}
	return limit.Verdict{}, false
}

// leaveLine gives up a place in the line.
func (c *call) leaveLine() {
	c.g.allowance.leave(c)
	c.grant = limit.Grant{}
}

// settle ends the call's grant with what it used.
func (c *call) settle() {
	g := c.grant
	if !g.Held() {
		return
	}
	c.grant = limit.Grant{}
	c.g.allowance.settle(g, c.used())
}

// used says what the call is charged for (field cases F58 and F60). A reported usage counts;
// without one, or with one that can't be, the prompt's estimate and the contents that came,
// as heard has them. Of what an endpoint reports no more counts than most allows. Who left before the answer's end pays for the prompt and
// for what had come, as far as an attempt was under way. What failed before its first content
// costs nothing, whatever the endpoint said, and neither do attempts that another one followed.
func (c *call) used() limit.Usage {
	r, a := &c.record, &c.answer
	if r.Attempts == 0 {
		return limit.Usage{Unsent: true}
	}
	whole := r.Outcome == telemetry.Success
	gone := r.Outcome == telemetry.ClientGone && (a.outcome == attempt.ClientGone || a.outcome == attempt.Success)
	contents := a.heard()
	if c.continuing() {
		contents += c.seam.whole.Output
	}
	if !whole && !gone && contents == 0 {
		return limit.Usage{}
	}
	u := limit.Usage{Whole: whole && c.request.Kind == selection.Generate}
	if r.UsageKnown {
		prompt, answer := c.most()
		u.Input, u.Output = min(r.PromptTokens, prompt), min(r.OutputTokens, answer)
		u.Cached = min(r.CachedTokens, u.Input)
		return u
	}
	u.Input, u.Output, u.Estimated = r.InputTokens, contents, true
	if a.text > 0 {
		u.Output = int((a.text + textOfToken - 1) / textOfToken)
	}
	r.OutputEstimated = u.Output
	return u
}

// rates are the caller's own, as its answers show them.
type rates struct{ requests, tokens limit.Meter }

// show tells the client in the headers that OpenAI's API has for it.
func (r *rates) show(h http.Header) {
	for _, x := range [...]struct {
		limit, remaining, reset string
		meter                   *limit.Meter
	}{
		{"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests", &r.requests},
		{"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens", &r.tokens},
	} {
		if x.meter.Limit == 0 {
			continue
		}
		h[x.limit] = []string{strconv.Itoa(x.meter.Limit)}
		h[x.remaining] = []string{strconv.Itoa(x.meter.Remaining)}
		h[x.reset] = []string{upToMillisecond(x.meter.Reset).String()}
	}
}

func upToMillisecond(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1) / time.Millisecond * time.Millisecond
}

// refuseLimited answers a call that a limit keeps out. Nothing of it reaches an endpoint, or
// counts against one (field case F25).
func (c *call) refuseLimited(v *limit.Verdict) bool {
	c.g.metrics.LimitRefused(v.Scope.Kind.String(), v.Limit.String())
	wait := max(upToMillisecond(v.Retry), time.Millisecond)
	c.out.mu.Lock()
	if h := c.out.w.Header(); !c.out.ahead {
		h.Set("Retry-After", strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
		h.Set("Retry-After-Ms", strconv.FormatInt(wait.Milliseconds(), 10))
	}
	c.out.mu.Unlock()
	return c.refuse(telemetry.RateLimited, rateLimited(v, wait))
}

// rateLimited is what a caller hears of a limit: of its own how much is used, of one that it
// shares with others the bound alone.
func rateLimited(v *limit.Verdict, wait time.Duration) api.Error {
	s, whose := v.Scope, ""
	switch s.Kind {
	case limit.Model:
		whose = fmt.Sprintf("model %s", shorten(s.Name))
	case limit.TenantModel:
		whose = fmt.Sprintf("tenant %s, model %s,", shorten(s.Name), shorten(s.Model))
	case limit.Conversation:
		whose = "this conversation"
	default:
		whose = fmt.Sprintf("%s %s", s.Kind, shorten(s.Name))
	}
	what := map[limit.Limit]string{
		limit.Concurrency: "calls at a time (caps.concurrency)", limit.Requests: "requests per minute (caps.rpm)",
		limit.Tokens: "tokens per minute (caps.tpm)", limit.Waiting: "calls that wait for others of theirs (fan_out.waiting)",
	}[v.Limit]
	use := ""
	if s.Kind != limit.Model {
		use = fmt.Sprintf(", used %d, requested %d", v.Used, v.Asked)
	}
	return api.Error{Status: http.StatusTooManyRequests, Code: "rate_limit_exceeded",
		Message: fmt.Sprintf("Rate limit reached for %s on %s: limit %d%s. Try again in %v.", whose, what, v.Allowed, use, wait)}
}

func fanOutTimeout(f FanOut) api.Error {
	return api.Error{Status: http.StatusServiceUnavailable, Code: "fan_out_timeout",
		Message: fmt.Sprintf("The call's conversation has its %d calls at a time (fan_out.concurrency), and its turn did not come within %v (fan_out.max_wait). Try again later.", f.Concurrency, f.MaxWait)}
}
