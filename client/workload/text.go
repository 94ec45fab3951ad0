package workload

import (
	"fmt"

	"kvasir/internal/kvblock"
	"kvasir/internal/portable"
	"kvasir/internal/seed"
)

// Text makes chat messages of calls, for endpoints that want text where a workload has
// numbers alone. It is made-up words. Two prompts share the text of the blocks that they
// share, and no whole block beyond, and one call has the same text each time. It is a value
// that keeps nothing, so memory is that of the prompts in hand, and any number of goroutines
// may use it.
//
// A prompt has BytesPerToken times its tokens in bytes; how many tokens an endpoint makes of
// it is its tokenizer's matter, and the messages' frame comes on top. An endpoint's real
// answers are not known beforehand: where a turn's prompt has those before it, a made-up text
// of the same length stands for each. So an engine finds the blocks of the prompt before, but
// not those that its own answer filled.
type Text struct {
	BlockTokens   int     // of the calls: Source.BlockTokens
	BytesPerToken float64 // 0: 4
}

// Bounds of BytesPerToken.
const (
	minRatio = 1
	maxRatio = 64
)

// Validate reports every field outside its range.
func (t Text) Validate() error {
	var c check
	c.whole("BlockTokens", t.BlockTokens, 0, maxLength)
	if t.BytesPerToken != 0 {
		c.number("BytesPerToken", t.BytesPerToken, minRatio, maxRatio)
	}
	return c.join()
}

// bytes returns how long a text of so many tokens is.
func (t Text) bytes(tokens int) int {
	ratio := t.BytesPerToken
	if ratio == 0 {
		ratio = 4
	}
	return int(portable.Round(float64(float64(tokens) * ratio)))
}

// Messages appends to dst the messages of a session's call. A prompt that goes on from an
// earlier call's prompt and answer has that prompt's messages first, then the answer as the
// assistant's, then what is new as the user's. So a prompt without such a call is one message
// of the user.
func (t Text) Messages(dst []Message, s *Session, call int) []Message {
	turns := t.turns(nil, s, call)
	text := t.prompt(s, call)
	at := 0
	for _, i := range turns {
		prompt := t.bytes(s.Calls[i].PromptTokens)
		both := t.bytes(s.Calls[i].PromptTokens + s.Calls[i].OutputTokens)
		dst = append(dst, Message{"user", text[at:prompt]})
		if both > prompt {
			dst = append(dst, Message{"assistant", text[prompt:both]})
		}
		at = both
	}
	return append(dst, Message{"user", text[at:]})
}

// turns lists the earlier calls that a call's prompt goes on from, first one first.
func (t Text) turns(dst []int, s *Session, call int) []int {
	c := &s.Calls[call]
	for _, i := range c.After {
		if t.continues(&s.Calls[i], c) {
			return append(t.turns(dst, s, i), i)
		}
	}
	return dst
}

// continues reports whether a prompt begins with an earlier one and its answer, as far as
// blocks can tell.
func (t Text) continues(before, c *Call) bool {
	n := len(before.Blocks)
	return n > 0 && n == before.PromptTokens/t.BlockTokens && n <= len(c.Blocks) &&
		before.Blocks[n-1] == c.Blocks[n-1] && before.PromptTokens+before.OutputTokens < c.PromptTokens
}

// prompt returns the text of a call's prompt.
func (t Text) prompt(s *Session, call int) string {
	c := &s.Calls[call]
	buf := make([]byte, 0, t.bytes(c.PromptTokens)+64) // the last word may be cut
	for i, h := range c.Blocks {
		buf = appendBlock(buf, h, t.bytes((i+1)*t.BlockTokens))
	}
	next := t.straddling(s, call)
	// What is behind the blocks that are known is made of blocks of the call's own.
	size := t.BlockTokens
	if size == 0 {
		size = blockTokens
	}
	for end := len(c.Blocks) * size; end < c.PromptTokens; {
		end += size
		buf = appendBlock(buf, next, t.bytes(end))
		next = Extend(next, uint64(end))
		if end > c.PromptTokens {
			buf = buf[:t.bytes(c.PromptTokens)]
		}
	}
	return string(buf)
}

// straddling returns the hash of the block in which a call's prompt ends. Where a later call of
// the session goes on from there it is that one's, so that it repeats this one's text.
func (t Text) straddling(s *Session, call int) kvblock.Hash {
	c := &s.Calls[call]
	n := len(c.Blocks)
	var last kvblock.Hash
	if n > 0 {
		last = c.Blocks[n-1]
	}
	for i := call + 1; i < len(s.Calls); i++ {
		if next := &s.Calls[i]; t.continues(c, next) && len(next.Blocks) > n {
			return next.Blocks[n]
		}
	}
	return Extend(last, uint64(kvblock.Seed("own", s.ID, fmt.Sprint(call))))
}

// appendBlock appends the text of a block up to the length given. It begins with a spelling
// of the hash, which takes 25 bytes, so the texts of two blocks differ where they are as long
// as that; made-up words follow.
func appendBlock(buf []byte, h kvblock.Hash, length int) []byte {
	r := seed.New(uint64(h), seed.Workload, 0, 0)
	buf = spell(buf, uint64(h))
	for len(buf) < length {
		for range 1 + r.Intn(2) {
			buf = append(buf, onsets[r.Intn(len(onsets))]...)
			buf = append(buf, nuclei[r.Intn(len(nuclei))]...)
		}
		buf = append(buf, codas[r.Intn(len(codas))]...)
		buf = append(buf, ' ')
	}
	return buf[:length]
}

// spell writes a number as pronounceable words: six bits a syllable of two letters.
func spell(buf []byte, v uint64) []byte {
	const consonants, vowels = "bdfghjklmnprstvz", "aeio"
	for i := range 11 {
		buf = append(buf, consonants[v&15], vowels[v>>4&3])
		if v >>= 6; i%4 == 3 {
			buf = append(buf, ' ')
		}
	}
	return append(buf, ' ')
}
