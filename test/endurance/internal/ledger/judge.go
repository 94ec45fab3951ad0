package ledger

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// judge holds one call against the rules. Everything of it is known.
func (b *Book) judge(c *Call) {
	check := func(ok bool, rule, want, got string, args ...any) bool {
		return b.Rules.Check(ok, rule, c.ID, want, got+"; %s", append(args, c.summary())...)
	}
	b.count(c)
	b.judgeRecords(c, check)
	b.judgeAttempts(c, check)
	b.judgeHedge(c, check)
	b.judgeClient(c, check)
}

type checkFunc = func(ok bool, rule, want, got string, args ...any) bool

func (b *Book) judgeRecords(c *Call, check checkFunc) {
	n := len(c.records)
	switch {
	case c.Expect.Unrecorded || !c.result.Connected:
		check(n == 0, "2", "no record: it is no call", "%d records", n)
		return
	case c.Expect.MayUnrecord:
		check(n <= 1, "2", "at most one record", "%d records", n)
	default:
		check(n == 1, "2", "one record", "%d records", n)
	}
	if n == 0 {
		return
	}
	r := c.records[0]
	check(r.Outcome != "unclassified" && r.Outcome != "", "7", "an outcome", "%q", r.Outcome)
	check(r.Attempts <= b.limits.Attempts, "6", fmt.Sprintf("at most %d attempts", b.limits.Attempts), "%d", r.Attempts)
	check(r.Continued == 0, "5", "no part of another attempt's answer: no model says so", "%d parts", r.Continued)
	check(len(c.attempts) <= r.Attempts, "join", "no more attempts upstream than recorded", "%d upstream, %d recorded", len(c.attempts), r.Attempts)
	if c.result.Status != 0 && c.result.Left.IsZero() {
		check(r.Status == c.result.Status, "join", "the recorded status is the client's", "recorded %d, got %d", r.Status, c.result.Status)
	}
	if c.Tenant != "" && len(c.Expect.Refused) == 0 {
		check(r.payer() == c.Tenant, "join", "a record of tenant "+c.Tenant, "%q", r.payer())
	}
	allowed := b.allowed(c, r)
	check(slices.Contains(allowed, r.Outcome), "7", "an outcome of "+strings.Join(allowed, ", "), "%s", r.Outcome)
	if len(c.Expect.Refused) > 0 && c.result.Left.IsZero() {
		check(r.Attempts == 0, "7", "no attempt for a call that is wrong in itself", "%d", r.Attempts)
		check(r.Outcome != "refused" || slices.Contains(c.Expect.Refused, r.Refusal), "7",
			"refused as "+strings.Join(c.Expect.Refused, " or "), "%q", r.Refusal)
	}
	if last := c.last(); last != nil && len(c.attempts) == r.Attempts {
		check(r.Endpoint == last.Endpoint, "join", "the record names the endpoint that had the last attempt: "+last.Endpoint, "%s", r.Endpoint)
	}
}

// allowed returns the outcomes that the record may have.
func (b *Book) allowed(c *Call, r Record) []string {
	var list []string
	if c.Expect.Leaves || !c.result.Left.IsZero() {
		list = append(list, "client_gone")
	}
	if r.Attempts == 0 { // and it is good: nobody was in rotation, or nobody had room
		return append(list, "refused")
	}
	last := c.last()
	if last != nil {
		list = append(list, last.Classes...)
		if last.Killed || b.overdue(c) || last.Coded && c.result.Ahead {
			list = append(list, "endpoint_failure")
		}
	}
	if len(c.attempts) < r.Attempts { // one that no upstream saw failed; it may be the last
		list = append(list, "endpoint_failure")
	}
	return list
}

// overdue reports whether the call took as long as the gateway lets any take.
func (b *Book) overdue(c *Call) bool {
	const late = 200 * time.Millisecond // the client's clock and the gateway's begin apart
	return b.limits.Total > 0 && c.result.Ended.Sub(c.result.Started) > b.limits.Total-late
}

// last returns the attempt that came last. One that was found on a connection after its
// death may have been noted behind the one that followed it; the record knows. Of two that
// ran at a time it is the one that the record names.
func (c *Call) last() *Attempt {
	var newest *Attempt
	if c.hedged() {
		for _, a := range slices.Backward(c.attempts) {
			if a.Endpoint == c.records[0].Endpoint {
				return a
			}
		}
	}
	for _, a := range slices.Backward(c.attempts) {
		if newest == nil {
			newest = a
		}
		if !a.Late || len(c.records) > 0 && c.records[0].Endpoint == a.Endpoint {
			return a
		}
	}
	return newest
}

