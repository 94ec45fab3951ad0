// Package openaisdk drives the built program with OpenAI's official Go SDK: kvasir serve
// in front of two kvasir engine processes, over real sockets. It is a module of its own,
// so that what the SDK needs stays out of the product's go.sum.
package openaisdk

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

var (
	base, admin string // of kvasir serve
	engines     []string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "kvasir-sdk-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "kvasir")
	if out, err := exec.Command("go", "build", "-C", "../..", "-o", binary, "./cmd/kvasir").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("go build: %v\n%s", err, out))
	}
	for range 2 {
		url, stop := start(binary, "stdout", `answers at (http://[^/]+)/v1`, "engine", "--listen", "127.0.0.1:0", "--model", "served", "--speed", "5")
		defer stop()
		engines = append(engines, url)
	}
	file := filepath.Join(dir, "kvasir.yaml")
	config := fmt.Sprintf("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nmodels:\n  tiny:\n    aliases: [default]\n    served_as: served\n    endpoints: [%s]\n",
		strings.Join(engines, ", "))
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		panic(err)
	}
	line, stop := start(binary, "stderr", `"listen":"([^"]+","admin":"[^"]+)"`, "serve", "--config", file)
	defer stop()
	data, adm, _ := strings.Cut(line, `","admin":"`)
	base, admin = "http://"+data, "http://"+adm
	return m.Run()
}

// start runs the program and waits for the line that says where it listens.
func start(binary, stream, pattern string, args ...string) (found string, stop func()) {
	cmd := exec.Command(binary, args...)
	var pipe io.ReadCloser
	var err error
	if stream == "stdout" {
		pipe, err = cmd.StdoutPipe()
		cmd.Stderr = os.Stderr
	} else {
		pipe, err = cmd.StderrPipe()
	}
	if err != nil {
		panic(err)
	}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	re := regexp.MustCompile(pattern)
	lines := bufio.NewScanner(pipe)
	for found == "" && lines.Scan() {
		if m := re.FindStringSubmatch(lines.Text()); m != nil {
			found = m[1]
		}
	}
	if found == "" {
		panic(fmt.Sprintf("kvasir %s did not say where it listens", args[0]))
	}
	var drained sync.WaitGroup
	drained.Go(func() {
		for lines.Scan() {
		}
	})
	return found, func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		drained.Wait()
		if err := cmd.Wait(); err != nil {
			panic(fmt.Sprintf("kvasir %s ended with %v", args[0], err))
		}
	}
}

func client(options ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(base + "/v1"), option.WithAPIKey("sk-client"), option.WithMaxRetries(0),
	}, options...)...)
}

func question(model, text string, tokens int64) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: model, MaxTokens: openai.Int(tokens),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)},
	}
}

