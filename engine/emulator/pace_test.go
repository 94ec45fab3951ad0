package emulator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/engine"
	"kvasir/engine/tokenizer"
	"kvasir/internal/mono"
)

// The stream of a call has the bytes that the call without stream has, in pieces, and its
// events come at the instants at which an engine alone gives the tokens.
func TestServer_StreamsAtTheEnginesInstants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(t)
		c.Engine.MaxSeqs, c.Engine.MaxBatchedTokens = 4, 256
		f := start(t, c)
		const calls = 24
		bodies, sent, got := make([]string, calls), make([]mono.Time, calls), make([]reading, calls)
		var wg sync.WaitGroup
		for i := range calls {
			bodies[i] = chatBody(strings.Repeat("words that some calls share ", 3*(i%5)), fmt.Sprintf(`,"max_tokens":%d,"stream":true`, 3+i*2))
			sent[i] = mono.Time(i)*mono.Time(3*time.Millisecond) + mono.Time(i*i*i%1009)
			wg.Go(func() {
				time.Sleep(sent[i].Duration() - f.now().Duration())
				var err error
				if got[i], err = f.stream(bodies[i]); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()

		// The same commands, without clock or network.
		c.Engine.EveryToken = true
		e, err := engine.New(c.Engine)
		if err != nil {
			t.Fatal(err)
		}
		want := map[engine.ID][]mono.Time{}
		collect := func(out []engine.Output) {
			for _, o := range out {
				want[o.ID] = append(want[o.ID], o.At)
			}
		}
		for i := range calls {
			call, err := tokenizer.Read(tokenizer.Chat, []byte(bodies[i]), c.Limits())
			if err != nil {
				t.Fatal(err)
			}
			q := call.Items[0].Request
			q.ID = engine.ID(i)
			collect(e.Advance(sent[i]))
			if err := e.Submit(sent[i], q); err != nil {
				t.Fatal(err)
			}
		}
		for at, ok := e.Next(); ok; at, ok = e.Next() {
			collect(e.Advance(at))
		}
		for i := range calls {
			call, _ := tokenizer.Read(tokenizer.Chat, []byte(bodies[i]), c.Limits())
			if text := call.Items[0].Answer.Text(); got[i].text != text {
				t.Fatalf("call %d says %q, want %q", i, got[i].text, text)
			}
			// The role's event comes with the first token, the end with the last.
			expected := want[engine.ID(i)]
			expected = slices.Concat(expected[:1], expected, expected[len(expected)-1:])
			if !slices.Equal(got[i].at, expected) {
				t.Fatalf("call %d: events at %v, want %v", i, got[i].at, expected)
			}
		}
		if s := f.server.Stats(); s != e.Stats() {
			t.Errorf("stats %+v, want %+v", s, e.Stats())
		}
	})
}

func TestServer_WhenAConversationGoesOn_ItsPromptIsCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, testConfig(t))
		system := strings.Repeat("You are terse. ", 40)
		first := fmt.Sprintf(`{"messages":[{"role":"system","content":%q},{"role":"user","content":"one"}],"max_tokens":200,"stream":true,"stream_options":{"include_usage":true}}`, system)
		a, err := f.stream(first)
		if err != nil {
			t.Fatal(err)
		}
		second := fmt.Sprintf(`{"messages":[{"role":"system","content":%q},{"role":"user","content":"one"},{"role":"assistant","content":%q},{"role":"user","content":"two"}],"max_tokens":5,"stream":true,"stream_options":{"include_usage":true}}`, system, a.text)
		b, err := f.stream(second)
		if err != nil {
			t.Fatal(err)
		}
		held := a.last.Usage.PromptTokens + a.last.Usage.CompletionTokens
		// The last token of an answer has no KV.
		if got, want := b.last.Usage.Details.CachedTokens, (held-1)/16*16; got != want || a.last.Usage.Details.CachedTokens != 0 {
			t.Errorf("%d of the first turn's %d tokens are cached, want %d", got, held, want)
		}
		if _, body := f.do("/v1/chat/completions", strings.Replace(second, `"stream":true,"stream_options":{"include_usage":true}`, `"cache_salt":"other"`, 1)); !strings.Contains(body, `"cached_tokens":0,`) {
			t.Errorf("another salt finds cached tokens: %s", body)
		}
	})
}

