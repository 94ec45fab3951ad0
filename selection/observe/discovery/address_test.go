package discovery

import (
	"strings"
	"testing"
)

// TestF39_WhenAnAddressIsWrittenInAnyWay_ItIsBracketed has each way in which a file or an
// operator may write an endpoint.
func TestF39_WhenAnAddressIsWrittenInAnyWay_ItIsBracketed(t *testing.T) {
	for _, c := range []struct{ in, url, name string }{
		{"http://[::1]:8000", "http://[::1]:8000", "[::1]:8000"},
		{"[::1]:8000", "http://[::1]:8000", "[::1]:8000"},
		{"[0:0:0:0:0:0:0:1]:8000", "http://[::1]:8000", "[::1]:8000"},
		{"http://[FD00::0005]:8000/v1/", "http://[fd00::5]:8000", "[fd00::5]:8000"},
		{"[fd00::5]", "http://[fd00::5]", "[fd00::5]:80"},
		{"https://[fe80::1%25eth0]:8000", "https://[fe80::1%25eth0]:8000", "[fe80::1%eth0]:8000"},
		{"10.0.0.1:8000", "http://10.0.0.1:8000", "10.0.0.1:8000"},
		{"https://Engines.Prod/base/", "https://engines.prod/base", "engines.prod:443/base"},
		{"engines.prod:8000", "http://engines.prod:8000", "engines.prod:8000"},
	} {
		list, err := parse([]byte(c.in+"\n"), Most)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if list[0].URL != c.url || list[0].Name != c.name {
			t.Errorf("%s: %s named %s, want %s named %s", c.in, list[0].URL, list[0].Name, c.url, c.name)
		}
		if again, err := list[0].Normal(); err != nil || again != list[0] {
			t.Errorf("%s: a normal endpoint becomes %+v (%v)", c.in, again, err)
		}
	}
	for _, bare := range []string{"::1", "fd00::5", "fd00::5:8000", "http://fd00::5:8000", "http://::1", "http://1:2:3:4:5:6:7:8:8000"} {
		_, err := parse([]byte(bare), Most)
		wantError(t, err, errBrackets.Error())
	}
}

func TestNormal_WhenAFieldIsWrong_NamesIt(t *testing.T) {
	ok := Endpoint{URL: "http://a:1"}
	for _, c := range []struct {
		change func(*Endpoint)
		want   string
	}{
		{func(e *Endpoint) { e.URL = "" }, "url: missing"},
		{func(e *Endpoint) { e.URL = "http://user:secret@a" }, "url: a user or password"},
		{func(e *Endpoint) { e.URL = "http://a?x=1" }, "url: a query"},
		{func(e *Endpoint) { e.URL = "ftp://a" }, "does not start with http"},
		{func(e *Endpoint) { e.URL = "http://a:0" }, "no port from 1"},
		{func(e *Endpoint) { e.URL = "http://a:65536" }, "no port from 1"},
		{func(e *Endpoint) { e.URL = "http://a:080" }, "no port from 1"},
		{func(e *Endpoint) { e.URL = "http://a:" }, "no port from 1"},
		{func(e *Endpoint) { e.URL = "http://-a" }, "no valid host"},
		{func(e *Endpoint) { e.URL = "http://" + strings.Repeat("a", 254) }, "no valid host"},
		{func(e *Endpoint) { e.Name = strings.Repeat("a", 129) }, "name: "},
		{func(e *Endpoint) { e.Name = "a b" }, "name: "},
		{func(e *Endpoint) { e.Name = "ä" }, "name: "},
		{func(e *Endpoint) { e.Weight = -1 }, "weight: -1"},
		{func(e *Endpoint) { e.Weight = 1000.5 }, "weight: 1000.5"},
		{func(e *Endpoint) { e.Host = "a/b" }, "host: "},
	} {
		e := ok
		c.change(&e)
		_, err := e.Normal()
		wantError(t, err, c.want)
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%v shows a password", err)
		}
	}
	if e, err := (Endpoint{URL: "http://a:1", Host: "Engines"}).Normal(); err != nil || e != (Endpoint{"http://a:1", "a:1", 1, "engines"}) {
		t.Errorf("%+v %v", e, err)
	}
}
