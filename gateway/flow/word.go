package flow

import (
	"time"

	"kvasir/internal/kvblock"
	"kvasir/selection"
)

// Several gateways before the same endpoints tell each other what they send there. What is
// told of load is a state, not a change: how much one gateway has at one endpoint. So a word
// that is lost is made good by the next one, one that is overtaken is known by its number,
// and what a gateway no longer says is forgotten after a while.

// PeerID names a gateway among its peers. One that begins anew has another: random 64 bits.
type PeerID uint64

// WordKind says what a Word tells.
type WordKind uint8

// The kinds of words.
const (
	WordLoad WordKind = iota // what the gateway has at the endpoint
	WordSent                 // it has sent a prompt there
	WordHeld                 // the prompt's first token has come: the endpoint holds it
)

// Word is what one gateway tells the others of an endpoint. It must not change after it was
// handed out.
type Word struct {
	Kind   WordKind
	Peer   PeerID // who tells it
	Number uint64 // of the gateway's words; a later word has a higher one

	// The endpoint as the teller's machine knows it; another one's slot may differ.
	Slot       selection.Slot
	Generation uint32

	Share  Share          // WordLoad
	Work   selection.Work // WordHeld: of the prompt's prefill, as it was believed
	Blocks []kvblock.Hash // WordSent, WordHeld: the prompt's first blocks, at most MostWordBlocks
}

// Share is what one gateway has at an endpoint.
type Share struct {
	Outstanding       int32 // fields as selection.Book has them
	OutstandingTokens int64
	PendingTokens     int64
	Pending           int32
	PendingWork       selection.Work
	ActiveBlocks      int64

	Head       selection.Work // of the oldest pending call
	HeadSilent bool
	HeadSent   time.Duration // how long ago that call was dispatched
	LastFirst  time.Duration // how long ago the newest first token of a streamed answer came; negative: none yet
}

// Bounds of what is told and heard.
const (
	MostWordBlocks = 4096    // of one word; the beginning of a chain is a chain
	MostPrompts    = 512     // of one telling; more are told at once
	MostBlocks     = 1 << 16 // likewise
	MostPeers      = 64      // that are listened to; further ones are counted
)

// Sharing says what a machine tells its peers and hears of them. The zero Sharing is a
// gateway that is alone.
type Sharing struct {
	On      bool
	Peer    PeerID        // of this gateway
	Every   time.Duration // between two tellings; 0: whatever happens is told at once
	Refresh time.Duration // whatever is not zero is told again as often; above 0
	Expiry  time.Duration // what was told so long ago, and not again, is forgotten; above Refresh
}

// DefaultSharing returns the settings of a gateway that has peers: it tells them every 5 ms
// what is new and every second what is so still, and believes them for 3.5 s.
func DefaultSharing(p PeerID) Sharing {
	return Sharing{On: true, Peer: p, Every: 5 * time.Millisecond, Refresh: time.Second, Expiry: 3500 * time.Millisecond}
}
