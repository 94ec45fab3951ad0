package proxy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
)

// adapted gives the model two adapters.
func adapted(s setup) setup {
	s.config = func(c *proxy.Config) { c.Models[0].Adapters = []string{"sql", "org/chat"} }
	return s
}

// An adapter's name reaches the endpoint as it came, whatever the pool calls the model, and
// counts as the model's.
func TestAdapter_PassesOnUntouched(t *testing.T) {
	odd := ` {"messages":[{"role":"user","content":"sql"}], "model" : %s , "temperature":0.10 }` + "\n"
	for _, asked := range []string{`"sql"`, `"s\u0071l"`, `"org/chat"`} {
		s := adapted(ordered(good))
		s.servedAs = "inner"
		r := newRig(t, s)
		if a := r.post(chatPath, fmt.Sprintf(odd, asked)); a.status != 200 {
			t.Errorf("%s: status %d, %q", asked, a.status, a.body)
		}
		if got, want := string(r.upstreams[0].Calls()[0].Body), fmt.Sprintf(odd, asked); got != want {
			t.Errorf("%s: the endpoint got %q\nwant %q", asked, got, want)
		}
		if c := r.record(); c.string("model") != testModel {
			t.Errorf("%s: record %v", asked, c)
		}
		if a := r.post(chatPath, fmt.Sprintf(odd, `"sql-2"`)); a.status != 404 || envelope(t, a.body).Code != "model_not_found" {
			t.Errorf("an unknown adapter: status %d, %q", a.status, a.body)
		}
		r.close()
	}
}

func TestAdapter_IsListedWithItsParent(t *testing.T) {
	r := newRig(t, adapted(ordered(good)))
	defer r.close()
	list := r.get("/v1/models")
	for _, want := range []string{`"id":"sql",`, `"id":"org/chat",`} {
		if !strings.Contains(list.body, want) || strings.Count(list.body, `"parent":"m"`) != 2 {
			t.Errorf("%s has no %s", list.body, want)
		}
	}
	if a := r.get("/v1/models/org/chat"); a.status != 200 || !strings.Contains(a.body, `"parent":"m"`) {
		t.Errorf("status %d, %s", a.status, a.body)
	}
	if a := r.get("/v1/models/" + testModel); strings.Contains(a.body, "parent") {
		t.Errorf("the model has a parent: %s", a.body)
	}
	if v := r.gateway.Pools()[0]; strings.Join(v.Adapters, " ") != "sql org/chat" {
		t.Errorf("the view has the adapters %v", v.Adapters)
	}
}

func TestAdapter_NamesAreUnique(t *testing.T) {
	for _, name := range []string{testModel, testAlias, "twice"} {
		cfg := proxy.Config{}
		s := ordered(good)
		s.config = func(c *proxy.Config) { cfg = *c }
		r := newRig(t, s)
		cfg.Models = append([]proxy.Model(nil), cfg.Models...)
		cfg.Models[0].Adapters = []string{"twice", name}
		if err := r.gateway.Apply(cfg); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("name %q", name)) {
			t.Errorf("%s: %v", name, err)
		}
		r.close()
	}
}

// decided is what the tests read of a decision.
type decided struct {
	Reason     string
	Candidates []struct {
		Endpoint string
		Overlap  int `json:"overlap_blocks"`
	}
}

func (a answer) decision(t *testing.T) (d decided) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.header.Get("X-Kvasir-Explain")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// A prompt is believed to be where calls of its own adapter brought it, and nowhere else.
func TestAdapter_SharesNoPrefix(t *testing.T) {
	s := adapted(ordered(good))
	s.policy = "cache-aware"
	r := newRig(t, s)
	defer r.close()
	body := `{"model":%q,"messages":[{"role":"user","content":"` + strings.Repeat("one long prompt ", 100) + `"}]}`
	seen := map[string]bool{}
	for _, model := range []string{testModel, "sql", "sql", "org/chat", testAlias, "org/chat", "sql"} {
		d := r.post(chatPath, fmt.Sprintf(body, model), "X-Kvasir-Explain: 1").decision(t)
		chain := strings.Replace(model, testAlias, testModel, 1)
		if found := d.Candidates[0].Overlap > 0; found != seen[chain] {
			t.Errorf("%s: %d blocks, want some: %v", model, d.Candidates[0].Overlap, seen[chain])
		}
		seen[chain] = true
	}
}

// lora-affinity sends a call to where one of its adapter is.
func TestAdapter_IsWhatThePolicyGoesBy(t *testing.T) {
	release := make(chan struct{})
	wait := func(c *scripted.Call) {
		<-release
		good(c)
	}
	s := adapted(pooled(wait, wait, wait))
	s.policy = "lora-affinity"
	r := newRig(t, s)
	defer r.close()
	body := `{"model":%q,"messages":[{"role":"user","content":"x"}]}`
	answers := make(chan answer)
	ask := func(model string, n int) {
		t.Helper()
		go func() { answers <- r.post(chatPath, fmt.Sprintf(body, model), "X-Kvasir-Explain: 1") }()
		eventually(t, 5e9, func() bool {
			calls := 0
			for _, up := range r.upstreams {
				calls += len(up.Calls())
			}
			return calls == n
		}, func() string { return "a call did not reach its endpoint" })
	}
	for i, model := range []string{"sql", "org/chat", "sql", "org/chat", "sql", testModel} {
		ask(model, i+1)
	}
	at := map[string]map[string]bool{}
	for _, up := range r.upstreams {
		for _, c := range up.Calls() {
			var q struct{ Model string }
			if err := json.Unmarshal(c.Body, &q); err != nil {
				t.Fatal(err)
			}
			if at[q.Model] == nil {
				at[q.Model] = map[string]bool{}
			}
			at[q.Model][up.Addr()] = true
		}
	}
	if len(at["sql"]) != 1 || len(at["org/chat"]) != 1 || len(at[testModel]) != 1 {
		t.Errorf("calls of one adapter are at several endpoints: %v", at)
	}
	close(release)
	reasons := map[string]int{}
	for range 6 {
		reasons[(<-answers).decision(t).Reason]++
	}
	if reasons["empty-slot"] != 2 || reasons["active"] != 3 || reasons["base-model"] != 1 {
		t.Errorf("reasons %v", reasons)
	}
}
