// Package anthropicsdk drives the built program with Anthropic's official Go SDK, over real
// sockets: kvasir serve in front of kvasir engine processes, which speak Anthropic's
// messages as vLLM does, and of servers that misbehave by script. It is a module of its
// own, so that what the SDK needs stays out of the product's go.sum.
package anthropicsdk

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"kvasir/internal/testkit/scripted"
	"kvasir/test/program"
)

func TestMain(m *testing.M) { os.Exit(program.Main(m)) }

// rig is a gateway and what stands behind it.
type rig struct {
	*program.Gateway
	engines []string           // their URLs
	servers []*scripted.Server // or these
}

// withEngines runs a gateway whose model tiny, or default, is served by two emulated
// engines that know it as served. flags are further ones of theirs.
func withEngines(t *testing.T, flags ...string) *rig {
	t.Helper()
	r := &rig{}
	for range 2 {
		r.engines = append(r.engines, program.Engine(t, append([]string{"--model", "served", "--speed", "5"}, flags...)...))
	}
	r.Gateway = program.Serve(t, fmt.Sprintf("models:\n  tiny: {aliases: [default], served_as: served, endpoints: [%s]}\n", strings.Join(r.engines, ", ")))
	return r
}

// withScript runs a gateway whose model tiny is served by one server for each script. keys
// are further keys of the configuration.
func withScript(t *testing.T, keys string, scripts ...scripted.Script) *rig {
	t.Helper()
	r := &rig{}
	var urls []string
	for _, script := range scripts {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := scripted.Start(l, scripted.Options{}, script)
		t.Cleanup(s.Close)
		r.servers = append(r.servers, s)
		urls = append(urls, "http://"+s.Addr())
	}
	r.Gateway = program.Serve(t, fmt.Sprintf("drain: 1s\n%smodels:\n  tiny: {served_as: served, endpoints: [%s], policy: round-robin, signals: {scrape: 0s, max_age: 0s}, probe: {interval: 0s}}\n",
		keys, strings.Join(urls, ", ")))
	return r
}

// upstreamCalls returns how many calls reached the servers.
func (r *rig) upstreamCalls() (n int) {
	for _, s := range r.servers {
		n += len(s.Calls())
	}
	return n
}

// idle waits until nothing is in flight: every call is accounted for and every charge was
// given back.
func (r *rig) idle(t *testing.T) {
	t.Helper()
	program.Eventually(t, "nothing is in flight", func() bool {
		return r.Metric(t, "kvasir_calls_in_flight") == 0 && r.Metric(t, "kvasir_in_flight") == 0
	})
}

// client returns the SDK's client, without retries of its own and with no credential but
// those of the options.
func (r *rig) client(options ...option.RequestOption) *anthropic.Client {
	c := anthropic.NewClient(append([]option.RequestOption{
		option.WithoutEnvironmentDefaults(), option.WithBaseURL(r.Base), option.WithAPIKey("sk-client"), option.WithMaxRetries(0),
	}, options...)...)
	return &c
}

func question(model, text string, tokens int64) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: anthropic.Model(model), MaxTokens: tokens,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(text))},
	}
}

// read reads a stream to its end and returns the text that came, what the SDK makes of all
// events, and the error that it gives its user.
func read(t *testing.T, c *anthropic.Client, q anthropic.MessageNewParams, options ...option.RequestOption) (text string, m anthropic.Message, err error) {
	t.Helper()
	s := c.Messages.NewStreaming(t.Context(), q, options...)
	defer s.Close()
	for s.Next() {
		e := s.Current()
		if err := m.Accumulate(e); err != nil {
			t.Fatalf("%s: %v", e.RawJSON(), err)
		}
		if e.Type == "content_block_delta" {
			text += e.Delta.Text
		}
	}
	return text, m, s.Err()
}

// ask reads the stream of a short question.
func ask(t *testing.T, c *anthropic.Client) (text string, err error) {
	t.Helper()
	text, _, err = read(t, c, question("tiny", "Who made the mead?", 20))
	return text, err
}

// script is a stream with the text "mead, more mead", an event an element: the preamble,
// two contents, the end.
var script = [4]string{
	named("message_start", `"message":{"id":"m","type":"message","role":"assistant","content":[],"model":"served","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":0}}`) +
		named("content_block_start", `"index":0,"content_block":{"type":"text","text":""}`) + named("ping", ""),
	named("content_block_delta", `"index":0,"delta":{"type":"text_delta","text":"mead, "}`),
	named("content_block_delta", `"index":0,"delta":{"type":"text_delta","text":"more mead"}`),
	named("content_block_stop", `"index":0`) +
		named("message_delta", `"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":4}`) + named("message_stop", ""),
}

const wholeText = "mead, more mead"

func named(event, fields string) string {
	if fields != "" {
		fields = "," + fields
	}
	return fmt.Sprintf("event: %s\ndata: {\"type\":%q%s}\n\n", event, event, fields)
}

// answers is the script of a server that is well.
func answers(c *scripted.Call) { c.Stream(script[:]...) }

// refuses is the script of a server that answers with a status.
func refuses(status int, kind string, lines ...string) scripted.Script {
	return func(c *scripted.Call) { c.Reply(status, "application/json", envelope(kind), lines...) }
}

func envelope(kind string) string {
	return fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":"no room here"}}`, kind)
}

// apiError returns the SDK's reading of an error, before or in a stream.
func apiError(t *testing.T, err error) *anthropic.Error {
	t.Helper()
	var e *anthropic.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an API error", err)
	}
	return e
}

// failure is what the SDK must show of an error.
type failure struct {
	status                  int
	kind                    anthropic.ErrorType
	message                 string
	retryAfter, shouldRetry string
}

func (want failure) check(t *testing.T, err error) {
	t.Helper()
	e := apiError(t, err)
	if e.StatusCode != want.status || e.Type() != want.kind || !strings.Contains(e.RawJSON(), want.message) {
		t.Errorf("status %d, type %q: %s; want %+v", e.StatusCode, e.Type(), e.RawJSON(), want)
	}
	header := e.Response.Header
	if got := header.Get("Retry-After"); got != want.retryAfter {
		t.Errorf("Retry-After is %q, want %q", got, want.retryAfter)
	}
	if got := header.Get("x-should-retry"); got != want.shouldRetry {
		t.Errorf("x-should-retry is %q, want %q", got, want.shouldRetry)
	}
}
