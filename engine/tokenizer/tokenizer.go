// Package tokenizer is layer 4 (the inference engine), pure: what an emulated engine
// reads in an API call. A made-up tokenizer turns the prompt into tokens and KV block
// hashes, and the prompt's hash decides how long the answer becomes and what it says, so
// that one call means the same to a simulated engine and to one behind a socket.
//
// Text is cut into tokens of at most four bytes (English has about four a token), each
// segment of a prompt by itself, so that tokens are prefix-stable: what precedes a
// segment does not change its tokens, and an answer that comes back as a message of the
// next turn has the tokens that were generated. A token's id is its bytes, read as a
// little-endian number. Chat prompts follow the form of Llama 3's template: begin, then
// for each message start, role, end of header, content, end of turn.
//
// Read turns a call's body into a Call, with vLLM's error where vLLM would refuse it.
// What only a real model could do is refused as well (logprobs, echo); what an answer of
// nonsense fulfils as well as it can is accepted without effect (stop strings, response
// formats, sampling parameters). A tool is called only where the call insists on one.
//
// The conversation of one chat gives the same tokens over /v1/chat/completions,
// /v1/responses and /v1/messages, so that they share what is cached.
package tokenizer

import (
	"encoding/binary"

	"kvasir/internal/kvblock"
)

// pieceBytes is the length of a token's text; shorter at the end of a segment.
const pieceBytes = kvblock.TokenBytes

// mediaTokens is what an image, a sound or a film in a prompt occupies. Models take from
// 64 to several thousand, by size and resolution.
const mediaTokens = 256

// Control tokens. Their bytes end in 0xFF 0xFF 0xFF, which no UTF-8 text contains.
const (
	beginOfText uint32 = 0xFFFFFF00 + iota
	startHeader
	endHeader
	endOfTurn // also ends an answer
)

// encoder writes tokens and keeps their count and the hashes of the full KV blocks.
type encoder struct {
	blocks kvblock.Writer
	tokens int

	keep bool     // keep the ids, too
	ids  []uint32 // of the tokens so far
}

func (e *encoder) reset(seed kvblock.Hash, blockTokens int) {
	e.blocks.Reset(seed, blockTokens*kvblock.TokenBytes)
	e.tokens = 0
}

// id adds one token.
func (e *encoder) id(id uint32) {
	e.blocks.WriteToken(id)
	e.tokens++
	if e.keep {
		e.ids = append(e.ids, id)
	}
}

// text adds a segment's tokens. A token is hashed as its id's four little-endian bytes,
// and these are the piece's own, so the text is hashed as it is; the last piece is filled
// up with zeros.
func (e *encoder) text(s string) {
	var chunk [256 * pieceBytes]byte
	e.tokens += (len(s) + pieceBytes - 1) / pieceBytes
	for len(s) > 0 {
		n := copy(chunk[:], s)
		s = s[n:]
		for n%pieceBytes != 0 {
			chunk[n] = 0
			n++
		}
		_, _ = e.blocks.Write(chunk[:n])
		for at := 0; e.keep && at < n; at += pieceBytes {
			e.ids = append(e.ids, binary.LittleEndian.Uint32(chunk[at:]))
		}
	}
}

// media adds the tokens of an image or the like: a fixed number, chosen by its content.
func (e *encoder) media(data string) {
	h := kvblock.Seed("media", data)
	for range mediaTokens {
		h = kvblock.Chain(h, nil)
		e.id(uint32(h))
	}
}