func TestChat_Streams(t *testing.T) {
	q := question("default", "Who made the mead of poetry?", 30)
	q.StreamOptions.IncludeUsage = openai.Bool(true)
	c := client()
	stream := c.Chat.Completions.NewStreaming(t.Context(), q)
	var acc openai.ChatCompletionAccumulator
	chunks := 0
	for stream.Next() {
		chunks++
		if !acc.AddChunk(stream.Current()) {
			t.Fatalf("chunk %d does not continue the answer", chunks)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if acc.Choices[0].Message.Content == "" || acc.Choices[0].FinishReason == "" {
		t.Errorf("answer is %+v", acc.Choices[0])
	}
	if acc.Usage.CompletionTokens == 0 || acc.Usage.CompletionTokens > 30 {
		t.Errorf("usage is %+v", acc.Usage)
	}
	if int64(chunks) < acc.Usage.CompletionTokens {
		t.Errorf("%d tokens came in %d chunks: the stream was gathered", acc.Usage.CompletionTokens, chunks)
	}
}

func TestChat_SecondTurnFindsItsPrefix(t *testing.T) {
	c := client()
	long := strings.Repeat("The dwarves Fjalar and Galar mixed honey with the blood. ", 60)
	first, err := c.Chat.Completions.New(t.Context(), question("tiny", long, 20))
	if err != nil {
		t.Fatal(err)
	}
	q := question("tiny", long, 20)
	q.Messages = append(q.Messages, openai.AssistantMessage(first.Choices[0].Message.Content), openai.UserMessage("Go on."))
	second, err := c.Chat.Completions.New(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if cached, prompt := second.Usage.PromptTokensDetails.CachedTokens, second.Usage.PromptTokens; cached < prompt*8/10 {
		t.Errorf("second turn found %d of %d prompt tokens cached: it went elsewhere", cached, prompt)
	}
}

func TestCompletions(t *testing.T) {
	c := client()
	got, err := c.Completions.New(t.Context(), openai.CompletionNewParams{
		Model: "tiny", MaxTokens: openai.Int(8),
		Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("Once upon a time")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Choices[0].Text == "" || got.Usage.CompletionTokens == 0 {
		t.Errorf("got %+v", got)
	}
}

func TestEmbeddings_FloatAndBase64(t *testing.T) {
	c := client()
	p := openai.EmbeddingNewParams{Model: "default", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"mead", "honey"}}}
	got, err := c.Embeddings.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Data) != 2 || len(got.Data[0].Embedding) == 0 || got.Data[1].Index != 1 {
		t.Errorf("got %d embeddings", len(got.Data))
	}
	p.EncodingFormat = openai.EmbeddingNewParamsEncodingFormatBase64
	var raw *http.Response
	if _, err := c.Embeddings.New(t.Context(), p, option.WithResponseInto(&raw)); err != nil && raw == nil {
		t.Fatal(err)
	}
	if raw.StatusCode != http.StatusOK {
		t.Errorf("base64: status %d", raw.StatusCode)
	}
}

func TestModels(t *testing.T) {
	c := client()
	page, err := c.Models.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range page.Data {
		names = append(names, m.ID)
	}
	if strings.Join(names, " ") != "tiny default" {
		t.Errorf("models are %v", names)
	}
	if m, err := c.Models.Get(t.Context(), "default"); err != nil || m.ID != "default" {
		t.Errorf("got %+v, %v", m, err)
	}
}

// apiError returns the SDK's reading of a failed call.
func apiError(t *testing.T, err error) *openai.Error {
	t.Helper()
	var e *openai.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an API error", err)
	}
	return e
}

func TestErrors_HaveTheShapeThatTheSDKReads(t *testing.T) {
	c := client()
	for _, test := range []struct {
		name         string
		do           func() error
		status       int
		code, param  string
		typ, message string
	}{
		{"unknown model", func() error {
			_, err := c.Chat.Completions.New(t.Context(), question("nobody", "hi", 1))
			return err
		}, 404, "model_not_found", "model", "", "nobody"},
		{"wrong type", func() error {
			_, err := c.Chat.Completions.New(t.Context(), question("tiny", "hi", 1), option.WithJSONSet("stream", "yes"))
			return err
		}, 400, "", "stream", "invalid_request_error", "stream"},
		{"the engine's own refusal", func() error {
			_, err := c.Chat.Completions.New(t.Context(), question("tiny", strings.Repeat("long ", 200_000), 1))
			return err
		}, 400, "", "input_tokens", "BadRequestError", "maximum context length"},
		{"unknown route", func() error {
			_, err := c.Moderations.New(t.Context(), openai.ModerationNewParams{Input: openai.ModerationNewParamsInputUnion{OfString: openai.String("x")}})
			return err
		}, 404, "unknown_route", "", "", "/v1/moderations"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := apiError(t, test.do())
			if e.StatusCode != test.status || e.Param != test.param || !strings.Contains(e.Message, test.message) ||
				test.code != "" && e.Code != test.code || test.typ != "" && e.Type != test.typ {
				t.Errorf("status %d, code %q, param %q, type %q: %s", e.StatusCode, e.Code, e.Param, e.Type, e.Message)
			}
			if e.Response.Header.Get("x-request-id") == "" {
				t.Error("no x-request-id")
			}
		})
	}
}

// TestCancellation_ReachesTheEngine leaves a long stream and waits for the engine to have
// nothing to do.
func TestCancellation_ReachesTheEngine(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := client()
	q := question("tiny", "Tell me everything.", 100_000)
	stream := c.Chat.Completions.NewStreaming(ctx, q, option.WithJSONSet("ignore_eos", true))
	for range 5 {
		if !stream.Next() {
			t.Fatal(stream.Err())
		}
	}
	if running(t) == 0 {
		t.Error("no engine shows the running call")
	}
	cancel()
	_ = stream.Close()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		left := running(t)
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v calls still run 5 s after the client left", left)
		}
	}
	page := get(t, admin+"/metrics")
	if !regexp.MustCompile(`kvasir_calls_total\{model="tiny",outcome="client_gone",pool="default"\} [1-9]`).Match(page) {
		t.Error("the call was not counted as client_gone")
	}
	for _, line := range strings.Split(string(page), "\n") {
		if strings.HasPrefix(line, "kvasir_in_flight{") && !strings.HasSuffix(line, " 0") {
			t.Errorf("still charged: %s", line)
		}
	}
}

// running sums up what the engines' metrics say.
func running(t *testing.T) (sum int) {
	t.Helper()
	re := regexp.MustCompile(`(?m)^vllm:num_requests_running\{[^}]*\} ([0-9]+)`)
	for _, e := range engines {
		m := re.FindSubmatch(get(t, e+"/metrics"))
		if m == nil {
			t.Fatal("an engine reports no num_requests_running")
		}
		var n int
		if _, err := fmt.Sscan(string(m[1]), &n); err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := io.Copy(&b, resp.Body); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
