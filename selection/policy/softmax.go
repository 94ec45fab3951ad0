package policy

import (
	"kvasir/internal/portable"
	"kvasir/internal/seed"
)

// soften adds noise to the scores, so that each is the lowest with the probability
//
//	exp(-score / (range · temperature)) / the sum of these,
//
// where range is the highest score less the lowest; all are equally likely where they are
// equal. Scores that are NaN stay so and don't take part. This is the softmax over
// min-max-normalised costs that Dynamo and SMG draw from, by the Gumbel-max trick: the
// least of cost - range·temperature·G, with a G of the standard Gumbel distribution for
// each. One endpoint's draw is not another's, so that a higher cost never makes an
// endpoint the lowest.
func soften(scores []float64, temperature float64, r *seed.Rand) {
	least, most := bounds(scores)
	scale := float64((most - least) * temperature)
	if !(scale > 0) {
		return // argmin draws among equals
	}
	for i := range scores {
		scores[i] -= float64(scale * gumbel(r))
	}
}

// bounds returns the lowest and the highest of the scores that aren't NaN; the two are
// NaN where there is none.
func bounds(scores []float64) (least, most float64) {
	least, most = scores[0], scores[0]
	for _, s := range scores[1:] {
		if s < least || least != least {
			least = s
		}
		if s > most || most != most {
			most = s
		}
	}
	return least, most
}

// gumbel returns a number of the standard Gumbel distribution.
func gumbel(r *seed.Rand) float64 { return -portable.Ln(exponential(r)) }

// exponential returns a number above 0 of the exponential distribution with mean 1. Its
// uniform number is never 0 or 1: 52 bits, and half of the next one.
func exponential(r *seed.Rand) float64 {
	return -portable.Ln((float64(r.Uint64()>>12) + 0.5) / (1 << 52))
}
