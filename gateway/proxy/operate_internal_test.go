package proxy

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// FuzzReadOperation: what is accepted is one object that says each thing once.
func FuzzReadOperation(f *testing.F) {
	for _, s := range []string{
		``, ` `, `null`, `{}`, `[]`, `{"model":"m","pool":"p","endpoint":"e","url":"http://e","weight":2.5,"policy":"random"}`,
		`{"model":"m"} {}`, `{"model":"m","MODEL":"n"}`, `{"model":null}`, `{"weight":1e999}`, `{"model":{"a":1}}`, `{"model":"m"`, "{\"poo\u017f\":1}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		op, err := readOperation(bytes.NewReader(text))
		if err != nil {
			return
		}
		written, err := json.Marshal(op)
		if err != nil {
			t.Fatal(err)
		}
		again, err := readOperation(bytes.NewReader(written))
		if err != nil || again != op {
			t.Errorf("%q is %+v, and written anew %+v, %v", text, op, again, err)
		}
		text = bytes.TrimSpace(text)
		if len(text) == 0 {
			return
		}
		if op, err := readOperation(strings.NewReader(string(text) + ` {}`)); err == nil {
			t.Errorf("%q with an object after it is %+v", text, op)
		}
		if rest, ok := bytes.CutPrefix(text, []byte("{")); ok && len(bytes.TrimSpace(rest)) > 1 {
			if op, err := readOperation(strings.NewReader(`{"model":"a","Model":"b",` + string(rest))); err == nil {
				t.Errorf("%q with a model twice is %+v", text, op)
			}
		}
	})
}
