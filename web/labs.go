package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"kvasir/lab"
)

// runs lets one lab run at a time, for labs take a core beside the calls that the process
// serves, and a few questions wait. Who is slow to send a question or to read an answer keeps
// neither from others: the question is read before it gets its place, the answer is written
// after that was given back.
type runs struct {
	exchanges chan struct{} // a place for each request, from its first byte to the answer's last
	held      atomic.Int64  // bytes of the questions that these hold
	wait      chan struct{} // a place for each question that waits or runs
	one       chan struct{} // full while a lab runs
}

const (
	mostExchanges = 64
	mostQuestions = 8 // those that wait for the one that runs, that one included
	mostHeld      = mostQuestions * lab.MaxAsked
)

func newRuns() *runs {
	return &runs{
		exchanges: make(chan struct{}, mostExchanges),
		wait:      make(chan struct{}, mostQuestions),
		one:       make(chan struct{}, 1),
	}
}

// sending bounds how long a question may take to come, and an answer to go.
const sending = 30 * time.Second

var (
	errExchanges = fmt.Errorf("%d questions are being sent or answered already", mostExchanges)
	errHeld      = fmt.Errorf("the questions that are being sent or answered have %d bytes already", mostHeld)
	errQuestions = fmt.Errorf("%d labs run or wait already; one runs at a time", mostQuestions)
)

// ask answers a question, a lab.Asked, with a lab.Result.
func (u *runs) ask(w http.ResponseWriter, r *http.Request) {
	select {
	case u.exchanges <- struct{}{}:
		defer func() { <-u.exchanges }()
	default:
		refuseBusy(w, errExchanges)
		return
	}
	body := held{body: http.MaxBytesReader(w, r.Body, lab.MaxAsked), all: &u.held}
	defer body.release()
	connection := http.NewResponseController(w) // its deadlines are set where they can be
	_ = connection.SetReadDeadline(time.Now().Add(sending))
	question, err := io.ReadAll(&body)
	if err != nil {
		if errors.Is(err, errHeld) {
			refuseBusy(w, err)
			return
		}
		status := http.StatusBadRequest
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			status = http.StatusRequestEntityTooLarge
		}
		refuse(w, status, fmt.Sprintf("the question: %v; allowed: %d bytes", err, lab.MaxAsked))
		return
	}
	// From here on the server reads ahead to see the client go: a deadline that passes would look
	// like that.
	_ = connection.SetReadDeadline(time.Time{})
	answer, err := u.answer(r.Context(), question)
	_ = connection.SetWriteDeadline(time.Now().Add(sending)) // the server's may have passed while it waited and ran
	switch {
	case errors.Is(err, errQuestions):
		refuseBusy(w, err)
	case err != nil:
		refuse(w, http.StatusUnprocessableEntity, err.Error())
	default:
		write(w, http.StatusOK, answer)
	}
}

// answer runs the lab when its turn has come, within ctx.
func (u *runs) answer(ctx context.Context, question []byte) ([]byte, error) {
	select {
	case u.wait <- struct{}{}:
		defer func() { <-u.wait }()
	default:
		return nil, errQuestions
	}
	select {
	case u.one <- struct{}{}:
		defer func() { <-u.one }()
	case <-ctx.Done(): // nobody waits for the answer
		return nil, ctx.Err()
	}
	return lab.Answer(question, func() bool { return ctx.Err() != nil })
}

// held is a question's body. It counts its bytes among those of all.
type held struct {
	body io.Reader
	all  *atomic.Int64
	n    int64
}

// Read implements io.Reader. It fails with errHeld where all have too many.
func (h *held) Read(p []byte) (int, error) {
	n, err := h.body.Read(p)
	h.n += int64(n)
	if h.all.Add(int64(n)) > mostHeld {
		return n, errHeld
	}
	return n, err
}

// release takes the bytes out of the sum.
func (h *held) release() { h.all.Add(-h.n) }

func listLabs(w http.ResponseWriter, _ *http.Request) {
	body, err := lab.Listing()
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	write(w, http.StatusOK, body)
}

func write(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	secure(h)
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func refuse(w http.ResponseWriter, status int, words string) {
	body, _ := json.Marshal(map[string]string{"error": words}) // a map of strings has a form
	write(w, status, append(body, '\n'))
}

// refuseBusy is for what may be asked again soon.
func refuseBusy(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", "2")
	refuse(w, http.StatusServiceUnavailable, err.Error())
}
