package emulator

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/engine"
	"kvasir/internal/testkit/memnet"
)

// controlled is an engine whose control is open.
func controlled(t *testing.T) *fixture {
	c := testConfig(t)
	c.Control = true
	return start(t, c)
}

func (f *fixture) order(method, path, body string, want int) string {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	resp, err := f.client.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != want {
		f.t.Errorf("%s %s %s: %d %s, want %d", method, path, body, resp.StatusCode, got, want)
	}
	return string(got)
}

const slowStream = `,"max_tokens":100,"ignore_eos":true,"stream":true`

func TestControl_RefusesWithAStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := controlled(t)
		got := f.order("POST", "/emulator/fault", `{"kind":"refuse","status":429,"retry_after":"Wed, 21 Oct 2026 07:28:00 GMT","calls":2}`, 200)
		if want := `{"kind":"refuse","status":429,"retry_after":"Wed, 21 Oct 2026 07:28:00 GMT","calls":2}`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		for i := range 3 {
			r, err := f.post(t.Context(), "/v1/completions", short)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(r.Body)
			r.Body.Close()
			if i == 2 {
				if r.StatusCode != 200 {
					t.Errorf("after the last: %d %s", r.StatusCode, body)
				}
				break
			}
			if want := `{"error":{"message":"The emulator was told to refuse this call.","type":"Too Many Requests","param":null,"code":429}}`; r.StatusCode != 429 ||
				string(body) != want || r.Header.Get("Retry-After") != "Wed, 21 Oct 2026 07:28:00 GMT" {
				t.Errorf("%d %s, %v", r.StatusCode, body, r.Header)
			}
		}
		if got := f.order("GET", "/emulator/fault", "", 200); got != `{"kind":""}` {
			t.Errorf("left: %s", got)
		}
		if s := f.server.Stats(); s.Finished[engine.Length] != 1 {
			t.Errorf("the engine heard of refused calls: %+v", s)
		}
	})
}

// A hanging engine takes calls and answers none; health and metrics know of nothing. What
// hangs stays so when the fault is lifted.
func TestControl_Hangs(t *testing.T) {
	for _, path := range []string{"/v1/chat/completions", "/v1/embeddings", "/v1/messages"} {
		synctest.Test(t, func(t *testing.T) {
			f := controlled(t)
			f.order("POST", "/emulator/fault", `{"kind":"hang"}`, 200)
			body := map[string]string{"/v1/chat/completions": chatBody("x", slowStream), "/v1/embeddings": `{"input":"x"}`, "/v1/messages": shortMessage + `,"stream":true}`}[path]
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			done := make(chan error, 1)
			go func() { _, err := f.post(ctx, path, body); done <- err }()
			time.Sleep(time.Minute)
			if status, _ := f.get("/health"); status != 200 {
				t.Errorf("health %d", status)
			}
			_, text := f.get("/metrics")
			if got := series(t, text); got[`vllm:num_requests_running{engine="0",model_name="tiny"}`] != 0 {
				t.Error("the engine works")
			}
			f.order("DELETE", "/emulator/fault", "", 200)
			if status, body := f.do("/v1/completions", short); status != 200 {
				t.Errorf("lifted: %d %s", status, body)
			}
			if err := <-done; !errors.Is(err, context.DeadlineExceeded) || time.Since(f.epoch) < time.Hour {
				t.Errorf("the call that hung ended with %v", err)
			}
		})
	}
}

func TestControl_StopsAfterSomeTokens(t *testing.T) {
	for _, after := range []int{0, 1, 7} {
		for _, x := range []struct{ path, body, token string }{
			{"/v1/chat/completions", chatBody("x", slowStream), `"content":"`},
			{"/v1/responses", `{"input":"x","max_output_tokens":100,"ignore_eos":true,"stream":true}`, `"delta":"`},
			{"/v1/messages", `{"model":"tiny","max_tokens":30,"stream":true,"messages":[{"role":"user","content":"y"}]}`, `"text_delta","text":"`},
		} {
			synctest.Test(t, func(t *testing.T) {
				f := controlled(t)
				if err := f.server.Impose(Fault{Kind: "stall", After: after, Calls: 1}); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				r, err := f.post(ctx, x.path, x.body)
				if err != nil {
					t.Fatal(err)
				}
				defer r.Body.Close()
				body, err := io.ReadAll(r.Body)
				want := after
				if after > 0 && x.path == "/v1/chat/completions" {
					want++ // the role's event has an empty content
				}
				if n := strings.Count(string(body), x.token); n != want || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s after %d: %d events, %v\n%s", x.path, after, n, err, body)
				}
			})
		}
	}
}

