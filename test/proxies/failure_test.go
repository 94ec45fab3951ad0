package proxies

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"kvasir/test/program"
)

// TestFailure_OfAProxysEngineIsRetriedElsewhere has a proxy whose engine is not there beside
// an engine that is. nginx says 502 then, and HAProxy 503.
func TestFailure_OfAProxysEngineIsRetriedElsewhere(t *testing.T) {
	for name, start := range map[string]start{"nginx": nginx, "haproxy": haproxy} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program.Installed(t, "proxies")
			e := newEngine(t)
			proxy := start(t, program.FreeAddress(t))
			gateway := program.Serve(t, fmt.Sprintf("retry: {floor: 100}\nmodels:\n  tiny:\n    policy: round-robin\n    endpoints: [{name: dead, url: \"http://%s\"}, {name: alive, url: \"http://%s\"}]\n    signals: {scrape: 0s, max_age: 0s}\n", proxy, e.address))
			client := newClient(t)
			const calls = 40
			for n := range calls {
				stream := n%2 == 1
				mode := map[bool]string{true: "steps", false: "whole"}[stream]
				resp, err := call(t, t.Context(), client, gateway.Base, ask(mode, stream))
				if err != nil {
					t.Fatal(err)
				}
				if stream && resp.StatusCode == http.StatusOK {
					confirm(e, steps)
				}
				b, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("x-kvasir-endpoint") != "alive" {
					t.Errorf("call %d: status %d from %q, %v: %.200s", n, resp.StatusCode, resp.Header.Get("x-kvasir-endpoint"), err, b)
				}
			}
			if n := e.calls.Load(); n != calls {
				t.Errorf("the engine got %d calls for %d", n, calls)
			}
			if n := gateway.Endpoints(t, "tiny")["dead"].Sent; n == 0 {
				t.Error("the dead one was never asked")
			}
		})
	}
}

// TestFailure_OfAProxysOnlyEngineKeepsItsStatus has nobody else to ask.
func TestFailure_OfAProxysOnlyEngineKeepsItsStatus(t *testing.T) {
	for _, p := range []struct {
		name   string
		start  start
		status int
	}{{"nginx", nginx, http.StatusBadGateway}, {"haproxy", haproxy, http.StatusServiceUnavailable}} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			program.Installed(t, "proxies")
			gateway := program.Serve(t, fmt.Sprintf("models: {tiny: [\"http://%s\"]}\n", p.start(t, program.FreeAddress(t))))
			resp, err := call(t, t.Context(), newClient(t), gateway.Base, ask("steps", true))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != p.status {
				b, _ := io.ReadAll(resp.Body)
				t.Errorf("status %d, want %d: %s", resp.StatusCode, p.status, b)
			}
		})
	}
}
