package emulator

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// exchange is one HTTP exchange and what vLLM does there. The number is that of the
// statement's place: 1 metrics (1.1 series, 1.2 bytes, 1.3 load report), 3 the HTTP API
// (3.1 routes, 3.2 headers, 3.3 bodies, 3.4 events, 3.5 errors, 3.6 responses and messages).
type exchange struct {
	section, says string
	change        func(*Config)
	call          string   // method and path
	body          string   // "" is none
	header        []string // names and values
	status        int
	want          string   // the whole body, or with a ~ before it a part of it; "" is any
	not           string   // no part of the body
	headers       []string // of the answer, names and values; "" is none
}

const short = `{"model":"tiny","prompt":"x","max_tokens":1}`

func shortChat(fields string) string { return chatBody("x", `,"max_tokens":2`+fields) }

const shortMessage = `{"model":"tiny","max_tokens":2,"messages":[{"role":"user","content":"x"}]`

var long = strings.Repeat("word", 5000)

var exchanges = []exchange{
	{section: "1.1", says: "prefix cache families are there at 0", call: "GET /metrics", status: 200, want: `~vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 0.0`},
	{section: "1.1", says: "so are those of a connector", call: "GET /metrics", status: 200, want: `~vllm:external_prefix_cache_hits_total{engine="0",model_name="tiny"} 0.0`},
	{section: "1.1", says: "so are the reasons", call: "GET /metrics", status: 200, want: `~finished_reason="repetition",model_name="tiny"} 0.0`},
	{section: "1.1", says: "an engine is awake", call: "GET /metrics", status: 200, want: `~vllm:engine_sleep_state{engine="0",model_name="tiny",sleep_state="awake"} 1.0`},
	{section: "1.1", says: "iteration_tokens_total is a histogram", call: "GET /metrics", status: 200, want: "~# TYPE vllm:iteration_tokens_total histogram"},
	{section: "1.1", says: "lengths go to max_model_len", call: "GET /metrics", status: 200, want: `~vllm:request_prefill_kv_computed_tokens_bucket{engine="0",le="2000.0",model_name="tiny"} 0.0` + "\n" +
		`vllm:request_prefill_kv_computed_tokens_bucket{engine="0",le="+Inf",model_name="tiny"} 0.0`},
	{section: "1.1", says: "the number of blocks has the null block", call: "GET /metrics", status: 200, want: `~num_gpu_blocks="1025"`},
	{section: "1.1", says: "model_name is the first name", call: "GET /metrics", status: 200, not: `model_name="alias"`},
	{section: "1.2", says: "the content type is of version 1.0.0, whatever is accepted", call: "GET /metrics", header: []string{"Accept", "application/openmetrics-text"}, status: 200,
		headers: []string{"Content-Type", "text/plain; version=1.0.0; charset=utf-8", "Content-Encoding", ""}},
	{section: "1.2", says: "_created families are gauges after their family", call: "GET /metrics", status: 200,
		want: "~\n# TYPE vllm:prompt_tokens_created gauge\n" + `vllm:prompt_tokens_created{engine="0",model_name="tiny"} 9.466848e+08` + "\n# HELP vllm:prompt_tokens_by_source_total "},
	{section: "1.2", says: "they can be switched off", change: func(c *Config) { c.HideCreated = true }, call: "GET /metrics", status: 200, not: "_created"},

	{section: "1.3", says: "TEXT", call: "POST /v1/completions", body: short, header: []string{"endpoint-load-metrics-format", "text"}, status: 200,
		headers: []string{"endpoint-load-metrics", "TEXT named_metrics.num_requests_waiting=0.0, named_metrics.kv_cache_usage_perc=0.0"}},
	{section: "1.3", says: "JSON", call: "POST /v1/chat/completions", body: shortChat(""), header: []string{"endpoint-load-metrics-format", "JSON"}, status: 200,
		headers: []string{"endpoint-load-metrics", `JSON {"named_metrics": {"num_requests_waiting": 0.0, "kv_cache_usage_perc": 0.0}}`}},
	{section: "1.3", says: "no other format", call: "POST /v1/completions", body: short, header: []string{"endpoint-load-metrics-format", "BIN"}, status: 200, headers: []string{"endpoint-load-metrics", ""}},
	{section: "1.3", says: "none unasked", call: "POST /v1/completions", body: short, status: 200, headers: []string{"endpoint-load-metrics", ""}},
	{section: "1.3", says: "none on a stream", call: "POST /v1/chat/completions", body: shortChat(`,"stream":true`), header: []string{"endpoint-load-metrics-format", "TEXT"}, status: 200, headers: []string{"endpoint-load-metrics", ""}},
	{section: "1.3", says: "none on an error", call: "POST /v1/chat/completions", body: `{}`, header: []string{"endpoint-load-metrics-format", "TEXT"}, status: 400, headers: []string{"endpoint-load-metrics", ""}},
	{section: "1.3", says: "none on another route", call: "POST /v1/embeddings", body: `{"input":"x"}`, header: []string{"endpoint-load-metrics-format", "TEXT"}, status: 200, headers: []string{"endpoint-load-metrics", ""}},

	{section: "3.1", says: "health has no body", call: "GET /health", status: 200, want: "^$"},
	{section: "3.1", says: "ping", call: "POST /ping", status: 200, want: "^$"},
	{section: "3.1", says: "version", change: func(c *Config) { c.Version = "0.30.1" }, call: "GET /version", status: 200, want: `{"version":"0.30.1"}`},
	{section: "3.1", says: "load", call: "GET /load", status: 200, want: `{"server_load":0}`},
	{section: "3.1", says: "models", call: "GET /v1/models", status: 200, want: `~"root":"tiny","parent":null,"max_model_len":4096,"permission":[{"id":"modelperm-`},
	{section: "3.1", says: "a key guards /v1", change: key, call: "GET /v1/models", status: 401, want: `{"error":"Unauthorized"}`},
	{section: "3.1", says: "and /v2, even what is not there", change: key, call: "GET /v2/nothing", status: 401},
	{section: "3.1", says: "in any case of its scheme", change: key, call: "GET /v1/models", header: []string{"Authorization", "bearer k"}, status: 200},
	{section: "3.1", says: "not metrics", change: key, call: "GET /metrics", status: 200},
	{section: "3.1", says: "nor tokenize", change: key, call: "POST /tokenize", body: `{"prompt":"x"}`, status: 200, want: `{"count":2,"max_model_len":4096,"tokens":[4294967040,120],"token_strs":null}`},
	{section: "3.1", says: "nor scores", change: key, call: "POST /score", body: `{"text_1":"x","text_2":"x"}`, status: 200, want: `~"data":[{"index":0,"object":"score","score":1.0}]`},
	{section: "3.1", says: "detokenize", call: "POST /detokenize", body: `{"tokens":[120]}`, status: 200, want: `{"prompt":"x"}`},
	{section: "3.1", says: "rerank at three places", call: "POST /v2/rerank", body: `{"query":"x","documents":["x"]}`, status: 200, want: `~"results":[{"index":0,"document":{"text":"x","multi_modal":null},"relevance_score":1.0}]}`},
	{section: "3.1", says: "development routes are closed", call: "POST /sleep", status: 404, want: `{"detail":"Not Found"}`},
	{section: "3.1", says: "so is the control", call: "POST /emulator/restart", status: 404, want: `{"detail":"Not Found"}`},

	{section: "3.2", says: "X-Request-Id names the answer", call: "POST /v1/completions", body: short, header: []string{"X-Request-Id", "abc"}, status: 200, want: `~{"id":"cmpl-abc",`, headers: []string{"X-Request-Id", ""}},
	{section: "3.2", says: "it is echoed where told so", change: echo, call: "POST /v1/completions", body: short, header: []string{"X-Request-Id", "abc"}, status: 200, headers: []string{"X-Request-Id", "abc"}},
	{section: "3.2", says: "on every path", change: echo, call: "GET /nothing", header: []string{"X-Request-Id", "abc"}, status: 404, headers: []string{"X-Request-Id", "abc"}},
	{section: "3.2", says: "made up where it is missing", change: echo, call: "GET /health", status: 200, headers: []string{"X-Request-Id", "~^[0-9a-f]{12}4[0-9a-f]{19}$"}},
	{section: "3.2", says: "a rank that is not there", change: ranks(2), call: "POST /v1/completions", body: short, header: []string{"X-data-parallel-rank", "9"}, status: 400,
		want: `{"error":{"message":"data_parallel_rank 9 is out of range [0, 2).","type":"BadRequestError","param":null,"code":400}}`},
	{section: "3.2", says: "a negative one", change: ranks(2), call: "POST /v1/completions", body: short, header: []string{"X-data-parallel-rank", "-1"}, status: 400, want: "~data_parallel_rank -1 is out of range"},
	{section: "3.2", says: "a rank that is no number is ignored", call: "POST /v1/completions", body: short, header: []string{"X-data-parallel-rank", "one"}, status: 200},
	{section: "3.2", says: "completions have 16 tokens", call: "POST /v1/completions", body: `{"prompt":"x","ignore_eos":true}`, status: 200, want: `~"completion_tokens":16`},
	{section: "3.2", says: "unknown fields are ignored", call: "POST /v1/completions", body: `{"prompt":"x","max_tokens":1,"vllm_xargs":{},"nonsense":1}`, status: 200},

	{section: "3.3", says: "no details unless told so", change: func(c *Config) { c.HidePromptDetails = true }, call: "POST /v1/completions", body: short, status: 200, want: `~"prompt_tokens_details":null`},
	{section: "3.3", says: "ranks are in the fingerprint", change: ranks(2), call: "POST /v1/completions", body: short, status: 200, want: `~"system_fingerprint":"vllm-0.28.0-dp2-`},
	{section: "3.3", says: "tool_calls is dropped when empty", call: "POST /v1/chat/completions", body: shortChat(""), status: 200, not: "tool_calls"},

	{section: "3.4", says: "events are data lines", call: "POST /v1/chat/completions", body: shortChat(`,"stream":true`), status: 200, not: "event:", headers: []string{"Content-Type", "text/event-stream; charset=utf-8"}},
	{section: "3.4", says: "the end", call: "POST /v1/chat/completions", body: shortChat(`,"stream":true`), status: 200, want: "~\n\ndata: [DONE]\n\n"},
	{section: "3.4", says: "no usage unless asked for", call: "POST /v1/chat/completions", body: shortChat(`,"stream":true`), status: 200, not: "usage"},
	{section: "3.4", says: "the usage event", call: "POST /v1/chat/completions", body: shortChat(`,"stream":true,"stream_options":{"include_usage":true}`), status: 200,
		want: `~"choices":[],"usage":{"prompt_tokens":11,"total_tokens":13,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}},"system_fingerprint":`},
	{section: "3.4", says: "usage in every event", call: "POST /v1/chat/completions", body: shortChat(`,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`), status: 200,
		want: `~"finish_reason":null}],"usage":{"prompt_tokens":11,"total_tokens":11,"completion_tokens":0,"completion_tokens_details":null}`},
	{section: "3.4", says: "but only with include_usage", call: "POST /v1/chat/completions", body: shortChat(`,"stream":true,"stream_options":{"continuous_usage_stats":true}`), status: 200, not: "usage"},
	{section: "3.4", says: "a function's name comes first", call: "POST /v1/chat/completions", body: shortChat(`,"stream":true,"tools":[{"function":{"name":"f"}}],"tool_choice":"required"`), status: 200,
		want: `~"type":"function","index":0,"function":{"name":"f","arguments":"`},
	{section: "3.4", says: "a named choice ends with stop", call: "POST /v1/chat/completions", body: chatBody("x", `,"tools":[{"function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}}`), status: 200, want: `~"finish_reason":"stop"`},
	{section: "3.4", says: "another with tool_calls", call: "POST /v1/chat/completions", body: chatBody("x", `,"tools":[{"function":{"name":"f"}}],"tool_choice":"required"`), status: 200, want: `~"finish_reason":"tool_calls"`},
	{section: "3.4", says: "completions have no role", call: "POST /v1/completions", body: `{"prompt":"x","max_tokens":1,"stream":true}`, status: 200, want: `~"choices":[{"index":0,"text":"`, not: "role"},

	{section: "3.5", says: "unknown model", call: "POST /v1/chat/completions", body: `{"model":"x","messages":[]}`, status: 404,
		want: "{\"error\":{\"message\":\"The model `x` does not exist.\",\"type\":\"NotFoundError\",\"param\":\"model\",\"code\":404}}"},
	{section: "3.5", says: "too long", call: "POST /v1/completions", body: `{"prompt":"` + long + `"}`, status: 400,
		want: `{"error":{"message":"This model's maximum context length is 4096 tokens. However, you requested 16 output tokens and your prompt contains at least 4081 input tokens, for a total of at least 4097 tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=4081)","type":"BadRequestError","param":"input_tokens","code":400}}`},
	{section: "3.5", says: "too long, counted whole", call: "POST /v1/completions", body: `{"prompt":[` + strings.Repeat("1,", 4999) + `1]}`, status: 400,
		want: "~your prompt contains 5000 input tokens, for a total of 5016 tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=5000)"},
	{section: "3.5", says: "a missing field", call: "POST /v1/chat/completions", body: `{"model":"tiny"}`, status: 400,
		want: `{"error":{"message":"1 validation error:\n  {'type': 'missing', 'loc': ('body', 'messages'), 'msg': 'Field required'}","type":"Bad Request","param":"body.messages","code":400}}`},
	{section: "3.5", says: "no JSON", call: "POST /v1/responses", body: `{`, status: 400, want: `~{'type': 'json_invalid', 'loc': ('body', 0)`},
	{section: "3.5", says: "content type", call: "POST /v1/messages", body: shortMessage + "}", header: []string{"Content-Type", "text/plain"}, status: 400,
		want: `{"error":{"message":"1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed","type":"Bad Request","param":null,"code":400}}`},
	{section: "3.5", says: "unknown path", call: "POST /v1/nothing", body: `{}`, status: 404, want: `{"detail":"Not Found"}`},
	{section: "3.5", says: "wrong method", call: "GET /v1/chat/completions", status: 405, want: `{"detail":"Method Not Allowed"}`, headers: []string{"Allow", "POST"}},
	{section: "3.5", says: "HEAD is no GET", call: "HEAD /health", status: 405, headers: []string{"Allow", "GET"}},
	{section: "3.5", says: "of two methods the first is named", call: "PUT /ping", status: 405, headers: []string{"Allow", "GET"}},
	{section: "3.5", says: "a slash too many", call: "GET /v1/models/?a=b", status: 307, headers: []string{"Location", "http://" + address + "/v1/models?a=b"}},
	{section: "3.5", says: "a full queue", change: func(c *Config) { c.MaxQueued = 2 }, call: "POST /v1/completions", body: `{"prompt":"x","n":3,"stream":true}`, status: 503, want: `~"type":"QueueOverflowError","param":null,"code":503}}`},

	{section: "3.6", says: "no [DONE] in a response", call: "POST /v1/responses", body: `{"input":"x","max_output_tokens":2,"stream":true}`, status: 200, want: "~event: response.created\ndata: {", not: "[DONE]"},
	{section: "3.6", says: "ids begin with resp_", call: "POST /v1/responses", body: `{"input":"x","max_output_tokens":2}`, status: 200, want: `~{"id":"resp_`},
	{section: "3.6", says: "nothing is stored", call: "GET /v1/responses/resp_1", status: 404, want: `{"error":{"message":"Response with id 'resp_1' not found.","type":"invalid_request_error","param":"response_id","code":404}}`},
	{section: "3.6", says: "nor cancelled", call: "POST /v1/responses/resp_1/cancel", status: 404, want: "~'resp_1' not found"},
	{section: "3.6", says: "an unknown model of a message", call: "POST /v1/messages", body: `{"model":"x","max_tokens":1,"messages":[]}`, status: 404,
		want: "{\"type\":\"error\",\"error\":{\"type\":\"NotFoundError\",\"message\":\"The model `x` does not exist.\"}}"},
	{section: "3.6", says: "a mistake in one has the common shape", call: "POST /v1/messages", body: `{"model":"tiny","messages":[]}`, status: 400, want: `~{"error":{"message":"1 validation error:`},
	{section: "3.6", says: "usage of a message", call: "POST /v1/messages", body: shortMessage + "}", status: 200, want: `~"usage":{"input_tokens":11,"output_tokens":2,"cache_read_input_tokens":0}`},
	{section: "3.6", says: "tokens of a message", call: "POST /v1/messages/count_tokens", body: shortMessage + "}", status: 200, want: `{"input_tokens":11,"context_management":{"original_input_tokens":11}}`},
	{section: "3.6", says: "a salt keeps messages apart", call: "POST /v1/messages", body: shortMessage + `,"cache_salt":1}`, status: 400},
}

