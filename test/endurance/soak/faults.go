package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"kvasir/test/endurance/internal/ledger"
	"kvasir/test/endurance/internal/upstream"
)

// faults plans what attempts get. Everything follows from the run's seed, the call's
// number and how many attempts it had, so that a call can be played again.
type faults struct {
	seed  uint64
	hangs bool // those that stay may be hung on too
}

// drawing is what a fault's maker works with.
type drawing struct {
	r      *rand.Rand
	call   *ledger.Call
	mark   string
	served string
	key    string
	stream bool
}

func (f *faults) script(s *upstream.Server, site string, c *ledger.Call, mark string, n int) *upstream.Plan {
	known := s.Sites[site]
	if c.Model == calm {
		n = 0 // what is wrong with a call is so everywhere
	}
	x := &drawing{
		r: rand.New(rand.NewPCG(f.seed, c.Number<<8+uint64(n)+1)), call: c, mark: mark,
		served: known.Served, key: known.Key, stream: c.Stream && upstream.Streams(c.Route),
	}
	switch {
	case c.Kind == "stuck":
		return x.endless()
	case c.Model == calm:
		return pick(x, calmFaults)
	}
	leaves := c.Expect.Leaves && c.Expect.AbortIn == 0
	for {
		if p := pick(x, allFaults); p != nil && (p.Ending != upstream.Hang || leaves || f.hangs) {
			return p
		}
	}
}

// weighted is a maker of plans and how often it is drawn. A maker returns nil where it
// does not apply.
type weighted struct {
	weight int
	make   func(*drawing) *upstream.Plan
}

var calmFaults = []weighted{
	{50, (*drawing).whole}, {10, (*drawing).split}, {25, (*drawing).callerFault}, {10, (*drawing).inBandCallerFault}, {10, (*drawing).limited},
}

var allFaults = []weighted{
	{260, (*drawing).whole}, {60, (*drawing).split}, {15, (*drawing).drip}, {15, (*drawing).untilClose}, {20, (*drawing).zipped},
	{10, (*drawing).hugeEvent}, {10, (*drawing).longPreamble}, {15, (*drawing).noDone}, {10, (*drawing).earlyHints}, {10, (*drawing).noLastChunk},
	{30, (*drawing).silent}, {15, (*drawing).afterHeader}, {20, (*drawing).inPreamble}, {25, (*drawing).midStream}, {20, (*drawing).midEvent},
	{20, (*drawing).short}, {10, (*drawing).cleanButCut}, {10, (*drawing).emptyStream},
	{20, (*drawing).callerFault}, {20, (*drawing).limited}, {25, (*drawing).busy}, {20, (*drawing).failed}, {20, (*drawing).badGateway}, {5, (*drawing).redirect}, {10, (*drawing).unauthorized}, {5, (*drawing).overloaded},
	{20, (*drawing).inBandBefore}, {20, (*drawing).inBandAfter}, {10, (*drawing).inBandCallerFault},
	{8, (*drawing).wrongType}, {10, (*drawing).keyInHeader}, {10, (*drawing).keyInBody}, {10, (*drawing).keyInError},
	{25, (*drawing).late}, {8, (*drawing).hangSilent}, {6, (*drawing).hangHeader}, {6, (*drawing).hangMid},
}

func pick(x *drawing, list []weighted) *upstream.Plan {
	total := 0
	for _, w := range list {
		total += w.weight
	}
	for {
		n := x.r.IntN(total)
		for _, w := range list {
			if n -= w.weight; n < 0 {
				if p := w.make(x); p != nil {
					p.Rand = x.r
					if x.r.IntN(12) == 0 && p.Wait == 0 { // some are slow to begin, whatever comes then
						p.Wait = time.Duration(x.r.IntN(500)) * time.Millisecond
					}
					return p
				}
				break
			}
		}
	}
}

var (
	succeeded = []string{"success"}
	failed    = []string{"endpoint_failure"}
	faulted   = []string{"caller_fault"}
	pressed   = []string{"back_pressure"}
)

