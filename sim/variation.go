package sim

import (
	"fmt"
	"slices"
	"time"

	"kvasir/engine"
)

// Variation is a pool whose steps cost something else than the profiles say, for what can
// be said of results under a cost model that is a little wrong. The zero Change is none.
type Variation struct {
	Name   string
	Change func(*engine.Config)
}

// Variations are 10 % more and less of each kind of cost.
func Variations() []Variation {
	var out []Variation
	for _, f := range []float64{1.1, 0.9} {
		sign := fmt.Sprintf("%+.0f %%", (f-1)*100)
		out = append(out,
			Variation{"prefill " + sign, func(c *engine.Config) {
				p := &c.Profile
				for i := range p.DenseMicros {
					p.DenseMicros[i] *= f
				}
				p.PrefillMicros *= f
			}},
			Variation{"decode " + sign, func(c *engine.Config) {
				p := &c.Profile
				p.Decode.Base *= f
				p.Decode.PerSequence *= f
				p.Decode.PerContextToken *= f
			}},
			Variation{"overhead " + sign, func(c *engine.Config) {
				p := &c.Profile
				p.Elementwise.Base *= f
				p.Elementwise.PerToken *= f
				p.HeadMicros *= f
				c.Overhead = time.Duration(float64(c.Overhead) * f)
			}},
		)
	}
	return out
}

// Of returns the engines with their costs changed.
func (v Variation) Of(engines []Engine) []Engine {
	out := slices.Clone(engines)
	for i := range out {
		c := &out[i].Config
		c.Profile = c.Profile.Scaled(1) // a copy
		if v.Change != nil {
			v.Change(c)
		}
	}
	return out
}
