package load

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"kvasir/client/load/report"
	"kvasir/client/workload"
)

// maxModels bounds the list of models that is read.
const maxModels = 1 << 20

// retryEvery is the time between two attempts to find an endpoint ready.
const retryEvery = time.Second

// Ready prepares the target and makes sure that it answers, at most for the time given: it
// asks for the name of its first model where none is named, and then for a token. It tries
// again where that may help, and does not wait for what will not pass, such as a wrong key.
// Where most is 0 it asks for a model's name alone, and once. timeout bounds each attempt; 0:
// none.
func Ready(ctx context.Context, target *Target, client *http.Client, most, timeout time.Duration) error {
	if err := target.check(); err != nil {
		return err
	}
	if most > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, most, fmt.Errorf("it does not answer within %v", most))
		defer cancel()
	}
	if target.Model == "" {
		err := attempts(ctx, most > 0, func() (again bool, err error) {
			target.Model, again, err = firstModel(ctx, target, client, timeout)
			return again, err
		})
		if err != nil {
			return fmt.Errorf("no model is given, and asking %s for one failed: %w", target.BaseURL, err)
		}
	}
	if err := target.Prepare(); err != nil || most == 0 {
		return err
	}
	body := target.body("", []workload.Message{{Role: "user", Content: "Are you ready?"}}, 1)
	err := attempts(ctx, true, func() (bool, error) {
		sample := ask(ctx, target, client, timeout, body)
		err := fmt.Errorf("%s: %s", sample.Failure, sample.Detail)
		switch sample.Failure {
		case "", report.Empty:
			return false, nil
		case report.ConnectFailed, report.Broken, report.Overdue, "http_429", "http_502", "http_503", "http_504":
			return true, err
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("%s is not ready: %w", target.BaseURL, err)
	}
	return nil
}

// attempts makes attempts until one succeeds, or says that another will not help, or ctx
// ends; one only unless again is set. Where ctx ends, the error says what became of the last
// attempt that was not cut off.
func attempts(ctx context.Context, again bool, attempt func() (again bool, err error)) error {
	var last error
	for {
		passes, err := attempt()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%w: %w", context.Cause(ctx), cmp.Or(last, err))
		case !again || !passes:
			return err
		}
		last = err
		timer := time.NewTimer(retryEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		}
	}
}

// firstModel asks an endpoint's list of models for the name of the first one. again: asking
// later may help.
func firstModel(ctx context.Context, target *Target, client *http.Client, timeout time.Duration) (name string, again bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	if timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, errOverdue)
	}
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.join("/v1/models"), nil)
	if err != nil {
		return "", false, err
	}
	target.address(req)
	resp, err := client.Do(req)
	if err != nil {
		if context.Cause(ctx) == errOverdue {
			err = fmt.Errorf("%s: no answer within %v", req.URL, timeout)
		}
		return "", true, err
	}
	defer resp.Body.Close()
	var text []byte
	switch resp.StatusCode {
	case http.StatusOK:
		if text, err = io.ReadAll(io.LimitReader(resp.Body, maxModels)); err != nil {
			return "", true, err
		}
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again = true
		fallthrough
	default:
		return "", again, fmt.Errorf("%s: status %d: %s", req.URL, resp.StatusCode, printable(refusal(resp, cancel)))
	}
	var list struct{ Data []struct{ ID string } }
	if err := json.Unmarshal(text, &list); err != nil {
		return "", false, fmt.Errorf("%s: %w", req.URL, err)
	}
	if len(list.Data) == 0 || list.Data[0].ID == "" {
		return "", true, fmt.Errorf("%s names no model", req.URL) // a gateway's engines may come yet
	}
	return list.Data[0].ID, false, nil
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
			body := b.Target.body(s.Calls[i].Adapter, b.Text.Messages(nil, &s, i), s.Calls[i].OutputTokens)
			if sample := ask(ctx, b.Target, b.Client, b.Timeout, body); sample.Failure == report.Unfinished {
				return context.Cause(ctx)
			} else if sample.Failure != "" {
				return fmt.Errorf("warm-up call %d: %s: %s", number+1, sample.Failure, sample.Detail)
			}
			number++
		}
	}
	return nil
}

// ask sends a body outside of a run. timeout bounds the call; 0: none.
func ask(ctx context.Context, target *Target, client *http.Client, timeout time.Duration, body []byte) report.Sample {
	c := caller{target: target, client: client, timeout: timeout, started: time.Now()}
	s := new(scratch)
	s.begin(report.Sample{}, false)
	c.call(ctx, body, s, func() {})
	return s.sample
}