// cut is a good answer that breaks off after n bytes.
func (x *drawing) cut(name string, n func(upstream.Answer) int) *upstream.Plan {
	p, a := x.good(name)
	p.Cut = min(n(a), len(p.Text))
	p.Whole, p.Final, p.Classes = false, false, failed
	p.Ending = []upstream.Ending{upstream.FIN, upstream.RST}[x.r.IntN(2)]
	if p.Framing == upstream.Length {
		p.Short = len(p.Text) - p.Cut + 1
	}
	sent := string(p.Text[:p.Cut])
	for _, end := range []string{"[DONE", `"finish_reason":"`, "response.completed", "message_stop", "message_delta"} {
		if strings.Contains(sent, end) { // it is a matter of taste what the rest was worth
			p.Final, p.Classes = true, []string{"success", "endpoint_failure"}
		}
	}
	return p
}

func (x *drawing) silent() *upstream.Plan {
	p := x.cut("no header", func(upstream.Answer) int { return 0 })
	p.Silent = true
	return p
}

func (x *drawing) afterHeader() *upstream.Plan {
	return x.cut("after the header", func(upstream.Answer) int { return 0 })
}

func (x *drawing) inPreamble() *upstream.Plan {
	return x.cut("in the preamble", func(a upstream.Answer) int { return x.r.IntN(a.Preamble + 1) })
}

func (x *drawing) midStream() *upstream.Plan {
	if !x.stream {
		return nil
	}
	return x.cut("between two events", func(a upstream.Answer) int { return a.Borders[x.r.IntN(len(a.Borders))] })
}

func (x *drawing) midEvent() *upstream.Plan {
	return x.cut("mid-event", func(a upstream.Answer) int { return a.Preamble + x.r.IntN(len(a.Text)-a.Preamble) })
}

// short ends before its content length.
func (x *drawing) short() *upstream.Plan {
	p := x.cut("short content length", func(a upstream.Answer) int { return x.r.IntN(len(a.Text)) })
	p.Framing, p.Short = upstream.Length, len(p.Text)-p.Cut
	return p
}

// cleanButCut ends a stream in good order, too early.
func (x *drawing) cleanButCut() *upstream.Plan {
	if !x.stream {
		return nil
	}
	p := x.cut("clean end, too early", func(a upstream.Answer) int { return x.r.IntN(len(a.Text)) })
	p.Framing, p.Ending = upstream.Chunked, upstream.Proper
	return p
}

func (x *drawing) emptyStream() *upstream.Plan {
	if !x.stream {
		return nil
	}
	p := x.cut("empty stream", func(upstream.Answer) int { return 0 })
	p.Framing, p.Ending = upstream.Chunked, upstream.Proper
	return p
}

// status is an answer with an error status.
func (x *drawing) status(name string, classes []string, codes ...int) *upstream.Plan {
	code := codes[x.r.IntN(len(codes))]
	a := upstream.Object(x.r, x.call.Route, x.served, x.mark, 1, 1)
	p := &upstream.Plan{Fault: name, Status: code, Type: "application/json", Text: []byte(a.Error(code)), Framing: upstream.Length, Classes: classes, Whole: true}
	switch x.r.IntN(8) {
	case 0:
		p.Text, p.Type = []byte("<html>"+x.mark+"</html>"), "text/html"
	case 1:
		p.Text, p.Framing = append(p.Text, bytes.Repeat([]byte(" "), 100<<10)...), upstream.Chunked
	case 2:
		p.Framing, p.MaxPiece, p.Each = upstream.Chunked, len(p.Text)/3+1, 30*time.Millisecond
	}
	p.Cut = len(p.Text)
	return p
}

func (x *drawing) callerFault() *upstream.Plan {
	return x.status("4xx", faulted, 400, 404, 409, 413, 422)
}

