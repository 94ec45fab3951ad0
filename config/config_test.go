package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"kvasir/selection/policy"
)

var update = flag.Bool("update", false, "rewrite the golden files and docs/configuration.md")

// canary is the value of every secret that a test's environment holds. It must never
// be seen.
const canary = "CANARY-0123456789"

// testEnv knows the variable KEY and the file testdata/key.txt, which hold canary, some
// that are no secrets, files of keys, and a certificate with its key.
func testEnv() Env {
	return Env{
		Getenv: func(name string) string {
			return map[string]string{"KEY": canary, "SPACED": canary + " x", "LONG": canary + strings.Repeat("x", 20000), "SHORT": "fifteen-letters"}[name]
		},
		ReadFile: func(name string) ([]byte, error) {
			switch name {
			case filepath.Join("testdata", "key.txt"), "/run/key.txt":
				return []byte(canary + "\r\n"), nil
			case filepath.Join("testdata", "empty.txt"):
				return []byte("\n"), nil
			case filepath.Join("testdata", "keys.txt"), filepath.Join("testdata", "wrong_keys.txt"):
				return os.ReadFile(name)
			case filepath.Join("testdata", "large.txt"):
				return make([]byte, maxFile+3), nil
			}
			if pem, ok := testPEM()[filepath.Base(name)]; ok && filepath.Dir(name) == "testdata" {
				return pem, nil
			}
			return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
		},
	}
}

// testPEM returns cert.pem with its key.pem, and the key of another certificate.
var testPEM = sync.OnceValue(func() map[string][]byte {
	files := map[string][]byte{}
	block := func(kind string, der []byte, err error) []byte {
		if err != nil {
			panic(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	for _, name := range []string{"other_key.pem", "key.pem"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			panic(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		files[name] = block("PRIVATE KEY", der, err)
		template := &x509.Certificate{SerialNumber: big.NewInt(1)}
		der, err = x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
		files["cert.pem"] = block("CERTIFICATE", der, err)
	}
	return files
})

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update rewrites it); got:\n%s", file, got)
	}
}

func TestParse_WhenFileIsBad_ReportsEveryMistake(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.bad.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no bad files: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c, err := Load(file, testEnv())
			if c != nil || err == nil {
				t.Fatal("the file is accepted")
			}
			if strings.Contains(err.Error(), canary) {
				t.Errorf("a secret is shown:\n%v", err)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".golden", err.Error()+"\n")
		})
	}
}

func TestParse_WhenFileIsGood_AcceptsItAndChecksAgain(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.good.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no good files: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c, err := Load(file, testEnv())
			if err != nil {
				t.Fatalf("refused:\n%v", err)
			}
			before := dump(c)
			if err := c.Validate(); err != nil {
				t.Errorf("Validate refuses what Load accepts:\n%v", err)
			}
			if after := dump(c); after != before {
				t.Errorf("Validate changed the configuration from\n%s\nto\n%s", before, after)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".golden", before)
		})
	}
}

// dump shows a configuration's clients, TLS, files and models, a line each thing.
func dump(c *Config) string {
	var b strings.Builder
	if c.TLS != (TLS{}) {
		fmt.Fprintf(&b, "tls %+v\n", c.TLS)
	}
	if c.AdminToken.IsSet() || c.AdminOpen {
		fmt.Fprintf(&b, "admin token %v open %v\n", c.AdminToken, c.AdminOpen)
	}
	for _, k := range c.Clients.Keys {
		fmt.Fprintf(&b, "client %s %v\n", k.Name, k.SHA256)
	}
	for _, file := range c.Files() {
		fmt.Fprintf(&b, "file %s\n", file)
	}
	for _, m := range c.Models {
		fmt.Fprintf(&b, "model %q aliases %q calls %d\n", m.Name, m.Aliases, m.Calls)
		if len(m.Adapters) > 0 {
			fmt.Fprintf(&b, "  adapters %q\n", m.Adapters)
		}
		if m.Timeouts != c.Timeouts {
			fmt.Fprintf(&b, "  timeouts %+v\n", m.Timeouts)
		}
		for _, p := range m.Pools {
			fmt.Fprintf(&b, "  pool %s served_as %q engine %s policy %s signals %v\n", p.Name, p.ServedAs, p.Engine, p.Policy.Name, p.Signals)
			fmt.Fprintf(&b, "    %s probe %+v\n", p.Protocol, p.Probe)
			if p.TLS.isSet() {
				fmt.Fprintf(&b, "    tls %+v\n", p.TLS)
			}
			if p.Discover.IsSet() {
				fmt.Fprintf(&b, "    discover %+v\n", p.Discover)
			}
			for _, e := range p.Endpoints {
				fmt.Fprintf(&b, "    endpoint %s url %s weight %v key %v\n", e.Name, e.URL, e.Weight, e.Key)
			}
		}
	}
	return b.String()
}

