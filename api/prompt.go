package api

import (
	"encoding/binary"

	"kvasir/internal/kvblock"
)

const (
	// DefaultBlockBytes is how many bytes of canonical prompt text make a block: 256,
	// the 64 token ids of kvblock.
	DefaultBlockBytes = 256
	// BytesPerToken is how many bytes of text are taken for one token where tokens are
	// not known: 4, OpenAI's rule of thumb for English text. It equals
	// kvblock.TokenBytes, so a block counts the same for text and for token ids.
	BytesPerToken = kvblock.TokenBytes
	// MediaTokens is what an image, or any other part of a message that is not text,
	// counts: 576, the 24×24 patches of CLIP ViT-L/14 at 336 pixels in LLaVA-1.5.
	MediaTokens = 576
)

// Prompt is what routing knows of a prompt.
type Prompt struct {
	Blocks      []kvblock.Hash // the Writer's own; of a batch, the first input's
	Head        kvblock.Hash   // the whole prompt, the part after the last full block included
	Opening     kvblock.Hash   // up to the end of the first message of a user: the same in every turn of a conversation; 0: there is none, or it is not the first turn's
	InputTokens int            // all inputs of a batch together
	BlockTokens int            // tokens a block
	Exact       bool           // InputTokens was counted, not estimated: the prompt is token ids
	Inputs      int            // how many inputs a batch has; 1 for everything else
}

// Prompt hashes the prompt of the body that Read has read into w and validates the part
// of the body that Read has skipped. model is the name under which the pool serves it
// (an alias resolved), or that of the LoRA adapter; tenantSalt the tenant's own; with the body's cache_salt they are
// the chain's seed. blockBytes is the block size, a multiple of BytesPerToken; 0 stands
// for DefaultBlockBytes. A cache_salt longer than 32 bytes costs an allocation, nothing
// else does once w is grown.
//
// What is hashed does not depend on the serialiser: white space and escapes are
// resolved, and the order of the body's fields is the one of the grammar's row in the
// table: what stands beside a conversation, then each of its messages or items, a message
// with its role, its content and its other fields. Text is written as it is and everything
// that divides it as a byte that no text contains, so prompts that share a head share
// their first blocks, and appending a message leaves all earlier blocks as they were. A
// string and an array of one text part are the same content. Of a part that is not text a
// hash is written, over the room of MediaTokens; where parts say what they are, only of an
// image, an audio or a file, and what else a part holds is written as JSON, but for the
// cache marks that Anthropic's clients move along.
//
// A reranker reads each document together with the query: InputTokens counts the query as
// often, and the blocks are the query's alone.
//
// In a body that is not UTF-8 a text may hold that byte; then two prompts can have the
// same hashes, which costs a wrong guess of what an endpoint holds, never an answer.
//
// Shapes that are not known are hashed as plain JSON: whether they make a prompt is the
// engine's to say. The exception is an array of inputs that begins with a number, or with
// an array: it must hold token ids.
func (r *Reader) Prompt(w *kvblock.Writer, model, tenantSalt string, blockBytes int) (Prompt, error) {
	if blockBytes <= 0 {
		blockBytes = DefaultBlockBytes
	}
	source, tokens := r.source()
	kind := "text"
	if tokens {
		kind = "tokens"
	}
	r.nMedia, r.opening = 0, 0
	w.ResetTapered(kvblock.Seed(model, tenantSalt, string(r.req.CacheSalt), kind), blockBytes)
	p := &r.p
	p.begin(r.body, w)
	r.pairs = pairs{}
	result := Prompt{BlockTokens: blockBytes / BytesPerToken, Exact: tokens, Inputs: 1}
	for _, in := range r.row.prompt {
		if r.at[in.field].none() || p.failed() {
			continue
		}
		p.i = r.at[in.field].Start
		if p.mute = r.value(in.field) == nil || !in.countsBeside(source); p.mute {
			p.value(topDepth)
		} else if in.writing == asInputs {
			result.Inputs = r.inputs(tokens)
		} else {
			r.write(in)
			if in.field == fieldConversation {
				r.opened()
			}
		}
		p.until(r.at[in.field].End)
	}
	p.flush()
	if p.failed() {
		return Prompt{}, r.promptError(source.field)
	}
	result.Blocks, result.Head, result.Opening = w.Blocks(), w.Tail(), r.opening
	if r.value(fieldPreviousResponseID) != nil && r.value(fieldConversation) == nil {
		result.Opening = 0 // what came first is not in the body
	}
	total := p.total
	if r.pairs.any() {
		result.Inputs, total = r.pairs.sum(total)
	}
	result.InputTokens = (total + BytesPerToken - 1) / BytesPerToken
	return result, nil
}