// unauthorized refuses the key: the gateway's own, since the client's never gets there.
func (x *drawing) unauthorized() *upstream.Plan {
	return x.status("401, 403", []string{"endpoint_failure", "caller_fault"}, 401, 403)
}

// overloaded is a status that some take for back-pressure.
func (x *drawing) overloaded() *upstream.Plan {
	return x.status("529", []string{"endpoint_failure", "back_pressure"}, 529)
}

func (x *drawing) limited() *upstream.Plan { return x.wait(x.status("429", pressed, 429)) }
func (x *drawing) busy() *upstream.Plan    { return x.wait(x.status("503", pressed, 503)) }
func (x *drawing) failed() *upstream.Plan  { return x.status("other 5xx", failed, 500, 501) }

func (x *drawing) badGateway() *upstream.Plan { return x.status("502, 504", failed, 502, 504) }

// wait adds one of the forms of Retry-After, good and bad (field case F24).
func (x *drawing) wait(p *upstream.Plan) *upstream.Plan {
	now := time.Now().UTC()
	forms := []string{"", "0", "1", "1.5", "-5", "abc", "99999999999", "NaN", "Infinity", "2",
		now.Add(-time.Hour).Format(http.TimeFormat), now.Add(2 * time.Second).Format(http.TimeFormat), now.Add(24 * time.Hour).Format(http.TimeFormat)}
	p.RetryAfter = forms[x.r.IntN(len(forms))]
	if p.RetryAfter != "" {
		p.Header = append(p.Header, "Retry-After: "+p.RetryAfter)
	}
	if slices.Contains([]string{"-5", "abc", "NaN", "Infinity"}, p.RetryAfter) {
		p.RetryAfter = "" // it may go on as it is, or not
	}
	if p.RetryAfter == "2" {
		p.Header = append(p.Header, "Retry-After-Ms: 150")
	}
	return p
}

func (x *drawing) redirect() *upstream.Plan {
	p := x.status("3xx", failed, 301, 307)
	p.Unfit = true
	p.Header = append(p.Header, "Location: http://127.0.0.1:1/elsewhere?key="+x.key)
	return p
}

// inBand puts an error event into a stream, or an error object in place of an answer.
func (x *drawing) inBand(name string, classes []string, before bool, codes ...int) *upstream.Plan {
	p, a := x.good(name)
	code := codes[x.r.IntN(len(codes))]
	at := 0
	if x.stream {
		at = a.Preamble
		if before && x.r.IntN(2) == 0 {
			at = 0
		}
		if !before { // behind at least one piece of content
			at = a.Borders[x.r.IntN(len(a.Borders))]
			for _, b := range a.Borders {
				if at <= a.Preamble {
					at = b
				}
			}
		}
	} else if !before {
		return nil
	}
	text := a.Text[:at] + a.Error(code)
	for _, end := range []string{"[DONE]", "message_stop", "response.completed"} {
		if strings.Contains(a.Text[:at], end) {
			return nil
		}
	}
	if x.stream && x.r.IntN(2) == 0 && strings.Contains(x.call.Route, "completions") {
		text += "data: [DONE]\n\n"
	}
	p.Text, p.Cut, p.Classes = []byte(text), len(text), classes
	if strings.HasSuffix(x.call.Route, "/responses") || strings.HasSuffix(x.call.Route, "/messages") {
		p.Classes = []string{"endpoint_failure", "back_pressure", "caller_fault"} // their events name no status
	}
	// Before content the gateway may take it for a failed attempt, and say so itself.
	p.Whole, p.Unfit = false, true
	return p
}

func (x *drawing) inBandBefore() *upstream.Plan {
	return x.inBand("in-band error before content", []string{"endpoint_failure", "back_pressure"}, true, 500, 503)
}

func (x *drawing) inBandAfter() *upstream.Plan {
	return x.inBand("in-band error after content", []string{"endpoint_failure", "back_pressure"}, false, 500, 503)
}

