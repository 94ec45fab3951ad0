package config

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// wrapped reaches a secret in every way that a program's own types may.
type wrapped struct {
	Public  Secret
	private Secret
	Pointer *Secret
	hidden  *Secret
	list    []Secret
	Map     map[string]Secret
	any     any
}

func TestSecret_IsNeverShown(t *testing.T) {
	s := NewSecret(canary)
	w := wrapped{s, s, &s, &s, []Secret{s}, map[string]Secret{"a": s}, s}
	var out bytes.Buffer
	for _, v := range []any{s, &s, w, &w, []any{w}, fmt.Errorf("wrapped: %v", s), errors.Join(fmt.Errorf("%+v", w))} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%t", "%c", "%U", "%b", "%p", "%100s", "%!", "%.3s"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		for _, marshal := range []func(any) ([]byte, error){
			json.Marshal, xml.Marshal, yaml.Marshal,
			func(v any) ([]byte, error) {
				var b bytes.Buffer
				err := gob.NewEncoder(&b).Encode(v)
				return b.Bytes(), err
			},
		} {
			text, err := marshal(v)
			fmt.Fprintln(&out, string(text), err)
		}
		for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(h).Info("message", "v", v, slog.Group("g", "v", v))
		}
	}
	fmt.Fprintln(&out, s.String(), s.GoString(), s.LogValue())
	seen := 0
	for line := range strings.Lines(out.String()) {
		for _, form := range []string{canary, "CAN", fmt.Sprintf("%x", canary[:6]), fmt.Sprintf("%X", canary[:6]), "67 65 78"} {
			if strings.Contains(line, form) {
				t.Errorf("the secret is shown as %q in: %s", form, line)
			}
		}
		seen += strings.Count(line, shownSecret)
	}
	if seen == 0 {
		t.Error("nothing says that there is a secret")
	}
	if s.Reveal() != canary {
		t.Errorf("Reveal gives %q", s.Reveal())
	}
}

func TestSecret_WhenThereIsNone_SaysSo(t *testing.T) {
	var s Secret
	if s.IsSet() || s.Reveal() != "" || s.String() != "" {
		t.Errorf("the zero Secret is set (%v), holds %q, or prints as %q", s.IsSet(), s.Reveal(), s.String())
	}
}

func TestParse_Secrets(t *testing.T) {
	tests := []struct{ text, value, problem string }{
		{"env:KEY", canary, ""},
		{"file:key.txt", canary, ""},
		{"file:./key.txt", canary, ""},
		{"file:/run/key.txt", canary, ""},
		{"env:NONE", "", "not set or is empty"},
		{"file:none.txt", "", "file does not exist"},
		{"file:empty.txt", "", "the file is empty"},
		{canary, "", "the value is not shown"},
		{"env:" + canary, "", "the value is not shown"},
	}
	for _, test := range tests {
		file := fmt.Sprintf("models:\n  a:\n    - url: http://h\n      key: %q\n", test.text)
		c, err := Parse("testdata/x.yaml", []byte(file), testEnv())
		if test.problem == "" {
			if err != nil {
				t.Errorf("%s: %v", test.text, err)
			} else if got := c.Models[0].Pools[0].Endpoints[0].Key; !got.IsSet() || got.Reveal() != test.value {
				t.Errorf("%s: holds %q, want %q", test.text, got.Reveal(), test.value)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s: accepted", test.text)
			continue
		}
		if got := err.Error(); !strings.Contains(got, test.problem) || !strings.HasPrefix(got, "testdata/x.yaml:4:12: models.a[0].key: ") || strings.Contains(got, canary) {
			t.Errorf("%s: got %s", test.text, got)
		}
	}
}

func TestParse_ReadsEachFileOnce(t *testing.T) {
	read := map[string]int{}
	env := testEnv()
	inner := env.ReadFile
	env.ReadFile = func(name string) ([]byte, error) { read[name]++; return inner(name) }
	text := "tls: {cert: cert.pem, key: key.pem, client_ca: cert.pem}\nclients: {keys_file: keys.txt}\n" +
		"models: {a: [{url: http://h, key: file:key.txt}, {url: http://i, key: file:key.txt}]}"
	if _, err := Parse("testdata/x.yaml", []byte(text), env); err != nil {
		t.Fatal(err)
	}
	for name, n := range read {
		if n != 1 {
			t.Errorf("%s is read %d times", name, n)
		}
	}
	if len(read) != 4 {
		t.Errorf("%d files are read, want 4", len(read))
	}
}

func TestParse_WhenTheKeysFileIsBlank_LetsNobodyIn(t *testing.T) {
	for _, blank := range []string{"", "\n", "# nobody\n\n  # at all", "[]\n"} {
		env := Env{ReadFile: func(string) ([]byte, error) { return []byte(blank), nil }}
		c, err := Parse("x.yaml", []byte("listen: :80\nclients: {keys_file: keys}\nmodels: {a: [http://h]}"), env)
		if err != nil || len(c.Clients.Keys) != 0 {
			t.Errorf("%q: got %v, want no keys", blank, err)
		}
	}
}

func TestParse_WhenSecretsAreSkipped_ReadsNoFile(t *testing.T) {
	env := Env{
		SkipSecrets: true,
		ReadFile:    func(name string) ([]byte, error) { t.Errorf("the file %s is read", name); return nil, nil },
	}
	text := `
listen: :443
tls: {cert: c, key: /k, client_ca: ca}
clients: {keys_file: keys}
admin_token: file:../token
models:
  a: {endpoints: [{url: https://h, key: file:token}, {url: https://i, key: file:token}], tls: {ca: ca, cert: c, key: ./k}}
  b: {discover: {file: list, key: env:NONE}}
`
	c, err := Parse("dir/x.yaml", []byte(text), env)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/k", "dir/c", "dir/ca", "dir/k", "dir/keys", "dir/token", "token"}
	if got := c.Files(); !slices.Equal(got, want) {
		t.Errorf("it names the files %q, want %q", got, want)
	}
	if c.TLS != (TLS{"dir/c", "/k", "dir/ca"}) || c.Clients.KeysFile != "dir/keys" || c.Models[1].Pools[0].Discover.File != "dir/list" {
		t.Errorf("paths are not as a program beside opens them: %+v", c)
	}
	c.Files()[0] = "changed"
	if c.Files()[0] != "/k" {
		t.Error("whoever asks for the files can change them")
	}
}

func TestParse_WhenSecretsAreSkipped_ChecksTheirFormAlone(t *testing.T) {
	env := Env{
		SkipSecrets: true,
		Getenv:      func(name string) string { t.Errorf("the variable %s is read", name); return "" },
		ReadFile:    func(name string) ([]byte, error) { t.Errorf("the file %s is read", name); return nil, nil },
	}
	c, err := Parse("x.yaml", []byte("models: {a: [{url: http://h, key: env:NONE}, {url: http://i, key: file:none}]}"), env)
	if err != nil {
		t.Fatal(err)
	}
	if key := c.Models[0].Pools[0].Endpoints[0].Key; !key.IsSet() || key.Reveal() != "" {
		t.Errorf("set %v, value %q; want set and unresolved", key.IsSet(), key.Reveal())
	}
	if _, err := Parse("x.yaml", []byte("models: {a: [{url: http://h, key: literal}]}"), env); err == nil {
		t.Error("a literal secret is accepted")
	}
}
