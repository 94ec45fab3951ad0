package openaisdk

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"kvasir/test/program"
)

// TestStream_ThatGoesOnElsewhereIsOneAnswer breaks an engine's answer off; the SDK's accumulator
// takes what follows for the same answer, which says what the engines say without a fault.
func TestStream_ThatGoesOnElsewhereIsOneAnswer(t *testing.T) {
	var engines []string
	for range 2 {
		engines = append(engines, program.Engine(t, "--model", "served", "--speed", "5", "--control"))
	}
	r := &rig{engines: engines}
	r.Gateway = program.Serve(t, fmt.Sprintf("models:\n  tiny: {continue: {times: 1}, pools: [{served_as: served, endpoints: [%s], policy: round-robin}]}\n", strings.Join(engines, ", ")))
	direct := openai.NewClient(option.WithBaseURL(engines[1]+"/v1"), option.WithAPIKey("any"))
	q := question("served", "Who made the mead of poetry?", 60)
	q.StreamOptions.IncludeUsage = openai.Bool(true)
	want, _ := accumulate(t, &direct, q)
	q.Model = "tiny"
	for _, kind := range []string{"reset", "stream-error"} {
		impose(t, engines[0], fmt.Sprintf(`{"kind":%q,"after":7,"calls":1}`, kind))
		for range 2 { // one of them goes to the engine that breaks off
			got, _ := accumulate(t, r.client(), q)
			checkSame(t, &got.ChatCompletion, &want.ChatCompletion)
		}
	}
	if n := r.Metric(t, "kvasir_continuations_total", `outcome="continued"`); n != 2 {
		t.Errorf("%v answers were continued, want one of each kind", n)
	}
}

func checkSame(t *testing.T, got, want *openai.ChatCompletion) {
	t.Helper()
	g, w := got.Choices[0], want.Choices[0]
	if g.Message.Content != w.Message.Content || g.Message.Role != w.Message.Role || g.FinishReason != w.FinishReason {
		t.Errorf("got %+v, want %+v", g, w)
	}
	if got.Usage.PromptTokens != want.Usage.PromptTokens || got.Usage.CompletionTokens != want.Usage.CompletionTokens || got.Usage.TotalTokens != want.Usage.TotalTokens {
		t.Errorf("usage %+v, want %+v", got.Usage, want.Usage)
	}
}

// impose tells an engine how its next call fails.
func impose(t *testing.T, engine, fault string) {
	t.Helper()
	resp, err := http.Post(engine+"/emulator/fault", "application/json", strings.NewReader(fault))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNoContent {
		t.Fatalf("status %d for %s", resp.StatusCode, fault)
	}
}