// opened takes what is written so far for the opening of the conversation, unless it is
// known already.
func (r *Reader) opened() {
	p := &r.p
	if r.opening == 0 && !p.mute && p.out != nil && !p.failed() {
		p.flush()
		r.opening = p.out.Tail()
	}
}

// countsBeside reports whether a field is part of the prompt whose source is given.
func (in ingredient) countsBeside(source ingredient) bool {
	switch {
	case in.source():
		return in.field == source.field
	case in.writing < asMessages:
		return source.conversation()
	default:
		return true
	}
}

// write writes a field of the prompt.
func (r *Reader) write(in ingredient) {
	p := &r.p
	switch in.writing {
	case asValue:
		p.mark(byte(in.field))
		p.value(topDepth)
	case asContent:
		p.mark(byte(in.field))
		r.content(topDepth, false)
	case asBlocks:
		p.mark(byte(in.field))
		r.blocks(topDepth)
	case asEffort:
		r.effort(in.field)
	case asMessages:
		r.messages()
	case asItems:
		r.items()
	case asQuery:
		r.query()
	case asDocuments:
		r.documents()
	}
}

// promptError tells broken JSON from a token id that is none.
func (r *Reader) promptError(source field) error {
	if r.p.want != tokenID {
		return r.syntax()
	}
	if err := r.validate(); err != nil {
		return err
	}
	return &FieldError{Field: names[source], Value: "something else", Allowed: "an array of token ids, " + tokenID}
}

const tokenID = "whole numbers from 0 to 4294967295"

// source returns what the prompt is read from, and whether it is token ids.
func (r *Reader) source() (ingredient, bool) {
	for _, in := range r.row.prompt {
		v := r.value(in.field)
		if v == nil || !in.source() {
			continue
		}
		if in.writing != asInputs || v[0] != '[' {
			return in, false
		}
		c := first(v)
		return in, c == '[' || c == '-' || '0' <= c && c <= '9'
	}
	return ingredient{}, false
}

// first returns the byte at which an array's first value begins.
func first(array []byte) byte {
	if i := skipSpace(array, 1); i < len(array) {
		return array[i]
	}
	return 0
}

// inputs reads the value of prompt or input: one text, one list of token ids, or a
// batch of either. Only the first input of a batch reaches the chain; the others are
// counted.
func (r *Reader) inputs(tokens bool) int {
	p := &r.p
	switch {
	case p.peek() != '[':
		p.textOrValue(topDepth)
		return 1
	case tokens && first(p.b[p.i:]) != '[':
		p.tokens()
		return 1
	}
	n := 0
	for more := p.open(']'); more; more = p.next(']') {
		if tokens {
			p.tokens()
		} else {
			p.textOrValue(messageDepth)
		}
		if n++; n == 1 {
			p.flush()
			p.out = nil
		}
	}
	return max(n, 1)
}

// textOrValue writes a string as the text it stands for, anything else as JSON.
func (p *parser) textOrValue(depth int) {
	if p.peek() == '"' {
		p.text()
	} else {
		p.value(depth)
	}
}

// tokens writes an array of token ids.
func (p *parser) tokens() {
	if p.peek() != '[' {
		p.fail(tokenID)
		return
	}
	for more := p.open(']'); more; more = p.next(']') {
		var id uint64
		start := p.i
		for p.i < len(p.b) && '0' <= p.b[p.i] && p.b[p.i] <= '9' && id <= 1<<32 {
			id = id*10 + uint64(p.b[p.i]-'0')
			p.i++
		}
		c := p.peek()
		if p.i == start || id >= 1<<32 || c == '.' || c == 'e' || c == 'E' || p.b[start] == '0' && p.i > start+1 {
			p.fail(tokenID)
			return
		}
		p.reserve()
		binary.LittleEndian.PutUint32(p.buf[p.n:], uint32(id))
		p.n += kvblock.TokenBytes
	}
}
