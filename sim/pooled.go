package sim

import "time"

// Pooled returns what no policy can hope for: one engine as fast as all of them together,
// with all of their blocks and places, so that nothing waits beside an idle engine and every
// cache is everybody's. It reports false where the engines differ, or something happens to
// them, so that none stands for all.
func Pooled(engines []Engine) ([]Engine, bool) {
	for _, e := range engines {
		if e.Config.Profile.Name != engines[0].Config.Profile.Name || e.Config.NumBlocks != engines[0].Config.NumBlocks ||
			len(e.Down) > 0 || len(e.Pace) > 0 || e.Joins > 0 {
			return nil, false
		}
	}
	c := engines[0].Config
	n := len(engines)
	c.Profile = c.Profile.Scaled(1 / float64(n))
	c.Overhead /= time.Duration(n)
	c.Speculation.Overhead /= time.Duration(n)
	c.NumBlocks *= n
	c.Host.Blocks *= n
	c.Host.Bandwidth *= float64(n)
	c.MaxSeqs *= n
	// A step is as long as one of the engines': what is computed in it comes out with it.
	c.MaxBatchedTokens = max(c.MaxBatchedTokens, c.MaxSeqs*(1+c.Speculation.Drafted))
	return []Engine{{Config: c}}, true
}
