package api

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"kvasir/internal/kvblock"
)

// Request is what routing reads from a body. Its slices belong to the body or to the
// Reader and are valid until either changes. A field that is null counts as absent, as it
// does for the engines; so does one that the grammar does not have.
type Request struct {
	Model              []byte // decoded, not empty
	ModelAt            Span   // the value of "model" in the body, in JSON with its quotes
	Stream             bool   // the answer is to be a stream of events
	IncludeUsage       bool   // stream_options.include_usage
	StreamOptionsAt    Span   // the value of "stream_options"; the zero Span: absent or null
	MaxTokens          int    // max_completion_tokens or max_output_tokens, else max_tokens; 0: no bound, also for negative numbers (llama.cpp's "no bound")
	N                  int    // answers asked for, at least 1
	Opaque             bool   // what the engine finds cached and computes is not told by the prompt, see Reader.opaque
	CacheSaltAt        Span   // the value of "cache_salt", null included; the zero Span: absent
	PriorityAt         Span   // the value of "priority", null included; the zero Span: absent
	Priority           int    // it, where it is a whole number; else 0
	CacheSalt          []byte // these four: decoded; nil where absent
	SessionID          []byte
	PromptCacheKey     []byte
	PreviousResponseID []byte
}

// Reader reads requests. It keeps its memory from one body to the next, so that reading
// does not allocate, and takes about 7 KiB and a quarter of the longest body's size. The
// zero Reader is ready to use. It is not safe for concurrent use.
type Reader struct {
	row     row
	body    []byte
	at      [fieldCount]Span // by field; null is kept
	req     Request
	decoded []byte         // strings that had escapes
	opening kvblock.Hash   // of the conversation; 0: not met yet
	role    Span           // of the message that was read last; the zero Span: it has none
	nMedia  int            // parts of the prompt that are not text, so far
	media   kvblock.Writer // the hash of one part that is not text
	pairs   pairs
	p       parser
}

// Read reads everything but the prompt. The body must be one JSON object; bodies of
// uploads are for ReadUpload. Its verdict on JSON is encoding/json's, with two exceptions:
// nesting deeper than MaxDepth is an error, and so is a field that the grammar reads and
// that is given twice, because gateway and engine might read different ones. The values
// that the prompt is made of are skipped here and validated by Prompt: a body is known to
// be sound when both have returned without an error.
//
// The error is a *SyntaxError or a *FieldError. The body must not change until Prompt
// has returned.
func (r *Reader) Read(g Grammar, body []byte) (Request, error) {
	r.row = grammars[g]
	r.body, r.decoded, r.req = body, r.decoded[:0], Request{}
	r.at = [fieldCount]Span{}
	twice := r.locate()
	if r.p.failed() {
		return Request{}, r.syntax()
	}
	err := r.interpret()
	if twice != other {
		err = &FieldError{Field: names[twice], Problem: Twice}
	}
	if err == nil {
		return r.req, nil
	}
	if err := r.validate(); err != nil { // broken JSON in the prompt is the nearer cause
		return Request{}, err
	}
	return Request{}, err
}

// Reset lets the last body go, so that a Reader that waits for another one does not
// hold it. Until then the prompt is empty, as it is for an upload.
func (r *Reader) Reset() {
	r.row, r.body, r.req = row{}, nil, Request{}
	r.p.b, r.p.out = nil, nil
}

// locate notes where each field's value stands. Values of the prompt are skipped, all
// others validated. It returns a field that is given twice, if any.
func (r *Reader) locate() (twice field) {
	p := &r.p
	p.marks = marksOf(r.body, p.marks)
	p.begin(r.body, nil)
	p.mute = true
	if p.peek() != '{' {
		p.fail("a JSON object")
		return other
	}
	var room [keyBytes]byte
	for more := p.open('}'); more; more = p.next('}') {
		f, ofPrompt := r.row.fieldOf(p.name(&room))
		if p.failed() {
			return other
		}
		at := Span{Start: p.i}
		if ofPrompt {
			p.skip()
		} else {
			p.value(topDepth)
		}
		if f == other {
			continue
		}
		if !r.at[f].none() {
			twice = f
		}
		at.End = p.i
		r.at[f] = at
	}
	p.end()
	return twice
}

