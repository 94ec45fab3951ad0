package emulator

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/engine"
)

func loraConfig(t testing.TB) Config {
	c := testConfig(t)
	c.Adapters = []Adapter{{Name: "sql", Path: "/loras/sql"}, {Name: "chat"}, {Name: "law"}}
	c.Engine.LoRA = engine.LoRA{MaxLoRAs: 2, MaxCPULoRAs: 2, LoadFromHost: 5 * time.Millisecond, LoadFromDisk: 100 * time.Millisecond}
	return c
}

// An adapter has a card beside the models', whose parent is the engine's own.
func TestLoRA_AdaptersAreModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, loraConfig(t))
		_, body := f.get("/v1/models")
		for _, want := range []string{
			`{"id":"tiny","object":"model","created":946684800,"owned_by":"vllm","root":"tiny","parent":null,"max_model_len":8192,"permission":[`,
			`,{"id":"sql","object":"model","created":946684800,"owned_by":"vllm","root":"/loras/sql","parent":"tiny","max_model_len":null,"permission":[{"id":"modelperm-`,
			`,{"id":"chat","object":"model","created":946684800,"owned_by":"vllm","root":"chat","parent":"tiny","max_model_len":null,`,
		} {
			if !strings.Contains(body, want) {
				t.Errorf("%s\nhas no %s", body, want)
			}
		}
		if status, body := f.do("/v1/chat/completions", `{"model":"sql-2","messages":[{"role":"user","content":"x"}]}`); status != 404 ||
			body != `{"error":{"message":"The model `+"`sql-2`"+` does not exist.","type":"NotFoundError","param":"model","code":404}}` {
			t.Errorf("an unknown adapter: %d %s", status, body)
		}
		for model, want := range map[string]string{"sql": "sql", "alias": "tiny", "tiny": "tiny"} {
			for path, in := range map[string]string{
				"/v1/completions": `"prompt":"x","max_tokens":2`, "/v1/chat/completions": `"messages":[{"role":"user","content":"x"}],"max_tokens":2`,
				"/v1/responses": `"input":"x","max_output_tokens":2`, "/v1/messages": `"messages":[{"role":"user","content":"x"}],"max_tokens":2`,
				"/v1/embeddings": `"input":"x"`,
			} {
				if status, body := f.do(path, fmt.Sprintf(`{"model":%q,%s}`, model, in)); status != 200 || !strings.Contains(body, fmt.Sprintf(`"model":%q`, want)) {
					t.Errorf("%s asked for %s: %d %s, want the model %s", path, model, status, body, want)
				}
			}
		}
	})
}

