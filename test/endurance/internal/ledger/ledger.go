// Package ledger joins what the client, the gateway's call log and the upstreams say of
// one call, by its id, and holds it against the invariants.
package ledger

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"kvasir/test/endurance/internal/report"
)

// Ask is what a client asks for.
type Ask struct {
	Route  string
	Model  string // as the client names it
	Stream bool
	Body   []byte // JSON, before any coding of the transfer

	Key    string   // that it shows; "": none
	Tenant string   // whose call that makes it; "": nothing is known of tenants
	Header []string // further lines of its head
	Once   bool     // it says that it must not be made twice
	Low    bool     // it has a negative priority
}

// Expect is what a client's own behaviour implies, whatever endpoints do.
type Expect struct {
	Refused     []string // refusals of which one is due, without an attempt; none: the call is good
	Unrecorded  bool     // it is no call: no line in the log
	MayUnrecord bool     // its request may never come whole: a line, or none
	Leaves      bool     // it leaves, or may have to be taken for gone
	Status      int      // that the client must get; 0: see the other fields
	NoBody      bool     // the answer's body is not looked into

	AbortIn time.Duration // > 0: what its abort may take, in place of Limits.AbortBound

	CutBy time.Duration // > 0: it does not read, and its attempt must be aborted within that
}

// Call is one client's call.
type Call struct {
	ID     string
	Number uint64
	Kind   string // the client's kind
	Expect Expect
	Ask

	mu       sync.Mutex
	attempts []*Attempt
	records  []Record
	result   *Result
	done     time.Time // when the client was
}

// Attempt is what an upstream noted of one request of a call, and what it did with it.
// Its fields are guarded by its call until it has ended.
type Attempt struct {
	Endpoint string
	Mark     string // in every piece of content, made of the call's id, endpoint and a number
	Fault    string
	Arrived  time.Time
	Aborted  time.Time // when the gateway was seen to be gone before the end
	Ended    time.Time
	Content  time.Time // when its first content was written, or an answer that has no preamble was whole

	BadBody   string // how the request's body differs from what is due; "": it does not
	BadHeader string // a header that must not have come, or lacks

	Status  int
	Silent  bool     // it broke off before any byte
	Stream  bool     // it is an event stream that the gateway can read
	Whole   bool     // a client may take its text for a whole answer
	Final   bool     // the text has its protocol's end, so a missing last chunk is no harm
	Unfit   bool     // the gateway must not pass it on: wrong type, redirect, key
	Coded   bool     // it is compressed: after a heartbeat it can't be passed on
	Leak    bool     // it quotes the endpoint's key
	Classes []string // outcomes that it may have where it is the call's last
	Killed  bool     // the endpoint died under it, or right after
	Late    bool     // it was read when the endpoint was dead already
	Endless bool     // Sent is not kept

	RetryAfter string
	Sent       []byte // of the body, without its framing
}

// Result is what a client saw.
type Result struct {
	Started   time.Time
	Left      time.Time // when it left on purpose; zero: it stayed
	Ended     time.Time
	Connected bool
	Sent      bool // the whole request was sent
	Status    int  // 0: no answer
	Header    map[string][]string
	Body      []byte
	Clean     bool // the answer ended as its framing says
	Beats     int  // the gateway's own comments in Body, for clients that wait
	Ahead     bool // one of them came first, and 200 with it
	Err       string
}

// Record is a line of the call log.
type Record struct {
	Msg      string `json:"msg"`
	ID       string `json:"id"`
	Route    string `json:"route"`
	Model    string `json:"model"`
	Endpoint string `json:"endpoint"`
	Outcome  string `json:"outcome"`
	Refusal  string `json:"refusal"`
	Status   int    `json:"status"`
	Stream   bool   `json:"stream"`
	Attempts int    `json:"attempts"`

	Continued int    `json:"continued"`
	Hedged    bool   `json:"hedged"` // two of them ran at a time
	Retry     bool   `json:"retry"`  // its client had sent it before
	Client    string `json:"client"`
	Tenant    string `json:"tenant"` // where it isn't the client's own name
}

// payer returns whose call it was.
func (r *Record) payer() string {
	if r.Tenant != "" {
		return r.Tenant
	}
	return r.Client
}

// retries returns how many attempts followed one that had failed: a hedge is none.
func (r *Record) retries() int {
	n := r.Attempts - 1
	if r.Hedged {
		n--
	}
	return max(n, 0)
}

// AddAttempt notes an attempt and returns how many there were before.
func (c *Call) AddAttempt(a *Attempt) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempts = append(c.attempts, a)
	return len(c.attempts) - 1
}

// Note changes an attempt's notes.
func (c *Call) Note(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// Result returns what the client saw; nil while it is at it.
func (c *Call) Result() *Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.result
}

// Attempts returns the attempts so far.
func (c *Call) Attempts() []*Attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.attempts)
}

