package proxy

import (
	"sync"

	"kvasir/api"
	"kvasir/api/sse"
)

// try is what one attempt works with, and what it brought. A call has one, used for each of its
// attempts in turn; one that runs beside another has its own.
type try struct {
	answer answer
	booked int64 // what the stream's reader is booked to hold of an event

	dog    watchdog
	lent   *lent // to the transport
	edits  [3]api.Edit
	events sse.Reader
	scan   api.BodyScanner
	buf    []byte // what was read from upstream last
	kept   []byte // bytes held back before the commitment point, booked as buffered
	secret keyWatch
}

func newTry() *try { return &try{buf: make([]byte, readBuffer), lent: newLent()} }

// big reports whether its memory has grown so that it had better start anew.
func (t *try) big() bool { return cap(t.kept) > keptScratch }

// forget drops what must not outlive the call.
func (t *try) forget() {
	t.answer, t.edits = answer{}, [3]api.Edit{}
}

// tries are those of attempts beside others, for reuse.
var tries = sync.Pool{New: func() any { return newTry() }}
