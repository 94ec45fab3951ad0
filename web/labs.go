package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"kvasir/lab"
)

// runs lets one lab run at a time, for labs take a core beside the calls that the process
// serves, and a few questions wait.
type runs struct {
	one  chan struct{} // full while a lab runs
	wait chan struct{} // a place for each question that waits or runs
}

// mostQuestions bounds those that wait for the one that runs, that one included.
const mostQuestions = 8

func newRuns() *runs {
	return &runs{one: make(chan struct{}, 1), wait: make(chan struct{}, mostQuestions)}
}

// sending bounds how long a question may take to come, while it has one of the places, and its
// answer to go.
const sending = 30 * time.Second

// ask answers a question, a lab.Asked, with a lab.Result.
func (u *runs) ask(w http.ResponseWriter, r *http.Request) {
	select {
	case u.wait <- struct{}{}:
		defer func() { <-u.wait }()
	default:
		w.Header().Set("Retry-After", "2")
		refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("%d labs run or wait already; one runs at a time", mostQuestions))
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(sending)) // where it can be set
	question, err := io.ReadAll(http.MaxBytesReader(w, r.Body, lab.MaxAsked))
	if err != nil {
		status := http.StatusBadRequest
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			status = http.StatusRequestEntityTooLarge
		}
		refuse(w, status, fmt.Sprintf("the question: %v; allowed: %d bytes", err, lab.MaxAsked))
		return
	}
	select {
	case u.one <- struct{}{}:
		defer func() { <-u.one }()
	case <-r.Context().Done(): // nobody waits for the answer
		return
	}
	answer, err := lab.Answer(question, func() bool { return r.Context().Err() != nil })
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sending)) // the server's may have passed while it waited and ran
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	write(w, http.StatusOK, answer)
}

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
