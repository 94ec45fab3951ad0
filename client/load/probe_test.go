package load

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/internal/testkit/memnet"
)

// comingUp is an endpoint that listens after four seconds and names a model four seconds
// later.
func comingUp(t *testing.T, check func(t *testing.T, target *Target, client *http.Client)) {
	synctest.Test(t, func(t *testing.T) {
		network, begun := memnet.New(), time.Now()
		server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case time.Since(begun) < 8*time.Second:
				w.WriteHeader(http.StatusServiceUnavailable)
			case r.URL.Path == "/v1/models":
				_, _ = io.WriteString(w, `{"data":[{"id":"llama"}]}`)
			default:
				whole(w, 0)
			}
		})}
		var serving sync.WaitGroup
		serving.Go(func() {
			time.Sleep(4 * time.Second)
			if l, err := network.Listen("a:80"); err == nil {
				_ = server.Serve(l)
			}
		})
		client := NewClient()
		client.Transport.(*http.Transport).DialContext = network.DialContext
		check(t, &Target{BaseURL: "http://a:80/v1", Backend: Backends()[2]}, client)
		client.CloseIdleConnections()
		time.Sleep(4 * time.Second)
		_ = server.Close()
		serving.Wait()
	})
}

func TestReady_WaitsForAModelToo(t *testing.T) {
	comingUp(t, func(t *testing.T, target *Target, client *http.Client) {
		if err := Ready(t.Context(), target, client, time.Minute, 0); err != nil || target.Model != "llama" {
			t.Errorf("model %q, %v", target.Model, err)
		}
	})
	comingUp(t, func(t *testing.T, target *Target, client *http.Client) {
		begun := time.Now()
		err := Ready(t.Context(), target, client, 6*time.Second, 0)
		if err == nil || !strings.Contains(err.Error(), "asking http://a:80/v1 for one failed: it does not answer within 6s: ") || !strings.Contains(err.Error(), "status 503") || time.Since(begun) != 6*time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
	comingUp(t, func(t *testing.T, target *Target, client *http.Client) {
		begun := time.Now()
		if err := Ready(t.Context(), target, client, 0, 0); err == nil || time.Since(begun) != 0 {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
}