// A prompt is found in the cache by calls of its own adapter alone, and a step waits for what
// it loads.
func TestLoRA_AdaptersShareNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, loraConfig(t))
		prompt := strings.Repeat("The same words again. ", 200)
		ask := func(model string) (cached string, took time.Duration) {
			begin := time.Now()
			_, body := f.do("/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":1}`, model, prompt))
			_, rest, _ := strings.Cut(body, `"cached_tokens":`)
			cached, _, _ = strings.Cut(rest, ",")
			return cached, time.Since(begin)
		}
		for _, x := range []struct {
			model string
			found bool
			loads time.Duration
		}{
			{"tiny", false, 0}, {"tiny", true, 0}, {"sql", false, 105 * time.Millisecond}, {"sql", true, 0}, {"chat", false, 105 * time.Millisecond},
			{"sql", true, 0}, {"law", false, 105 * time.Millisecond}, {"sql", true, 0}, {"chat", true, 105 * time.Millisecond},
		} {
			cached, took := ask(x.model)
			if found := cached != "0" && cached != ""; found != x.found || took.Truncate(105*time.Millisecond) != x.loads {
				t.Errorf("%s: %s tokens cached, %v; want found: %v, of it %v of loading", x.model, cached, took, x.found, x.loads)
			}
		}
	})
}

// The page has a series for every set of adapters in flight, named in both lists, whose value
// is when that was so; nothing before the first step, and no family without adapters.
func TestLoRA_MetricsNameWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := loraConfig(t)
		c.Engine.LoRA.MaxLoRAs = 1
		f := start(t, c)
		const family = "# HELP vllm:lora_requests_info Running stats on lora requests.\n# TYPE vllm:lora_requests_info gauge\n"
		page := func() string {
			_, text := f.get("/metrics")
			_, rest, ok := strings.Cut(text, family)
			if !ok {
				t.Fatalf("there is no %s", family)
			}
			before, _, _ := strings.Cut(rest, "# HELP vllm:cache_config_info")
			return before
		}
		line := func(adapters string, at time.Time) string {
			return fmt.Sprintf("vllm:lora_requests_info{max_lora=\"1\",running_lora_adapters=%q,waiting_lora_adapters=%[1]q} %s\n", adapters, number(seconds(at)))
		}
		if got := page(); got != "" {
			t.Errorf("before the first step: %s", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, model := range []string{"sql", "chat", "tiny"} {
			go func() {
				if r, err := f.post(ctx, "/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":"x","max_tokens":2000,"ignore_eos":true,"stream":true}`, model)); err == nil {
					defer r.Body.Close()
					_, _ = f.read(r)
				}
			}()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		got := page()
		if n := strings.Count(got, "\n"); n != 2 || !strings.Contains(got, `running_lora_adapters="sql,chat",waiting_lora_adapters="sql,chat"} 9.4668`) ||
			!strings.Contains(got, `running_lora_adapters="sql",waiting_lora_adapters="sql"} 9.4668`) {
			t.Errorf("with sql running and chat waiting:\n%s", got)
		}
		_, all := f.get("/metrics")
		for reason, n := range map[string]string{"capacity": "0.0", "deferred": "1.0"} {
			if want := fmt.Sprintf("vllm:num_requests_waiting_by_reason{engine=\"0\",model_name=\"tiny\",reason=%q} %s\n", reason, n); !strings.Contains(all, want) {
				t.Errorf("there is no %s", want)
			}
		}
		cancel()
		time.Sleep(time.Second)
		if got := page(); !strings.Contains(got, `running_lora_adapters="",waiting_lora_adapters=""}`) {
			t.Errorf("after all clients have left:\n%s", got)
		}
		if got := page(); strings.Contains(got, number(seconds(time.Now()))) {
			t.Errorf("an idle engine, at %v:\n%s\nhas a new time", time.Now(), got)
		}
		if status, _ := f.do("/v1/completions", `{"prompt":"x","max_tokens":1}`); status != 200 {
			t.Errorf("status %d", status)
		}
		if got := page(); !strings.Contains(got, line("", time.Now())) {
			t.Errorf("after a step of the base model alone, at %v:\n%s\nhas no\n%s", time.Now(), got, line("", time.Now()))
		}
		if err := f.server.Restart(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if got := page(); got != "" {
			t.Errorf("after a restart: %s", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		if _, text := start(t, testConfig(t)).get("/metrics"); strings.Contains(text, "lora") {
			t.Error("an engine without adapters has a family for them")
		}
	})
}

// Label sets of the past are bounded; the newest stay.
func TestLoRA_KeepsTheNewestLabels(t *testing.T) {
	var l loraInfo
	for i := range 3 * mostLoRALabels {
		l.set(fmt.Sprint(i%100), time.Unix(int64(i), 0))
	}
	if len(l.series) != mostLoRALabels {
		t.Errorf("%d label sets are kept", len(l.series))
	}
	for _, s := range l.series {
		if s.at < 2*mostLoRALabels {
			t.Errorf("%+v is old", s)
		}
	}
	now := time.Unix(1e9, 0)
	l.set("a", now)
	l.set("b", now)
	if n := len(l.series); l.series[n-1].at <= l.series[n-2].at {
		t.Errorf("what came later is not newer: %+v", l.series[n-2:])
	}
}

func TestLoRA_RefusesWhatCannotBe(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Adapters[1].Name = "" }, "Adapters is ; allowed: names that are not empty"},
		{func(c *Config) { c.Adapters[1].Name = "a,b" }, "Adapters is a,b; allowed"},
		{func(c *Config) { c.Adapters[1].Name = "sql" }, "Adapters is sql; allowed"},
		{func(c *Config) { c.Adapters[1].Name = "alias" }, "Adapters is alias; allowed"},
		{func(c *Config) { c.Engine.LoRA = engine.LoRA{} }, "Engine.LoRA.MaxLoRAs is 0; allowed: 1 or more"},
	} {
		cfg := loraConfig(t)
		c.change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
