package emulator

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestHandler_ErrorsHaveVLLMsShapes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(t)
		c.MaxBodyBytes = 100_000
		c.Engine.MaxModelLen = 4096
		f := start(t, c)
		for _, x := range []struct {
			name, path, body, kind string
			status                 int
			want                   string
		}{
			{"unknown model", "/v1/chat/completions", `{"model":"x","messages":[]}`, "", 404,
				"{\"error\":{\"message\":\"The model `x` does not exist.\",\"type\":\"NotFoundError\",\"param\":\"model\",\"code\":404}}"},
			{"no messages", "/v1/chat/completions", `{"model":"tiny"}`, "", 400,
				`{"error":{"message":"1 validation error:\n  {'type': 'missing', 'loc': ('body', 'messages'), 'msg': 'Field required'}","type":"Bad Request","param":"body.messages","code":400}}`},
			{"not JSON", "/v1/completions", `{`, "", 400,
				`{"error":{"message":"1 validation error:\n  {'type': 'json_invalid', 'loc': ('body', 0), 'msg': 'JSON decode error'}","type":"Bad Request","param":"body.0","code":400}}`},
			{"media type", "/v1/completions", `{"prompt":"x"}`, "text/plain", 400,
				`{"error":{"message":"1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed","type":"Bad Request","param":null,"code":400}}`},
			{"too long", "/v1/completions", `{"prompt":"` + strings.Repeat("word", 4999) + `"}`, "", 400,
				`{"error":{"message":"This model's maximum context length is 4096 tokens. However, you requested 16 output tokens and your prompt contains at least 4081 input tokens, for a total of at least 4097 tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=4081)","type":"BadRequestError","param":"input_tokens","code":400}}`},
			{"too large", "/v1/completions", `{"prompt":"` + strings.Repeat("word", 30000) + `"}`, "", 413,
				`{"error":{"message":"The body is longer than 100000 bytes.","type":"Request Entity Too Large","param":null,"code":413}}`},
			{"unknown path", "/v1/nothing", `{}`, "", 404, `{"detail":"Not Found"}`},
			{"wrong method", "/v1/models", `{}`, "", 405, `{"detail":"Method Not Allowed"}`},
		} {
			kind := x.kind
			if kind == "" {
				kind = "application/json; charset=utf-8"
			}
			if status, got := f.do(x.path, x.body, "Content-Type", kind); status != x.status || got != x.want {
				t.Errorf("%s: got %d %s\nwant %d %s", x.name, status, got, x.status, x.want)
			}
		}
		r, err := f.client.Get("http://" + address + "/v1/chat/completions")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != 405 || r.Header.Get("Allow") != "POST" {
			t.Errorf("GET: %d, allow %q", r.StatusCode, r.Header.Get("Allow"))
		}
	})
}

func TestHandler_ServesWhatIsAroundTheCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, testConfig(t))
		for path, want := range map[string]string{
			"/health": "", "/ping": "", "/version": `{"version":"0.28.0"}`,
		} {
			if status, body := f.get(path); status != 200 || body != want {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
		if status, body := f.do("/ping", ""); status != 200 || body != "" {
			t.Errorf("POST /ping: %d %s", status, body)
		}
		status, body := f.get("/v1/models")
		for _, want := range []string{
			`{"object":"list","data":[{"id":"tiny","object":"model","created":946684800,"owned_by":"vllm","root":"tiny","parent":null,"max_model_len":8192,"permission":[{"id":"modelperm-`,
			`"is_blocking":false}]},{"id":"alias","object":"model",`,
		} {
			if status != 200 || !strings.Contains(body, want) {
				t.Errorf("%d %s\nhas no %s", status, body, want)
			}
		}
	})
}

func TestHandler_WhenAKeyIsSet_AsksForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(t)
		c.APIKey = "k"
		f := start(t, c)
		if status, body := f.do("/v1/completions", `{"prompt":"x"}`); status != http.StatusUnauthorized || body != `{"error":"Unauthorized"}` {
			t.Errorf("%d %s", status, body)
		}
		if status, body := f.do("/v1/completions", `{"prompt":"x"}`, "Authorization", "Bearer k"); status != 200 {
			t.Errorf("%d %s", status, body)
		}
		if status, _ := f.get("/metrics"); status != 200 {
			t.Errorf("metrics: %d", status)
		}
	})
}

func TestHandler_NamesAnswersAsTheCallAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, testConfig(t))
		for _, x := range []struct{ body, header, want string }{
			{`{"prompt":"x"}`, "h\"1", `{"id":"cmpl-h\"1",`},
			{`{"prompt":"x","request_id":"b"}`, "", `{"id":"cmpl-b",`},
			{`{"prompt":"x","request_id":"b"}`, "h", `{"id":"cmpl-h",`},
			{`{"prompt":"x","model":"alias"}`, "h", `,"model":"tiny",`},
		} {
			var header []string
			if x.header != "" {
				header = []string{"X-Request-Id", x.header}
			}
			if _, got := f.do("/v1/completions", x.body, header...); !strings.Contains(got, x.want) {
				t.Errorf("%s gave %s", x.body, got)
			}
		}
		_, a := f.do("/v1/completions", `{"prompt":"x"}`)
		_, b := f.do("/v1/completions", `{"prompt":"x"}`)
		if a[:30] == b[:30] {
			t.Error("two calls without an id have one id")
		}
	})
}

func TestHandler_WhenDetailsAreHidden_UsageHasNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(t)
		c.HidePromptDetails = true
		f := start(t, c)
		if _, got := f.do("/v1/completions", `{"prompt":"x"}`); !strings.Contains(got, `"prompt_tokens_details":null`) {
			t.Error(got)
		}
		if _, got := f.do("/v1/chat/completions", chatBody("x", `,"stream":true,"stream_options":{"include_usage":true}`)); strings.Contains(got, "prompt_tokens_details") {
			t.Error(got)
		}
	})
}

func TestHandler_WhenTheEngineIsFull_Refuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(t)
		c.Engine.MaxRequests = 2
		f := start(t, c)
		status, got := f.do("/v1/completions", `{"prompt":["a","b","c"]}`)
		if status != 503 || !strings.Contains(got, `"code":503`) {
			t.Errorf("%d %s", status, got)
		}
		// What had been submitted of the refused call is taken back, a nanosecond later.
		time.Sleep(time.Microsecond)
		if status, got = f.do("/v1/completions", `{"prompt":["a","b"]}`); status != 200 {
			t.Errorf("%d %s", status, got)
		}
	})
}