func key(c *Config)               { c.APIKey = "k" }
func echo(c *Config)              { c.EchoRequestIDs = true }
func ranks(n int) func(c *Config) { return func(c *Config) { c.Ranks = n } }

func TestServer_KeepsToVLLM(t *testing.T) {
	for _, x := range exchanges {
		t.Run(x.section+" "+x.says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := testConfig(t)
				c.Engine.MaxModelLen = 4096
				if x.change != nil {
					x.change(&c)
				}
				f := start(t, c)
				f.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
				method, path, _ := strings.Cut(x.call, " ")
				r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(x.body))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				for i := 0; i < len(x.header); i += 2 {
					r.Header.Set(x.header[i], x.header[i+1])
				}
				resp, err := f.client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				x.check(t, resp, string(body))
			})
		})
	}
}

func (x *exchange) check(t *testing.T, r *http.Response, body string) {
	t.Helper()
	if r.StatusCode != x.status {
		t.Errorf("status %d, want %d", r.StatusCode, x.status)
	}
	part, isPart := strings.CutPrefix(x.want, "~")
	switch {
	case x.want == "^$" && body == "", x.want == "", isPart && strings.Contains(body, part), body == x.want:
	default:
		t.Errorf("got %s\nwant %s", body, x.want)
	}
	if x.not != "" && strings.Contains(body, x.not) {
		t.Errorf("%q is in %s", x.not, body)
	}
	for i := 0; i < len(x.headers); i += 2 {
		got := r.Header.Get(x.headers[i])
		if pattern, ok := strings.CutPrefix(x.headers[i+1], "~"); ok {
			if !regexp.MustCompile(pattern).MatchString(got) {
				t.Errorf("%s is %q, want %s", x.headers[i], got, pattern)
			}
		} else if got != x.headers[i+1] {
			t.Errorf("%s is %q, want %q", x.headers[i], got, x.headers[i+1])
		}
	}
}

