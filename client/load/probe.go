package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"kvasir/client/load/report"
	"kvasir/client/workload"
)

// maxModels bounds the list of models that is read.
const maxModels = 1 << 20

// FirstModel asks an endpoint's list of models for the name of the first one.
func FirstModel(ctx context.Context, client *http.Client, baseURL string, header http.Header) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(baseURL, "/")+"/v1/models", nil)
	if err != nil {
		return "", err
	}
	maps.Copy(req.Header, header)
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxModels))
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: status %d: %.200s", req.URL, resp.StatusCode, text)
	}
	var list struct{ Data []struct{ ID string } }
	if err := json.Unmarshal(text, &list); err != nil {
		return "", fmt.Errorf("%s: %w", req.URL, err)
	}
	if len(list.Data) == 0 || list.Data[0].ID == "" {
		return "", fmt.Errorf("%s names no model", req.URL)
	}
	return list.Data[0].ID, nil
}

// retryEvery is the time between two attempts to find an endpoint ready.
const retryEvery = time.Second

// Ready asks an endpoint for a token until it answers, at most for the time given. It does
// not wait for what will not pass, such as a wrong key.
func Ready(ctx context.Context, target *Target, client *http.Client, most time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, most, errOverdue)
	defer cancel()
	body := target.body([]workload.Message{{Role: "user", Content: "Are you ready?"}}, 1)
	for {
		sample := ask(ctx, target, client, body)
		switch sample.Failure {
		case "", report.Empty:
			return nil
		case report.ConnectFailed, report.Broken, report.Overdue, "http_429", "http_502", "http_503", "http_504":
		case report.Unfinished:
			if errors.Is(context.Cause(ctx), errOverdue) {
				return fmt.Errorf("it does not answer within %v", most)
			}
			return context.Cause(ctx)
		default:
			return fmt.Errorf("%s: %s", sample.Failure, sample.Detail)
		}
		timer := time.NewTimer(retryEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			if errors.Is(context.Cause(ctx), errOverdue) {
				return fmt.Errorf("it does not answer within %v: %s: %s", most, sample.Failure, sample.Detail)
			}
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// warm is the salt of warm-up calls; runs have small ones.
const warm = 1 << 63

// WarmUp sends calls whose latencies count nowhere, one after the other: prompts as long as
// the workload's first ones, of another text than theirs.
func (b *Bench) WarmUp(ctx context.Context, calls int) error {
	number := 0
	for s, err := range Fresh(b.Source, warm).Sessions {
		if err != nil {
			return err
		}
		for i := range s.Calls {
			if number == calls {
				return nil
			}
			body := b.Target.body(b.Text.Messages(nil, &s, i), s.Calls[i].OutputTokens)
			if sample := ask(ctx, b.Target, b.Client, body); sample.Failure == report.Unfinished {
				return context.Cause(ctx)
			} else if sample.Failure != "" {
				return fmt.Errorf("warm-up call %d: %s: %s", number+1, sample.Failure, sample.Detail)
			}
			number++
		}
	}
	return nil
}

// ask sends a body outside of a run.
func ask(ctx context.Context, target *Target, client *http.Client, body []byte) report.Sample {
	c := caller{target: target, client: client, started: time.Now()}
	s := new(scratch)
	s.begin(report.Sample{}, false)
	c.call(ctx, body, s, func() {})
	return s.sample
}
