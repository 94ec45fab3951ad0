package discovery

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
)

func TestParse_WhenTheFileIsGood_ReadsIt(t *testing.T) {
	plain := func(url, name string) Endpoint { return Endpoint{URL: url, Name: name, Weight: 1} }
	for _, c := range []struct {
		name, in string
		want     []Endpoint
	}{
		{"text", "# the pool\n\nhttp://10.0.0.1:8000/v1\r\n  10.0.0.2:8000  weight=2.5 name=gpu-2 host=engines # the big one\n[fd00::3]:8000",
			[]Endpoint{plain("http://10.0.0.1:8000", "10.0.0.1:8000"), {"http://10.0.0.2:8000", "gpu-2", 2.5, "engines"}, plain("http://[fd00::3]:8000", "[fd00::3]:8000")}},
		{"JSON", `[{"targets": ["10.0.0.1:8000", "https://b/base"], "labels": {"weight": "2", "job": "vllm"}}, {"targets": []},
			{"targets": ["[fd00::3]:8000"], "labels": {"name": "gpu-3", "__scheme__": "https", "host": "engines"}}]`,
			[]Endpoint{{"http://10.0.0.1:8000", "10.0.0.1:8000", 2, ""}, {"https://b/base", "b:443/base", 2, ""}, {"https://[fd00::3]:8000", "gpu-3", 1, "engines"}}},
		{"none", " [ ]\n", []Endpoint{}},
	} {
		got, err := parse([]byte(c.in), Most)
		if err != nil || got == nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
}

func TestParse_WhenTheFileIsWrong_NamesTheLine(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", "line 1: no endpoint; a list of none is written []"},
		{"\n# none\n", "line 1: no endpoint"},
		{"http://a\nhttp://user:pw@b\n", "line 2: url: a user or password"},
		{"http://a\n\nftp://b", "line 3: url: \"ftp://b\" does not start with"},
		{"a weigth=2", "line 1: \"weigth=2\" is not allowed behind an endpoint; allowed: weight="},
		{"a b", "line 1: \"b\" is not allowed behind an endpoint"},
		{"a __scheme__=https", "line 1: \"__scheme__=https\" is not allowed"},
		{"a weight=1 weight=2", "line 1: weight is there twice"},
		{"a weight=0", "line 1: weight: \"0\" is not allowed"},
		{"a weight=", "line 1: weight: \"\" is not allowed"},
		{"a weight=NaN", "line 1: weight: NaN is not allowed"},
		{"a weight=1001", "line 1: weight: 1001 is not allowed"},
		{"a name=" + strings.Repeat("x", 200), "line 1: name: "},
		{"a:1\nhttp://A:1/v1", "line 2: the endpoint's place a:1 is on line 1 already"},
		{"a:1 name=x\nb:1\nc:1 name=x", "line 3: the endpoint's name x is on line 1 already"},
		{"a:1\nb:1\nc:1\nd:1", "line 4: more than 3 endpoints"},
		{"[{", "line 1: unexpected end of JSON input"},
		{"[\n{\"a\n\": 1}]", "line 2: invalid character '\\n' in string"},
		{"[{}\n,\n]", "line 3: invalid character ']'"},
		{"[{}]\n\nx", "line 3: invalid character 'x' after top-level value"},
		{"[{},\n\n 5]", "line 3: group: "},
		{"[{},\n {\"target\": []}]", "line 2: group: json: unknown field \"target\""},
		{"[{},\n {\"targets\": [5]}]", "line 2: group: "},
		{"[\n{\"targets\": [\"a\", \"b\"], \"labels\": {\"name\": \"x\"}}]", "line 2: group: the name \"x\" is for one target, not for 2"},
		{"[\n{\"targets\": [\"::1\"]}]", "line 2: \"::1\": an IPv6 address stands in brackets"},
		{"[{\"targets\": [\"a\"], \"labels\": {\"__scheme__\": \"ftp\"}}]", "line 1: url: \"ftp://a\" does not start with"},
	} {
		list, err := parse([]byte(c.in), 3)
		wantError(t, err, c.want)
		if list != nil {
			t.Errorf("%q: %v beside an error", c.in, list)
		}
	}
}

// FuzzParse checks that what is accepted is bounded, normal and unique, and that every
// error has a line.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"http://10.0.0.1:8000\n10.0.0.2 weight=2 name=x host=y # z", "[::1]:8000", "[]", "[{\"targets\":[\"a\"],\"labels\":{\"weight\":\"2\"}}]",
		"[{\"targets\":[\"[fd00::1%25eth0]:80\"]}]", "[", "[{}{}]", "\ufeffhttp://a", "a\x00b", "http://[::ffff:1.2.3.4]", "[null]", "a/%zz",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		const most = 20
		list, err := parse(data, most)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "line ") || list != nil {
				t.Fatalf("%v, %v", list, err)
			}
			return
		}
		if list == nil || len(list) > most {
			t.Fatalf("%d endpoints, nil: %v", len(list), list == nil)
		}
		names, places := map[string]bool{}, map[string]bool{}
		for _, e := range list {
			if again, err := e.Normal(); err != nil || again != e {
				t.Errorf("%+v is not normal: %+v, %v", e, again, err)
			}
			if names[e.Name] || places[Place(e.URL)] {
				t.Errorf("%+v is there twice", e)
			}
			u, err := url.Parse(e.URL)
			if err != nil || Place(e.URL) != net.JoinHostPort(u.Hostname(), portOf(u.Scheme, u.Port()))+u.EscapedPath() {
				t.Errorf("%+v is at %s, %v", e, Place(e.URL), err)
			}
			names[e.Name], places[Place(e.URL)] = true, true
		}
	})
}
