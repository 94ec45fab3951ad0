package config

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "1": 1, "1023": 1023, "1KiB": KiB, "1024KiB": MiB, "3GiB": 3 * GiB, "8388607TiB": 8388607 * TiB, "9223372036854775807": math.MaxInt64,
	} {
		if got, ok := parseSize(text); !ok || got != want {
			t.Errorf("%s: got %d, %v; want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{
		"", "KiB", "-1", "+1", "1.5GiB", "1 KiB", "1KB", "1kib", "1K", "1e3", "0x10", "1_000", "8388608TiB", "9223372036854775808", "1KiBKiB",
	} {
		if got, ok := parseSize(text); ok {
			t.Errorf("%q: read as %d, want an error", text, got)
		}
	}
}

func TestSize_StringCanBeReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]Size{1, KiB, MiB, GiB, TiB}).Draw(t, "unit")
		s := Size(rapid.Int64Range(0, 4_000_000).Draw(t, "count")) * unit
		if got, ok := parseSize(s.String()); !ok || got != s {
			t.Errorf("%d prints as %v, which reads as %d, %v", int64(s), s, int64(got), ok)
		}
	})
}

func TestShowDuration_CanBeReadBack(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 2 * time.Hour: "2h", time.Hour + time.Minute: "1h1m", time.Minute: "1m", 10 * time.Minute: "10m",
		time.Hour + time.Second: "1h0m1s", 1500 * time.Millisecond: "1.5s", -time.Minute: "-1m", 25 * time.Millisecond: "25ms",
	} {
		if got := showDuration(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
		if back, err := time.ParseDuration(showDuration(d)); err != nil || back != d {
			t.Errorf("%v reads back as %v, %v", d, back, err)
		}
	}
}

func TestCheckAddress(t *testing.T) {
	for _, good := range []string{":8080", "0.0.0.0:80", "127.0.0.1:0", "localhost:65535", "[::]:80", "[::1]:80", "[fe80::1%eth0]:80", "a.b-c.example.:80", "1.example:80", "10.0.0.1e:80"} {
		if err := checkAddress(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "8080", "localhost", "::1:80", "[::1]", "h:65536", "h:-1", "h:http", "h:08", "h:", "a b:80", "[1::2::3]:80", "h:80:80", "http://h:80", "999.1.1.1:80", "1.2.3:80", "1.2.3.4.5:80", "010.0.0.1:80", "127.0.0.1.:80", "a.1:80", "8080:80"} {
		if err := checkAddress(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestForms(t *testing.T) {
	tests := []struct {
		form      string
		good, bad []string
	}{
		{"name:port", []string{"", "h:1", "10.0.0.1:53", "[::1]:53", "vllm.ns.svc.:65535"}, []string{"h", ":1", "h:0", "h:65536", "::1:53", "999.1.1.1:53"}},
		{"NAME", []string{"", "h", "_http._tcp.vllm.ns.svc.cluster.local.", "a-b", "A1"}, []string{".", "a..b", "-a", "a-", "a b", "a:1", "ä", strings.Repeat("a.", 127) + "a"}},
		{"/path", []string{"", "/", "/health", "/a?b=c%20d", "/a//b"}, []string{"health", "//h", "/a b", "/ä", "/a#b", "/%zz", "http://h/a", "/" + strings.Repeat("a", 1024)}},
		{"p50..p99.9 or 1ms..10m", []string{"p50", "p95", "p99.9", "p97.5", "1ms", "400ms", "10m", "1m30s"},
			[]string{"", "p", "p49.9", "p100", "p99.95", "P95", "p5e1", "pInf", "95", "0", "0s", "999us", "10m1s", "-1s", "p95 "}},
	}
	for _, test := range tests {
		for _, good := range test.good {
			if err := forms[test.form].check(good); err != nil {
				t.Errorf("%s: %q: %v", test.form, good, err)
			}
		}
		for _, bad := range test.bad {
			if forms[test.form].check(bad) == nil {
				t.Errorf("%s: %q is accepted", test.form, bad)
			}
		}
	}
}

func TestIsLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:80": true, "127.9.9.9:80": true, "[::1]:80": true, "localhost:80": true, "LOCALHOST:0": true, "[::ffff:127.0.0.1]:80": true,
		":80": false, "0.0.0.0:80": false, "[::]:80": false, "10.0.0.1:80": false, "localhost.example:80": false, "h:80": false, "[fe80::1%lo]:80": false,
		"no address": true, // another mistake
	} {
		if got := IsLoopback(address); got != want {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
	}
}

func TestTooDeep_CountsWhatNestsAlone(t *testing.T) {
	open, shut := strings.Repeat("[{a: ", maxDepth/2), strings.Repeat("}]", maxDepth/2)
	for _, text := range []string{
		open + shut, open + "\n" + shut + open + shut, strings.Repeat(open+shut+",", 3),
		"# " + open + open, "a: 1 # " + open + open + "\nb: " + open + shut, "a: '" + open + "''" + open + "'", `"` + open + `\"` + open + `"`,
		open + "'['" + shut, open + `"["` + shut, strings.Repeat("]", 100), "'" + open + open, "it's " + shut,
	} {
		if at, deep := tooDeep([]byte(text)); deep {
			t.Errorf("refused at %d: %s", at, text)
		}
	}
	for _, text := range []string{
		open + "[" + shut, open + "{" + shut, "a: #\n" + open + "[", "a#: " + open + "[", "it's: " + open + "[", "'': " + open + "[", `"\\": ` + open + "[", "]]}} " + open + "[",
	} {
		want := strings.Index(text, open) + len(open)
		if at, deep := tooDeep([]byte(text)); !deep || at != want {
			t.Errorf("%s: refused %v at %d, want at %d", text, deep, at, want)
		}
	}
}

func TestKeyHash_ShowsItsBeginningAlone(t *testing.T) {
	h := HashKey("kv_x")
	if got := fmt.Sprintf("%v %s %+v", h, h, ClientKey{Name: "a", SHA256: h}); strings.Contains(got, h.Hex()[:9]) || !strings.Contains(got, h.Hex()[:8]) {
		t.Errorf("shown as %s, want no more than %s", got, h.Hex()[:8])
	}
	if got := (KeyHash{}).String(); got != "" {
		t.Errorf("none is shown as %q", got)
	}
}

func TestNormalURL_IsItsOwnNormalForm(t *testing.T) {
	piece := func(of string) *rapid.Generator[string] {
		return rapid.StringOfN(rapid.RuneFrom([]rune(of)), 0, 12, -1)
	}
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SampledFrom([]string{"http", "https", "HTTP"}).Draw(t, "scheme") + "://" +
			rapid.OneOf(rapid.SampledFrom([]string{"h", "[::1]", "[FE80::1%25E]", "10.0.0.1"}), piece("aZ09.-_:[]%")).Draw(t, "host") +
			rapid.SampledFrom([]string{"", ":80", ":8000"}).Draw(t, "port") +
			rapid.OneOf(rapid.SampledFrom([]string{"", "/", "/v1", "/v1/", "/v1/v1//"}), piece("/v1aé% +~:;=")).Draw(t, "path")
		normal, err := normalURL(raw)
		if err != nil {
			return
		}
		if again, err := normalURL(normal); err != nil || again != normal {
			t.Errorf("%q becomes %q, which becomes %q, %v", raw, normal, again, err)
		}
		if _, base := addressOf(normal); strings.HasSuffix(base, "/") || strings.HasSuffix(base, "/v1") {
			t.Errorf("%q becomes %q", raw, normal)
		}
	})
}

func TestEditDistance_IsADistance(t *testing.T) {
	word := rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 0, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		ab, ba := editDistance(a, b), editDistance(b, a)
		if ab != ba || (ab == 0) != (a == b) || ab > max(len(a), len(b)) || ab < max(len(a), len(b))-min(len(a), len(b)) {
			t.Errorf("%q and %q: %d, the other way %d", a, b, ab, ba)
		}
		// One edit is one step away.
		if i := rapid.IntRange(0, len(a)).Draw(t, "i"); editDistance(a, a[:i]+"d"+a[i:]) != 1 {
			t.Errorf("%q with one letter more at %d: %d, want 1", a, i, editDistance(a, a[:i]+"d"+a[i:]))
		}
	})
}

