package api

import (
	"bytes"
	"encoding/json"
	"testing"
)

// TestPriorityEdit_SetsOneFieldAndNoOther: the engine reads the priority that is set, and
// every other byte is as it came.
func TestPriorityEdit_SetsOneFieldAndNoOther(t *testing.T) {
	for _, c := range []struct {
		body, want string
		own        int
	}{
		{`{"model":"m","prompt":"a"}`, `{"priority":-3,"model":"m","prompt":"a"}`, 0},
		{` { "model":"m", "priority" : 12 ,"prompt":"a"}`, ` { "model":"m", "priority" : -3 ,"prompt":"a"}`, 12},
		{`{"model":"m","priority":null}`, `{"model":"m","priority":-3}`, 0},
		{`{"model":"m","priority":"high"}`, `{"model":"m","priority":-3}`, 0},
		{`{"model":"m","priority":-7}`, `{"model":"m","priority":-3}`, -7},
	} {
		var r Reader
		q, err := r.Read(Completions, []byte(c.body))
		if err != nil || q.Priority != c.own {
			t.Errorf("%s: %v, own priority %d, want %d", c.body, err, q.Priority, c.own)
		}
		got := string(bytes.Join(Splice([]byte(c.body), PriorityEdit([]byte(c.body), &q, -3)), nil))
		if got != c.want || !json.Valid([]byte(got)) {
			t.Errorf("%s becomes %s, want %s", c.body, got, c.want)
		}
	}
	for g, want := range map[Grammar]bool{Chat: true, Completions: true, Responses: true, Embeddings: true, Messages: false, Tokenize: false, Upload: false} {
		if g.TakesPriority() != want {
			t.Errorf("%v: %v", grammars[g].name, !want)
		}
	}
}
