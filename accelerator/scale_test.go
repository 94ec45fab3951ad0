package accelerator_test

import (
	"testing"
	"time"

	"kvasir/accelerator"
)

func TestScaled_TakesSoManyTimesTheTime(t *testing.T) {
	p, err := accelerator.Lookup(accelerator.Names()[0])
	if err != nil {
		t.Fatal(err)
	}
	half := p.Scaled(0.5)
	for _, b := range []accelerator.Batch{
		{Tokens: 300, Decodes: 44, DecodeContext: 30_000, Prefills: []accelerator.Prefill{{Chunk: 256, Context: 1000}}},
		{Tokens: 8, Decodes: 8, DecodeContext: 9_000},
		{Tokens: 2048, Prefills: []accelerator.Prefill{{Chunk: 2048}}},
	} {
		want, have := p.Step(b)/2, half.Step(b)
		if d := have - want; d < -2*time.Nanosecond || d > 2*time.Nanosecond {
			t.Errorf("%+v takes %v; want %v", b, have, want)
		}
	}
	again := half.Scaled(2)
	if again.DenseMicros[0] != p.DenseMicros[0] || half.DenseMicros[0] == p.DenseMicros[0] {
		t.Error("the original has changed, or the copy has not")
	}
}

func TestLookup_TakesLlama3ForLlama31(t *testing.T) {
	p, err := accelerator.Lookup("llama-3-70b/4xh100")
	if err != nil || p.Name != "llama-3.1-70b/4xh100" {
		t.Errorf("%s, %v", p.Name, err)
	}
}
