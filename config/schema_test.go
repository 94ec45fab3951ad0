package config

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// compileSchema compiles a schema, which checks it against that of its draft.
func compileSchema(t *testing.T, text string) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var compiled struct {
	once   sync.Once
	schema *jsonschema.Schema
}

// againstSchema validates a file as an editor does: through its YAML's JSON.
func againstSchema(t *testing.T, data []byte) error {
	t.Helper()
	compiled.once.Do(func() { compiled.schema = compileSchema(t, Schema()) })
	var tree any
	if err := yaml.Unmarshal(data, &tree); err != nil {
		return err
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return compiled.schema.Validate(instance)
}

func TestSchema_AcceptsWhatTheReaderAccepts(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.good.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no good files: %v", err)
	}
	for _, file := range append(append(files, "example.yaml"), exampleFiles(t)...) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := againstSchema(t, data); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	for key := range valuesOf(t, "models: {a: {pools: [{endpoints: [http://h:1]}]}}") {
		if err := againstSchema(t, []byte(fileWith(t, key))); err != nil {
			t.Errorf("%s: %v", fileWith(t, key), err)
		}
	}
}

// beyondSchema are the bad files that a schema can't tell from good ones.
var beyondSchema = map[string]string{
	"documents": "an editor checks each by itself",
	"linebreak": "YAML has more of them",
	"exposed":   "who can reach an address",
	"together":  "rules between keys",
	"salt":      "rules between keys, and what a secret is",
}

func TestSchema_RefusesWhatTheReaderRefuses(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.bad.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no bad files: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		err = againstSchema(t, data)
		if _, beyond := beyondSchema[strings.TrimSuffix(filepath.Base(file), ".bad.yaml")]; beyond == (err != nil) {
			t.Errorf("%s: beyond the schema: %v, but it says: %v", file, beyond, err)
		}
	}
}

func TestSchema_FindsOneMistake(t *testing.T) {
	const model = "models: {a: [http://h]}\n"
	for _, bad := range []string{
		"", "models: {}", "models: {a: []}", "models: {'': [http://h]}", "models: {a: http://h}",
		model + "listn: 127.0.0.1:80", model + "listen: 127.0.0.1", model + "listen: 8080",
		model + "drain: 25h", model + "drain: 30", model + "drain: -1s", model + "drain: 61m", model + "drain_delay: 1x",
		model + "limits: {body: 1023}", model + "limits: {body: 2GiB}", model + "limits: {body: 1025MiB}", model + "limits: {body: 1KB}",
		model + "limits: {calls: 0}", model + "limits: {calls: 1.5}", model + "limits: {calls: '1'}", model + "limits: {boddy: 1}",
		model + "retry: {ratio: 1.1}", model + "health: {slow_start_floor: 0}", model + "health: {stall: 99ms}",
		model + "log: {level: verbose}", model + "log: {calls: 'true'}", model + "timeouts: {idle: 9ms}",
		model + "admin_token: hunter2", model + "tls: {cert: a}", model + "tls: {key: a}", model + "tls: {client_ca: a}",
		model + "clients: {keys: [abc]}", model + "clients: {keys: [{name: a, sha256: abc}]}", model + "clients: {keys: [{name: a}]}",
		"models: {a: {calls: 1}}", "models: {a: {endpoints: []}}", "models: {a: {pools: []}}", "models: {a: {pools: [{name: b}]}}",
		"models: {a: {endpoints: [http://h], pools: [{endpoints: [http://h]}]}}", "models: {a: {endpoints: [http://h], polcy: random}}",
		"models: {a: [ftp://h]}", "models: {a: [http://user@h]}", "models: {a: ['http://h?x']}", "models: {a: [{name: h}]}",
		"models: {a: {endpoints: [http://h], engine: tgi}}", "models: {a: {endpoints: [http://h], protocol: h3}}",
		"models: {a: {endpoints: [http://h], policy: randm}}", "models: {a: {endpoints: [http://h], policy: {}}}",
		"models: {a: {endpoints: [http://h], policy: {name: random, decay: 1s}}}", "models: {a: {endpoints: [http://h], policy: {name: ewma-latency, decay: 1}}}",
		"models: {a: {discover: {}}}", "models: {a: {discover: {interval: 1s}}}", "models: {a: {discover: {dns: 'h:1', srv: h}}}",
		"models: {a: {discover: {srv: 'a b'}}}", "models: {a: {discover: {dns: h}}}", "models: {a: {endpoints: [http://h], probe: {path: h}}}",
		"models: {a: {endpoints: [http://h], timeouts: {idle: 25h}}}", "models: {a: {endpoints: [http://h], name: b}}",
	} {
		if err := againstSchema(t, []byte(bad)); err == nil {
			t.Errorf("accepted: %s", bad)
		}
		if _, err := Parse("testdata/x.yaml", []byte(bad), testEnv()); err == nil {
			t.Errorf("the reader accepts: %s", bad)
		}
	}
}

