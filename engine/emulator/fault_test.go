package emulator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// Each fault ends a call as it says, after the number of tokens that the draw says.
func TestFaults_EndACallAsTheySay(t *testing.T) {
	const tokens = 20
	for _, x := range []struct {
		name   string
		faults Faults
		kind   faultKind
	}{
		{"error", Faults{Error: 1}, refuseFault}, {"overload", Faults{Overload: 1}, refuseFault}, {"limit", Faults{Limit: 1}, refuseFault}, {"stall", Faults{Stall: 1}, stallFault},
		{"reset", Faults{Reset: 1}, resetFault}, {"stream error", Faults{StreamError: 1}, streamErrorFault},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := testConfig(t)
				c.Faults = x.faults
				f := start(t, c)
				early := 0
				for i := range 12 {
					id := fmt.Sprint("call ", i)
					want := c.Faults.draw(c.Seed, id, tokens)
					if want.kind != x.kind {
						t.Fatalf("drew %+v", want)
					}
					if want.after == 0 {
						early++
					}
					checkFault(t, f, id, tokens, want)
				}
				if early == 0 || early == 12 {
					t.Errorf("%d of 12 faults come before the first token", early)
				}
			})
		})
	}
}

// checkFault makes one call as a stream and one that is none.
func checkFault(t *testing.T, f *fixture, id string, tokens int, want fault) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	body := chatBody(id, fmt.Sprintf(`,"max_tokens":%d,"ignore_eos":true,"stream":true`, tokens))
	r, err := f.post(ctx, "/v1/chat/completions", body, "X-Request-Id", id)
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.read(r)
	r.Body.Close()
	status := 200
	switch want.kind {
	case refuseFault:
		status = want.refusal.Status
	case stallFault:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stalled stream: %v", err)
		}
	case resetFault:
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("reset stream: %v", err)
		}
	case streamErrorFault:
		const event = `{"error": {"message": "Internal server error", "type": "InternalServerError", "param": null, "code": 500}}`
		if n := len(got.event); err != nil || n < 2 || got.event[n-2] != event || got.event[n-1] != "[DONE]" {
			t.Errorf("failed stream: %q, %v", got.event, err)
		}
	}
	if r.StatusCode != status {
		t.Errorf("status %d, want %d", r.StatusCode, status)
	}
	if status == 200 && len(got.text) != 4*want.after {
		t.Errorf("%d tokens came, want %d", len(got.text)/4, want.after)
	}

	ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	r, err = f.post(ctx, "/v1/chat/completions", strings.Replace(body, `"stream":true`, `"stream":false`, 1), "X-Request-Id", id)
	switch want.kind {
	case stallFault:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stalled answer: %v", err)
		}
	case resetFault:
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("reset answer: %v", err)
		}
	default:
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		wanted := status
		if status == 200 {
			wanted = 500 // the error that ends a stream is the whole answer of one that is none
		}
		if r.StatusCode != wanted || !strings.Contains(string(body), fmt.Sprintf(`"code":%d`, wanted)) {
			t.Errorf("%d %s, want %d", r.StatusCode, body, wanted)
		}
	}
}

// Faults come as often as their rates say, and an id always meets the same one.
func TestFaults_DrawKeepsTheRates(t *testing.T) {
	const n = 20000
	f := Faults{Error: 0.1, Overload: 0.05, Limit: 0.03, Stall: 0.02, Reset: 0.2, StreamError: 0}
	counts := map[fault]int{}
	for i := range n {
		id := fmt.Sprint(i)
		drawn := f.draw(1, id, 50)
		if drawn != f.draw(1, id, 50) {
			t.Fatalf("call %s met two faults", id)
		}
		if drawn.kind != noFault && drawn.after >= 50 {
			t.Fatalf("a fault after %d of 50 tokens", drawn.after)
		}
		drawn.after = 0
		counts[drawn]++
	}
	for _, p := range f.list() {
		if got := float64(counts[p.fault]) / n; got < p.rate*0.9 || got > p.rate*1.1 {
			t.Errorf("%s: rate %v, want %v", p.name, got, p.rate)
		}
	}
	differ := 0
	for i := range 100 {
		if f.draw(1, fmt.Sprint(i), 50) != f.draw(2, fmt.Sprint(i), 50) {
			differ++
		}
	}
	if differ == 0 {
		t.Error("two seeds give the same faults")
	}
}

func TestFaults_AreThoseOfAnEmbeddingToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(t)
		c.Faults.StreamError = 1
		f := start(t, c)
		if status, body := f.do("/v1/embeddings", `{"input":"x"}`); status != 500 {
			t.Errorf("%d %s", status, body)
		}
	})
}

// A call that is tried again at the same engine meets the same fault, unless faults are drawn
// afresh.
func TestFaults_Afresh(t *testing.T) {
	for _, afresh := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := testConfig(t)
			c.Faults = Faults{Limit: 0.5, Afresh: afresh}
			f := start(t, c)
			seen := map[int]bool{}
			for range 16 {
				r, err := f.post(t.Context(), "/v1/chat/completions", chatBody("again", `,"max_tokens":1`), "X-Request-Id", "again")
				if err != nil {
					t.Fatal(err)
				}
				r.Body.Close()
				seen[r.StatusCode] = true
				if r.StatusCode == 429 && r.Header.Get("Retry-After") != "1" {
					t.Errorf("Retry-After is %q", r.Header.Get("Retry-After"))
				}
			}
			if want := map[bool]int{false: 1, true: 2}[afresh]; len(seen) != want {
				t.Errorf("afresh %v: statuses %v", afresh, seen)
			}
		})
	}
}
