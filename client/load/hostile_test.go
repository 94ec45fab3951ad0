package load

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/client/load/report"
	"kvasir/internal/testkit/memnet"
)

// What is no chunk is no output, and is counted.
func TestBench_MalformedEventsAreNoOutputs(t *testing.T) {
	bad := []string{"{not json", "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\xff\"}}]}", "hello", `"text"`, `[1]`, wordChunk + "}"}
	r, err := measureIn(t, func(w http.ResponseWriter, _ *http.Request) {
		var events []event
		for _, data := range bad {
			events = append(events, event{10 * time.Millisecond, data})
		}
		sayEvents(w, append(events, event{100 * time.Millisecond, wordChunk}, event{150 * time.Millisecond, "[DONE]"})...)
	}, Bench{Source: calls(2), Arrivals: every(time.Second)})
	if err != nil || r.Completed != 2 || r.BadEvents != 2*len(bad) || r.StreamedOutputs != 2 {
		t.Errorf("%v: %d completed, %d bad events, %d outputs", err, r.Completed, r.BadEvents, r.StreamedOutputs)
	}
	is(t, "TTFT", r.TTFT.Actual.Max(), 100*time.Millisecond)
	var table strings.Builder
	if err := r.Table(&table); err != nil || !strings.Contains(table.String(), "Bad events, which are no outputs:                 12\n") {
		t.Errorf("%v\n%s", err, table.String())
	}
	if text, err := r.JSON(); err != nil || !strings.Contains(string(text), `"bad_events":12`) && !strings.Contains(string(text), `"bad_events": 12`) {
		t.Errorf("%v\n%s", err, text)
	}

	r, _ = measureIn(t, func(w http.ResponseWriter, _ *http.Request) {
		sayEvents(w, event{0, "{not json"}, event{0, "[DONE]"})
	}, Bench{Source: calls(1)})
	if r.Failed != 1 || r.Failures[0].Kind != report.Empty || r.BadEvents != 1 {
		t.Errorf("an answer of nothing else: %+v, %d bad events", r.Failures, r.BadEvents)
	}
}

// The status says what a call failed of, however long its words take.
func TestBench_AStatusWhoseBodyHangsIsThatStatus(t *testing.T) {
	for _, timeout := range []time.Duration{0, 500 * time.Millisecond, time.Minute} {
		r, _ := measureIn(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, "out of ")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, Bench{Source: calls(1), Timeout: timeout})
		if r.Failed != 1 || r.Failures[0].Kind != "http_500" || r.Failures[0].Example != "out of" || r.Duration > lingering+time.Millisecond {
			t.Errorf("timeout %v: %+v after %v", timeout, r.Failures, r.Duration)
		}
	}
}

// What a server says does nothing to a terminal, and a redirect says where to.
func TestBench_WordsOfAServerArePrintable(t *testing.T) {
	n := 0
	r, _ := measureIn(t, func(w http.ResponseWriter, r *http.Request) {
		n++
		switch n {
		case 1:
			http.Error(w, "\x1b[2Jgone\x00\nand \xff away\u202e", 500)
		case 2:
			w.Header().Set("Location", "https://b/\u202ex")
			w.WriteHeader(http.StatusTemporaryRedirect)
		case 3:
			sayEvents(w, event{0, "{\"error\":{\"message\":\"\x1b[31m\"}}"})
		default:
			w.WriteHeader(http.StatusBadGateway)
		}
	}, Bench{Source: calls(4), Arrivals: every(time.Second)})
	want := map[report.Failure]string{
		"http_500": `\x1b[2Jgone\x00 and ` + "\uFFFD" + ` away\u202e`, "http_307": `redirect to https://b/\u202ex`,
		report.StreamError: `{"error":{"message":"\x1b[31m"}}`, "http_502": "no words",
	}
	for _, f := range r.Failures {
		if f.Example != want[f.Kind] {
			t.Errorf("%s says %q, want %q", f.Kind, f.Example, want[f.Kind])
		}
	}
	if len(r.Failures) != len(want) {
		t.Errorf("failures %+v", r.Failures)
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b[0m\n\xff")
	f.Fuzz(func(t *testing.T, s string) {
		p := printable(s)
		if strings.ContainsFunc(p, func(c rune) bool { return c < ' ' || 0x7f <= c && c < 0xa0 }) || printable(p) != p {
			t.Errorf("%q becomes %q", s, p)
		}
	})
}

// The header Host is the request's host, which net/http takes from elsewhere.
func TestBench_TheHostIsAHeader(t *testing.T) {
	hosts := make(chan string, 1)
	target := &Target{Backend: Backends()[2], Header: http.Header{"Host": {"b.example:81"}}}
	_, _ = measureIn(t, func(w http.ResponseWriter, r *http.Request) {
		hosts <- r.Host
		whole(w, 0)
	}, Bench{Target: target, Source: calls(1)})
	if host := <-hosts; host != "b.example:81" {
		t.Errorf("the host is %q", host)
	}
}

// A server that says nothing keeps nobody longer than the bound on a call, nor after an
// interruption.
func TestSilentServer_AskingEnds(t *testing.T) {
	const timeout = 2 * time.Second
	type asking = func(ctx context.Context, target *Target, client *http.Client, timeout time.Duration) error
	for what, ask := range map[string]asking{
		"warm-up": func(ctx context.Context, target *Target, client *http.Client, timeout time.Duration) error {
			target.Model = "m"
			if err := target.Prepare(); err != nil {
				return err
			}
			return (&Bench{Target: target, Client: client, Source: calls(3), Timeout: timeout}).WarmUp(ctx, 3)
		},
		"model": func(ctx context.Context, target *Target, client *http.Client, timeout time.Duration) error {
			return Ready(ctx, target, client, 0, timeout)
		},
		"metrics": func(ctx context.Context, target *Target, client *http.Client, _ time.Duration) error {
			_, err := ReadTimings(ctx, client, []string{target.BaseURL})
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			network := memnet.New()
			l, err := network.Listen("a:80")
			if err != nil {
				t.Fatal(err)
			}
			server := http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
			})}
			var serving sync.WaitGroup
			serving.Go(func() { _ = server.Serve(l) })
			client := NewClient()
			client.Transport.(*http.Transport).DialContext = network.DialContext
			target := func() *Target { return &Target{BaseURL: "http://a:80", Backend: Backends()[2]} }

			begun := time.Now()
			if err := ask(t.Context(), target(), client, timeout); err == nil || time.Since(begun) != timeout && !(what == "metrics" && time.Since(begun) == 5*time.Second) {
				t.Errorf("%s: %v after %v", what, err, time.Since(begun))
			}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			begun = time.Now()
			if err := ask(ctx, target(), client, 0); !errors.Is(err, context.Canceled) || time.Since(begun) != time.Second {
				t.Errorf("%s, interrupted: %v after %v", what, err, time.Since(begun))
			}
			client.CloseIdleConnections()
			_ = server.Close()
			serving.Wait()
		})
	}
}
