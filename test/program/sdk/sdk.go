// Package sdk is the arrangement that the suites of the SDKs in other languages call: kvasir
// serve in front of emulated engines and of a server that misbehaves by script. It has no
// layer and is no part of the product.
package sdk

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"kvasir/test/program"
)

// heartbeat is how long a streaming client waits for a sign of life.
const heartbeat = "100ms"

// Run runs a suite (see program.Suite) whose script finds in its environment
//
//	BASE        the gateway's URL
//	SCRIPTED    the scripted server's URL
//	HEARTBEAT   "on" where the gateway sends heartbeats
//
// The gateway has the model tiny with the alias default, served by two emulated engines that
// know it as served, and the models of the scripted server.
func Run(t *testing.T, command string, args ...string) {
	t.Helper()
	var engines []string
	for range 2 {
		engines = append(engines, program.Engine(t, "--model", "served", "--speed", "5"))
	}
	scripted := httptest.NewServer(http.HandlerFunc(answer))
	t.Cleanup(scripted.Close)
	beats := "client: {heartbeat: " + heartbeat + "}\n"
	if !program.Accepts(t, beats+"models: {tiny: [\"http://127.0.0.1:1\"]}\n") {
		beats = ""
	}
	config := []string{beats + "models:", "  tiny: {aliases: [default], served_as: served, endpoints: [\"" + strings.Join(engines, `", "`) + "\"]}"}
	for _, model := range []string{"slow", "torn", "limited", "busy"} {
		config = append(config, fmt.Sprintf("  %s: {endpoints: [%q], signals: {scrape: 0s, max_age: 0s}}", model, scripted.URL))
	}
	gateway := program.Serve(t, strings.Join(config, "\n")+"\n")
	env := []string{"BASE=" + gateway.Base, "SCRIPTED=" + scripted.URL, "PYTHONUNBUFFERED=1"}
	if beats != "" {
		env = append(env, "HEARTBEAT=on")
	}
	program.Suite(t, env, command, args...)
	if beats != "" && gateway.Metric(t, "kvasir_heartbeats_total") == 0 {
		t.Error("the gateway sent no heartbeat")
	}
	program.Eventually(t, "nothing is in flight", func() bool { return gateway.Metric(t, "kvasir_in_flight") == 0 })
}

// answer is the scripted server. The model that is asked for says how it behaves:
//
//	slow      a stream with ids, and with pauses that are longer than the heartbeat
//	pinged    the same, where the server fills the pauses with comments as some gateways do:
//	          each with a blank line of its own
//	torn      a stream that breaks off
//	limited   429 with a time to wait
//	busy      503
func answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var asked struct {
		Model string `json:"model"`
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		w.WriteHeader(http.StatusOK) // health
		return
	}
	switch asked.Model {
	case "limited":
		w.Header().Set("Retry-After", "7")
		refuse(w, http.StatusTooManyRequests, "rate_limit_error")
	case "busy":
		refuse(w, http.StatusServiceUnavailable, "overloaded_error")
	default:
		stream(w, strings.TrimPrefix(r.URL.Path, "/v1/"), asked.Model)
	}
}

func refuse(w http.ResponseWriter, status int, kind string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"type":"error","error":{"message":"no room","type":%q,"param":null,"code":%d}}`, kind, status)
}

func stream(w http.ResponseWriter, route, model string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	events, ok := scripts[route]
	if !ok {
		http.NotFound(w, nil)
		return
	}
	for n, text := range events {
		if name, data, named := strings.Cut(text, " "); named && !strings.HasPrefix(text, "{") {
			text = data
			fmt.Fprintf(w, "event: %s\n", name)
		}
		fmt.Fprintf(w, "id: %d\ndata: %s\n\n", n+1, text)
		_ = http.NewResponseController(w).Flush()
		if !strings.Contains(text, "mead") {
			continue
		}
		if model == "torn" {
			panic(http.ErrAbortHandler)
		}
		pause(w, model == "pinged")
	}
}

// pause lasts several heartbeats of the gateway.
func pause(w http.ResponseWriter, pings bool) {
	for range 4 {
		time.Sleep(75 * time.Millisecond)
		if pings {
			fmt.Fprint(w, ": ping\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// scripts are streams by route, each with the text "mead, more mead". An event that has a
// name begins with it.
var scripts = map[string][]string{
	"chat/completions": {
		`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`,
		`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"mead, "},"finish_reason":null}]}`,
		`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"more mead"},"finish_reason":null}]}`,
		`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
		"[DONE]",
	},
	"messages": {
		`message_start {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":0}}}`,
		`content_block_start {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		`content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"mead, "}}`,
		`content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"more mead"}}`,
		`content_block_stop {"type":"content_block_stop","index":0}`,
		`message_delta {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":4}}`,
		`message_stop {"type":"message_stop"}`,
	},
	"responses": {
		`response.created {"type":"response.created","sequence_number":0,"response":` + response("in_progress", "") + `}`,
		`response.output_item.added {"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"id":"i","type":"message","role":"assistant","status":"in_progress","content":[]}}`,
		`response.content_part.added {"type":"response.content_part.added","sequence_number":2,"output_index":0,"content_index":0,"item_id":"i","part":{"type":"output_text","text":"","annotations":[]}}`,
		`response.output_text.delta {"type":"response.output_text.delta","sequence_number":3,"output_index":0,"content_index":0,"item_id":"i","delta":"mead, ","logprobs":[]}`,
		`response.output_text.delta {"type":"response.output_text.delta","sequence_number":4,"output_index":0,"content_index":0,"item_id":"i","delta":"more mead","logprobs":[]}`,
		`response.completed {"type":"response.completed","sequence_number":5,"response":` + response("completed", `{"id":"i","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"mead, more mead","annotations":[]}]}`) + `}`,
	},
}

func response(status, output string) string {
	return fmt.Sprintf(`{"id":"resp_1","object":"response","created_at":1,"status":%q,"model":"m","output":[%s],"parallel_tool_calls":true,"tool_choice":"auto","tools":[],"error":null,"incomplete_details":null,"instructions":null,"metadata":null,"temperature":1,"top_p":1}`, status, output)
}
