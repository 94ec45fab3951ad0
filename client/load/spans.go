package load

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"kvasir/client/load/report"
	"kvasir/upstream/exposition"
)

// timings are the histograms, by name, whose means over a run say where its calls' time
// went, and who keeps them.
var timings = []struct{ name, source string }{
	{"kvasir_time_to_first_token_seconds", "gateway's"},
	{"kvasir_e2e_latency_seconds", "gateway's"},
	{"kvasir_pick_duration_seconds", "gateway's"},
	{"vllm:time_to_first_token_seconds", "engines'"},
	{"vllm:request_queue_time_seconds", "engines'"},
	{"vllm:request_prefill_time_seconds", "engines'"},
	{"vllm:e2e_request_latency_seconds", "engines'"},
	{"sglang:time_to_first_token_seconds", "engines'"},
	{"sglang:queue_time_seconds", "engines'"},
	{"sglang:e2e_request_latency_seconds", "engines'"},
}

// Timings are the sums and counts of the gateway's and the engines' own histograms of time,
// over all of their pages. What lies between two of them is a run's.
type Timings map[string]struct{ sum, count float64 }

// The bounds of a page of metrics, and of the time that reading all pages takes.
const (
	maxPage   = 64 << 20
	pageLimit = 5 * time.Second
)

// ReadTimings reads the pages of metrics at the addresses given.
func ReadTimings(ctx context.Context, client *http.Client, pages []string) (Timings, error) {
	ctx, cancel := context.WithTimeout(ctx, pageLimit)
	defer cancel()
	t := Timings{}
	for _, url := range pages {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		page, err := io.ReadAll(io.LimitReader(resp.Body, maxPage+1))
		_ = resp.Body.Close()
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", url, err)
		case resp.StatusCode != http.StatusOK:
			return nil, fmt.Errorf("%s: status %d", url, resp.StatusCode)
		case len(page) > maxPage:
			return nil, fmt.Errorf("%s has more than %d bytes", url, maxPage)
		}
		t.add(page)
	}
	return t, nil
}

// add adds the samples of a page.
func (t Timings) add(page []byte) {
	s := exposition.NewScanner(page, func(name []byte) bool {
		_, _, ok := timingOf(string(name))
		return ok
	})
	for s.Scan() {
		name, count, _ := timingOf(string(s.Name()))
		of := t[name]
		if count {
			of.count += s.Value()
		} else {
			of.sum += s.Value()
		}
		t[name] = of
	}
}

// timingOf returns the histogram that a sample is the sum or the count of.
func timingOf(sample string) (name string, count, ok bool) {
	name, count = strings.CutSuffix(sample, "_count")
	if !count {
		name, ok = strings.CutSuffix(sample, "_sum")
	}
	if !count && !ok {
		return "", false, false
	}
	for _, known := range timings {
		if known.name == name {
			return name, count, true
		}
	}
	return "", false, false
}

// Since returns the means of what came after an earlier reading. A histogram that began anew
// in between, as it does where its process restarts, is left out.
func (t Timings) Since(before Timings) []report.SpanMean {
	var spans []report.SpanMean
	for _, known := range timings {
		sum, count := t[known.name].sum-before[known.name].sum, t[known.name].count-before[known.name].count
		if count >= 1 && sum >= 0 {
			spans = append(spans, report.SpanMean{Name: known.name, Source: known.source + " metrics", Mean: sum / count, Calls: int64(count)})
		}
	}
	return spans
}
