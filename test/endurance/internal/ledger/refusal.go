package ledger

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Rates are a tenant's caps a minute; 0: none.
type Rates struct{ Requests, Tokens int }

// final are the reasons in a message of the gateway's own after which another try is of no use.
var final = []string{"(attempts_spent)", "(retry_budget_spent)", "(fails_elsewhere)", "(deadline_unmet)", "(deadline_passed)"}

// judgeHeaders looks at what an answer in the gateway's own words tells clients of trying again.
// Where a heartbeat came first there are no such headers.
func (b *Book) judgeHeaders(c *Call, check checkFunc) {
	r := c.result
	if r.Ahead || len(c.records) != 1 {
		return
	}
	rec, body := c.records[0], string(r.Body)
	useless := rec.Refusal == "deadline_unmet" || rec.Refusal == "deadline_passed"
	if rec.Refusal == "" {
		useless = slices.ContainsFunc(final, func(reason string) bool { return strings.Contains(body, reason) }) ||
			strings.Contains(body, "(no_alternative)") && rec.Attempts > 1
	}
	b.shouldRetry(c, !useless, check)
	after, named := whole(r.Header["Retry-After"])
	if rec.Refusal != "" && (r.Status == 429 || r.Status == 503) || r.Status == 503 || useless && rec.Refusal != "" {
		check(named && after >= 1, "7", "retry-after, whole seconds from 1 on", "status %d, %q", r.Status, r.Header["Retry-After"])
	}
	switch rec.Refusal {
	case "rate_limited":
		ms, fine := whole(r.Header["Retry-After-Ms"])
		check(r.Status == 429 && fine && ms >= 1 && (ms+999)/1000 == after, "7", "429, and retry-after-ms that rounds up to retry-after",
			"status %d, %q and %q", r.Status, r.Header["Retry-After-Ms"], r.Header["Retry-After"])
	case "queue_full", "queue_bytes", "queue_wait", "shed":
		check(r.Status == 429 && after <= 60, "7", "429, and retry-after of at most a minute", "status %d, %d", r.Status, after)
	case "deadline_passed":
		check(r.Status == 504, "7", "504", "%d", r.Status)
	case "deadline_unmet", "queue_timeout", "fan_out_timeout", "too_many_calls", "no_endpoint":
		overdue := rec.Refusal == "queue_timeout" && r.Status == 504 // timeouts.total, while it waited
		check(r.Status == 503 || overdue, "7", "503", "%d", r.Status)
	}
}

// judgePassedOn looks at the same of an endpoint's own error.
func (b *Book) judgePassedOn(c *Call, a *Attempt, check checkFunc) {
	r := c.result
	if r.Ahead || len(c.records) != 1 || a.Status < 400 {
		return
	}
	rec := c.records[0]
	switch {
	case a.Status == 404 || a.Status == 405: // another endpoint may have it, as long as a retry is to be had
	case rec.Outcome == "caller_fault":
		b.shouldRetry(c, true, check)
	case rec.Attempts >= b.limits.Attempts && !b.overdue(c):
		b.shouldRetry(c, false, check)
	case a.Status == 429 || a.Status == 503 || a.Status == 529:
		check(len(r.Header["Retry-After"]) == 1 || slices.Equal(r.Header["X-Should-Retry"], []string{"false"}), "7",
			"retry-after, or that another try is of no use", "neither")
	}
}

func (b *Book) shouldRetry(c *Call, should bool, check checkFunc) {
	got := c.result.Header["X-Should-Retry"]
	if should {
		check(len(got) == 0, "7", "nothing said against another try", "x-should-retry %q: %.300q", got, c.result.Body)
		return
	}
	check(slices.Equal(got, []string{"false"}), "7", "x-should-retry: false", "%q: %.300q", got, c.result.Body)
}

// judgeRates looks at what an answer says of its tenant's rates.
func (b *Book) judgeRates(c *Call, check checkFunc) {
	has := b.limits.Rates[c.Tenant]
	for _, x := range []struct {
		name string
		cap  int
	}{{"Requests", has.Requests}, {"Tokens", has.Tokens}} {
		limit, there := whole(c.result.Header["X-Ratelimit-Limit-"+x.name])
		if !there {
			continue
		}
		left, fine := whole(c.result.Header["X-Ratelimit-Remaining-"+x.name])
		reset, err := time.ParseDuration(strings.Join(c.result.Header["X-Ratelimit-Reset-"+x.name], ","))
		check(x.cap > 0 && limit == x.cap && fine && left >= 0 && left <= limit && err == nil && reset >= 0, "10",
			fmt.Sprintf("the rate of tenant %s, %d %s a minute, and a part of it", c.Tenant, x.cap, x.name), "limit %d, remaining %d, reset %v, %v", limit, left, reset, err)
	}
}

// whole reads a header that is there once and a whole number.
func whole(values []string) (int, bool) {
	if len(values) != 1 {
		return 0, false
	}
	n, err := strconv.Atoi(values[0])
	return n, err == nil
}
