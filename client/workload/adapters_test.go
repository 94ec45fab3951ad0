package workload

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kvasir/internal/kvblock"
)

// manySessions is a source of two calls a session, all with one prompt.
func manySessions(n int) Source {
	return Source{Name: "many", BlockTokens: 64, Sessions: func(yield func(Session, error) bool) {
		for i := range n {
			if !yield(Session{ID: fmt.Sprint(i), Calls: []Call{{PromptTokens: 640, OutputTokens: 1}, {PromptTokens: 640, OutputTokens: 1}}}, nil) {
				return
			}
		}
	}}
}

func TestAdapters_DrawsOneASession(t *testing.T) {
	const sessions = 20_000
	a := Adapters{N: 4, Exponent: 1, Share: 0.5}
	names := func(root uint64) (all []string) {
		for s, err := range a.Apply(manySessions(sessions), root).Sessions {
			if err != nil || len(s.Calls) != 2 || s.Calls[0].Adapter != s.Calls[1].Adapter {
				t.Fatalf("%+v, %v", s, err)
			}
			all = append(all, s.Calls[0].Adapter)
		}
		return all
	}
	got := names(1)
	if !slices.Equal(got, names(1)) || slices.Equal(got, names(2)) {
		t.Error("the draws do not go by the root")
	}
	counts := map[string]float64{}
	for _, n := range got {
		counts[n]++
	}
	const sum = 1 + 1./2 + 1./3 + 1./4
	for name, share := range map[string]float64{
		"": 0.5, "adapter-1": 0.5 / sum, "adapter-2": 0.5 / sum / 2, "adapter-3": 0.5 / sum / 3, "adapter-4": 0.5 / sum / 4,
	} {
		if n := counts[name] / sessions; n < share-0.02 || n > share+0.02 {
			t.Errorf("%q has %.3f of the sessions, want %.3f", name, n, share)
		}
	}
	if len(counts) != 5 {
		t.Errorf("drew %v", counts)
	}
}

func TestAdapters_LeavesTheSourceAndItsErrors(t *testing.T) {
	kept := []Call{{PromptTokens: 1}}
	broken := errors.New("broken")
	s := Adapters{N: 1, Share: 1}.Apply(Source{Sessions: func(yield func(Session, error) bool) {
		_ = yield(Session{Calls: kept}, nil) && yield(Session{}, broken)
	}}, 0)
	var errs []error
	for x, err := range s.Sessions {
		if errs = append(errs, err); err == nil && x.Calls[0].Adapter != "adapter-1" {
			t.Errorf("%+v", x)
		}
	}
	if len(errs) != 2 || errs[1] != broken || kept[0].Adapter != "" {
		t.Errorf("errors %v, the source's call %+v", errs, kept[0])
	}
}

// Prompts share blocks with those of their own adapter, in the router's chain and in the
// engine's, and with no others.
func TestAdapters_ShareNoBlocks(t *testing.T) {
	var blocks []kvblock.Hash
	for i := range 10 {
		blocks = append(blocks, kvblock.Hash(100+i))
	}
	call := func(adapter string) *Call {
		return &Call{Adapter: adapter, PromptTokens: 640, OutputTokens: 64, Blocks: blocks}
	}
	chains := func(adapter string) []string {
		engine, _ := EngineBlocks(nil, call(adapter), 64, 16)
		return []string{fmt.Sprint(RouterBlocks(nil, call(adapter), 64)), fmt.Sprint(engine)}
	}
	base, a, b := chains(""), chains("a"), chains("b")
	if !slices.Equal(a, chains("a")) {
		t.Error("an adapter's chains differ from themselves")
	}
	for i, name := range []string{"router", "engine"} {
		if base[i] == a[i] || a[i] == b[i] || base[i] == "[]" {
			t.Errorf("the %s's chains of two adapters are equal", name)
		}
	}
	for i, h := range RouterBlocks(nil, call("a"), 64) {
		if slices.Contains(RouterBlocks(nil, call("b"), 64), h) || slices.Contains(RouterBlocks(nil, call(""), 64), h) {
			t.Errorf("block %d is another adapter's too", i)
		}
	}
}

func TestParseAdapters(t *testing.T) {
	a, err := ParseAdapters("zipf:n=3,exponent=0,share=0.25")
	if want := (Adapters{N: 3, Exponent: 0, Share: 0.25}); err != nil || a != want {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := ParseAdapters("zipf"); err != nil || a != (Adapters{N: 16, Exponent: 1, Share: 1}) {
		t.Errorf("the defaults are %+v, %v", a, err)
	}
	for text, words := range map[string]string{
		"zipf:n=0":         "n is 0; allowed: 1 to 1048576",
		"zipf:exponent=-1": "exponent is -1; allowed: 0 to 100",
		"zipf:share=1.5":   "share is 1.5; allowed: 0 to 1",
		"zipf:share=NaN":   "share",
		"zipf:k=1":         `"k" is no key; allowed: n, exponent, share`,
		"16":               `"16" is not a mix of adapters; allowed: zipf`,
	} {
		if _, err := ParseAdapters(text); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", text, err, words)
		}
	}
}

func FuzzParseAdapters(f *testing.F) {
	for _, text := range []string{"zipf", "zipf:n=3,exponent=0,share=0.25", "zipf:n=,", ":", "zipf:share=1e-9,share=2", "zipf:exponent=NaN"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAdapters(text)
		if err == nil && (a.Validate() != nil || a.N < 1 || !(a.Share >= 0 && a.Share <= 1)) {
			t.Errorf("%q gives %+v", text, a)
		}
	})
}
