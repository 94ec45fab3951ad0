package proxies

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// engine answers in the way that a call's field mode asks for:
//
//	steps     a stream whose next event is made once the client has confirmed the one before
//	endless   a stream without end
//	silent    nothing at all
//	whole     an answer that tells the hash of the body
type engine struct {
	address   string
	confirmed chan struct{} // one for each event that the client has seen
	began     chan struct{} // one for each call
	left      chan struct{} // one for each call whose client left before its end
	conns     atomic.Int64
	calls     atomic.Int64
}

// steps is how many events a stream of mode steps has.
const steps = 8

func newEngine(t testing.TB) *engine {
	e := &engine{confirmed: make(chan struct{}), began: make(chan struct{}, 1024), left: make(chan struct{}, 1024)}
	s := httptest.NewUnstartedServer(e)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			e.conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	e.address = s.Listener.Addr().String()
	return e
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusOK) // health
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var asked struct {
		Mode string `json:"mode"`
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e.calls.Add(1)
	e.began <- struct{}{}
	switch asked.Mode {
	case "steps":
		e.steps(w, r)
	case "endless":
		e.endless(w, r)
	case "silent":
		<-r.Context().Done()
		e.left <- struct{}{}
	default:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"object":"chat.completion","model":"tiny","choices":[{"index":0,"message":{"role":"assistant","content":"%x"},"finish_reason":"stop"}]}`, sha256.Sum256(body))
	}
}

func event(w http.ResponseWriter, text string) {
	fmt.Fprintf(w, "data: {\"object\":\"chat.completion.chunk\",\"model\":\"tiny\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":null}]}\n\n", text)
	_ = http.NewResponseController(w).Flush()
}

func (e *engine) steps(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for n := range steps {
		event(w, fmt.Sprint("step ", n))
		select {
		case <-e.confirmed:
		case <-r.Context().Done():
			e.left <- struct{}{}
			return
		}
	}
	fmt.Fprint(w, "data: {\"object\":\"chat.completion.chunk\",\"model\":\"tiny\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
}

func (e *engine) endless(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for n := 0; ; n++ {
		event(w, fmt.Sprint(n))
		select {
		case <-pause.C:
		case <-r.Context().Done():
			e.left <- struct{}{}
			return
		}
	}
}
