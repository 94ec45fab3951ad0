package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// judgeClient looks at what the client got.
func (b *Book) judgeClient(c *Call, check checkFunc) {
	r := c.result
	if !r.Connected {
		check(false, "join", "the gateway takes connections", "%s", r.Err)
		return
	}
	b.judgeSecrets(c, check)
	if left := r.Left; left.IsZero() {
		took := r.Ended.Sub(r.Started)
		check(took <= b.limits.CallBound, "bound", fmt.Sprintf("an answer within %v", b.limits.CallBound), "%v", took)
	}
	check(r.Beats == 0 || c.Stream && strings.Contains(strings.Join(r.Header["Content-Type"], ""), "event-stream"), "2",
		"no heartbeat but in a stream", "%d, content type %q", r.Beats, r.Header["Content-Type"])
	marks := c.marks(r.Body)
	for _, m := range marks {
		check(m == marks[0], "5", "bytes of one attempt", "%s and %s", marks[0], m)
	}
	if r.Status == 0 {
		gone := c.Expect.Leaves || c.Expect.Unrecorded || !r.Left.IsZero() || c.anyLeak()
		check(gone, "join", "an answer", "none: %s", r.Err)
		return
	}
	if want := c.Expect.Status; want > 0 {
		check(r.Status == want && r.Clean, "join", fmt.Sprintf("status %d, whole", want), "status %d, clean %v: %.200q", r.Status, r.Clean, r.Body)
	}
	if c.Expect.NoBody {
		return
	}
	b.judgeRates(c, check)
	own := strings.Contains(string(r.Body), c.ID) && !strings.Contains(string(r.Body), "<"+c.ID)
	a := c.attempt(marks)
	if a == nil && !own {
		a = c.last() // it was compressed, or broke off before the first mark
	}
	switch {
	case len(c.Expect.Refused) > 0 || c.Expect.Unrecorded:
		check(own && r.Status >= 400 && r.Status < 500, "7", "a 4xx of the gateway's own", "status %d: %.200q", r.Status, r.Body)
	case own && (r.Status != 200 || r.Ahead):
		b.judgeOwnError(c, check)
	case a == nil && !r.Left.IsZero() && r.Ahead && len(r.Body) == 0: // it heard that it waits, and left
	case a == nil:
		check(false, "join", "an answer that an endpoint or the gateway gave", "status %d: %.200q", r.Status, r.Body)
	default:
		if last := c.last(); a != last {
			check(false, "5", "the answer is of the last attempt, at "+last.Endpoint, "it is of %s", a.Endpoint)
		}
		b.judgeBeaten(c, a, check)
		b.judgePassedOn(c, a, check)
		b.judgeAnswer(c, a, check)
	}
}

// What an error of the gateway's own says of itself.
var ownCode, ownType = regexp.MustCompile(`"code":"[a-z_]+"`), regexp.MustCompile(`"type":"[a-z_]+_error"`)

// judgeOwnError looks at an error in the gateway's own words: there must be a reason.
func (b *Book) judgeOwnError(c *Call, check checkFunc) {
	body := string(c.result.Body)
	b.Own.Add(fmt.Sprintf("%d %s %s", c.result.Status, ownType.FindString(body), ownCode.FindString(body))+"|calls", 1)
	if c.result.Ahead && c.result.Left.IsZero() {
		why := c.endedByGateway(c.result.Body, nil)
		check(why == "", "2", "one error event after heartbeats", "%s", why)
	}
	b.judgeHeaders(c, check)
	if good := c.anyGood(); good != nil && c.hedged() {
		check(c.Expect.Leaves || b.overdue(c), "7", "the answer of the attempt that was whole, whatever became of the other", "at %s it was; an error: status %d: %.300q", good.Endpoint, c.result.Status, c.result.Body)
	}
	last := c.last()
	if last == nil || len(c.records) == 1 && len(c.attempts) < c.records[0].Attempts {
		return // refused, or an attempt that no upstream saw
	}
	fine := !b.overdue(c) && !(last.Coded && c.result.Ahead) && last.Whole && !last.Killed && !last.Unfit && last.Status < 400
	check(!fine || c.Expect.Leaves, "7", "the answer of a last attempt that was whole", "an error: status %d: %.300q", c.result.Status, c.result.Body)
}

