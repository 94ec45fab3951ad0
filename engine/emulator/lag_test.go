package emulator

import (
	"encoding/json"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/internal/mono"
)

// Run is kept from its work for 50 ms while a step of a few milliseconds ends; but for that
// it is never late, since time in the bubble waits for it.
func TestLag_IsWhatRunWasKeptFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := controlled(t)
		shown := func() (lag Lag) {
			t.Helper()
			if err := json.Unmarshal([]byte(f.order("GET", "/emulator/lag", "", 200)), &lag); err != nil {
				t.Fatal(err)
			}
			return lag
		}
		call := func() {
			r, err := f.post(t.Context(), "/v1/completions", short)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, r.Body)
			r.Body.Close()
		}
		if lag := shown(); lag != (Lag{}) {
			t.Errorf("before any work: %+v", lag)
		}
		call()
		punctual := shown()
		if punctual.Wakes == 0 || punctual.Max != 0 {
			t.Errorf("on an idle machine: %+v", punctual)
		}
		const held = 50 * time.Millisecond
		ended := make(chan struct{})
		go func() { call(); close(ended) }()
		synctest.Wait() // the call's first step is under way
		f.server.do(t.Context(), func(mono.Time) { time.Sleep(held) })
		<-ended
		late := shown()
		if late.Max <= 0 || late.Max >= held.Seconds() || late.Wakes <= punctual.Wakes {
			t.Errorf("after Run was held for %v: %+v", held, late)
		}
		if _, err := f.server.Lag(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
