package load

import (
	"math"
	"strings"

	"kvasir/client/workload"
	"kvasir/internal/seed"
)

// Prompts gives the calls of a workload, which are numbers alone, a text of made-up words.
// Each block's text follows from its hash and what is behind the last block from the call, so
// two prompts share text as far as they share blocks, give or take a word.
type Prompts struct {
	Seed        uint64
	BlockTokens int     // of the workload's Source
	TokenBytes  float64 // bytes that a token of the endpoint's tokenizer takes, above 0: about 4 for English, fewer for made-up words
}

// Streams of words, beside those of workload.Conversations.
const (
	blockWords = 1 << 40
	tailWords  = 1 << 41
)

// pieceBytes is the length of the pieces that texts are made of.
const pieceBytes = 4

// Messages returns what a call says: one message of a user. session and call are its numbers
// in the workload.
func (p Prompts) Messages(session, call int, c *workload.Call) []workload.Message {
	block := p.bytes(p.BlockTokens)
	tail := p.bytes(max(c.PromptTokens-len(c.Blocks)*p.BlockTokens, 0))
	var text strings.Builder
	text.Grow(len(c.Blocks)*block + tail + pieceBytes)
	for _, hash := range c.Blocks {
		r := seed.New(p.Seed, seed.Workload, uint64(hash), blockWords)
		say(&text, &r, block)
	}
	r := seed.New(p.Seed, seed.Workload, uint64(session), tailWords+uint64(call))
	say(&text, &r, tail)
	return []workload.Message{{Role: "user", Content: text.String()}}
}

func (p Prompts) bytes(tokens int) int { return int(math.Round(float64(tokens) * p.TokenBytes)) }

// say writes n bytes of words.
func say(text *strings.Builder, r *seed.Rand, n int) {
	for ; n > 0; n -= pieceBytes {
		piece := pieceOf(r.Uint64())
		text.Write(piece[:min(n, pieceBytes)])
	}
}

// pieceOf returns four letters, or three that end a word.
func pieceOf(random uint64) [pieceBytes]byte {
	const consonants, vowels = "bdfghjklmnprstvz", "aeio"
	piece := [pieceBytes]byte{
		consonants[random%16], vowels[random>>4%4], consonants[random>>6%16], ' ',
	}
	if random>>10%2 == 0 {
		piece[3] = vowels[random>>11%4]
	}
	return piece
}
