package load

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestTimings_AreTheRunsMeans(t *testing.T) {
	// Each reading: a gateway of two pools and an engine; the engine restarts in between.
	page := map[string]string{"/gateway": `# TYPE kvasir_time_to_first_token_seconds histogram
kvasir_time_to_first_token_seconds_bucket{pool="a",le="+Inf"} 10
kvasir_time_to_first_token_seconds_sum{pool="a"} 5
kvasir_time_to_first_token_seconds_count{pool="a"} 10
kvasir_time_to_first_token_seconds_sum{pool="b"} 1
kvasir_time_to_first_token_seconds_count{pool="b"} 2
`, "/engine": "vllm:time_to_first_token_seconds_sum 90\nvllm:time_to_first_token_seconds_count 900\nvllm:request_queue_time_seconds_sum 1\nvllm:request_queue_time_seconds_count 100\nother_seconds_sum 3\n"}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := page[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, text)
	}))
	defer server.Close()
	client := NewClient()
	defer client.CloseIdleConnections()
	urls := []string{server.URL + "/gateway", server.URL + "/engine"}
	before, err := ReadTimings(t.Context(), client, urls)
	if err != nil {
		t.Fatal(err)
	}
	page["/gateway"] = strings.NewReplacer(`{pool="a"} 5`, `{pool="a"} 8`, `{pool="a"} 10`, `{pool="a"} 20`, `{pool="b"} 1`, `{pool="b"} 2`, `{pool="b"} 2`, `{pool="b"} 12`).Replace(page["/gateway"])
	page["/engine"] = "vllm:time_to_first_token_seconds_sum 2\nvllm:time_to_first_token_seconds_count 20\nvllm:request_queue_time_seconds_sum 2\nvllm:request_queue_time_seconds_count 110\n"
	after, err := ReadTimings(t.Context(), client, urls)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(after.Since(before)); got != "[{kvasir_time_to_first_token_seconds gateway's metrics 0.2 20} {vllm:request_queue_time_seconds engines' metrics 0.1 10}]" {
		t.Error(got)
	}
	if _, err := ReadTimings(t.Context(), client, []string{server.URL + "/nowhere"}); err == nil || !strings.Contains(err.Error(), "/nowhere: status 404") {
		t.Error(err)
	}
}