// Limits is what calls are held against.
type Limits struct {
	Attempts   int           // most attempts of one call
	AbortBound time.Duration // until an abort has reached the upstream
	CallBound  time.Duration // until a client that stays has its answer
	Total      time.Duration // after which the gateway ends a call; 0: never
	Settle     time.Duration // what may still come after a call's end is waited for so long
	Secrets    []string      // must not show in the log, metrics, or at a client
	Private    []string      // clients' own: must not show in the log or metrics

	Hedges map[string]bool  // models of which two attempts of a call may run at a time
	Rates  map[string]Rates // by tenant
}

// Book holds the calls that are not judged yet. It is safe for concurrent use.
type Book struct {
	Rules  *report.Rules
	Counts report.Counts // "kind|column"
	Ends   report.Counts // "outcome|column"
	Faults report.Counts // "fault|column"
	Own    report.Counts // "status code|column": errors in the gateway's own words
	limits Limits

	mu          sync.Mutex
	calls       map[string]*Call
	judged      map[string]bool
	waiting     []*Call
	aborts      []time.Duration
	beaten      []time.Duration // from the first content to the abort of the other attempt
	slowest     time.Duration   // of them, and its call's story
	slowestCall string
	records     int // lines of the call log
	attempts    int // that they add up to
	retries     int
	seen        int // attempts that upstreams noted
	outcomes    map[string]int
	models      map[string]*ModelTotals
	tenants     map[string]*TenantTotals
	refusals    map[string]int
	foreign     int
	dropped     int // lines that the gateway says it dropped

	stop    chan struct{}
	stopped sync.WaitGroup
}

// Invariants are the rules, by the numbers of docs/cases.md.
var Invariants = []string{
	"1 bytes out are bytes in where nothing is rewritten, both ways",
	"2 a call is recorded once and its answer ends once",
	"3 in flight never negative, zero when nothing runs",
	"4 aborts reach the upstream, and no attempt starts after one",
	"5 after the first content no other attempt's bytes",
	"6 attempts of a call and retries of all are bounded",
	"7 outcomes say who is to blame; a caller's fault changes no health",
	"8 unknown load is null, never zero",
	"9 no secret on the other side, in logs, metrics or errors",
	"10 memory and series are bounded",
	"bound a client that stays has its answer in time",
	"join client, gateway and upstream agree by call id",
}

// New returns a book. Close it.
func New(rules *report.Rules, l Limits) *Book {
	b := &Book{
		Rules: rules, limits: l, calls: map[string]*Call{}, judged: map[string]bool{},
		outcomes: map[string]int{}, models: map[string]*ModelTotals{}, tenants: map[string]*TenantTotals{}, refusals: map[string]int{}, stop: make(chan struct{}),
	}
	b.stopped.Go(b.run)
	return b
}

// Begin enters a call before its client starts.
func (b *Book) Begin(c *Call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls[c.ID] = c
}

// Find returns a call that is not judged yet, or nil.
func (b *Book) Find(id string) *Call {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[id]
}

// Known reports whether the call is, or was, in the book.
func (b *Book) Known(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[id] != nil || b.judged[id]
}

// heartbeat is what the gateway sends a streaming client that waits; upstreams here never
// say quite that.
var heartbeat = []byte(": waiting\n")

// Finish enters what the client saw.
func (b *Book) Finish(c *Call, r *Result) {
	r.Ahead = bytes.HasPrefix(r.Body, heartbeat)
	r.Beats = bytes.Count(r.Body, heartbeat)
	r.Body = bytes.ReplaceAll(r.Body, heartbeat, nil)
	c.mu.Lock()
	c.result, c.done = r, time.Now()
	c.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, c)
}

// Line takes a line of the gateway's log.
func (b *Book) Line(line []byte) {
	b.secrets("the log", line)
	var r Record
	if json.Unmarshal(line, &r) != nil {
		b.Rules.Check(false, "2", "", "the log is lines of JSON", "%.300s", line)
		return
	}
	if strings.Contains(r.Msg, "lines were dropped") {
		b.mu.Lock()
		b.dropped++
		b.mu.Unlock()
	}
	if r.Msg != "call" {
		return
	}
	b.mu.Lock()
	b.records++
	b.attempts += r.Attempts
	b.retries += r.retries()
	b.outcomes[r.Outcome]++
	m := b.models[r.Model]
	if m == nil {
		m = &ModelTotals{}
		b.models[r.Model] = m
	}
	m.Calls++
	m.Retries += r.retries()
	if r.Hedged {
		m.Hedged++
	}
	if !r.Retry && (r.Outcome == "success" || r.Outcome == "client_gone") {
		m.Answered++
	}
	if r.Refusal != "" {
		b.refusals[r.Refusal]++
	}
	t := b.tenants[r.payer()]
	if t == nil {
		t = &TenantTotals{}
		b.tenants[r.payer()] = t
	}
	if r.Attempts > 0 {
		t.Sent++
	}
	if r.Refusal == "rate_limited" {
		t.Limited++
	}
	c, was := b.calls[r.ID], b.judged[r.ID]
	if c == nil && !was {
		b.foreign++
	}
	b.mu.Unlock()
	if was {
		b.Rules.Check(false, "2", r.ID, "one record", "another one after the call was over: %s", line)
	}
	if c != nil {
		c.mu.Lock()
		c.records = append(c.records, r)
		c.mu.Unlock()
	}
}