// The head of a stream comes at once and its first event with the first output; a
// response's first two events come with the head.
func TestServer_SendsTheHeadBeforeTheFirstOutput(t *testing.T) {
	for _, x := range []struct{ path, body, first string }{
		{"/v1/chat/completions", shortChat(`,"stream":true`), ""},
		{"/v1/messages", shortMessage + `,"stream":true}`, ""},
		{"/v1/responses", `{"input":"x","max_output_tokens":2,"stream":true}`, "event: response.created"},
	} {
		t.Run(x.path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, testConfig(t))
				r, err := f.post(t.Context(), x.path, x.body)
				if err != nil {
					t.Fatal(err)
				}
				defer r.Body.Close()
				if f.now() != 0 {
					t.Errorf("the head came after %v", f.now().Duration())
				}
				buf := make([]byte, len("event: response.created"))
				if _, err := io.ReadFull(r.Body, buf); err != nil {
					t.Fatal(err)
				}
				if early := f.now() == 0; early != (x.first != "") || early && string(buf) != x.first {
					t.Errorf("%q came after %v", buf, f.now().Duration())
				}
				_, _ = io.Copy(io.Discard, r.Body)
			})
		})
	}
}

// /load counts what is in flight, whether the engine works on it or not.
func TestServer_CountsTheCallsInFlight(t *testing.T) {
	for _, track := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := testConfig(t)
			c.TrackLoad = track
			f := start(t, c)
			for i := range 3 {
				go func() { _, _ = f.stream(chatBody(fmt.Sprint(i), `,"max_tokens":50,"ignore_eos":true,"stream":true`)) }()
			}
			time.Sleep(50 * time.Millisecond)
			want := map[bool]string{true: `{"server_load":3}`, false: `{"server_load":0}`}[track]
			if _, got := f.get("/load"); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			time.Sleep(time.Minute)
			if _, got := f.get("/load"); got != `{"server_load":0}` {
				t.Errorf("%s in the end", got)
			}
		})
	}
}

// The bound on the queue counts what runs and waits, over all ranks.
func TestServer_WhenTheQueueIsFull_Refuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(t)
		c.MaxQueued, c.Ranks, c.Engine.MaxSeqs = 3, 2, 1
		f := start(t, c)
		for i := range 3 {
			go func() { _, _ = f.stream(chatBody(fmt.Sprint(i), `,"max_tokens":50,"ignore_eos":true,"stream":true`)) }()
		}
		time.Sleep(10 * time.Millisecond)
		if status, body := f.do("/v1/messages", shortMessage+"}"); status != 503 || !strings.Contains(body, `{"type":"error","error":{"type":"QueueOverflowError"`) {
			t.Errorf("%d %s", status, body)
		}
		time.Sleep(time.Minute)
		if status, body := f.do("/v1/completions", short); status != 200 {
			t.Errorf("%d %s", status, body)
		}
	})
}