func parse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("testdata/x.yaml", []byte(text), testEnv())
	if err != nil {
		t.Fatalf("refused:\n%v\nfile:\n%s", err, text)
	}
	return c
}

func TestParse_WhenFileIsSmallest_TakesDefaults(t *testing.T) {
	c := parse(t, "models: {a: [http://h:1]}")
	want := Default()
	pool := DefaultPool()
	endpoint := DefaultEndpoint()
	endpoint.URL, endpoint.Name = "http://h:1", "h:1"
	pool.Name, pool.ServedAs, pool.Endpoints = "default", "a", []Endpoint{endpoint}
	model := DefaultModel()
	model.Name, model.Pools = "a", []Pool{pool}
	want.Models = Models{model}
	if !reflect.DeepEqual(c, &want) {
		t.Errorf("got\n%+v\nwant\n%+v", c, &want)
	}
}

func TestParse_ShortFormsMeanTheLongOne(t *testing.T) {
	long := parse(t, `
models:
  a:
    aliases: [b]
    pools:
      - name: default
        engine: vllm
        endpoints: [{url: "http://h:1"}, {url: "http://h:2"}]
        policy: {name: least-outstanding}
        signals: {scrape: 2s}
`)
	for name, text := range map[string]string{
		"a pool's keys among the model's": `{aliases: [b], endpoints: [http://h:1, http://h:2], policy: least-outstanding, signals: {scrape: 2s}, engine: vllm}`,
		"texts for mappings":              `{aliases: [b], pools: [{endpoints: [http://h:1, http://h:2], policy: least-outstanding, signals: {scrape: 2s}}]}`,
		"urls in other forms":             `{aliases: [b], endpoints: [HTTP://H:1/, http://h:2/v1/], policy: least-outstanding, signals: {scrape: 2000ms}}`,
	} {
		if short := parse(t, "models: {a: "+text+"}"); !reflect.DeepEqual(short, long) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, dump(short), dump(long))
		}
	}
	list := parse(t, "models: {a: [http://h:1, {url: http://h:2}]}")
	if long := parse(t, "models: {a: {endpoints: [http://h:1, http://h:2]}}"); !reflect.DeepEqual(list, long) {
		t.Errorf("a list: got\n%s\nwant\n%s", dump(list), dump(long))
	}
}

func TestParse_WhenOthersReachTheAddress_OneWordOfWhoMayCallIsEnough(t *testing.T) {
	const models = "models: {a: [http://h:1]}\n"
	for text, where := range map[string]string{
		"listen: :80": "listen", "listen: :80\nclients: {anonymous: false, keys: [], keys_file: ''}": "listen", "listen: :80\ntls: {cert: cert.pem, key: key.pem}": "listen",
		"listen: :80\nclients: {anonymous: true}":                                             "",
		"listen: :80\nclients: {keys: [{name: a, sha256: " + strings.Repeat("a0", 32) + "}]}": "",
		"listen: :80\nclients: {keys_file: keys.txt}":                                         "",
		"listen: :80\ntls: {cert: cert.pem, key: key.pem, client_ca: cert.pem}":               "",
		"listen: localhost:80": "", "admin: :80": "admin", "admin: :80\nadmin_open: false": "admin",
		"admin: :80\nadmin_open: true": "", "admin: :80\nadmin_token: env:KEY": "", "admin: localhost:80": "",
	} {
		_, err := Parse("testdata/x.yaml", []byte(models+text), testEnv())
		ps, _ := err.(Problems)
		if where == "" && err != nil || where != "" && (len(ps) != 1 || ps[0].Path != where) {
			t.Errorf("%s\ngot %v, want one problem at %q", text, err, where)
		}
	}
}

func TestParse_PolicyParameters(t *testing.T) {
	c := parse(t, "models: {a: {endpoints: [http://h:1], policy: {cache_threshold: 0.75, name: cache-aware}}}")
	got, ok := c.Models[0].Pools[0].Policy.Params.(*policy.CacheAware)
	if !ok || got.CacheThreshold != 0.75 {
		t.Errorf("got %+v, want cache_threshold 0.75", c.Models[0].Pools[0].Policy.Params)
	}
	rule, _ := policy.Lookup("cache-aware")
	want := rule.Params().(*policy.CacheAware)
	want.CacheThreshold = 0.75
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v: only the named parameter changes", got, want)
	}
}

