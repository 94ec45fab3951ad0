package load

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzMalformed(f *testing.F) {
	for _, s := range []string{
		"", " ", "{}", " {\t}\n", wordChunk, "{not json", `{"a":[1,-2.5e+3,0.1E-2,true,false,null,{}],"b":"\u00e9\"\\\/\b\f\n\r\t"}`,
		`{"a":01}`, `{"a":1.}`, `{"a":-}`, `{"a":1e}`, `{"a":+1}`, `{"a":.5}`, `{"a":"\u00g0"}`, "{\"a\":\"\\u00\x100\"}", `{"a":"\x"}`, "{\"a\":\"\t\"}", "{\"a\":\"\xff\"}",
		`{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{"a":1 "b":2}`, `{a:1}`, `[1]`, `{"a":[1,]}`, `{"a":[1}`, `{} {}`, "{}\x00", "{\x00}", `{"a":"`, `{"a":tru}`, `{"a":truex}`, `"a"`, `1`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		object := bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{"))
		if want := len(data) > 0 && !(object && utf8.Valid(data) && json.Valid(data)); malformed(data) != want && bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) < deepest {
			t.Errorf("%q is malformed: %v", data, want)
		}
	})
}

func TestMalformed_BoundsDepth(t *testing.T) {
	nested := func(n int) []byte {
		return []byte(strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n))
	}
	if malformed(nested(deepest)) || !malformed(nested(deepest+1)) || !malformed(nested(1e6)) {
		t.Error("the bound on depth does not hold")
	}
}

// BenchmarkMalformed is what checking the data of a token's event costs.
func BenchmarkMalformed(b *testing.B) {
	data := []byte(wordChunk)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if malformed(data) {
			b.Fatal("a chunk is malformed")
		}
	}
}