// judgeAnswer compares what a client got with what the attempt sent.
func (b *Book) judgeAnswer(c *Call, a *Attempt, check checkFunc) {
	r := c.result
	if a.Endless {
		return
	}
	if r.Ahead && a.Status != 200 { // told in the stream
		why := c.endedByGateway(r.Body, nil)
		check(why == "" || !r.Left.IsZero(), "2", "the endpoint's error as one event", "%s", why)
		return
	}
	check(r.Status == a.Status, "1", fmt.Sprintf("the endpoint's status %d", a.Status), "%d", r.Status)
	if name := r.Header["X-Kvasir-Endpoint"]; !r.Ahead && (len(name) != 1 || name[0] != a.Endpoint) {
		check(false, "join", "x-kvasir-endpoint: "+a.Endpoint, "%q", name)
	}
	body, sent := r.Body, a.Sent
	if a.RetryAfter != "" {
		got := strings.Join(r.Header["Retry-After"], ", ")
		check(got == a.RetryAfter, "1", "the endpoint's retry-after "+a.RetryAfter, "%q", got)
	}
	same := bytes.Equal(body, sent)
	part := bytes.HasPrefix(sent, body)
	stayed := r.Left.IsZero() && !c.Expect.Leaves
	switch {
	case !stayed:
		ended := len(body) > len(sent) && c.endedByGateway(body, sent) == "" // cut before it left
		check(part || ended, "1", "a piece of what the endpoint sent", "%s", difference(body, sent))
		check(!r.Clean || same || ended, "2", "no clean end of half an answer", "%s", difference(body, sent))
	case a.Leak:
		check(part, "1", "at most a piece of an answer that quotes the key", "%s", difference(body, sent))
	case r.Clean && same && (a.Whole || a.Final):
		check(true, "1", "", "")
	case a.Whole && !a.Killed && !b.overdue(c):
		check(false, "1", "the endpoint's answer, whole", "clean end %v, %s; %s", r.Clean, difference(body, sent), r.Err)
	case r.Clean && !a.Stream:
		check(false, "2", "no clean end of an answer that was cut", "%s", difference(body, sent))
	case r.Clean:
		why := c.endedByGateway(body, sent)
		check(why == "", "2", "what was sent, then one error event", "%s", why)
	default:
		check(part, "1", "a piece of what the endpoint sent", "%s", difference(body, sent))
	}
}

// atBorder reports whether the text ends with a blank line: two line ends, each of them
// CR, LF, or CR LF.
func atBorder(text []byte) bool {
	for _, end := range []string{"\n\n", "\n\r\n", "\n\r", "\r\r"} {
		if bytes.HasSuffix(text, []byte(end)) {
			return true
		}
	}
	return false
}

// endedByGateway returns why body isn't whole events of sent followed by one error event
// of the gateway's own; "" where it is.
func (c *Call) endedByGateway(body, sent []byte) string {
	n := common(body, sent)
	for n > 0 && !atBorder(body[:n]) {
		n--
	}
	tail := string(body[n:])
	if strings.Contains(string(body[:n]), "[DONE]") {
		return "an error event after [DONE]"
	}
	fields := strings.Split(strings.TrimSuffix(tail, "\n\n"), "\n")
	var data strings.Builder
	for _, f := range fields {
		switch name, value, _ := strings.Cut(f, ": "); name {
		case "data":
			data.WriteString(value)
		case "event":
		default:
			return fmt.Sprintf("the end is no event: %.300q", tail)
		}
	}
	var e struct {
		Error *struct{ Code, Type string } `json:"error"`
		Code  string                       `json:"code"`
		Type  string                       `json:"type"`
	}
	if !strings.HasSuffix(tail, "\n\n") || json.Unmarshal([]byte(data.String()), &e) != nil || e.Error == nil && e.Type != "error" {
		return fmt.Sprintf("the end is no error event: %.300q", tail)
	}
	return ""
}

func (b *Book) judgeSecrets(c *Call, check checkFunc) {
	for _, s := range b.limits.Secrets {
		if bytes.Contains(c.result.Body, []byte(s)) {
			check(false, "9", "no endpoint's key at a client", "%s in the body", s)
		}
		for name, values := range c.result.Header {
			if strings.Contains(strings.Join(values, "\n"), s) {
				check(false, "9", "no endpoint's key at a client", "%s in the header %s", s, name)
			}
		}
	}
	check(true, "9", "", "")
}

func (c *Call) anyLeak() bool {
	return slices.ContainsFunc(c.attempts, func(a *Attempt) bool { return a.Leak })
}

// marks returns the marks in a body, of whatever call.
func (c *Call) marks(body []byte) []string {
	var found []string
	prefix := "<" + c.ID[:strings.LastIndexByte(c.ID, '-')+1]
	for text := string(body); ; {
		at := strings.Index(text, prefix)
		if at < 0 {
			return found
		}
		text = text[at:]
		end := strings.IndexByte(text, '>')
		if end < 0 {
			return found
		}
		if m := text[:end+1]; len(found) == 0 || !slices.Contains(found, m) {
			found = append(found, m)
		}
		text = text[end:]
	}
}

// attempt returns the attempt that made the marks; nil for none.
func (c *Call) attempt(marks []string) *Attempt {
	for _, a := range c.attempts {
		if len(marks) > 0 && a.Mark == marks[0] {
			return a
		}
	}
	return nil
}

// common returns the length of the longest common prefix.
func common(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func difference(got, sent []byte) string {
	n := common(got, sent)
	return fmt.Sprintf("%d bytes of %d, equal up to %d: got …%.120q, sent …%.120q", len(got), len(sent), n, got[n:], sent[n:])
}
