package accelerator

import "slices"

// Scaled returns a copy of the profile whose steps take factor times their time. factor
// must be above 0.
func (p *Profile) Scaled(factor float64) Profile {
	s := *p
	s.DenseTokens = slices.Clone(p.DenseTokens)
	s.DenseMicros = slices.Clone(p.DenseMicros)
	for _, cost := range s.costs() {
		*cost *= factor
	}
	return s
}

// costs are the coefficients: what a step's time is linear in.
func (p *Profile) costs() []*float64 {
	all := []*float64{
		&p.Elementwise.Base, &p.Elementwise.PerToken, &p.HeadMicros,
		&p.Decode.Base, &p.Decode.PerSequence, &p.Decode.PerContextToken, &p.PrefillMicros,
	}
	for i := range p.DenseMicros {
		all = append(all, &p.DenseMicros[i])
	}
	return all
}
