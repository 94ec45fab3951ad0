package upstream

import (
	"math/rand/v2"
	"time"
)

// Framing is how an answer's body is delimited.
type Framing uint8

// The framings.
const (
	Chunked Framing = iota
	Length
	UntilClose
)

// Ending is what happens at the end of what a plan sends.
type Ending uint8

// The endings.
const (
	Proper Ending = iota // as the framing says
	FIN                  // the connection is closed, whatever the framing says
	RST                  // it is reset
	Hang                 // nothing more comes
)

// Plan is what the upstream does with one attempt, and what that means.
type Plan struct {
	Fault string // its name in tables

	Wait     time.Duration // before anything else
	Silent   bool          // Ending happens before any byte of an answer
	Early    string
	Status   int
	Header   []string // further lines
	Type     string   // content type; "": no such line
	Framing  Framing
	Text     []byte // the whole body
	Cut      int    // bytes of Text that are sent
	Preamble int    // of them that come before content; 0: it is content once it is whole
	Short    int    // bytes that Content-Length says beyond Cut, for Length
	Ending   Ending
	Endless  bool // Text is repeated until the peer leaves, up to maxEndless

	Rand     *rand.Rand    // of the pieces and pauses
	MaxPiece int           // largest write; 0: all at once
	Pause    time.Duration // longest pause between two writes; 0: none
	Each     time.Duration // exact pause between two writes, instead of Pause

	Whole, Final, Unfit, Leak bool // see ledger.Attempt
	Classes                   []string
	RetryAfter                string // that Header has
}

// pieces calls write with pieces of the text and pauses between them, until it says no.
func (p *Plan) pieces(write func([]byte) bool, pause func(time.Duration) bool) bool {
	text := p.Text[:p.Cut]
	for len(text) > 0 {
		n := len(text)
		if p.MaxPiece > 0 {
			n = min(1+p.Rand.IntN(p.MaxPiece), n)
			if p.Each > 0 {
				n = min(p.MaxPiece, len(text))
			}
		}
		if !write(text[:n]) {
			return false
		}
		text = text[n:]
		switch {
		case len(text) == 0:
		case p.Each > 0:
			if !pause(p.Each) {
				return false
			}
		case p.Pause > 0 && p.Rand.IntN(3) == 0:
			if !pause(time.Duration(p.Rand.Int64N(int64(p.Pause)))) {
				return false
			}
		}
	}
	return true
}
