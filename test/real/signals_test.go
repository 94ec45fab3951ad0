package real

import (
	"context"
	"fmt"
	"testing"

	"kvasir/test/program"
)

// TestSignals_OfRealServersAreRead keeps one server busy from outside and waits for the
// gateway to know it from the server's own metrics.
func TestSignals_OfRealServersAreRead(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			engine, known := ofEngine(t, k)
			if !known {
				t.Skip("this kvasir does not read this server's metrics")
			}
			servers := addresses(t, 2)
			for _, s := range servers {
				k.start(t, s)
			}
			gateway := program.Serve(t, configuration("", engine+"    signals: {scrape: 100ms, max_age: 5s}\n", servers...))
			show := func(name string, running, waiting float64) func() bool {
				return func() bool {
					e := gateway.Endpoints(t, "tiny")[name]
					return e.Running != nil && *e.Running == running && e.Waiting != nil && *e.Waiting == waiting
				}
			}
			program.Eventually(t, "a idle", show("a", 0, 0))
			program.Eventually(t, "b idle", show("b", 0, 0))

			ctx, leave := context.WithCancel(t.Context())
			client := newClient(t)
			const calls = 3
			for i := range calls {
				go func() {
					_ = begin(ctx, client, "http://"+servers[0], fmt.Sprintf(k.endless, true, fmt.Sprint("mead ", i)), true)
				}()
			}
			if k.name == "llama.cpp" { // it has two slots
				program.Eventually(t, "a with two running and one waiting", show("a", 2, 1))
			} else {
				program.Eventually(t, "a with three running", show("a", 3, 0))
			}
			program.Eventually(t, "how full a is", func() bool {
				e := gateway.Endpoints(t, "tiny")["a"]
				return e.KVUsage != nil && *e.KVUsage > 0 && *e.KVUsage <= 1
			})
			if !show("b", 0, 0)() {
				t.Error("b is not idle")
			}
			leave()
			program.Eventually(t, "a idle again", show("a", 0, 0))
		})
	}
}
