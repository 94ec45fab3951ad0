package real

import (
	"fmt"
	"strings"
	"testing"

	"kvasir/test/program"
)

// TestKill_WhenAServerDies_OnlyBegunStreamsAreCut kills one of two servers in mid-traffic and
// starts it again at the same address. Calls that wait for their first content go to the
// other, those that have some get an error event, and the server that came back gets calls.
func TestKill_WhenAServerDies_OnlyBegunStreamsAreCut(t *testing.T) {
	// A stream is long enough for the kill to meet some, and short enough to see many end.
	bodies := map[string]string{
		"llama.cpp": `{"model":"tiny","stream":true,"max_tokens":400,"ignore_eos":true,"messages":[{"role":"user","content":"mead %d %d"}]}`,
		"uvicorn":   `{"model":"tiny","stream":true,"tokens":100,"pause":0.002,"messages":[{"role":"user","content":"mead %d %d"}]}`,
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			servers := addresses(t, 2)
			victim := k.start(t, servers[0])
			k.start(t, servers[1])
			engine, _ := ofEngine(t, k)
			gateway := program.Serve(t, configuration("health: {ejection: 300ms}\n", engine+"    policy: least-outstanding\n", servers...))
			f := newTraffic(t, gateway.Base, 8, func(worker, call int) string { return fmt.Sprintf(bodies[k.name], worker, call) })

			state := func() program.Endpoint { return gateway.Endpoints(t, "tiny")["a"] }
			program.Eventually(t, "both servers answer", func() bool { return f.answered("a") > 3 && f.answered("b") > 3 })
			program.Eventually(t, "the victim has calls", func() bool { return state().InFlight >= 3 })
			victim.Kill()
			before := f.count(whole)
			program.Eventually(t, "the dead server is out of rotation", func() bool { return state().State != "in_rotation" })
			program.Eventually(t, "the other one answers", func() bool { return f.count(whole) > before+20 })

			k.start(t, servers[0])
			program.Eventually(t, "the server is in rotation again", func() bool { return state().State == "in_rotation" })
			returned := f.answered("a")
			program.Eventually(t, "it answers", func() bool { return f.answered("a") > returned+5 })
			f.stop()

			t.Logf("%d calls whole, %d cut by the kill, %d failed", f.count(whole), f.count(cut), f.count(failed))
			if n := f.count(failed); n > 0 {
				t.Errorf("%d calls failed before content or without an error event:\n%s", n, strings.Join(f.wrong, "\n"))
			}
			if n := f.count(cut); n > 8 {
				t.Errorf("%d calls were cut by one kill of a server under 8 clients", n)
			}
			program.Eventually(t, "nothing is in flight", func() bool { return gateway.Metric(t, "kvasir_in_flight") == 0 })
		})
	}
}