// Stream errors in the shape of each API.
func TestControl_FailsInTheStream(t *testing.T) {
	for _, x := range []struct{ path, body, want string }{
		{"/v1/completions", `{"prompt":"x","stream":true}`, `data: {"error": {"message": "Internal server error", "type": "InternalServerError", "param": null, "code": 500}}` + "\n\ndata: [DONE]\n\n"},
		{"/v1/responses", `{"input":"x","stream":true,"max_output_tokens":9,"ignore_eos":true}`, "event: error\n" + `data: {"code":"500","message":"Internal server error","param":null,"sequence_number":6,"type":"error"}` + "\n\n"},
		{"/v1/messages", shortMessage + `,"stream":true}`, "event: error\n" + `data: {"type":"error","error":{"type":"internal_error","message":"Internal server error"}}` + "\n\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := controlled(t)
			after := `2`
			if x.path == "/v1/messages" {
				after = `1`
			}
			f.order("POST", "/emulator/fault", `{"kind":"stream-error","after":`+after+`}`, 200)
			if status, body := f.do(x.path, x.body); status != 200 || !strings.HasSuffix(body, x.want) {
				t.Errorf("%s: %d %s", x.path, status, body)
			}
			f.order("POST", "/emulator/fault", `{"kind":"stream-error"}`, 200)
			if status, body := f.do("/v1/messages", shortMessage+"}"); status != 500 || body != `{"type":"error","error":{"type":"InternalServerError","message":"Internal server error"}}` {
				t.Errorf("no stream: %d %s", status, body)
			}
		})
	}
}

func TestControl_Slows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := controlled(t)
		took := func() time.Duration {
			at := time.Now()
			if _, err := f.stream(chatBody(time.Now().String(), slowStream)); err != nil {
				t.Fatal(err)
			}
			return time.Since(at)
		}
		usual := took()
		f.order("POST", "/emulator/slow?factor=3", "", 200)
		f.order("POST", "/emulator/restart", "", 200) // the device stays slow
		if slow := took(); slow < 3*usual-time.Millisecond || slow > 3*usual+time.Millisecond {
			t.Errorf("%v, three times %v expected", slow, usual)
		}
		f.order("POST", "/emulator/slow?factor=1", "", 200)
		if again := took(); again > usual+time.Millisecond {
			t.Errorf("%v, %v expected", again, usual)
		}
	})
}

// Calls in flight end as aborted, calls that come wait, and what was cached is gone.
func TestControl_SleepsAndWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := controlled(t)
		prompt := strings.Repeat("a prompt that fills some blocks ", 20)
		if status, _ := f.do("/v1/chat/completions", chatBody(prompt, `,"max_tokens":1`)); status != 200 {
			t.Fatal(status)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			got, err := f.stream(chatBody("x", slowStream))
			if n := len(got.event); err != nil || n < 3 || got.last.Choices[0].FinishReason == nil || *got.last.Choices[0].FinishReason != "abort" || got.event[n-1] != "[DONE]" {
				t.Errorf("%q, %v", got.event, err)
			}
		})
		wg.Go(func() {
			if status, body := f.do("/v1/messages", shortMessageOf(100)); status != 200 || strings.Contains(body, "stop_reason") {
				t.Errorf("%d %s", status, body)
			}
		})
		time.Sleep(50 * time.Millisecond)
		f.order("POST", "/sleep?level=2", "", 200)
		wg.Wait()
		if got := f.order("GET", "/is_sleeping", "", 200); got != `{"is_sleeping":true}` {
			t.Error(got)
		}
		_, text := f.get("/metrics")
		if got := series(t, text); got[`vllm:engine_sleep_state{engine="0",model_name="tiny",sleep_state="discard_all"}`] != 1 ||
			got[`vllm:engine_sleep_state{engine="0",model_name="tiny",sleep_state="awake"}`] != 0 {
			t.Error(text)
		}
		if status, _ := f.get("/health"); status != 200 {
			t.Errorf("health %d", status)
		}
		wg.Go(func() {
			status, body := f.do("/v1/chat/completions", chatBody(prompt, `,"max_tokens":1`))
			if status != 200 || !strings.Contains(body, `"cached_tokens":0,`) || time.Since(f.epoch) < time.Minute {
				t.Errorf("after %v: %d %s", time.Since(f.epoch), status, body)
			}
		})
		time.Sleep(time.Minute)
		f.order("POST", "/emulator/wake", "", 200)
		wg.Wait()
		if s := f.server.Stats(); s.Finished[engine.Abort] != 2 || s.Running != 0 || s.FreeBlocks != s.TotalBlocks {
			t.Errorf("%+v", s)
		}
	})
}

func shortMessageOf(tokens int) string {
	return strings.Replace(shortMessage, `"max_tokens":2`, `"max_tokens":`+strconv.Itoa(tokens), 1) + "}"
}

