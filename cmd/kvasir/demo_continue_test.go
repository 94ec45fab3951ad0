package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// spoken asks a demo and returns the answer's text, and whether it was made of several parts.
func spoken(base string, i int) (text string, parts bool, err error) {
	body := fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":"Question %d: who had the mead?"}]}`, demoModel, i)
	resp, err := http.Post(base+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return "", false, err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", false, err
	}
	if !strings.HasSuffix(string(all), "data: [DONE]\n\n") {
		return "", false, fmt.Errorf("no end: %.300q", all[max(len(all)-300, 0):])
	}
	for line := range strings.Lines(string(all)) {
		data, ok := strings.CutPrefix(line, "data: {")
		if !ok {
			continue
		}
		var x struct {
			Choices []struct {
				Delta struct{ Content string }
			}
			Error any
		}
		if err := json.Unmarshal([]byte("{"+data), &x); err != nil || x.Error != nil {
			return "", false, fmt.Errorf("%v in %q", err, line)
		}
		for _, c := range x.Choices {
			text += c.Delta.Content
		}
	}
	return text, strings.Contains(string(all), ": continued\n"), nil
}

// Engines that say the same, and break off at half of their calls, give the same answers as
// engines that don't: nothing is said twice, and nothing is missing.
func TestDemo_AnswersThatGoOnAreWhatTheyWouldHaveBeen(t *testing.T) {
	const calls = 40
	ask := func(args ...string) (texts [calls]string, errs [calls]error, continued int) {
		stdout, stderr, end := start(t, append([]string{"demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--no-traffic"}, args...)...)
		base := stdout.find(t, `OpenAI base URL +(http://\S+)/v1`)
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range calls {
			all.Go(func() {
				text, parts, err := spoken(base, i)
				mu.Lock()
				defer mu.Unlock()
				texts[i], errs[i] = text, err
				if parts && err == nil {
					continued++
				}
			})
		}
		all.Wait()
		http.DefaultClient.CloseIdleConnections()
		if code := end(); code != 0 || stderr.String() != "" {
			t.Errorf("exit %d, %s", code, stderr)
		}
		return texts, errs, continued
	}
	want, errs, continued := ask()
	for i, err := range errs {
		if err != nil || want[i] == "" || continued > 0 {
			t.Fatalf("call %d without faults: %v, %q, %d were continued", i, err, want[i], continued)
		}
	}
	got, errs, continued := ask("--engines", "8", "--fault", "reset=0.25,error-event=0.25", "--continue", "3")
	whole := 0
	for i := range got {
		if errs[i] == nil {
			whole++
			if got[i] != want[i] {
				t.Errorf("call %d says\n%q, want\n%q", i, got[i], want[i])
			}
		}
	}
	if whole < calls/2 || continued < calls/10 {
		t.Errorf("of %d answers %d are whole and %d of several parts", calls, whole, continued)
	}
}
