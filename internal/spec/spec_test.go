package spec

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

type shared struct {
	Wait time.Duration `spec:"wait" doc:"how long"`
}

type thing struct {
	shared
	Count  int     `spec:"count" doc:"how many there are"`
	Share  float64 `spec:"share" doc:"which part of them"`
	Loud   bool    `spec:"loud" doc:"whether it makes a noise"`
	Word   string  `spec:"word" doc:"what it says"`
	Even   evenNum `spec:"even" doc:"a type with a text of its own"`
	Hidden int
}

type evenNum int

func (e *evenNum) UnmarshalText(text []byte) error {
	var n int
	if _, err := fmt.Sscanf(string(text), "%d", &n); err != nil || n%2 == 1 {
		return errors.New("an even number")
	}
	*e = evenNum(n)
	return nil
}

func (e *evenNum) String() string { return fmt.Sprint(int(*e)) }

func catalog() Catalog[*thing] {
	return Catalog[*thing]{"a thing", []Entry[*thing]{
		{"one", "the first thing", "a test", func() *thing { return &thing{Count: 3, Share: 0.5, Word: "hm", Even: 4} }},
		{"two-more", "the second thing, with an explanation that is so long that it does not fit on a line of a hundred characters", "the same test", func() *thing { return &thing{} }},
	}}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]thing{
		"one":                                    {Count: 3, Share: 0.5, Word: "hm", Even: 4},
		"one:count=7,wait=90s":                   {shared: shared{90 * time.Second}, Count: 7, Share: 0.5, Word: "hm", Even: 4},
		"two-more:share=inf,loud=true":           {Share: math.Inf(1), Loud: true},
		"two-more:word=a=b:c,even=-2,share=1e+9": {Word: "a=b:c", Even: -2, Share: 1e9},
		"two-more:word=":                         {},
	} {
		if _, got, err := catalog().Parse(text); err != nil || *got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestParse_NamesEveryMistake(t *testing.T) {
	long := strings.Repeat("x", 100)
	for text, want := range map[string]string{
		"":              `"" is not a thing; allowed: one, two-more`,
		"three:count=1": `"three" is not a thing; allowed: one, two-more`,
		long:            `"` + long[:60] + `…" is not a thing; allowed: one, two-more`,
		"one:":          `one: part 1 is ""; allowed: key=value, several of them separated by commas`,
		"one:count=1,loud,=3": "one: part 2 is \"loud\"; allowed: key=value, several of them separated by commas\n" +
			"one: part 3 is \"=3\"; allowed: key=value, several of them separated by commas",
		"one:count=1,count=2": "one: count is there twice",
		"one:Hidden=1":        `one: "Hidden" is no key; allowed: wait, count, share, loud, word, even`,
		"one:count=1.5,wait=9,loud=si,share=x,even=3": "one: count is \"1.5\"; allowed: a whole number\n" +
			"one: wait is \"9\"; allowed: a duration such as 90s or 1h30m\n" +
			"one: loud is \"si\"; allowed: true or false\n" +
			"one: share is \"x\"; allowed: a number\n" +
			"one: even is \"3\"; allowed: an even number",
		"one:word=" + strings.Repeat("y", maxText): "65545 bytes are too long; allowed: 65536",
	} {
		if _, _, err := catalog().Parse(text); err == nil || err.Error() != want {
			t.Errorf("%.40s: %v\nwant %s", text, err, want)
		}
	}
}

func TestFormat_IsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := catalog().Entries[rapid.IntRange(0, 1).Draw(t, "entry")]
		want := thing{
			shared: shared{time.Duration(rapid.Int64().Draw(t, "wait"))}, Count: rapid.Int().Draw(t, "count"),
			Share: rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.Inf(1), math.Inf(-1), 1e9})).Draw(t, "share"),
			Loud:  rapid.Bool().Draw(t, "loud"), Word: rapid.StringMatching("[a-z=:]*").Draw(t, "word"),
			Even: evenNum(2 * rapid.Int32().Draw(t, "even")),
		}
		text := e.Format(&want)
		back, got, err := catalog().Parse(text)
		if err != nil || back.Name != e.Name || *got != want {
			t.Fatalf("%+v is written as %q and read as %+v, %v", want, text, got, err)
		}
	})
	if text := catalog().Entries[0].Format(catalog().Entries[0].Make()); text != "one" {
		t.Errorf("the defaults are written as %q", text)
	}
}

func TestDescribe(t *testing.T) {
	const want = `  one
    the first thing (a test)
      wait=0s                     how long
      count=3                     how many there are
      share=0.5                   which part of them
      loud=false                  whether it makes a noise
      word=hm                     what it says
      even=4                      a type with a text of its own
  two-more
    the second thing, with an explanation that is so long that it does not fit on a line of a
    hundred characters (the same test)
`
	if got := catalog().Describe(); !strings.HasPrefix(got, want) {
		t.Errorf("described as\n%s\nwant\n%s", got, want)
	}
}

func TestTake(t *testing.T) {
	pairs := []Pair{{"a", "1"}, {"b", "2"}}
	value, found, rest := Take(pairs, "a")
	if value != "1" || !found || len(rest) != 1 || rest[0] != pairs[1] || pairs[0].Key != "a" {
		t.Errorf("%q %v %v of %v", value, found, rest, pairs)
	}
	if _, found, rest := Take(pairs, "c"); found || len(rest) != 2 {
		t.Errorf("%v %v", found, rest)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"one", "one:count=7,wait=90s", "two-more:share=inf", "one:,", "x:y=z", "one:count=99999999999999999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, got, err := catalog().Parse(text)
		if err != nil {
			if err.Error() == "" || len(err.Error()) > 200*(2+strings.Count(text, ",")) {
				t.Errorf("an error of %d bytes for %d", len(err.Error()), len(text))
			}
			return
		}
		if got.Share != got.Share {
			return // NaN, which equals nothing
		}
		if _, again, err := catalog().Parse(e.Format(got)); err != nil || *again != *got {
			t.Errorf("%q: %+v, written and read: %+v, %v", text, got, again, err)
		}
	})
}
