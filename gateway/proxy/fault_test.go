package proxy_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"kvasir/internal/testkit/scripted"
)

// faulty answers at random: whole, or with one of the faults that an endpoint can have, at
// a random place. Everything in an answer names its endpoint and its request.
func faulty(endpoint int, seed uint64) scripted.Script {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, uint64(endpoint)))
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	return func(c *scripted.Call) {
		rec := c.Record()
		mark := fmt.Sprintf("<%s@%d.%d>", rec.ID, endpoint, rec.Conn*1000+rec.Turn)
		switch draw(10) {
		case 0:
			c.RST()
			return
		case 1:
			c.FIN()
			return
		case 2:
			status([]int{400, 404, 429, 500, 502, 503, 504}[draw(7)])(c)
			return
		}
		if !bytes.Contains(rec.Body, []byte(`"stream":true`)) {
			body := strings.Replace(jsonAnswer, "Hi there", strings.Repeat(mark, 1+draw(200)), 1)
			if draw(6) == 0 { // short of its length
				c.Head(200, "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(body)))
				_ = c.Write(body[:draw(len(body))]) // a peer that left is noted
				if draw(2) == 0 {
					c.RST()
				} else {
					c.FIN()
				}
				return
			}
			c.Reply(200, "application/json", body)
			return
		}
		list := wholeStream(mark, mark, mark, mark)
		switch draw(8) {
		case 0: // an error event somewhere
			at := draw(len(list))
			list = append(list[:at:at], errorEvent)
		case 1: // the caller's fault somewhere
			at := draw(len(list))
			list = append(list[:at:at], quotaEvent, doneEvent)
		case 2: // no end mark
			list = list[:len(list)-1]
		}
		text := joined(list)
		cut := len(text)
		if draw(3) == 0 {
			cut = draw(len(text))
		}
		c.EventStream()
		for at := 0; at < cut; {
			n := min(1+draw(300), cut-at)
			if c.Chunk(text[at:at+n]) != nil {
				return
			}
			at += n
			if draw(4) == 0 && !c.Pause(time.Duration(draw(2000))*time.Microsecond) {
				return
			}
		}
		switch end := draw(6); {
		case cut == len(text) && end > 1:
			c.LastChunk()
		case end == 0:
			c.RST()
		case end == 1:
			c.LastChunk()
		default:
			c.FIN()
		}
	}
}

// Random faults on both sides: afterwards nothing is in flight, each call has one record,
// none had more attempts than allowed, no client got bytes of two attempts, and none was
// given a broken answer as a whole one.
func TestInvariantsHoldUnderRandomFaults(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := setup{pools: [][]scripted.Script{{faulty(0, seed), faulty(1, seed), faulty(2, seed)}, {faulty(3, seed)}}}
			s.policy = "cache-aware"
			r := newRig(t, s)
			defer r.close()
			random := rand.New(rand.NewPCG(seed, 99))
			var clients sync.WaitGroup
			slots := make(chan bool, 24)
			const calls = 500
			for n := range calls {
				call := faultyClient{id: fmt.Sprintf("call-%d", n), stream: random.IntN(3) > 0, leave: -1, rst: random.IntN(2) == 0}
				if random.IntN(5) == 0 {
					call.leave = time.Duration(random.IntN(8000)) * time.Microsecond
				}
				slots <- true
				clients.Go(func() {
					defer func() { <-slots }()
					call.run(t, r)
				})
			}
			clients.Wait()
			r.settle()
			for _, c := range r.records.all() {
				n := 0
				for _, up := range r.upstreams {
					n += up.Attempts(c.string("id"))
				}
				if n > c.int("attempts") || n > 3 {
					t.Errorf("%d attempts upstream, recorded: %v", n, c)
				}
				if c.string("outcome") == "unclassified" {
					t.Errorf("record %v", c)
				}
			}
		})
	}
}

type faultyClient struct {
	id     string
	stream bool
	leave  time.Duration // negative: it stays
	rst    bool
}

func (f faultyClient) run(t *testing.T, r *rig) {
	request := unstreamed
	if f.stream {
		request = streamed
	}
	c := r.send(rawPost(chatPath, request, "X-Request-Id: "+f.id, "Connection: close"))
	if f.leave >= 0 {
		time.Sleep(f.leave)
		if f.rst {
			if err := c.(*net.TCPConn).SetLinger(0); err != nil {
				t.Error(err)
			}
		}
		closeAll(t, c)
		return
	}
	defer closeAll(t, c)
	text, _ := io.ReadAll(c) // it may be reset: what came is judged
	f.judge(t, string(text))
}

// judge looks at all the bytes that a client got.
func (f faultyClient) judge(t *testing.T, text string) {
	for _, m := range marks(text) {
		if m != marks(text)[0] {
			t.Errorf("%s: bytes of two attempts: %q", f.id, text)
		}
		if !strings.HasPrefix(m, "<"+f.id+"@") {
			t.Errorf("%s: bytes of another call: %q", f.id, text)
		}
	}
	head, body, whole := readRaw(text)
	if !whole || head != 200 {
		return // broken off, and the client can tell; or an error
	}
	if !f.stream {
		if !strings.HasSuffix(body, jsonAnswer[strings.Index(jsonAnswer, `"},"finish`):]) {
			t.Errorf("%s: half an answer ends cleanly: %q", f.id, body)
		}
		return
	}
	failures := strings.Count(body, `data: {"error"`)
	finished := strings.Contains(body, `"finish_reason":"stop"`)
	if failures > 1 || failures == 0 && !finished || failures == 1 && !strings.Contains(body, `"code":400`) && strings.Contains(body, "[DONE]") {
		t.Errorf("%s: %d errors, finished %v, yet it ends cleanly: %q", f.id, failures, finished, body)
	}
	last := strings.TrimPrefix(body[strings.LastIndex(body, "\n\n")+2:], "data: ") // may lack its blank line
	if failures == 0 && last != "" && strings.TrimSpace(last) != "[DONE]" && !json.Valid([]byte(last)) {
		t.Errorf("%s: half an event ends cleanly: %q", f.id, body)
	}
}

// marks returns the marks in a text.
func marks(text string) []string {
	var found []string
	for {
		_, rest, ok := strings.Cut(text, "<call-")
		if !ok {
			return found
		}
		name, after, ok := strings.Cut(rest, ">")
		if !ok {
			return found // cut
		}
		found = append(found, "<call-"+name)
		text = after
	}
}

// readRaw reads a raw response: its status, its body, and whether that came whole.
func readRaw(text string) (status int, body string, whole bool) {
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
	if err != nil {
		return 0, "", false
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(got), err == nil
}
