package api

// This file writes what the newer grammars put beside text: Anthropic's blocks and tools,
// the items of OpenAI's Responses, and the pairs of rerankers.

// block writes an object at depth as JSON, without its cache mark. Its content or output,
// where that is parts, is written as they are: an image that a tool returned is hashed
// once, too. inBlock says that the object itself is such a part.
func (r *Reader) block(depth int, inBlock bool) {
	p := &r.p
	if p.peek() != '{' {
		p.value(depth)
		return
	}
	p.put('{')
	var room [keyBytes]byte
	for more := p.open('}'); more; more = p.next('}') {
		start := p.i
		name := p.name(&room)
		if p.failed() {
			return
		}
		if string(name) == "cache_control" {
			p.readOnly(depth + 1)
			continue
		}
		parts := !inBlock && p.peek() == '[' && (string(name) == "content" || string(name) == "output")
		p.i = start
		p.fenced()
		if p.colon(); parts {
			r.content(depth+1, true)
		} else {
			p.value(depth + 1)
		}
	}
	p.put('}')
}

// blocks writes an array of objects without their cache marks.
func (r *Reader) blocks(depth int) {
	p := &r.p
	if p.peek() != '[' {
		p.value(depth)
		return
	}
	p.put('[')
	for more := p.open(']'); more; more = p.next(']') {
		r.block(depth+1, true)
		p.put(',')
	}
	p.put(']')
}

// effort writes the member "effort" of an object and reads the rest of it. The others do
// not change the prompt: a summary, a budget, a format of the answer.
func (r *Reader) effort(f field) {
	p := &r.p
	if p.peek() != '{' {
		p.readOnly(topDepth)
		return
	}
	var room [keyBytes]byte
	for more := p.open('}'); more; more = p.next('}') {
		name := p.name(&room)
		if p.failed() {
			return
		}
		if p.peek() == 'n' || string(name) != "effort" {
			p.readOnly(topDepth + 1)
			continue
		}
		p.mark(byte(f))
		p.value(topDepth + 1)
	}
}

// items writes the input of OpenAI's Responses: messages and whatever else happened in
// the conversation. A text is, as OpenAI documents it, a message of the user.
func (r *Reader) items() {
	p := &r.p
	if p.peek() != '[' {
		p.mark('m')
		p.bytes([]byte("user"))
		p.mark('c')
		p.textOrValue(topDepth)
		r.opened()
		return
	}
	var room [keyBytes]byte
	for more := p.open(']'); more; more = p.next(']') {
		p.mark('m')
		if p.peek() == '{' {
			kind := p.memberOf(p.i, "type", &room)
			if kind == nil || string(kind) == "message" {
				r.message()
				continue
			}
		}
		if r.partKind() == medium {
			r.mediaPart(messageDepth)
			continue
		}
		p.mark('b')
		r.block(messageDepth, false)
	}
}

// pairs counts what a reranker reads.
type pairs struct {
	queries, documents int // how many
	queryBytes         int // all queries together, as written
}

func (c pairs) any() bool { return c.queries+c.documents > 0 }

// sum returns how many pairs there are and how many bytes they have together, where all
// fields had total. A list of queries goes with a list of documents one by one; one query
// goes with each document, as one document does with each query.
func (c pairs) sum(total int) (n, size int) {
	queries, documents := max(c.queries, 1), max(c.documents, 1)
	size = c.queryBytes * max(documents/queries, 1)
	size += (total - c.queryBytes) * max(queries/documents, 1)
	return max(queries, documents), size
}

// query writes one side of the pairs; it is what they share.
func (r *Reader) query() {
	p := &r.p
	before := p.written()
	r.pairs.queries += r.side()
	r.pairs.queryBytes += p.written() - before
}

// documents counts the other side.
func (r *Reader) documents() {
	p := &r.p
	p.flush()
	p.out = nil
	r.pairs.documents += r.side()
}

// side writes a text, an object with a content, or a list of either, and returns how many.
func (r *Reader) side() int {
	if r.p.peek() == '{' {
		r.block(topDepth, false)
		return 1
	}
	return r.content(topDepth, false)
}