func TestServer_WhenTheClientLeaves_ItsPlaceIsFree(t *testing.T) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("stream=%v", stream), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := testConfig(t)
				c.Engine.MaxSeqs = 1
				f := start(t, c)
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() {
					r, err := f.post(ctx, "/v1/chat/completions", chatBody("long", fmt.Sprintf(`,"max_tokens":4000,"ignore_eos":true,"stream":%v`, stream)))
					if err == nil {
						_, err = io.Copy(io.Discard, r.Body)
						r.Body.Close()
					}
					if !errors.Is(err, context.Canceled) {
						t.Errorf("the call ended with %v", err)
					}
				})
				time.Sleep(50 * time.Millisecond)
				var end mono.Time
				wg.Go(func() {
					if got, err := f.stream(chatBody("short", `,"max_tokens":1,"stream":true`)); err != nil || len(got.event) != 3 {
						t.Errorf("%q, %v", got.event, err)
					}
					end = f.now()
				})
				time.Sleep(450 * time.Millisecond)
				if s := f.server.Stats(); s.Running != 1 || s.Waiting != 1 {
					t.Errorf("%d running and %d waiting, want 1 and 1", s.Running, s.Waiting)
				}
				cancel()
				wg.Wait()
				synctest.Wait()
				if limit := mono.Time(530 * time.Millisecond); end > limit {
					t.Errorf("the waiting call ended at %v, want before %v", end.Duration(), limit.Duration())
				}
				if s := f.server.Stats(); s.Running != 0 || s.FreeBlocks != s.TotalBlocks || s.Finished[engine.Abort] != 1 || s.Finished[engine.Length] != 1 {
					t.Errorf("%+v", s)
				}
				if len(f.server.ranks[0].requests) != 0 {
					t.Error("the call is still known")
				}
			})
		})
	}
}

// A client that does not read holds up neither the engine nor anybody else, and gets its
// whole answer when it does read, the tokens that came meanwhile in few events.
func TestServer_WhenAClientDoesNotRead_OthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, testConfig(t))
		const tokens = 6000
		slow, err := f.post(t.Context(), "/v1/chat/completions", chatBody("slow", fmt.Sprintf(`,"max_tokens":%d,"ignore_eos":true,"stream":true`, tokens)))
		if err != nil {
			t.Fatal(err)
		}
		defer slow.Body.Close()
		if got, err := f.stream(chatBody("quick", `,"max_tokens":1000,"ignore_eos":true,"stream":true`)); err != nil || len(got.event) != 1002 {
			t.Fatalf("%d events, %v", len(got.event), err)
		}
		time.Sleep(10 * time.Minute)
		if s := f.server.Stats(); s.Running != 0 || s.GenerationTokens != tokens+1000 {
			t.Fatalf("the engine waits for a client: %+v", s)
		}
		got, err := f.read(slow)
		if err != nil || len(got.text) != 4*tokens || got.event[len(got.event)-1] != "[DONE]" {
			t.Fatalf("%d bytes of text, %v", len(got.text), err)
		}
		if len(got.event) > tokens/2 {
			t.Errorf("%d events; those of a full connection should be one", len(got.event))
		}
	})
}

func TestServer_WhenIDsCollide_BothAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, testConfig(t))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if got, err := f.stream(chatBody("x", `,"max_tokens":20,"ignore_eos":true,"stream":true`), "X-Request-Id", "same"); err != nil || len(got.event) != 22 {
					t.Errorf("%d events, %v", len(got.event), err)
				}
			})
		}
		wg.Wait()
	})
}

// At speed s everything takes the s-th part of the time, to the nanosecond.
func TestServer_Speed(t *testing.T) {
	var took [2]time.Duration
	for i, speed := range []float64{1, 8} {
		synctest.Test(t, func(t *testing.T) {
			c := testConfig(t)
			c.Speed = speed
			f := start(t, c)
			if _, err := f.stream(chatBody("x", `,"max_tokens":100,"ignore_eos":true,"stream":true`)); err != nil {
				t.Fatal(err)
			}
			took[i] = time.Since(f.epoch)
		})
	}
	if d := took[1] - (took[0]+7)/8; d < -1 || d > 1 {
		t.Errorf("%v at speed 1, %v at speed 8", took[0], took[1])
	}
}
