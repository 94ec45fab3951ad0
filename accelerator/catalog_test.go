package accelerator

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestCatalog_HasTheStandardProfiles(t *testing.T) {
	names := Names()
	if !slices.IsSorted(names) {
		t.Errorf("names are not sorted: %v", names)
	}
	for _, name := range []string{
		"llama-3.1-8b/h100-tp1", "llama-3.1-8b/a100-tp1", "llama-3.1-70b/h100-tp4", "qwen3-32b/h100-tp2",
		"llama-3.1-8b/rtx-4090-tp1", "llama-3.1-8b/rtx-pro-6000-tp1",
	} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is missing", name)
		}
	}
	for _, name := range names {
		if p, err := Lookup(name); err != nil || p.Name != name {
			t.Errorf("Lookup(%q) = %q, %v", name, p.Name, err)
		}
		if strings.ToLower(name) != name || strings.ContainsAny(name, "_ ") {
			t.Errorf("%q is not kebab-case", name)
		}
	}
}

func TestLookup_WhenUnknown_ListsWhatIsAllowed(t *testing.T) {
	_, err := Lookup("llama-3.1-8b/h200-tp1")
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range append(Names(), `"llama-3.1-8b/h200-tp1"`) {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
}

func TestLookup_GivesACopy(t *testing.T) {
	a, err := Lookup("llama-3.1-8b/h100-tp1")
	if err != nil {
		t.Fatal(err)
	}
	a.DenseMicros[0], a.DenseTokens[0] = 1, 100
	b, err := Lookup("llama-3.1-8b/h100-tp1")
	if err != nil {
		t.Fatal(err)
	}
	if b.DenseMicros[0] == 1 || b.DenseTokens[0] == 100 {
		t.Error("writing to one caller's profile changed another's")
	}
}

// Every number names where it comes from, every source is used and says under which
// licence.
func TestCatalog_EveryNumberHasASource(t *testing.T) {
	var raw struct {
		Sources  map[string]map[string]string
		Profiles []map[string]json.RawMessage
	}
	if err := json.Unmarshal(catalogJSON, &raw); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, p := range raw.Profiles {
		var sources map[string]string
		if err := json.Unmarshal(p["sources"], &sources); err != nil {
			t.Fatal(err)
		}
		for field := range p {
			switch field {
			case "name", "model", "device", "tensor_parallel", "dense_tokens", "sources":
				continue // what the profile is of, not what was measured
			}
			key, ok := sources[field]
			if !ok {
				t.Errorf("%s: %s has no source", p["name"], field)
			}
			used[key] = true
		}
	}
	for key, s := range raw.Sources {
		if !used[key] {
			t.Errorf("source %s is not used", key)
		}
		if s["origin"] == "" || s["licence"] == "" {
			t.Errorf("source %s lacks origin or licence", key)
		}
	}
}

// The KV size of a token follows from the models' shapes: 2 (keys and values) · layers
// · KV heads · head size · 2 bytes.
func TestCatalog_KVBytesFollowFromTheModel(t *testing.T) {
	want := map[string]int64{
		"meta-llama/Llama-3.1-8B":  2 * 32 * 8 * 128 * 2,
		"meta-llama/Llama-3.1-70B": 2 * 80 * 8 * 128 * 2,
		"Qwen/Qwen3-32B":           2 * 64 * 8 * 128 * 2,
	}
	for _, e := range catalog {
		if e.KVBytesPerToken != want[e.Model] {
			t.Errorf("%s: %d bytes a token, want %d", e.Name, e.KVBytesPerToken, want[e.Model])
		}
	}
}

func TestBlocks_CountsBlocksOfTheGivenSize(t *testing.T) {
	p := Profile{KVBlocks: 101}
	for size, want := range map[int]int{16: 101, 32: 50, 8: 202, 128: 12} {
		if got := p.Blocks(size); got != want {
			t.Errorf("Blocks(%d) = %d, want %d", size, got, want)
		}
	}
}

func TestValidate_NamesFieldAndValue(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*Profile)
		want  string
	}{
		{"no name", func(p *Profile) { p.Name = "" }, "name"},
		{"one point", func(p *Profile) { p.DenseTokens, p.DenseMicros = p.DenseTokens[:1], p.DenseMicros[:1] }, "dense_tokens"},
		{"lengths differ", func(p *Profile) { p.DenseMicros = p.DenseMicros[1:] }, "dense_us"},
		{"not ascending", func(p *Profile) { p.DenseTokens[1] = 1 }, "dense_tokens[1]"},
		{"free step", func(p *Profile) { p.DenseMicros[0] = 0 }, "dense_us[0]"},
		{"falling end", func(p *Profile) { p.DenseMicros[len(p.DenseMicros)-1] = 1 }, "dense_us["},
		{"negative", func(p *Profile) { p.Decode.Base = -1 }, "decode_attention_us.base is -1"},
		{"not a number", func(p *Profile) { p.PrefillMicros = math.NaN() }, "prefill_attention_us_per_token_pair is NaN"},
		{"infinite", func(p *Profile) { p.HeadMicros = math.Inf(1) }, "head_us is +Inf"},
		{"no blocks", func(p *Profile) { p.KVBlocks = 0 }, "kv_blocks is 0"},
		{"no parallelism", func(p *Profile) { p.TensorParallel = 0 }, "tensor_parallel is 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Lookup("llama-3.1-8b/h100-tp1")
			if err != nil {
				t.Fatal(err)
			}
			c.spoil(&p)
			if err := p.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want it to name %s", err, c.want)
			}
		})
	}
}

func TestRead_RefusesABadCatalogue(t *testing.T) {
	for name, c := range map[string]struct{ from, to, want string }{
		"unknown field":     {`"head_us":`, `"heads_us":`, "heads_us"},
		"undeclared source": {`"head_us": "head-bandwidth"`, `"head_us": "hearsay"`, "hearsay"},
		"twice":             {`llama-3.1-8b/h100-tp2`, `llama-3.1-8b/h100-tp1`, "twice"},
		"bad number":        {`"tensor_parallel": 1`, `"tensor_parallel": 0`, "tensor_parallel is 0"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := strings.Replace(string(catalogJSON), c.from, c.to, 1)
			if _, err := read([]byte(bad)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want it to name %s", err, c.want)
			}
		})
	}
}
