package api

import "encoding/binary"

// content writes a content that stands at depth: a text, or parts. It returns how many
// parts. inBlock says that the content is a block's own: blocks in it are not looked
// into, so that nesting does not multiply the work.
func (r *Reader) content(depth int, inBlock bool) int {
	p := &r.p
	if p.peek() != '[' {
		p.textOrValue(depth)
		return 1
	}
	n := 0
	for more := p.open(']'); more; more = p.next(']') {
		kind := r.partKind()
		if n++; n > 1 && kind == textual {
			p.mark('p')
		}
		switch kind {
		case textual:
			p.textPart(depth + 1)
		case medium:
			r.mediaPart(depth + 1)
		case structure:
			p.mark('b')
			r.block(depth+1, inBlock)
		}
	}
	return n
}

// partKind is what a part of a content is to the prompt.
type partKind uint8

const (
	textual   partKind = iota
	medium             // hashed once, counted as MediaTokens
	structure          // written as JSON
)

// partKind looks at the part that stands at p.i.
func (r *Reader) partKind() partKind {
	p := &r.p
	otherwise := medium
	if r.row.typed {
		otherwise = structure
	}
	switch p.peek() {
	case '"':
		return textual
	case '{':
	default:
		return otherwise
	}
	var room [keyBytes]byte
	switch string(p.memberOf(p.i, "type", &room)) {
	case "text", "input_text", "output_text":
		return textual
	case "image", "input_image", "image_url", "audio", "input_audio", "audio_url", "input_video", "video_url",
		"input_file", "file", "image_generation_call", "computer_call_output":
		return medium
	case "document":
		if r.row.typed && p.isPlainDocument(p.i) {
			return structure
		}
		return medium
	}
	return otherwise
}

// memberOf returns the string that an object's member is, decoded where it is short, or
// nil where it has none. It stops at the first member of that name.
func (p *parser) memberOf(i int, name string, room *[keyBytes]byte) []byte {
	w := walk{b: p.b, i: i + 1, marks: p.marks}
	for {
		key, ok := w.field()
		if !ok {
			return nil
		}
		if v := w.value(); string(key) == name {
			return decodedKey(unquoted(v), room)
		}
	}
}

// isPlainDocument reports whether the source of Anthropic's document at i is a text.
func (p *parser) isPlainDocument(i int) bool {
	var room [keyBytes]byte
	w := walk{b: p.b, i: i + 1, marks: p.marks}
	for {
		key, ok := w.field()
		if !ok {
			return false
		}
		if string(key) != "source" {
			w.value()
			continue
		}
		return w.at() == '{' && string(p.memberOf(w.i, "type", &room)) == "text"
	}
}

// textPart writes the text of a part, a string or an object, and reads the rest of it.
func (p *parser) textPart(depth int) {
	if p.peek() == '"' {
		p.text()
		return
	}
	var room [keyBytes]byte
	for more := p.open('}'); more; more = p.next('}') {
		name := p.name(&room)
		if p.failed() {
			return
		}
		if p.peek() == '"' && string(name) == "text" {
			p.text()
			continue
		}
		p.readOnly(depth + 1)
	}
}

// readOnly reads a value and writes nothing.
func (p *parser) readOnly(depth int) {
	p.mute = true
	p.value(depth)
	p.mute = false
}

// mediaBlock is the block size of a part's own chain: big, since only the last hash
// counts.
const mediaBlock = 4096

// mostMedia bounds the parts of one prompt that are given the room of their tokens. No
// engine takes so many, and a body could hold a million empty ones.
const mostMedia = 1024

// mediaPart hashes a part that is not text once, whole, and writes the hash as often as
// fills the room that the part's tokens take. So another image is another prefix, and
// blocks after an image count as far into the prompt as they are.
func (r *Reader) mediaPart(depth int) {
	p := &r.p
	p.flush()
	out, total := p.out, p.total
	r.media.Reset(0, mediaBlock)
	p.out = &r.media
	if r.row.typed {
		r.block(depth, true)
	} else {
		p.value(depth)
	}
	p.flush()
	p.out, p.total = out, total

	p.mark('i')
	var hash [8]byte
	binary.LittleEndian.PutUint64(hash[:], uint64(r.media.Tail()))
	times := MediaTokens * BytesPerToken / len(hash)
	if r.nMedia++; r.nMedia > mostMedia {
		times = 1
	}
	for range times {
		p.bytes(hash[:])
	}
}
