package trace

import "testing"

// TestExcerpt_IsOfTheValueAlone: what follows a value is none of it.
func TestExcerpt_IsOfTheValueAlone(t *testing.T) {
	for _, x := range [][2]string{
		{`"a,\"b", "c": 1}`, `"\"a,\\\"b\""`},
		{`true, "c": 1}`, `"true"`},
		{`12x]`, `"12x"`},
		{`[1, {"a": "]"}], "c": 1}`, `"[1, {\"a\": \"]\"}]"`},
		{`, 1`, "missing"},
		{`"0123456789012345678901234567", 1`, `"\"01234567890123456789012"…`},
		{`"abc`, `"\"abc"`},
	} {
		s := scanner{b: []byte("{" + x[0])}
		if got := s.excerpt(1); got != x[1] {
			t.Errorf("%s: %s, want %s", x[0], got, x[1])
		}
	}
}
