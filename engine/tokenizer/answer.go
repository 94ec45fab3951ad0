package tokenizer

import (
	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
)

// Answer is what an emulated engine says. It is a value and holds no text: any part of
// the text can be computed.
type Answer struct {
	Tokens int  // length, at least 1; the token that ends the turn is counted where Stop is set
	Stop   bool // the answer is complete; else it reached its bound
	words  uint64
	from   int // tokens of it that were said before, and are a part of the prompt
}

// TextTokens returns how many of the answer's tokens have text: all but the one that ends
// the turn.
func (a Answer) TextTokens() int {
	if a.Stop {
		return a.Tokens - 1
	}
	return a.Tokens
}

// AppendText appends the text of tokens from (inclusive) to (exclusive) to dst: four
// bytes a token, none for the token that ends the turn. It is plain ASCII without quotes
// or control characters, so it needs no escaping in JSON.
func (a Answer) AppendText(dst []byte, from, to int) []byte {
	for i := from; i < min(to, a.TextTokens()); i++ {
		dst = a.appendPiece(dst, i)
	}
	return dst
}

// Text returns the whole answer.
func (a Answer) Text() string {
	return string(a.AppendText(make([]byte, 0, a.TextTokens()*pieceBytes), 0, a.Tokens))
}

// AppendArguments appends the part that tokens from (inclusive) to (exclusive) have of the
// answer as the arguments of a function: a JSON object with one field, text. done ends it.
// quote is how a quotation mark is written: \" inside a JSON string.
func (a Answer) AppendArguments(dst []byte, from, to int, done bool, quote string) []byte {
	if from == 0 && (to > 0 || done) {
		dst = append(dst, '{')
		dst = append(append(append(dst, quote...), "text"...), quote...)
		dst = append(append(dst, ": "...), quote...)
	}
	dst = a.AppendText(dst, from, to)
	if done {
		dst = append(append(dst, quote...), '}')
	}
	return dst
}

// appendPiece appends one token's text: four letters, which begin or go on with a word, or
// what ends one.
func (a Answer) appendPiece(dst []byte, i int) []byte {
	const consonants, vowels = "bdfghjklmnprstvz", "aeiou"
	r := seed.New(a.words, seed.Output, 1, uint64(a.from+i))
	bits := r.Uint64()
	consonant := func() byte { c := consonants[bits%16]; bits /= 16; return c }
	vowel := func() byte { v := vowels[bits%5]; bits /= 5; return v }
	kind := bits % 16
	bits /= 16
	switch {
	case a.Stop && i == a.TextTokens()-1:
		return append(dst, consonant(), vowel(), consonant(), '.')
	case kind < 7:
		return append(dst, consonant(), vowel(), consonant(), vowel())
	case kind < 14:
		return append(dst, consonant(), vowel(), consonant(), ' ')
	case kind < 15:
		return append(dst, consonant(), vowel(), ',', ' ')
	}
	return append(dst, consonant(), vowel(), '.', ' ')
}

// encode continues the prompt's tokens with the answer's.
func (a Answer) encode(e *encoder) {
	var piece [pieceBytes]byte
	for i := range a.TextTokens() {
		_, _ = e.blocks.Write(a.appendPiece(piece[:0], i))
	}
	e.tokens += a.TextTokens()
	if a.Stop {
		e.id(endOfTurn)
	}
}

// Lengths of answers that no bound cuts: lognormal-like with this median and, in powers of
// two, this spread, cut at both ends. Chat traces have medians from 100 to 250 tokens and a
// 99th percentile about eight times that.
const (
	medianTokens = 120
	spreadNum    = 5 // standard deviation of log2(length): 5/4
	spreadDen    = 4
	minDraw      = 4
	maxDraw      = 2048
)

// bounds are what a call says about its answer's length, in tokens.
type bounds struct {
	max, min  int // max ≥ 1
	ignoreEOS bool
}

// draw decides the answer to the prompt with the given hash; choice numbers the answers to
// one prompt. root is the engine's seed.
func draw(root uint64, prompt kvblock.Hash, choice int, b bounds) Answer {
	r := seed.New(root, seed.Output, uint64(prompt), uint64(choice))
	a := Answer{words: r.Uint64(), Tokens: b.max}
	if b.ignoreEOS {
		return a
	}
	if n := max(length(&r), b.min+1); n <= b.max {
		a.Tokens, a.Stop = n, true
	}
	return a
}

// after returns what is left of the answer once said was, which must be how it begins, in whole
// tokens; false where it is not, or where nothing is left.
func (a Answer) after(said string) (Answer, bool) {
	n := len(said) / pieceBytes
	if len(said)%pieceBytes != 0 || n > a.TextTokens() || n >= a.Tokens || string(a.AppendText(nil, 0, n)) != said {
		return a, false
	}
	a.from, a.Tokens = n, a.Tokens-n
	return a, true
}

// length draws the number of tokens after which a model ends its turn. It reckons in whole
// numbers, 16 bits after the point, so that it is the same on every platform: the sum of
// twelve uniform draws stands for a normal one (Irwin and Hall), and 1+x for 2^x between
// whole powers.
func length(r *seed.Rand) int {
	const one = 1 << 16
	sum := 0
	for range 3 {
		for bits, i := r.Uint64(), 0; i < 4; bits, i = bits>>16, i+1 {
			sum += int(bits & (one - 1))
		}
	}
	exponent := (sum - 6*one) * spreadNum / spreadDen
	n := medianTokens * (one + exponent&(one-1))
	if whole := exponent >> 16; whole >= 0 {
		n <<= whole
	} else {
		n >>= -whole
	}
	return min(max(n>>16, minDraw), maxDraw)
}
