package proxy

import (
	"io"
	"net/http"
	"time"
)

// How long a client may go on sending a body after the answer to it, and how much of it.
const (
	unreadGrace = 2 * time.Second
	unreadMost  = 64 << 20
)

// answerUnread readies the answer to a request whose body was not read to its end. The
// answer goes out while the client still sends, and what follows on the connection can't
// be told from the body, so it ends.
//
// Without this the server would first read up to 256 KiB of the body, however long the
// client takes to send them.
func answerUnread(w http.ResponseWriter, rc *http.ResponseController, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	if r.ProtoMajor == 1 { // over HTTP/2 the other streams of the connection go on
		w.Header().Set("Connection", "close")
		_ = rc.EnableFullDuplex() // a writer without it has no connection to answer early on
	}
	_ = rc.SetReadDeadline(time.Now().Add(unreadGrace))
}

// takeUnread reads and drops, for a while, the rest of a body that was answered already:
// many clients read no answer before they have sent their last byte, and to close a
// connection with unread bytes in it is to reset it, which takes the answer from them.
func takeUnread(r *http.Request) {
	if r.ContentLength != 0 {
		_, _ = io.CopyN(io.Discard, r.Body, unreadMost) // however it ends, the call is over
	}
}
