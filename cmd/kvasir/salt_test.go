package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// emulated runs `kvasir engine` and returns its address.
func emulated(t *testing.T, args ...string) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	read, write := io.Pipe()
	var running sync.WaitGroup
	running.Go(func() {
		if code := runEngine(ctx, engineEnv(write, io.Discard), append([]string{"--listen", "127.0.0.1:0"}, args...)); code != 0 {
			t.Errorf("kvasir engine: exit code %d", code)
		}
		write.Close()
	})
	t.Cleanup(func() { stop(); running.Wait() })
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, base, _ := strings.Cut(strings.TrimSpace(line), " at ")
	return strings.TrimSuffix(base, "/v1")
}

// served runs `kvasir serve` and returns the clients' address.
func served(t *testing.T, configuration string, variables map[string]string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kvasir.yaml")
	write(t, file, []byte("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n"+configuration))
	ctx, stop := context.WithCancel(context.Background())
	var log lockedBuffer
	env := environment{stdout: &log, stderr: &log, getenv: func(name string) string { return variables[name] }}
	ended := make(chan int, 1)
	go func() { ended <- runServe(ctx, env, []string{"--config", file}) }()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != 0 {
			t.Errorf("kvasir serve: exit code %d\n%s", code, log.String())
		}
	})
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		for line := range strings.Lines(log.String()) {
			var l struct{ Msg, Listen string }
			if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "serving" {
				return "http://" + l.Listen
			}
		}
		if time.Now().After(end) {
			t.Fatalf("it does not serve:\n%s", log.String())
		}
	}
}

// TestSalt_OverSockets has two clients of a gateway send one prompt to an emulated engine,
// on every route, and the engine tell how much of it was cached: what one client has sent is
// found for the other one without a salt, and for nobody else with it.
func TestSalt_OverSockets(t *testing.T) {
	keys := map[string]string{}
	var clients strings.Builder
	clients.WriteString("clients:\n  keys:\n")
	for _, name := range []string{"a", "b"} {
		keys[name] = "key-of-" + name
		fmt.Fprintf(&clients, "    - {name: %s, sha256: %x}\n", name, sha256.Sum256([]byte(keys[name])))
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	text := strings.Repeat("what one client has sent ", 60)
	routes := map[string]string{
		"/v1/chat/completions": fmt.Sprintf(`{"model":"m","max_tokens":1,EXTRA"messages":[{"role":"user","content":%q}]}`, text),
		"/v1/completions":      fmt.Sprintf(`{"model":"m","max_tokens":1,EXTRA"prompt":%q}`, text),
		"/v1/responses":        fmt.Sprintf(`{"model":"m","max_output_tokens":16,EXTRA"input":%q}`, text),
		"/v1/messages":         fmt.Sprintf(`{"model":"m","max_tokens":1,EXTRA"messages":[{"role":"user","content":%q}]}`, text),
	}
	for _, salted := range []bool{false, true} {
		for route, body := range routes {
			t.Run(fmt.Sprintf("%v %s", salted, route), func(t *testing.T) {
				configuration := clients.String() + fmt.Sprintf("models: {m: [%q]}\n", emulated(t, "--model", "m", "--speed", "50"))
				if salted {
					configuration = "prefix: {salt: env:SALT}\n" + configuration
				}
				gateways := [2]string{}
				for i := range gateways {
					gateways[i] = served(t, configuration, map[string]string{"SALT": "the-gateways-own-secret"})
				}
				cached := func(gateway int, name, extra string) int {
					t.Helper()
					r, err := http.NewRequest(http.MethodPost, gateways[gateway]+route, strings.NewReader(strings.Replace(body, "EXTRA", extra, 1)))
					if err != nil {
						t.Fatal(err)
					}
					r.Header.Set("Content-Type", "application/json")
					r.Header.Set("Authorization", "Bearer "+keys[name])
					resp, err := client.Do(r)
					if err != nil {
						t.Fatal(err)
					}
					answer, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					var said struct {
						Usage struct {
							Prompt struct {
								Cached int `json:"cached_tokens"`
							} `json:"prompt_tokens_details"`
							Input struct {
								Cached int `json:"cached_tokens"`
							} `json:"input_tokens_details"`
							Messages int `json:"cache_read_input_tokens"`
						}
					}
					if err != nil || resp.StatusCode != http.StatusOK || json.Unmarshal(answer, &said) != nil {
						t.Fatalf("%d %s, %v", resp.StatusCode, answer, err)
					}
					return said.Usage.Prompt.Cached + said.Usage.Input.Cached + said.Usage.Messages
				}
				if n := cached(0, "a", ""); n != 0 {
					t.Errorf("%d tokens of what nobody sent", n)
				}
				all := cached(1, "a", "")
				if all < 100 {
					t.Errorf("a client finds %d tokens of its own, by another gateway", all)
				}
				if n := cached(0, "b", ""); (n == all) == salted || salted && n != 0 {
					t.Errorf("another client finds %d tokens of %d", n, all)
				}
				own := cached(0, "a", `"cache_salt":"a's own",`)
				again := cached(1, "a", `"cache_salt":"a's own",`)
				other := cached(0, "b", `"cache_salt":"a's own",`)
				if own != 0 || again != all || (other == all) == salted || salted && other != 0 {
					t.Errorf("with a salt of its own a client finds %d, then %d tokens, another one with the same salt %d", own, again, other)
				}
			})
		}
	}
}