func (x *drawing) inBandCallerFault() *upstream.Plan {
	if !strings.Contains(x.call.Route, "completions") {
		return nil
	}
	p := x.inBand("in-band 4xx", faulted, x.r.IntN(2) == 0, 400, 422)
	if p != nil {
		p.Unfit = false
	}
	return p
}

// wrongType is a stream in place of an object, or the reverse.
func (x *drawing) wrongType() *upstream.Plan {
	if !upstream.Streams(x.call.Route) {
		return nil
	}
	x.stream = !x.stream
	p, _ := x.good("JSON for SSE, or reverse")
	x.stream = !x.stream
	p.Unfit, p.Classes = true, failed
	return p
}

func (x *drawing) keyInHeader() *upstream.Plan {
	if x.key == "" {
		return nil
	}
	p, _ := x.good("key in a header")
	p.Header = append(p.Header, "X-Echo: Bearer "+x.key, "Authorization: Bearer "+x.key, "Set-Cookie: key="+x.key, "X-Fine: fine")
	return p
}

// keyInBody quotes the key in the answer, sometimes over two writes.
func (x *drawing) keyInBody() *upstream.Plan {
	if x.key == "" {
		return nil
	}
	p, a := x.good("key in the answer")
	at := max(a.Preamble, 20)
	at += strings.Index(a.Text[at:], x.mark) + len(x.mark)
	if x.stream && x.r.IntN(2) == 0 { // later on
		at = strings.LastIndex(a.Text, x.mark) + len(x.mark)
	}
	text := a.Text[:at] + x.key + a.Text[at:]
	p.Text, p.Cut = []byte(text), len(text)
	if x.r.IntN(2) == 0 {
		p.MaxPiece, p.Pause = len(x.key), 2*time.Millisecond
	}
	p.Whole, p.Leak, p.Unfit, p.Classes = false, true, true, failed
	if p.Framing == upstream.Length {
		p.Short = 0
	}
	return p
}

func (x *drawing) keyInError() *upstream.Plan {
	if x.key == "" {
		return nil
	}
	code := []int{400, 401, 500, 503}[x.r.IntN(4)]
	p := x.status("key in an error", map[int][]string{400: faulted, 401: {"endpoint_failure", "caller_fault"}, 500: failed, 503: pressed}[code], code)
	p.Text = fmt.Appendf(nil, `{"error":{"message":"wrong key %s %s","type":"x","param":null,"code":null}}`, x.key, x.mark)
	p.Cut, p.Whole, p.Leak, p.Unfit = len(p.Text), false, true, true
	return p
}

// late begins only after a hedge should have been answered and this attempt aborted, for models
// that hedge.
func (x *drawing) late() *upstream.Plan {
	if !slices.Contains(uses[x.call.Model], "hedge") {
		return nil
	}
	p, _ := x.good("late")
	p.Wait = 2700 * time.Millisecond
	return p
}

func (x *drawing) hangSilent() *upstream.Plan {
	p := x.cut("hang before the header", func(upstream.Answer) int { return 0 })
	p.Silent, p.Ending = true, upstream.Hang
	return p
}

func (x *drawing) hangHeader() *upstream.Plan {
	p := x.cut("hang after the header", func(upstream.Answer) int { return 0 })
	p.Ending = upstream.Hang
	return p
}

func (x *drawing) hangMid() *upstream.Plan {
	p := x.cut("hang mid-stream", func(a upstream.Answer) int { return a.Preamble + (len(a.Text)-a.Preamble)/2 })
	p.Ending = upstream.Hang
	return p
}

// endless is for clients that do not read.
func (x *drawing) endless() *upstream.Plan {
	a := upstream.Events(x.r, x.call.Route, x.served, x.mark, 4, 16<<10)
	return &upstream.Plan{Fault: "endless", Status: 200, Type: a.Type, Text: []byte(strings.ReplaceAll(a.Text, "data: [DONE]\n\n", "")), Endless: true, Rand: x.r}
}
