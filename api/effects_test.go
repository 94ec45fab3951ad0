package api

import "testing"

func TestEffects(t *testing.T) {
	for _, c := range []struct {
		grammar Grammar
		body    string
		want    bool
	}{
		{Chat, `{"model":"m","messages":[]}`, false},
		{Chat, `{"model":"m","messages":[],"store":false,"tools":[]}`, false},
		{Chat, `{"model":"m","messages":[],"store":true}`, true},
		{Chat, `{"model":"m","messages":[],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]}`, false},
		{Chat, `{"model":"m","messages":[],"tools":[{"function":{"type":"web_search"}},{"type":"custom"}]}`, false},
		{Chat, `{"model":"m","messages":[],"tools":[{"type":"function"},{"name":"x","type":"browser_search"}]}`, true},
		{Responses, `{"model":"m","input":"x"}`, false},
		{Responses, `{"model":"m","input":"x","store":null,"background":false}`, false},
		{Responses, `{"model":"m","input":"x","background":true}`, true},
		{Responses, `{"model":"m","input":"x","previous_response_id":"r"}`, true},
		{Responses, `{"model":"m","input":"x","conversation":{"id":"c"}}`, true},
		{Responses, `{"model":"m","input":"x","tools":[{"type":"web_search"}]}`, true},
		{Responses, `{"model":"m","input":"x","tools":[ { "type" : "function" } ]}`, false},
		{Responses, `{"model":"m","input":"x","tools":"web_search"}`, false},
		{Messages, `{"model":"m","messages":[],"tools":[{"name":"f","input_schema":{"type":"object"}}]}`, false},
		{Messages, `{"model":"m","messages":[],"tools":[{"type":"web_search_20250305","name":"web_search"}]}`, true},
		{Messages, `{"model":"m","messages":[],"mcp_servers":[{"type":"url"}]}`, true},
		{Messages, `{"model":"m","messages":[],"container":"c"}`, true},
		{Embeddings, `{"model":"m","input":"x","store":true}`, false}, // it does not mean anything there
	} {
		var r Reader
		if _, err := r.Read(c.grammar, []byte(c.body)); err != nil {
			t.Errorf("%s: %v", c.body, err)
			continue
		}
		if got := r.Effects(); got != c.want {
			t.Errorf("%s: %v", c.body, got)
		}
		if n := testing.AllocsPerRun(10, func() { r.Effects() }); n > 0 {
			t.Errorf("%s: %v allocations", c.body, n)
		}
	}
}

// FuzzEffects: whatever is in tools, it is read to its end.
func FuzzEffects(f *testing.F) {
	for _, tools := range []string{`[]`, `[{"type":"function"}]`, `[{"type":"web_search"}]`, `[{`, `[[{"type":1}]]`, `{"type":"x"}`, `[{"a":[1,{"type":"x"}]},null]`} {
		f.Add(tools)
	}
	f.Fuzz(func(t *testing.T, tools string) {
		var r Reader
		if _, err := r.Read(Chat, []byte(`{"model":"m","messages":[],"tools":`+tools+`}`)); err != nil {
			return
		}
		first := r.Effects()
		if r.Effects() != first {
			t.Errorf("%s: not the same twice", tools)
		}
	})
}