func TestWholes_MatchesTheRangeAlone(t *testing.T) {
	number := rapid.OneOf(rapid.Uint64Range(0, 1500), rapid.Uint64Range(0, 1<<41),
		rapid.SampledFrom([]uint64{0, 1, 9, 10, 11, 99, 100, 1000, 86400, 1<<40 - 1, 1 << 40, 9_999_999}))
	rapid.Check(t, func(t *rapid.T) {
		low, high := number.Draw(t, "low"), number.Draw(t, "high")
		low, high = min(low, high), max(low, high)
		pattern := regexp.MustCompile("^(?:" + wholes(low, high) + ")$")
		for _, n := range []uint64{number.Draw(t, "n"), low, low - 1, low + 1, high, high - 1, high + 1, (low + high) / 2, low * 10, high / 10} {
			if got := pattern.MatchString(strconv.FormatUint(n, 10)); got != (low <= n && n <= high) {
				t.Fatalf("%d in %d..%d: %v by %v", n, low, high, got, pattern)
			}
		}
	})
}

func TestSchema_RangesOfDurationsAndSizesAreTheReaders(t *testing.T) {
	type ranged struct {
		kind   reflect.Type
		tag    string
		schema *jsonschema.Schema
	}
	var all []ranged
	collect := func(structs ...any) {
		for _, s := range structs {
			for _, f := range fieldsOf(s, nil) {
				var part object
				switch f.dst.Type() {
				case reflect.TypeFor[time.Duration]():
					part = durations(f.allowed)
				case reflect.TypeFor[Size]():
					part = sizes(f.allowed)
				default:
					continue
				}
				part["$defs"] = object{"duration": object{"type": "string", "pattern": otherDurations}}
				text, err := json.Marshal(part)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, ranged{f.dst.Type(), f.allowed, compileSchema(t, string(text))})
			}
		}
	}
	c, p := Default(), DefaultPool()
	collect(&c, &c.Limits, &c.Timeouts, &c.Retry, &c.Health, &c.Prefix, &c.Upstream, &c.Client, &p.Signals, &p.Probe, &p.Discover)
	units := map[reflect.Type][]string{
		reflect.TypeFor[time.Duration](): {"ms", "s", "m", "h"},
		reflect.TypeFor[Size]():          {"", "KiB", "MiB", "GiB", "TiB"},
	}
	rapid.Check(t, func(rt *rapid.T) {
		r := rapid.SampledFrom(all).Draw(rt, "field")
		n := rapid.OneOf(rapid.Uint64Range(0, 130), rapid.Uint64Range(0, 200_000_000),
			rapid.SampledFrom([]uint64{3599, 3600, 3601, 1023, 1024, 1025, 3600000, 86400, 86401})).Draw(rt, "n")
		text := strconv.FormatUint(n, 10) + rapid.SampledFrom(units[r.kind]).Draw(rt, "unit")
		v := reflect.New(r.kind).Elem()
		if _, ok := setScalar(v, &yaml.Node{Kind: yaml.ScalarNode, Tag: strTag, Value: text}); !ok {
			return // beyond what 64 bits hold
		}
		if got, want := r.schema.Validate(text) == nil, inRange(v, r.tag); got != want {
			rt.Errorf("%s within %s: schema %v, reader %v", text, r.tag, got, want)
		}
	})
}

// exampleFiles are the configurations that the repository shows.
func exampleFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "examples", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	return files
}

func TestExamples_AreAccepted(t *testing.T) {
	for _, file := range exampleFiles(t) {
		c, err := Load(file, Env{SkipSecrets: true})
		if err != nil {
			t.Errorf("%s:\n%v", file, err)
			continue
		}
		if err := c.Validate(); err != nil {
			t.Errorf("%s:\n%v", file, err)
		}
	}
}