func TestEditDistance_CountsSwappedNeighboursOnce(t *testing.T) {
	if got := editDistance("ulr", "url"); got != 1 {
		t.Errorf("ulr and url: got %d, want 1", got)
	}
}

func TestNearest(t *testing.T) {
	keys := []string{"pools", "policy", "endpoints", "max_backoff", "url"}
	for name, want := range map[string]string{
		"polcy": "policy", "pool": "pools", "Pools": "pools", "max-backoff": "max_backoff", "endpiont": "endpoints",
		"ulr": "url", "zzz": "", "completely_else": "", strings.Repeat("pools", 100): "", "": "",
	} {
		if got := nearest(name, keys); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

func TestForeign_RefusesLineBreaksThatEditorsDoNotCount(t *testing.T) {
	for _, text := range []string{"a: \rb", "a: b\r\r\n", "a: \u0085", "a: '\u2028'", "# \u2029"} {
		if _, message := foreign([]byte(text)); message == "" {
			t.Errorf("%q is accepted", text)
		}
	}
	if _, message := foreign([]byte("\ufeffa: é\r\n模\n")); message != "" {
		t.Error(message)
	}
}

func TestSyntaxErrors_WhenAQuoteStaysOpen_AreLocatedWhereItOpens(t *testing.T) {
	before := strings.Repeat("- {url: http://h,\n   weight: 2,\n   name: x}\n", 70)
	text := before + "- \"open\n" + strings.Repeat("- http://h\n", 40)
	_, err := Parse("x.yaml", []byte(text), testEnv())
	ps, ok := err.(Problems)
	if !ok || len(ps) != 1 || ps[0].Line != 211 || ps[0].Column != 3 {
		t.Errorf("got %v, want one problem at 211:3", err)
	}
}

func TestSyntaxErrors_AreLocatedInLargeFilesToo(t *testing.T) {
	var b strings.Builder
	b.WriteString("models:\n  a:\n")
	for b.Len() < 30_000 {
		b.WriteString("    - {url: http://h,\n       weight: 2}\n")
	}
	bad := strings.Count(b.String(), "\n") + 1
	b.WriteString("    - x: y: z\n")
	for b.Len() < 60_000 {
		b.WriteString("    - http://h\n")
	}
	_, err := Parse("x.yaml", []byte(b.String()), testEnv())
	ps, ok := err.(Problems)
	if !ok || len(ps) != 1 || ps[0].Line != bad || ps[0].Column != 11 {
		t.Errorf("got %v, want one problem at %d:11", err, bad)
	}
}
