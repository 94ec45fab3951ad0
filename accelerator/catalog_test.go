package accelerator

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"kvasir/internal/testkit/fulltrace"
)

func TestCatalog_HasTheStandardProfiles(t *testing.T) {
	names := Names()
	if !slices.IsSorted(names) {
		t.Errorf("names are not sorted: %v", names)
	}
	for _, name := range []string{
		"llama-3.1-8b/h100", "llama-3.1-8b/a100", "llama-3.1-70b/4xh100", "qwen3-32b/2xh100",
		"llama-3.1-8b/rtx-4090", "llama-3.1-8b/rtx-pro-6000",
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
	for name, want := range map[string][]string{
		"gpt-2/h100":        append(Names(), `"gpt-2/h100"`),
		"":                  Names(),
		"qwen3-32b/8xh100":  {`"8xh100"`, "qwen3-32b: 2xa100, 2xh100, 4xa100, 4xh100, a100, h100"},
		"llama-3.1-70b":     {`""`, "llama-3.1-70b: 4xa100, 4xh100, 8xa100, 8xh100"},
		"llama-3.1-8b/H100": {`"H100"`, "2xh100, a100, h100, rtx-4090"},
	} {
		_, err := Lookup(name)
		if err == nil {
			t.Errorf("%q is found", name)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q does not name %s", err, w)
			}
		}
	}
}

// A name says which model, which device, and how many of it.
func TestCatalog_NamesFollowFromWhatTheProfileIsOf(t *testing.T) {
	devices := map[string]string{
		"H100 SXM 80 GB": "h100", "A100 SXM 80 GB": "a100",
		"RTX 4090 24 GB": "rtx-4090", "RTX PRO 6000 96 GB": "rtx-pro-6000",
	}
	for _, e := range catalog {
		_, model, _ := strings.Cut(strings.ToLower(e.Model), "/")
		device := devices[e.Device]
		if e.TensorParallel > 1 {
			device = fmt.Sprintf("%dx%s", e.TensorParallel, device)
		}
		if want := model + "/" + device; e.Name != want {
			t.Errorf("%q should be %q", e.Name, want)
		}
	}
}

// The catalogue has every set of coefficients that was fitted, unchanged.
func TestCatalog_HasTheFittedCoefficients(t *testing.T) {
	data, err := os.ReadFile(fulltrace.Path(t, "engine-profiles/dense_model_coefficients.json"))
	if err != nil {
		t.Fatal(err)
	}
	var fitted struct {
		Rows []struct {
			GPU      string     `json:"gpu"`
			Model    string     `json:"model"`
			Parallel int        `json:"tp"`
			Tokens   []int      `json:"dense_tokens"`
			Dense    []float64  `json:"dense_us"`
			Decode   [3]float64 `json:"dec_attn"`
			Prefill  [2]float64 `json:"pre_attn"`
			Head     float64    `json:"head"`
			Elem     [2]float64 `json:"elem"`
			KVBytes  int64      `json:"kv_bytes_per_token"`
			KVBlocks int        `json:"kv_blocks16_util092"`
		} `json:"rows"`
	}
	if err := json.Unmarshal(data, &fitted); err != nil {
		t.Fatal(err)
	}
	if len(fitted.Rows) != 14 {
		t.Fatalf("%d sets, want 14", len(fitted.Rows))
	}
	for _, r := range fitted.Rows {
		device := strings.TrimSuffix(r.GPU, "_sxm")
		if r.Parallel > 1 {
			device = fmt.Sprintf("%dx%s", r.Parallel, device)
		}
		p, err := Lookup(strings.ToLower(r.Model) + "/" + device)
		if err != nil {
			t.Error(err)
			continue
		}
		if !slices.Equal(p.DenseTokens, r.Tokens) || !slices.Equal(p.DenseMicros, r.Dense) || p.HeadMicros != r.Head ||
			p.Decode != (Decode{r.Decode[0], r.Decode[1], r.Decode[2]}) || p.PrefillMicros != r.Prefill[1] ||
			p.Elementwise != (Linear{r.Elem[0], r.Elem[1]}) || p.KVBytesPerToken != r.KVBytes || p.KVBlocks != r.KVBlocks {
			t.Errorf("%s: %+v, fitted %+v", p.Name, p, r)
		}
	}
}

func TestLookup_GivesACopy(t *testing.T) {
	a, err := Lookup("llama-3.1-8b/h100")
	if err != nil {
		t.Fatal(err)
	}
	a.DenseMicros[0], a.DenseTokens[0] = 1, 100
	b, err := Lookup("llama-3.1-8b/h100")
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
			p, err := Lookup("llama-3.1-8b/h100")
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
		"twice":             {`llama-3.1-8b/2xh100`, `llama-3.1-8b/h100`, "twice"},
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