// syntax returns the first mistake in the body.
func (r *Reader) syntax() error {
	if err := r.validate(); err != nil {
		return err
	}
	// Skipping went astray in a body that is sound: it can't, but an error is an error.
	return &SyntaxError{Offset: r.p.i, Want: r.p.want}
}

// validate reads the whole body strictly from its start.
func (r *Reader) validate() error {
	p := &r.p
	p.begin(r.body, nil)
	p.mute = true
	if p.peek() != '{' {
		p.fail("a JSON object")
	}
	p.value(0)
	p.end()
	if p.failed() {
		return &SyntaxError{Offset: p.i, Want: p.want}
	}
	return nil
}

// value returns a field's value, nil where it is absent or null.
func (r *Reader) value(f field) []byte {
	v := r.at[f].Of(r.body)
	if len(v) == 0 || v[0] == 'n' {
		return nil
	}
	return v
}

// interpret gives the located fields their meaning.
func (r *Reader) interpret() error {
	q := &r.req
	var errs firstError
	q.Model, q.ModelAt = r.text(fieldModel, &errs), r.at[fieldModel]
	if q.Model == nil && errs.err == nil {
		errs.add(&FieldError{Field: names[fieldModel], Problem: Missing})
	} else if len(q.Model) == 0 {
		errs.add(wrongValue(fieldModel, r.value(fieldModel), "a model's name"))
	}
	// OpenAI's speech says by stream_format whether it comes as events; with stream, some
	// engines send its bytes as they are made.
	q.Stream = r.boolean(fieldStream, &errs) || string(r.text(fieldStreamFormat, &errs)) == "sse"
	if v := r.value(fieldStreamOptions); v != nil {
		q.StreamOptionsAt = r.at[fieldStreamOptions]
		q.IncludeUsage = includeUsage(v, &errs)
	}
	q.MaxTokens = r.integer(fieldMaxTokens, &errs)
	for _, f := range [...]field{fieldMaxCompletionTokens, fieldMaxOutputTokens} {
		if r.value(f) != nil {
			q.MaxTokens = r.integer(f, &errs)
		}
	}
	q.MaxTokens = max(q.MaxTokens, 0)
	q.N = max(r.integer(fieldN, &errs), 1)
	q.Opaque = r.opaque()
	q.CacheSalt, q.CacheSaltAt = r.text(fieldCacheSalt, &errs), r.at[fieldCacheSalt]
	if q.PriorityAt = r.at[fieldPriority]; !q.PriorityAt.none() {
		q.Priority, _ = parseInt(r.value(fieldPriority)) // what else it may be is the engine's to judge
	}
	q.SessionID = r.text(fieldSessionID, &errs)
	q.PromptCacheKey = r.text(fieldPromptCacheKey, &errs)
	q.PreviousResponseID = r.text(fieldPreviousResponseID, &errs)
	return errs.err
}

// opaque reports whether the prompt does not tell what the engine finds in its prefix cache and
// what it computes. vLLM reads no cache for a call with prompt_logprobs, which echo together with
// logprobs asks for as well; for the latter SGLang, too, computes the whole prompt. With
// truncate_prompt_tokens a part of the prompt is computed alone, and with prompt_embeds another
// one. The values are the engine's to check: what is there counts, but for null and false.
//
// SGLang's return_logprob, logprob_start_len and input_embeds are fields of its /generate, which
// is no route here.
func (r *Reader) opaque() bool {
	for _, f := range [...]field{fieldPromptLogprobs, fieldTruncatePromptTokens, fieldPromptEmbeds} {
		if r.value(f) != nil {
			return true
		}
	}
	return r.says(fieldEcho) && r.says(fieldLogprobs)
}

// says reports whether a field is there and not false.
func (r *Reader) says(f field) bool {
	v := r.value(f)
	return v != nil && v[0] != 'f'
}

// firstError keeps the first of several errors.
type firstError struct{ err error }

func (e *firstError) add(err *FieldError) {
	if e.err == nil {
		e.err = err
	}
}

func (r *Reader) text(f field, errs *firstError) []byte {
	v := r.value(f)
	switch {
	case v == nil:
		return nil
	case v[0] != '"':
		errs.add(wrongValue(f, v, "a string"))
		return nil
	}
	inside := v[1 : len(v)-1]
	if bytes.IndexByte(inside, '\\') < 0 {
		return inside
	}
	start := len(r.decoded)
	r.decoded = appendDecoded(r.decoded, inside)
	return r.decoded[start:]
}

