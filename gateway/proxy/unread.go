package proxy

import (
	"net/http"
	"time"
)

// unreadGrace is how long a client may go on sending a body after the answer to it.
const unreadGrace = 2 * time.Second

// answerUnread readies the answer to a request whose body was not read to its end. The
// answer goes out while the client still sends; a little of the rest is taken from it,
// for a while, because to close a connection with unread bytes in it is to reset it, and
// the client may lose the answer. What follows on the connection can't be told from the
// body, so it ends.
//
// Without this the server would first read up to 256 KiB of the body, however long the
// client takes to send them.
func answerUnread(w http.ResponseWriter, rc *http.ResponseController, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	w.Header().Set("Connection", "close")
	_ = rc.SetReadDeadline(time.Now().Add(unreadGrace)) // a writer without deadlines has no slow clients
}