func (b *Book) judgeAttempts(c *Call, check checkFunc) {
	left, bound := c.result.Left, max(b.limits.AbortBound, c.Expect.AbortIn)
	for i, a := range c.attempts {
		check(a.BadBody == "", "1", "the endpoint gets the client's bytes", "at %s: %s", a.Endpoint, a.BadBody)
		check(a.BadHeader == "", "9", "the endpoint gets its own key and nothing of the client's", "at %s: %s", a.Endpoint, a.BadHeader)
		for _, other := range c.attempts[:i] {
			// One that has no room may be waited for, and a connection that closes without a
			// word may have been idle too long.
			again := other.Status == 429 || other.Status == 503 || other.Silent || other.Killed
			check(again || other.Endpoint != a.Endpoint, "6", "another attempt goes to another endpoint", "twice to %s", a.Endpoint)
		}
		if by := c.Expect.CutBy; by > 0 && !a.Killed {
			end := a.Aborted
			check(!end.IsZero() && end.Sub(c.result.Started) <= by, "4", fmt.Sprintf("cut %v after the start: the client does not read", by),
				"attempt at %s was aborted at %v", a.Endpoint, end.Sub(c.result.Started))
		}
		if left.IsZero() {
			continue
		}
		// On a busy machine the upstream itself may read late what was aborted long ago.
		stale := !a.Aborted.IsZero() && a.Aborted.Sub(a.Arrived) < bound/8
		check(stale || a.Arrived.Before(left.Add(bound)), "4", "no attempt starts after the client left",
			"one arrived at %s %v later", a.Endpoint, a.Arrived.Sub(left))
		end := a.Ended
		if !a.Aborted.IsZero() {
			end = a.Aborted
		}
		if end.IsZero() {
			check(false, "4", fmt.Sprintf("aborted within %v", bound), "attempt at %s (%s) still runs", a.Endpoint, a.Fault)
			continue
		}
		took := end.Sub(left)
		check(stale || took <= bound, "4", fmt.Sprintf("aborted within %v", bound),
			"attempt at %s (%s) ended %v after the client left", a.Endpoint, a.Fault, took)
		if took > 0 && !a.Aborted.IsZero() && c.Expect.AbortIn == 0 {
			b.aborted(took, c)
		}
	}
}

// aborted notes how long an abort took to reach the upstream.
func (b *Book) aborted(took time.Duration, c *Call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.aborts = append(b.aborts, took)
	if took > b.slowest {
		b.slowest, b.slowestCall = took, c.ID+": "+c.summary()
	}
}

// summary is a call's story in a line.
func (c *Call) summary() string {
	var s strings.Builder
	r := c.result
	if r.Beats > 0 {
		fmt.Fprintf(&s, "%d heartbeats, first %v, ", r.Beats, r.Ahead)
	}
	fmt.Fprintf(&s, "kind %s, %s, model %s, stream %v; client: status %d, %d bytes, clean %v", c.Kind, c.Route, c.Model, c.Stream, r.Status, len(r.Body), r.Clean)
	if r.Err != "" {
		fmt.Fprintf(&s, ", %s", r.Err)
	}
	if !r.Left.IsZero() {
		fmt.Fprintf(&s, ", left at %v", r.Left.Sub(r.Started).Round(time.Millisecond/10))
	}
	for _, a := range c.attempts {
		fmt.Fprintf(&s, "; attempt %s: %s, status %d, at %v", a.Endpoint, a.Fault, a.Status, a.Arrived.Sub(r.Started).Round(time.Millisecond/10))
		if !a.Ended.IsZero() {
			fmt.Fprintf(&s, " to %v", a.Ended.Sub(r.Started).Round(time.Millisecond/10))
		}
		if !a.Content.IsZero() {
			fmt.Fprintf(&s, ", content at %v", a.Content.Sub(r.Started).Round(time.Millisecond/10))
		}
		if !a.Aborted.IsZero() {
			fmt.Fprintf(&s, ", aborted at %v", a.Aborted.Sub(r.Started).Round(time.Millisecond/10))
		}
		if a.Killed {
			s.WriteString(", killed")
		}
	}
	for _, rec := range c.records {
		fmt.Fprintf(&s, "; record: %s %s status %d attempts %d", rec.Outcome, rec.Refusal, rec.Status, rec.Attempts)
		if rec.Hedged {
			fmt.Fprintf(&s, ", hedged, of %s", rec.Endpoint)
		}
	}
	if len(c.Header) > 0 {
		fmt.Fprintf(&s, "; tenant %s, %q", c.Tenant, c.Header)
	}
	return s.String()
}

// model returns the configured name of the call's model, as far as it is recorded.
func (c *Call) model() string {
	if len(c.records) == 0 {
		return ""
	}
	return c.records[0].Model
}

// free returns how many of the call's retries may have followed a stale connection: one
// that closed without a word, or on which nothing arrived.
func (c *Call) free() int {
	n := 0
	for i, a := range c.attempts {
		if i < len(c.attempts)-1 && (a.Silent || a.Killed) {
			n++
		}
	}
	if len(c.records) > 0 {
		n += max(c.records[0].Attempts-len(c.attempts), 0)
		n = min(n, max(c.records[0].Attempts-1, 0))
	}
	return min(n, 1) // once a call
}

// count enters a call in the tables.
func (b *Book) count(c *Call) {
	b.Counts.Add(c.Kind+"|calls", 1)
	r := c.result
	if r.Ahead {
		b.Counts.Add(c.Kind+"|heartbeat first", 1)
	}
	switch {
	case !r.Left.IsZero():
		b.Counts.Add(c.Kind+"|left", 1)
	case r.Status == 0:
		b.Counts.Add(c.Kind+"|no answer", 1)
	case r.Status < 300 && r.Clean:
		b.Counts.Add(c.Kind+"|2xx whole", 1)
	case r.Status < 300:
		b.Counts.Add(c.Kind+"|2xx broken", 1)
	case r.Status < 500:
		b.Counts.Add(c.Kind+"|4xx", 1)
	default:
		b.Counts.Add(c.Kind+"|5xx", 1)
	}
	if len(c.records) > 0 {
		rec := c.records[0]
		b.Ends.Add(rec.Outcome+"|calls", 1)
		if rec.Attempts > 1 {
			b.Ends.Add(rec.Outcome+"|retried", 1)
		}
	}
	for i, a := range c.attempts {
		b.Faults.Add(a.Fault+"|attempts", 1)
		switch {
		case !a.Aborted.IsZero():
			b.Faults.Add(a.Fault+"|aborted", 1)
		case i < len(c.attempts)-1:
			b.Faults.Add(a.Fault+"|retried", 1)
		default:
			b.Faults.Add(a.Fault+"|last", 1)
		}
	}
}
