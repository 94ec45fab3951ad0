package config

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"kvasir/selection/policy"
)

var update = flag.Bool("update", false, "rewrite the golden files and docs/configuration.md")

// canary is the value of every secret that a test's environment holds. It must never
// be seen.
const canary = "CANARY-0123456789"

// testEnv knows the variable KEY and the files testdata/key.txt, all holding canary.
func testEnv() Env {
	return Env{
		Getenv: func(name string) string {
			return map[string]string{"KEY": canary, "SPACED": canary + " x", "LONG": canary + strings.Repeat("x", 20000)}[name]
		},
		ReadFile: func(name string) ([]byte, error) {
			switch name {
			case filepath.Join("testdata", "key.txt"), "/run/key.txt":
				return []byte(canary + "\r\n"), nil
			case filepath.Join("testdata", "empty.txt"):
				return []byte("\n"), nil
			}
			return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
		},
	}
}

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

// dump shows the models of a configuration, a line each thing.
func dump(c *Config) string {
	var b strings.Builder
	for _, m := range c.Models {
		fmt.Fprintf(&b, "model %q aliases %q calls %d\n", m.Name, m.Aliases, m.Calls)
		for _, p := range m.Pools {
			fmt.Fprintf(&b, "  pool %s served_as %q engine %s policy %s signals %v\n", p.Name, p.ServedAs, p.Engine, p.Policy.Name, p.Signals)
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
	want.Models = Models{{Name: "a", Pools: []Pool{pool}}}
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

// other is, for every key outside models, a value that isn't its default.
var other = map[string]string{
	"listen": "'[::1]:80'", "admin": ":0", "router": "r1", "seed": "18446744073709551615",
	"limits.body": "1KiB", "limits.buffered": "64MiB", "limits.calls": "1", "limits.event": "2048", "limits.preamble": "1MiB",
	"retry.attempts": "0", "retry.ratio": "1", "retry.floor": "0.5", "retry.backoff": "0", "retry.max_backoff": "1m",
	"health.failures": "1", "health.ejection": "1h",
	"prefix.block": "64", "prefix.index": "64GiB", "prefix.speculative": "100ms",
	"upstream.connect_timeout": "1s", "upstream.idle_timeout": "1s", "upstream.connections": "1",
	"client.header_timeout": "1s", "client.body_timeout": "1s", "client.idle_timeout": "1s", "client.write_timeout": "1s",
	"drain": "0s", "drain_delay": "5s", "log.level": "debug", "log.calls": "false",
}

// The same for the keys of one model, pool and endpoint. A model needs more than one
// key to be valid, so each is a whole one.
var otherModel = map[string]string{
	"aliases":                "{aliases: [b], pools: [{endpoints: [http://h:1]}]}",
	"pools.served_as":        "{pools: [{served_as: b, endpoints: [http://h:1]}]}",
	"calls":                  "{calls: 1, pools: [{endpoints: [http://h:1]}]}",
	"pools.name":             "{pools: [{name: b, endpoints: [http://h:1]}]}",
	"pools.endpoints.url":    "{pools: [{endpoints: [{url: http://h:2, name: h:1}]}]}",
	"pools.endpoints.name":   "{pools: [{endpoints: [{url: http://h:1, name: b}]}]}",
	"pools.endpoints.weight": "{pools: [{endpoints: [{url: http://h:1, weight: 0.5}]}]}",
	"pools.endpoints.key":    "{pools: [{endpoints: [{url: http://h:1, key: env:KEY}]}]}",
	"pools.policy":           "{pools: [{endpoints: [http://h:1], policy: random}]}",
	"pools.signals.scrape":   "{pools: [{endpoints: [http://h:1], signals: {scrape: 0}}]}",
	"pools.signals.max_age":  "{pools: [{endpoints: [http://h:1], signals: {max_age: 0s}}]}",
	"pools.engine":           "", // only one value is allowed
}

// leaves lists the values of a configuration by their keys.
func leaves(v reflect.Value, in string, out map[string]any) {
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Tag.Get("config")
		switch {
		case name == "":
		case f.Type() == reflect.TypeFor[Policy]() || f.Type() == reflect.TypeFor[Secret]():
			out[in+name] = f.Interface()
		case f.Kind() == reflect.Struct:
			leaves(f, in+name+".", out)
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			for i := range f.Len() {
				leaves(f.Index(i), in+name+".", out)
			}
		default:
			out[in+name] = f.Interface()
		}
	}
}

// changed lists the keys whose values differ.
func changed(a, b map[string]any) []string {
	var keys []string
	for key := range a {
		if !reflect.DeepEqual(a[key], b[key]) {
			keys = append(keys, key)
		}
	}
	return keys
}

func TestParse_EveryKeyHasItsEffectAndNoOther(t *testing.T) {
	valuesOf := func(text string) map[string]any {
		out := map[string]any{}
		leaves(reflect.ValueOf(parse(t, text)).Elem(), "", out)
		return out
	}
	const base = "models: {a: {pools: [{endpoints: [http://h:1]}]}}\n"
	values := valuesOf(base)
	if len(values) != len(other)+len(otherModel) {
		t.Errorf("the file has %d keys, the tables %d", len(values), len(other)+len(otherModel))
	}
	for key := range values {
		var text string
		if modelKey, ok := strings.CutPrefix(key, "models."); ok {
			model, ok := otherModel[modelKey]
			if !ok {
				t.Errorf("no other value for %s", key)
			}
			if model == "" {
				continue
			}
			text = "models: {a: " + model + "}"
		} else {
			section, name, nested := strings.Cut(key, ".")
			text = fmt.Sprintf("%s%s: %s\n", base, section, other[key])
			if nested {
				text = fmt.Sprintf("%s%s: {%s: %s}\n", base, section, name, other[key])
			}
		}
		if got := changed(values, valuesOf(text)); !reflect.DeepEqual(got, []string{key}) {
			t.Errorf("%s\nchanges %v, want %s alone", text, got, key)
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
	c.Models = Models{{Name: "a", Pools: []Pool{{Engine: "vllm", Policy: Policy{Name: "random"}}}}}
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
	for _, want := range []string{"drain", "models.a.pools[0].served_as", "models.a.pools[0].name", "models.a.pools[0].endpoints", "models.a.pools[0].policy"} {
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
