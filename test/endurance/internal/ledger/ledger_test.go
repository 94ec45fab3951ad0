package ledger

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"kvasir/test/endurance/internal/report"
)

const (
	callID = "soak-1"
	mark   = "<soak-1@e0.1>"
	key    = "sk-endpoint-canary"
)

// fixture is a call for which everything is in order: one attempt, answered whole.
func fixture() (*Call, *Result, *Attempt, []Record) {
	began := time.Now().Add(-10 * time.Second)
	text := "data: {\"x\":\"" + mark + "\"}\n\ndata: [DONE]\n\n"
	c := &Call{ID: callID, Number: 1, Kind: "plain", Ask: Ask{Route: "/v1/chat/completions", Model: "m", Stream: true}}
	a := &Attempt{Endpoint: "e0", Mark: mark, Fault: "whole", Arrived: began, Ended: began.Add(time.Second),
		Status: 200, Stream: true, Whole: true, Final: true, Classes: []string{"success"}, Sent: []byte(text)}
	r := &Result{Started: began, Ended: began.Add(time.Second), Connected: true, Sent: true, Status: 200,
		Header: map[string][]string{"X-Kvasir-Endpoint": {"e0"}}, Body: []byte(text), Clean: true}
	return c, r, a, []Record{{Msg: "call", ID: callID, Model: "m", Endpoint: "e0", Outcome: "success", Status: 200, Stream: true, Attempts: 1}}
}

// broken returns the rules that are broken after the change.
func broken(t *testing.T, change func(c *Call, r *Result, a *Attempt, recs *[]Record)) []string {
	t.Helper()
	c, r, a, recs := fixture()
	rules := report.NewRules(Invariants...)
	b := New(rules, Limits{Attempts: 3, AbortBound: time.Second, CallBound: 5 * time.Second, Secrets: []string{key}, Private: []string{"sk-client"},
		Hedges: map[string]bool{"m": true}, Rates: map[string]Rates{"acme": {Requests: 600}}})
	b.Begin(c)
	c.AddAttempt(a)
	if change != nil {
		change(c, r, a, &recs)
	}
	for _, rec := range recs {
		line, err := json.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		b.Line(line)
	}
	b.Finish(c, r)
	b.Close()
	var out strings.Builder
	rules.Print(&out)
	var found []string
	for line := range strings.Lines(out.String()) {
		if rest, ok := strings.CutPrefix(line, "VIOLATION rule "); ok {
			rule, _, _ := strings.Cut(rest, ",")
			if !slices.Contains(found, rule) {
				found = append(found, rule)
			}
		}
	}
	if rules.Broken() == 0 != (len(found) == 0) {
		t.Errorf("%d violations, printed %v", rules.Broken(), found)
	}
	return found
}

