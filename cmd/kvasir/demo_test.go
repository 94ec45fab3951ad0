package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output is what a command prints, read while it prints.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// find waits until the output matches and returns the first group.
func (o *output) find(t *testing.T, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	for range 500 {
		if m := re.FindStringSubmatch(o.String()); m != nil {
			return m[1]
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("no %s in\n%s", pattern, o.String())
	return ""
}

// start runs a command in the background. end stops it as a signal would and returns its
// exit code.
func start(t *testing.T, args ...string) (stdout, stderr *output, end func() int) {
	t.Helper()
	stdout, stderr = &output{}, &output{}
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int)
	go func() { code <- run(ctx, environment{stdout, stderr, func(string) string { return "" }}, args) }()
	return stdout, stderr, func() int {
		cancel()
		return <-code
	}
}

func fetch(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

const question = `{"model":%q,"stream":true,"max_tokens":5,"messages":[{"role":"user","content":"Hello"}]}`

func TestDemo_AnswersAndShowsItsEndpoints(t *testing.T) {
	stdout, stderr, end := start(t, "demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--engines", "2", "--policy", "power-of-two")
	base := stdout.find(t, `OpenAI base URL +(http://\S+)/v1`)
	admin := stdout.find(t, `admin +(http://\S+)/metrics`)
	if status, text := fetch(t, http.MethodPost, base+"/v1/chat/completions", fmt.Sprintf(question, demoModel)); status != 200 || !strings.HasSuffix(text, "data: [DONE]\n\n") {
		t.Errorf("status %d: %s", status, text)
	}
	if status, text := fetch(t, http.MethodGet, admin+"/readyz", ""); status != 200 {
		t.Errorf("readyz: %d %s", status, text)
	}
	if _, text := fetch(t, http.MethodGet, admin+"/metrics", ""); !regexp.MustCompile(`kvasir_calls_total\{[^}]*outcome="success",pool="emulated"\} [1-9]`).MatchString(text) {
		t.Error("no successful call in the metrics")
	}
	stdout.find(t, `(engine-2 +in_rotation)`)
	if code := end(); code != 0 || stderr.String() != "" {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if strings.Contains(stdout.String(), "failed") {
		t.Errorf("background calls failed:\n%s", stdout)
	}
}

func TestDemo_RefusesBadFlags(t *testing.T) {
	for _, x := range []struct{ args, want string }{
		{"--engines 0", "--engines is 0; allowed: 1 to 64"},
		{"--policy nobody", `--policy is "nobody"; allowed: random, round-robin`},
		{"--fault stall", `stall is ""; allowed: a share of the calls, 0 to 1`},
		{"--fault stall=2", `stall is "2"; allowed`},
		{"--fault slow=0.1", `"slow" is no fault; allowed: stall, reset, error-event, 429, 500, 503`},
		{"--fault stall=0.7,reset=0.7", "together they are more than all calls"},
		{"--continue 4", "--continue is 4; allowed: 0 to 3"},
		{"--rate -1", "--rate is -1; allowed: 0 to 1000"},
		{"--no-traffic --rate 5", "exclude each other"},
		{"--for -1s", "--for is -1s"},
		{"--for soon", "kvasir demo: invalid value"},
		{"--listen 127.0.0.1:1 --admin 127.0.0.1:1", "must differ"},
		{"now", `"now" is not a flag`},
	} {
		var out, bad bytes.Buffer
		code := run(t.Context(), environment{&out, &bad, os.Getenv}, append([]string{"demo"}, strings.Fields(x.args)...))
		if code != 2 || !strings.Contains(bad.String(), x.want) || out.Len() > 0 {
			t.Errorf("%s: exit %d, %q", x.args, code, bad.String())
		}
	}
}

// Faults before the first token are hidden by another attempt; those after it end in an event.
func TestDemo_UnderFaults(t *testing.T) {
	var out, bad bytes.Buffer
	code := run(t.Context(), environment{&out, &bad, os.Getenv}, strings.Fields(
		"demo --listen 127.0.0.1:0 --admin 127.0.0.1:0 --rate 20 --for 6s --fault error-event=0.1,500=0.02"))
	if code != 0 || bad.Len() > 0 {
		t.Fatalf("exit %d, %s", code, &bad)
	}
	for _, want := range []string{
		`what clients saw of [1-9]\d+ calls`, `answered whole +[1-9]\d+`, `failed before content +[0-2] `, `broke after content +[1-9]\d* +\S+ %  \(stream_error \d+\)\n`,
	} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("no %s in\n%s", want, &out)
		}
	}
}

func TestServe_FromAFileToAnAnswer(t *testing.T) {
	engineOut, _, endEngine := start(t, "engine", "--listen", "127.0.0.1:0", "--model", "inner")
	url := engineOut.find(t, `answers at (http://[^/]+)/v1`)
	file := filepath.Join(t.TempDir(), "kvasir.yaml")
	text := "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nmodels:\n  outer: {served_as: inner, aliases: [other], endpoints: [\"" + url + "\"]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, log, end := start(t, "serve", "--config", file)
	base := "http://" + log.find(t, `"listen":"([^"]+)"`)
	for _, name := range []string{"outer", "other"} {
		if status, text := fetch(t, http.MethodPost, base+"/v1/chat/completions", fmt.Sprintf(question, name)); status != 200 || !strings.HasSuffix(text, "data: [DONE]\n\n") {
			t.Errorf("%s: status %d: %s", name, status, text)
		}
	}
	if code := end(); code != 0 {
		t.Errorf("serve: exit %d\n%s", code, log)
	}
	if code := endEngine(); code != 0 {
		t.Errorf("engine: exit %d", code)
	}
	if got := log.String(); strings.Count(got, `"msg":"call"`) != 2 || !strings.Contains(got, `"msg":"stopped"`) || strings.Contains(got, "Hello") {
		t.Errorf("log:\n%s", got)
	}
}