// secrets checks a text of the gateway's own.
func (b *Book) secrets(where string, text []byte) {
	for _, list := range [][]string{b.limits.Secrets, b.limits.Private} {
		for _, s := range list {
			if strings.Contains(string(text), s) {
				b.Rules.Check(false, "9", "", "no secret in "+where, "%q in %.300q", s, text)
			}
		}
	}
	b.Rules.Check(true, "9", "", "", "")
}

// Page checks a page of the admin listener for secrets.
func (b *Book) Page(where string, text []byte) { b.secrets(where, text) }

// Totals is what the log adds up to.
type Totals struct {
	Records, Attempts, Retries, Seen, Foreign, Dropped int
	Outcomes                                           map[string]int
	Refusals                                           map[string]int
	Models                                             map[string]ModelTotals
	Tenants                                            map[string]TenantTotals
	Beaten                                             []time.Duration // from a first content to the abort of the other attempt, sorted
	Aborts                                             []time.Duration // how long aborts took to reach an upstream, sorted
	SlowestAbort                                       string          // the story of the slowest one's call
}

// ModelTotals is what the log adds up to for one model.
type ModelTotals struct {
	Calls, Retries int
	Hedged         int
	Answered       int // that may have earned a part of a retry
	Free           int // retries that a gateway may grant for nothing: the connection was stale, for all that it could see
}

// TenantTotals is what the log adds up to for one tenant.
type TenantTotals struct{ Sent, Limited int }

// Totals returns the sums so far.
func (b *Book) Totals() Totals {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := Totals{Records: b.records, Attempts: b.attempts, Retries: b.retries, Seen: b.seen, Foreign: b.foreign, Dropped: b.dropped,
		Outcomes: map[string]int{}, Models: map[string]ModelTotals{}, Aborts: slices.Clone(b.aborts), Beaten: slices.Clone(b.beaten),
		Refusals: maps.Clone(b.refusals), Tenants: map[string]TenantTotals{}, SlowestAbort: b.slowestCall}
	maps.Copy(t.Outcomes, b.outcomes)
	for name, m := range b.models {
		t.Models[name] = *m
	}
	for name, n := range b.tenants {
		t.Tenants[name] = *n
	}
	slices.Sort(t.Aborts)
	slices.Sort(t.Beaten)
	return t
}

// Open returns how many calls are not judged yet.
func (b *Book) Open() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.calls)
}

// Close judges what is left and stops.
func (b *Book) Close() {
	close(b.stop)
	b.stopped.Wait()
}

func (b *Book) run() {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			b.sweep(false)
		case <-b.stop:
			b.sweep(true)
			return
		}
	}
}

// sweep judges the calls of which everything is known, or everything that will be.
func (b *Book) sweep(all bool) {
	b.mu.Lock()
	var ready []*Call
	b.waiting = slices.DeleteFunc(b.waiting, func(c *Call) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if all || b.ripe(c) {
			ready = append(ready, c)
			return true
		}
		return false
	})
	b.mu.Unlock()
	for _, c := range ready {
		c.mu.Lock()
		if !all && !b.ripe(c) { // an attempt has come meanwhile
			c.mu.Unlock()
			b.mu.Lock()
			b.waiting = append(b.waiting, c)
			b.mu.Unlock()
			continue
		}
		b.judge(c)
		n, free, model := len(c.attempts), c.free(), c.model()
		c.mu.Unlock()
		b.mu.Lock()
		b.seen += n
		if m := b.models[model]; m != nil {
			m.Free += free
		}
		delete(b.calls, c.ID)
		b.judged[c.ID] = true
		b.mu.Unlock()
	}
}

// ripe reports whether a call, which the caller has locked, can be judged.
func (b *Book) ripe(c *Call) bool {
	since := time.Since(c.done)
	if since < b.limits.Settle {
		return false
	}
	if since > b.limits.Settle+max(b.limits.AbortBound, c.Expect.AbortIn)+b.limits.CallBound {
		return true
	}
	for _, a := range c.attempts {
		if a.Ended.IsZero() {
			return false
		}
	}
	return len(c.records) > 0 || c.Expect.Unrecorded || c.Expect.MayUnrecord && since > b.limits.Settle+max(b.limits.AbortBound, c.Expect.AbortIn)
}
