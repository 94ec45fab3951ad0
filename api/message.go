package api

import "bytes"

// part is a field of a message that its hash covers, in the order in which it does.
type part uint8

const (
	role part = iota
	content
	name
	reasoning
	reasoningContent
	refusal
	functionCall
	toolCalls
	toolCallID
	partCount
	noPart = partCount
)

var parts = [partCount]string{
	role: "role", content: "content", name: "name",
	reasoning: "reasoning", reasoningContent: "reasoning_content", refusal: "refusal",
	functionCall: "function_call", toolCalls: "tool_calls", toolCallID: "tool_call_id",
}

func partOf(key []byte) part {
	for f := range partCount {
		if parts[f] == string(key) {
			return f
		}
	}
	return noPart
}

// messages writes the conversation.
func (r *Reader) messages() {
	p := &r.p
	if p.peek() != '[' {
		p.value(topDepth)
		return
	}
	for more := p.open(']'); more; more = p.next(']') {
		p.mark('m')
		if p.peek() == '{' {
			r.message()
		} else {
			p.value(messageDepth)
		}
	}
}

// ofUser reports whether the message that was read last is a user's.
func (r *Reader) ofUser() bool {
	v := r.role.Of(r.body)
	if len(v) < 2 || v[0] != '"' {
		return false
	}
	inside := v[1 : len(v)-1]
	if bytes.IndexByte(inside, '\\') >= 0 {
		inside = appendDecoded(r.decoded[len(r.decoded):], inside)
	}
	return string(inside) == "user"
}

// message writes one message: its role, its content, then its other fields in the order
// of parts. What stands in this order is written as it is met; what does not is skipped
// and written after. A field that is given twice may count twice.
func (r *Reader) message() {
	p := &r.p
	r.role = Span{}
	var late [partCount]Span
	var seen [partCount]bool
	var room [keyBytes]byte
	for more := p.open('}'); more; more = p.next('}') {
		f := partOf(p.name(&room))
		if p.failed() {
			return
		}
		switch {
		case f == noPart:
			p.readOnly(fieldDepth)
		case f == role, f == content && seen[role]:
			r.part(f)
			seen[f] = true
		default:
			p.check(late[f]) // given twice: the last one counts, as it does for the engines
			late[f] = p.skip()
		}
	}
	end := p.i
	for f := range partCount {
		if !late[f].none() && !p.failed() {
			p.i = late[f].Start
			r.part(f)
			p.until(late[f].End)
		} else if f == content && !seen[content] {
			p.mark('c')
		}
	}
	if p.failed() {
		return
	}
	p.i = end
	if r.opening == 0 && r.ofUser() {
		r.opened()
	}
}

// part writes one field of a message. Content that is null is as good as absent, or as
// empty; so is any other field that is null.
func (r *Reader) part(f part) {
	p := &r.p
	null, start := p.peek() == 'n', p.i
	switch {
	case f == content:
		p.mark('c')
	case f != role && !null:
		p.mark(byte(f))
	}
	switch {
	case null:
		p.readOnly(fieldDepth)
	case f == content:
		r.content(fieldDepth, false)
	default:
		p.textOrValue(fieldDepth)
	}
	if f == role {
		r.role = Span{Start: start, End: p.i}
	}
}

// skip steps over a value without validating it and returns where it stands.
func (p *parser) skip() Span {
	start := p.i
	end := skipValue(p.b, p.i, p.marks)
	if end < 0 {
		p.i = len(p.b)
		p.fail("the end of a value")
		return Span{}
	}
	p.i = end
	return Span{start, end}
}

// check validates a value that was skipped, and goes back to where p is.
func (p *parser) check(at Span) {
	if at.none() || p.failed() {
		return
	}
	i, mute := p.i, p.mute
	p.i, p.mute = at.Start, true
	p.value(fieldDepth)
	p.until(at.End)
	p.mute = mute
	if !p.failed() {
		p.i = i
	}
}