func (r *Reader) boolean(f field, errs *firstError) bool {
	v := r.value(f)
	if v != nil && v[0] != 't' && v[0] != 'f' {
		errs.add(wrongValue(f, v, "true or false"))
	}
	return v != nil && v[0] == 't'
}

func (r *Reader) integer(f field, errs *firstError) int {
	v := r.value(f)
	if v == nil {
		return 0
	}
	n, ok := parseInt(v)
	if !ok {
		errs.add(wrongValue(f, v, "a whole number"))
	}
	return n
}

// parseInt reads a whole number as encoding/json reads one into an int64: no fraction,
// no exponent, no overflow.
func parseInt(v []byte) (int, bool) {
	const longest = len("-9223372036854775808")
	if len(v) > longest {
		return 0, false
	}
	n, err := strconv.ParseInt(string(v), 10, strconv.IntSize)
	return int(n), err == nil
}

func includeUsage(v []byte, errs *firstError) bool {
	w := walk{b: v}
	if !w.enter('{') {
		errs.add(wrongValue(fieldStreamOptions, v, "an object"))
		return false
	}
	include := false
	for {
		key, ok := w.field()
		if !ok {
			return include
		}
		if string(key) != "include_usage" {
			w.value()
			continue
		}
		switch v := w.value(); v[0] {
		case 't', 'f', 'n':
			include = v[0] == 't'
		default:
			e := wrongValue(fieldStreamOptions, v, "true or false")
			e.Field += ".include_usage"
			errs.add(e)
		}
	}
}

// Edit has a value take the place of what stands at At. Where At is empty it is inserted.
type Edit struct {
	At    Span
	Value []byte
}

// Splice returns body with the edits made, as pieces to be sent one after the other;
// nothing is copied. Edits are in the order of their places and do not overlap. Together
// with AppendModelName it replaces an alias:
// Splice(body, Edit{request.ModelAt, AppendModelName(nil, g, name)}).
func Splice(body []byte, edits ...Edit) [][]byte {
	pieces := make([][]byte, 0, 2*len(edits)+1)
	from := 0
	for _, e := range edits {
		pieces = append(pieces, body[from:e.At.Start], e.Value)
		from = e.At.End
	}
	return append(pieces, body[from:])
}

// AppendModelName appends a model's name as a body of the grammar holds it at
// Request.ModelAt: a JSON string, or in an upload the bare name.
func AppendModelName(dst []byte, g Grammar, name string) []byte {
	if g == Upload {
		return append(dst, name...)
	}
	return AppendString(dst, name)
}

// TakesCacheSalt says whether a body of the grammar may have a cache_salt.
func (g Grammar) TakesCacheSalt() bool { return slices.Contains(grammars[g].routing, fieldCacheSalt) }

// TakesPriority says whether a body of the grammar may have a priority.
func (g Grammar) TakesPriority() bool { return slices.Contains(grammars[g].routing, fieldPriority) }

// PriorityEdit gives a body, of which Read has said q, a priority in the place of its own,
// or as its first field where it has none.
func PriorityEdit(body []byte, q *Request, priority int) Edit {
	if at := q.PriorityAt; !at.none() {
		return Edit{At: at, Value: strconv.AppendInt(nil, int64(priority), 10)}
	}
	first := bytes.IndexByte(body, '{') + 1
	return Edit{At: Span{Start: first, End: first}, Value: fmt.Appendf(nil, `"priority":%d,`, priority)}
}

// CacheSaltEdit gives a body, of which Read has said q, a cache_salt in the place of its
// own, or as its first field where it has none. The salt must need no escapes.
func CacheSaltEdit(body []byte, q *Request, salt string) Edit {
	if at := q.CacheSaltAt; !at.none() {
		return Edit{At: at, Value: fmt.Appendf(nil, `"%s"`, salt)}
	}
	first := bytes.IndexByte(body, '{') + 1
	return Edit{At: Span{Start: first, End: first}, Value: fmt.Appendf(nil, `"cache_salt":"%s",`, salt)}
}
