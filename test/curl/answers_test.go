package curl

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"kvasir/internal/testkit/scripted"
	"kvasir/test/program"
)

func TestAnswer_Compressed(t *testing.T) {
	s := withEngines(t, "")
	s.ok(t, `curl -sS --compressed -d @chat.json -H 'Content-Type: application/json' $KVASIR/v1/chat/completions`).answered(t, "")
	s.ok(t, `curl -sS -N --compressed -d @stream.json -H 'Content-Type: application/json' $KVASIR/v1/chat/completions`).streamed(t, "")
	if r := s.ok(t, `curl -sS --compressed $KVASIR/v1/models`); !strings.Contains(r.out, `"id":"tiny"`) {
		t.Errorf("models are %s", r.out)
	}
	if r := s.ok(t, `curl -sS --compressed $ADMIN/metrics`); !strings.Contains(r.out, "kvasir_calls_total{") {
		t.Errorf("metrics are %s", r.out)
	}
}

// TestAnswer_CompressedUnasked: an endpoint that compresses whatever it was asked for. What
// curl gets it can read.
func TestAnswer_CompressedUnasked(t *testing.T) {
	const event = `data: {"id":"c","choices":[{"index":0,"delta":{"content":"mead"},"finish_reason":%s}]}` + "\n\n"
	s, _ := withScript(t, "", func(c *scripted.Call) {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if !bytes.Contains(c.Record().Body, []byte(`"stream":true`)) {
			fmt.Fprint(w, `{"choices":[{"message":{"content":"mead"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
			_ = w.Close() // to memory
			c.Reply(200, "application/json", b.String(), "Content-Encoding: gzip")
			return
		}
		c.Head(200, "Content-Type: text/event-stream", "Transfer-Encoding: chunked", "Content-Encoding: gzip")
		for _, finish := range []string{"null", "null", `"stop"`} {
			fmt.Fprintf(w, event, finish)
			_ = w.Flush() // to memory
			_ = c.Chunk(b.String())
			b.Reset()
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
		_ = w.Close() // to memory
		_ = c.Chunk(b.String())
		c.LastChunk()
	})
	s.ok(t, `curl -sS --compressed -d @chat.json -H 'Content-Type: application/json' $KVASIR/v1/chat/completions`).answered(t, "")
	s.ok(t, `curl -sS -N --compressed -d @stream.json -H 'Content-Type: application/json' $KVASIR/v1/chat/completions`).streamed(t, "")
}

// TestAnswer_EventsComeAtOnce reads what curl prints while the engine has stopped in the
// middle of the answer: nothing that follows can have pushed it out.
func TestAnswer_EventsComeAtOnce(t *testing.T) {
	needCurl(t, 0, 0)
	for name, line := range map[string]string{
		"HTTP/1.1":   `exec curl -sS -N -d @stream.json -H 'Content-Type: application/json' $KVASIR/v1/chat/completions`,
		"HTTP/1.0":   `exec curl -sS -N --http1.0 -d @stream.json -H 'Content-Type: application/json' $KVASIR/v1/chat/completions`,
		"HTTP/2":     `exec curl -sS -N --http2-prior-knowledge -d @stream.json -H 'Content-Type: application/json' $KVASIR/v1/chat/completions`,
		"compressed": `exec curl -sS -N --compressed -d @stream.json -H 'Content-Type: application/json' $KVASIR/v1/chat/completions`,
	} {
		t.Run(name, func(t *testing.T) {
			if name == "HTTP/2" {
				needFeature(t, "HTTP2")
			}
			engine := program.Engine(t, "--model", "tiny", "--control")
			s := serve(t, "client: {heartbeat: 0s}\n", engine) // which would push it out, too
			post(t, engine+"/emulator/fault", `{"kind":"stall","after":3}`)
			cmd := s.command(t, line)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
			defer timer.Stop()
			contents := 0
			for lines := bufio.NewScanner(out); contents < 3 && lines.Scan(); {
				if strings.Contains(lines.Text(), `"content":"`) && !strings.Contains(lines.Text(), `"content":""`) {
					contents++
				}
			}
			if contents < 3 {
				t.Errorf("%d of 3 contents came", contents)
			}
			if n := s.gateway.Metric(t, "kvasir_in_flight"); n != 1 {
				t.Errorf("%v calls are in flight, want 1", n)
			}
			_ = cmd.Process.Kill() // curl is left waiting on purpose
			_ = cmd.Wait()
			program.Eventually(t, "nothing is in flight", func() bool {
				return s.gateway.Metric(t, "kvasir_in_flight") == 0 && s.gateway.Metric(t, "kvasir_calls_total", `outcome="client_gone"`) == 1
			})
		})
	}
}

func post(t *testing.T, url, body string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("POST %s: status %d", url, resp.StatusCode)
	}
}

// TestAnswer_ReadSlowly: a client that reads slowly, and steadily, gets all, though it takes
// longer than one write may. curl keeps to its rate by long pauses after what it found in
// the socket's buffers; the write timeout is above those and well below the whole.
func TestAnswer_ReadSlowly(t *testing.T) {
	const events, size = 2000, 16 << 10
	event := fmt.Sprintf("data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"},\"finish_reason\":null}]}\n\n", strings.Repeat("m", size))
	for name, line := range map[string]string{
		"HTTP/1.1": `curl -sS -N --limit-rate 4M -d @stream.json -H 'Content-Type: application/json' -o out $KVASIR/v1/chat/completions`,
		"HTTP/2":   `curl -sS -N --limit-rate 4M --http2-prior-knowledge -d @stream.json -H 'Content-Type: application/json' -o out $KVASIR/v1/chat/completions`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "HTTP/2" {
				needFeature(t, "HTTP2")
			}
			s, _ := withScript(t, "client: {write_timeout: 4s}\n", func(c *scripted.Call) {
				c.EventStream()
				for range events {
					if c.Chunk(event) != nil {
						return
					}
				}
				_ = c.Chunk("data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
				c.LastChunk()
			})
			s.ok(t, line)
			got := s.read(t, "out")
			if n := strings.Count(got, event); n != events || !strings.HasSuffix(got, "data: [DONE]\n\n") {
				t.Errorf("%d of %d events came in %d bytes", n, events, len(got))
			}
		})
	}
}