func TestParse_EveryPolicyOfTheCatalogCanBeNamed(t *testing.T) {
	for _, rule := range policy.Catalog() {
		c := parse(t, fmt.Sprintf("models: {a: {endpoints: [http://h:1], policy: %s}}", rule.Name))
		p := c.Models[0].Pools[0].Policy
		if p.Name != rule.Name || !reflect.DeepEqual(p.Params, rule.Params()) {
			t.Errorf("%s: got %s with %+v, want the catalog's defaults %+v", rule.Name, p.Name, p.Params, rule.Params())
		}
		for _, f := range fieldsOf(p.Params, nil) {
			if f.name == "name" {
				t.Errorf("%s has a parameter called name, which the file uses for the policy itself", rule.Name)
			}
		}
	}
}

func TestParse_ModelsKeepTheFilesOrder(t *testing.T) {
	c := parse(t, "models: {z: [http://h], m: [http://h], a: [http://h]}")
	var got []string
	for _, m := range c.Models {
		got = append(got, m.Name)
	}
	if want := []string{"z", "m", "a"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestValidate_WhenBuiltInCode_NamesTheField(t *testing.T) {
	c := Default()
	c.Drain = -time.Second
	c.Models = Models{{Name: "a", Timeouts: Timeouts{Header: -1}, Pools: []Pool{{Engine: "vllm", Policy: Policy{Name: "random"}}}}}
	ps, ok := c.Validate().(Problems)
	if !ok {
		t.Fatal("accepted")
	}
	got := map[string]bool{}
	for _, p := range ps {
		got[p.Path] = true
		if p.Line != 0 || p.Column != 0 {
			t.Errorf("%v has a position", p)
		}
	}
	for _, want := range []string{"drain", "models.a.pools[0].served_as", "models.a.pools[0].name", "models.a.pools[0].endpoints", "models.a.pools[0].policy", "models.a.timeouts.header"} {
		if !got[want] {
			t.Errorf("no problem at %s; got:\n%v", want, ps)
		}
	}
}

func TestExample_IsAcceptedAndShowsEveryKeyAndDefault(t *testing.T) {
	c, err := Parse("example.yaml", []byte(Example()), Env{Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatalf("refused:\n%v", err)
	}
	withoutModels := *c
	withoutModels.Models = nil
	if want := Default(); !reflect.DeepEqual(withoutModels, want) {
		t.Errorf("the example shows\n%+v\nas defaults, but they are\n%+v", withoutModels, want)
	}
	keys := map[string]any{}
	leaves(reflect.ValueOf(c).Elem(), "", keys)
	for key := range keys {
		last := key[strings.LastIndexByte(key, '.')+1:]
		if !strings.Contains(Example(), last+":") {
			t.Errorf("the example does not show the key %s", key)
		}
	}
}

func TestLoad_WhenFileIsMissing_IsNoProblemOfTheFile(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.yaml"), testEnv())
	if _, ok := err.(Problems); err == nil || ok || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("got %v, want an error of the file system that names the file", err)
	}
}

func TestLoad_ReadsSecretsBesideTheFile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"kvasir.yaml": "models: {a: [{url: http://h:1, key: file:keys/a.txt}]}\n",
		"keys/a.txt":  "hunter2\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Load(filepath.Join(dir, "kvasir.yaml"), Env{})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Models[0].Pools[0].Endpoints[0].Key.Reveal(); got != "hunter2" {
		t.Errorf("got %q, want hunter2", got)
	}
}

func TestParse_WhenFileIsHuge_RefusesIt(t *testing.T) {
	text := "models: {a: [http://h:1]}\n" + strings.Repeat("#\n", int(maxFile/2))
	_, err := Parse("x.yaml", []byte(text), testEnv())
	if err == nil || !strings.Contains(err.Error(), "x.yaml:1:1: the file is larger than 1MiB") {
		t.Errorf("got %v", err)
	}
}

func TestParse_WhenEverythingIsWrong_BoundsTheReport(t *testing.T) {
	_, err := Parse("x.yaml", []byte(strings.Repeat("a: 1\n", 5000)), testEnv())
	ps, ok := err.(Problems)
	if !ok || len(ps) != maxProblems+1 {
		t.Fatalf("got %d problems, want %d", len(ps), maxProblems+1)
	}
	// The unknown key, its 4,999 repetitions, and no model.
	if got, want := ps[maxProblems].Message, "4001 more problems are not shown"; got != want {
		t.Errorf("the last problem says %q, want %q", got, want)
	}
}

func BenchmarkParse(b *testing.B) {
	data := []byte(Example())
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("example.yaml", data, Env{}); err != nil {
			b.Fatal(err)
		}
	}
}