func TestJudge(t *testing.T) {
	second := func(c *Call, r *Result, recs *[]Record) *Attempt {
		b := *c.attempts[0]
		b.Endpoint, b.Mark = "e1", "<soak-1@e1.2>"
		c.AddAttempt(&b)
		(*recs)[0].Attempts, (*recs)[0].Endpoint = 2, "e1"
		return &b
	}
	// hedged is a call that had a second attempt beside this one, which answered; the other one
	// was aborted so much later than its first content.
	hedged := func(c *Call, r *Result, a *Attempt, recs *[]Record, aborted time.Duration) *Attempt {
		other := *a
		other.Endpoint, other.Mark, other.Content = "e1", "<soak-1@e1.2>", time.Time{}
		other.Whole, other.Final, other.Classes = false, false, []string{"endpoint_failure"}
		a.Content = a.Arrived.Add(time.Second / 2)
		other.Aborted = a.Content.Add(aborted)
		other.Ended = other.Aborted
		c.AddAttempt(&other)
		(*recs)[0].Attempts, (*recs)[0].Hedged = 2, true
		r.Header["X-Kvasir-Hedged"] = []string{"lost"}
		return &other
	}
	// refused is a call that the gateway has refused.
	refused := func(c *Call, r *Result, recs *[]Record, why string, status int, header ...string) {
		c.attempts = nil
		*recs = []Record{{Msg: "call", ID: callID, Model: "m", Outcome: "refused", Refusal: why, Status: status}}
		r.Status, r.Body = status, []byte(`{"error":{"message":"x","type":"y_error","code":"z","request_id":"soak-1"}}`)
		r.Header = map[string][]string{}
		for i := 0; i < len(header); i += 2 {
			r.Header[header[i]] = []string{header[i+1]}
		}
	}
	for name, test := range map[string]struct {
		change func(c *Call, r *Result, a *Attempt, recs *[]Record)
		want   string // a rule that must be broken; "": none
	}{
		"all in order": {nil, ""},
		"a cut answer with an error event": {func(c *Call, r *Result, a *Attempt, recs *[]Record) {
			a.Whole, a.Final, a.Classes = false, false, []string{"endpoint_failure"}
			a.Sent = []byte("data: {\"x\":\"" + mark + "\"}\n\ndata: {\"y")
			r.Body = []byte("data: {\"x\":\"" + mark + "\"}\n\ndata: {\"error\":{\"message\":\"broke\",\"type\":\"t\",\"code\":\"c\"}}\n\n")
			(*recs)[0].Outcome = "endpoint_failure"
		}, ""},
		"a cut answer that ends cleanly": {func(c *Call, r *Result, a *Attempt, recs *[]Record) {
			a.Whole, a.Final, a.Classes = false, false, []string{"endpoint_failure"}
			a.Sent = a.Sent[:len(a.Sent)-14]
			r.Body = a.Sent
			(*recs)[0].Outcome = "endpoint_failure"
		}, "2"},
		"a byte changed":      {func(c *Call, r *Result, a *Attempt, _ *[]Record) { r.Body = append([]byte("D"), r.Body[1:]...) }, "1"},
		"a byte missing":      {func(c *Call, r *Result, a *Attempt, _ *[]Record) { r.Body = r.Body[:len(r.Body)-1] }, "1"},
		"a request changed":   {func(c *Call, r *Result, a *Attempt, _ *[]Record) { a.BadBody = "differs" }, "1"},
		"a status changed":    {func(c *Call, r *Result, a *Attempt, _ *[]Record) { a.Status = 201 }, "1"},
		"retry-after dropped": {func(c *Call, r *Result, a *Attempt, _ *[]Record) { a.RetryAfter = "1.5" }, "1"},
		"no record":           {func(c *Call, r *Result, a *Attempt, recs *[]Record) { *recs = nil }, "2"},
		"two records":         {func(c *Call, r *Result, a *Attempt, recs *[]Record) { *recs = append(*recs, (*recs)[0]) }, "2"},
		"a record of no call": {func(c *Call, r *Result, a *Attempt, recs *[]Record) { c.Expect.Unrecorded = true }, "2"},
		"runs on": {func(c *Call, r *Result, a *Attempt, _ *[]Record) {
			r.Left = r.Started
			a.Ended = r.Started.Add(3 * time.Second)
		}, "4"},
		"never ends": {func(c *Call, r *Result, a *Attempt, _ *[]Record) { r.Left = r.Started; a.Ended = time.Time{} }, "4"},
		"aborted in time": {func(c *Call, r *Result, a *Attempt, _ *[]Record) {
			r.Left = r.Started
			a.Aborted = r.Started.Add(time.Second / 4)
		}, ""},
		"starts after the end": {func(c *Call, r *Result, a *Attempt, _ *[]Record) { r.Left = a.Arrived.Add(-2 * time.Second) }, "4"},
		"bytes of two attempts": {func(c *Call, r *Result, a *Attempt, recs *[]Record) {
			r.Body = append([]byte(second(c, r, recs).Mark), r.Body...)
		}, "5"},
		"answer of the first": {func(c *Call, r *Result, a *Attempt, recs *[]Record) { second(c, r, recs) }, "5"},
		"another call's bytes": {func(c *Call, r *Result, a *Attempt, _ *[]Record) {
			r.Body = append(r.Body, "<soak-2@e0.9>"...)
			a.Sent = r.Body
		}, "5"},
		"another attempt goes on": {func(c *Call, r *Result, a *Attempt, recs *[]Record) { (*recs)[0].Continued = 1 }, "5"},
		"too many attempts":       {func(c *Call, r *Result, a *Attempt, recs *[]Record) { (*recs)[0].Attempts = 4 }, "6"},
		"the same endpoint":       {func(c *Call, r *Result, a *Attempt, recs *[]Record) { second(c, r, recs).Endpoint = "e0" }, "6"},
		"more than recorded":      {func(c *Call, r *Result, a *Attempt, recs *[]Record) { second(c, r, recs); (*recs)[0].Attempts = 1 }, "join"},
		"wrong outcome":           {func(c *Call, r *Result, a *Attempt, recs *[]Record) { (*recs)[0].Outcome = "caller_fault" }, "7"},
		"no outcome":              {func(c *Call, r *Result, a *Attempt, recs *[]Record) { (*recs)[0].Outcome = "unclassified" }, "7"},
		"gone, and it stayed":     {func(c *Call, r *Result, a *Attempt, recs *[]Record) { (*recs)[0].Outcome = "client_gone" }, "7"},
		"an attempt of a wrong":   {func(c *Call, r *Result, a *Attempt, recs *[]Record) { c.Expect.Refused = []string{"bad_request"} }, "7"},
		"an error for nothing": {func(c *Call, r *Result, a *Attempt, recs *[]Record) {
			r.Status, (*recs)[0].Status = 502, 502
			r.Body = []byte(`{"error":{"message":"x","request_id":"soak-1"}}`)
		}, "7"},
		"the key in the body":           {func(c *Call, r *Result, a *Attempt, _ *[]Record) { r.Body = append(r.Body, key...); a.Sent = r.Body }, "9"},
		"the key in a header":           {func(c *Call, r *Result, a *Attempt, _ *[]Record) { r.Header["X-Echo"] = []string{"Bearer " + key} }, "9"},
		"the client's key":              {func(c *Call, r *Result, a *Attempt, _ *[]Record) { a.BadHeader = "Cookie" }, "9"},
		"a secret in the log":           {func(c *Call, r *Result, a *Attempt, recs *[]Record) { (*recs)[0].Route = "sk-client" }, "9"},
		"no answer":                     {func(c *Call, r *Result, a *Attempt, recs *[]Record) { r.Status, r.Body = 0, nil }, "join"},
		"recorded another code":         {func(c *Call, r *Result, a *Attempt, recs *[]Record) { (*recs)[0].Status = 500 }, "join"},
		"not cut in time":               {func(c *Call, r *Result, a *Attempt, recs *[]Record) { c.Expect.CutBy = time.Second }, "4"},
		"hedged":                        {func(c *Call, r *Result, a *Attempt, recs *[]Record) { hedged(c, r, a, recs, time.Millisecond) }, ""},
		"hedged, and the other runs on": {func(c *Call, r *Result, a *Attempt, recs *[]Record) { hedged(c, r, a, recs, 3*time.Second) }, "5"},
		"hedged, and the other never ends": {func(c *Call, r *Result, a *Attempt, recs *[]Record) {
			o := hedged(c, r, a, recs, 0)
			o.Aborted, o.Ended = time.Time{}, time.Time{}
		}, "5"},
		"hedged after the first content": {func(c *Call, r *Result, a *Attempt, recs *[]Record) {
			o := hedged(c, r, a, recs, 3*time.Second)
			o.Arrived = a.Content.Add(2 * time.Second)
		}, "5"},
		"hedged where nothing is": {func(c *Call, r *Result, a *Attempt, recs *[]Record) {
			hedged(c, r, a, recs, 0)
			(*recs)[0].Model = "other"
		}, "6"},
		"hedged, to be made once":  {func(c *Call, r *Result, a *Attempt, recs *[]Record) { hedged(c, r, a, recs, 0); c.Once = true }, "6"},
		"hedged, though it is low": {func(c *Call, r *Result, a *Attempt, recs *[]Record) { hedged(c, r, a, recs, 0); c.Low = true }, "6"},
		"two at a time, not hedged": {func(c *Call, r *Result, a *Attempt, recs *[]Record) {
			hedged(c, r, a, recs, 0)
			(*recs)[0].Hedged, a.Ended = false, a.Arrived.Add(3*time.Second)
		}, "6"},
		"hedged, not recorded": {func(c *Call, r *Result, a *Attempt, recs *[]Record) {
			hedged(c, r, a, recs, 0)
			(*recs)[0].Hedged = false
		}, "join"},
		"hedged, and it fails though one is whole": {func(c *Call, r *Result, a *Attempt, recs *[]Record) {
			hedged(c, r, a, recs, 0)
			(*recs)[0].Endpoint, (*recs)[0].Outcome, (*recs)[0].Status = "e1", "endpoint_failure", 502
			r.Status, r.Body = 502, []byte(`{"error":{"message":"x","request_id":"soak-1"}}`)
		}, "7"},
		"over a limit": {func(c *Call, r *Result, a *Attempt, recs *[]Record) {
			refused(c, r, recs, "rate_limited", 429, "Retry-After", "2", "Retry-After-Ms", "1001")
		}, ""},
		"over a limit, and no time": {func(c *Call, r *Result, a *Attempt, recs *[]Record) { refused(c, r, recs, "rate_limited", 429) }, "7"},
		"over a limit, and two times": {func(c *Call, r *Result, a *Attempt, recs *[]Record) {
			refused(c, r, recs, "rate_limited", 429, "Retry-After", "2", "Retry-After-Ms", "500")
		}, "7"},
		"over a limit, and no other try": {func(c *Call, r *Result, a *Attempt, recs *[]Record) {
			refused(c, r, recs, "rate_limited", 429, "Retry-After", "1", "Retry-After-Ms", "500", "X-Should-Retry", "false")
		}, "7"},
		"too late": {func(c *Call, r *Result, a *Attempt, recs *[]Record) { r.Ended = r.Started.Add(6 * time.Second) }, "bound"},
		"a deadline unmet": {func(c *Call, r *Result, a *Attempt, recs *[]Record) {
			refused(c, r, recs, "deadline_unmet", 503, "Retry-After", "1", "X-Should-Retry", "false")
		}, ""},
		"a deadline unmet, and come again": {func(c *Call, r *Result, a *Attempt, recs *[]Record) {
			refused(c, r, recs, "deadline_unmet", 503, "Retry-After", "1")
		}, "7"},
		"a queue full for an hour": {func(c *Call, r *Result, a *Attempt, recs *[]Record) {
			refused(c, r, recs, "queue_full", 429, "Retry-After", "3600")
		}, "7"},
		"another tenant's": {func(c *Call, r *Result, a *Attempt, recs *[]Record) { c.Tenant, (*recs)[0].Client = "acme", "other" }, "join"},
		"its tenant's": {func(c *Call, r *Result, a *Attempt, recs *[]Record) {
			c.Tenant, (*recs)[0].Client, (*recs)[0].Tenant = "acme", "chat", "acme"
		}, ""},
		"a rate that nobody has": {func(c *Call, r *Result, a *Attempt, recs *[]Record) {
			r.Header["X-Ratelimit-Limit-Requests"], r.Header["X-Ratelimit-Remaining-Requests"], r.Header["X-Ratelimit-Reset-Requests"] = []string{"600"}, []string{"1"}, []string{"1s"}
		}, "10"},
		"less than nothing left": {func(c *Call, r *Result, a *Attempt, recs *[]Record) {
			c.Tenant, (*recs)[0].Client = "acme", "acme"
			r.Header["X-Ratelimit-Limit-Requests"], r.Header["X-Ratelimit-Remaining-Requests"], r.Header["X-Ratelimit-Reset-Requests"] = []string{"600"}, []string{"-1"}, []string{"1s"}
		}, "10"},
	} {
		t.Run(name, func(t *testing.T) {
			got := broken(t, test.change)
			if test.want == "" && len(got) > 0 || test.want != "" && !slices.Contains(got, test.want) {
				t.Errorf("broken: %v, want %q", got, test.want)
			}
		})
	}
}

func TestRules_CountAndPrintAll(t *testing.T) {
	r := report.NewRules("1 one")
	for range 50 {
		r.Check(false, "1", "id", "a", "b")
	}
	r.Check(true, "other", "", "", "")
	if r.Broken() != 50 {
		t.Errorf("%d broken", r.Broken())
	}
	var out strings.Builder
	r.Print(&out)
	if !strings.Contains(out.String(), "… and 30 more of rule 1") || !strings.Contains(out.String(), "other") {
		t.Error(out.String())
	}
	r.Print(io.Discard)
}