// A restart breaks what is in flight, forgets all and begins to count anew; until it is up
// every connection is reset.
func TestControl_Restarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := controlled(t)
		if err := f.server.Impose(Fault{Kind: "hang", Calls: 1}); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for _, body := range []string{chatBody("hangs", ""), chatBody("streams", slowStream), chatBody("collects", `,"max_tokens":100,"ignore_eos":true`)} {
			wg.Go(func() {
				r, err := f.post(t.Context(), "/v1/chat/completions", body)
				if err == nil {
					_, err = io.Copy(io.Discard, r.Body)
					r.Body.Close()
				}
				if !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("%s: %v", body, err)
				}
			})
			time.Sleep(50 * time.Millisecond)
		}
		if s := f.server.Stats(); s.Running != 2 || s.PrefixQueries == 0 {
			t.Fatalf("%+v", s)
		}
		at := time.Now()
		f.order("POST", "/emulator/restart?down=10s", "", 200)
		wg.Wait()
		if time.Since(at) > time.Second {
			t.Errorf("the calls ended after %v", time.Since(at))
		}
		if s := f.server.Stats(); s.PrefixQueries != 0 || s.Steps != 0 || s.FreeBlocks != s.TotalBlocks {
			t.Errorf("%+v", s)
		}
		if _, err := f.client.Get("http://" + address + "/health"); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("down: %v", err)
		}
		time.Sleep(10 * time.Second)
		_, text := f.get("/metrics")
		got := series(t, text)
		want := seconds(at.Add(10 * time.Second))
		if got["process_start_time_seconds"] != want || got[`vllm:prompt_tokens_created{engine="0",model_name="tiny"}`] != want {
			t.Errorf("started at %v, want %v", got["process_start_time_seconds"], want)
		}
		if n := got[`vllm:time_to_first_token_seconds_count{engine="0",model_name="tiny"}`]; n != 0 {
			t.Errorf("%v first tokens", n)
		}
		if status, body := f.do("/v1/completions", short); status != 200 {
			t.Errorf("up: %d %s", status, body)
		}
	})
}

// Under Serve a restart breaks the connections that wait for their next call, too, but not
// the one it came by.
func TestRestart_BreaksIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(t)
		c.Control = true
		s, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		n := memnet.New()
		l, err := n.Listen(address)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = s.Serve(ctx, l, 0) })
		dial := func() net.Conn {
			conn, err := n.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			return conn
		}
		idle, control := dial(), dial()
		ask := func(conn net.Conn, head string) error {
			_, err := io.WriteString(conn, head+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
			if err != nil {
				return err
			}
			buf := make([]byte, 4096)
			k, err := conn.Read(buf)
			if err == nil && !strings.HasPrefix(string(buf[:k]), "HTTP/1.1 200 OK\r\n") {
				t.Errorf("%s: %s", head, buf[:k])
			}
			return err
		}
		for _, step := range []struct {
			conn net.Conn
			head string
			ok   bool
		}{{idle, "GET /health", true}, {control, "POST /emulator/restart", true}, {idle, "GET /health", false}, {control, "GET /health", true}} {
			if err := ask(step.conn, step.head); (err == nil) != step.ok {
				t.Errorf("%s: %v", step.head, err)
			}
		}
		idle.Close()
		control.Close()
		synctest.Wait()
		s.connections.mu.Lock()
		if n := len(s.connections.open); n != 0 {
			t.Errorf("%d connections are still followed", n)
		}
		s.connections.mu.Unlock()
		stop()
		wg.Wait()
	})
}

func TestControl_RefusesNonsense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := controlled(t)
		for _, x := range []struct{ method, path, body, want string }{
			{"POST", "/emulator/fault", `{`, "unexpected EOF"},
			{"POST", "/emulator/fault", `{"kind":"hang"} {}`, "more than one JSON value"},
			{"POST", "/emulator/fault", `{"kynd":"hang"}`, "unknown field"},
			{"POST", "/emulator/fault", `{"kind":"smell"}`, `emulator: Fault.Kind is \"smell\"; allowed: hang, refuse, stall, reset, stream-error, or nothing`},
			{"POST", "/emulator/fault", `{"kind":"refuse","status":200}`, "Fault.Status is 200; allowed: 400 to 599"},
			{"POST", "/emulator/fault", `{"kind":"stall","after":-1}`, "Fault.After is -1; allowed: 0 or more"},
			{"POST", "/emulator/fault", `{"kind":"stall","calls":-1}`, "Fault.Calls is -1; allowed: 0 or more"},
			{"POST", "/emulator/slow", "", "invalid syntax"},
			{"POST", "/emulator/slow?factor=0", "", "factor is 0; allowed: above 0, at most 10000"},
			{"POST", "/emulator/sleep?level=3", "", "level is 3; allowed: 1 or 2"},
			{"POST", "/emulator/sleep?level=deep", "", "invalid syntax"},
			{"POST", "/emulator/restart?down=-1s", "", "down is -1s; allowed: 0s to 1h"},
			{"POST", "/emulator/restart?down=soon", "", "invalid duration"},
		} {
			if got := f.order(x.method, x.path, x.body, 400); !strings.Contains(got, x.want) {
				t.Errorf("%s %s: %s, want %s", x.path, x.body, got, x.want)
			}
		}
		f.order("PUT", "/emulator/fault", "", 405)
		f.stop()
		f.order("POST", "/emulator/wake", "", 400)
	})
}
