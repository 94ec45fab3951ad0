package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"kvasir/gateway/flow"
	"kvasir/sim"
)

// sharing is what gateways tell each other in a run.
type sharing struct {
	on    bool
	delay time.Duration // until the others have it
	loss  float64       // share of it that a gateway does not get
}

// variant is one setting of gateways.
type variant struct {
	gateways int
	sharing  sharing
}

// variants lists what is to be compared. One gateway has nobody to tell.
func (o *simOptions) variants() []variant {
	var out []variant
	for _, n := range o.gateways {
		if n == 1 {
			out = append(out, variant{1, sharing{}})
			continue
		}
		for _, x := range o.sharing {
			out = append(out, variant{n, x})
		}
	}
	return out
}

// comparedSharing is what a list of gateways is compared by where --sharing says nothing: what
// a broker in the same rack takes, what it takes far away, and that while much is lost, or when
// it is nearly down.
const comparedSharing = "none,5ms,100ms,100ms/0.3,2s"

// parseSharing reads --sharing: none, or how late what is told is heard and how much of it is
// lost, as in 5ms/0.01; several separated by commas.
func parseSharing(text string) ([]sharing, error) {
	var out []sharing
	for item := range strings.SplitSeq(text, ",") {
		x, ok := sharing{}, item == "none"
		if !ok {
			delay, loss, lossy := strings.Cut(item, "/")
			d, err := time.ParseDuration(delay)
			x = sharing{on: true, delay: d}
			ok = err == nil && d >= 0 && d <= longestPeerDelay
			if lossy && ok {
				x.loss, err = strconv.ParseFloat(loss, 64)
				ok = err == nil && x.loss >= 0 && x.loss <= 1
			}
		}
		if !ok || slices.Contains(out, x) {
			return nil, fmt.Errorf("--sharing: %q is not allowed; allowed: none, or a duration from 0s to %v, with /SHARE behind it where a share from 0 to 1 is lost, separated by commas, each once", item, longestPeerDelay)
		}
		out = append(out, x)
	}
	return out, nil
}

// String says it for tables.
func (x sharing) String() string {
	switch {
	case !x.on:
		return "alone"
	case x.loss > 0:
		return fmt.Sprintf("told in %v, %.4g %% lost", x.delay, 100*x.loss)
	default:
		return fmt.Sprintf("told in %v", x.delay)
	}
}

// set makes the scenario's gateways tell each other that.
func (x sharing) set(s *sim.Scenario) {
	s.Sharing, s.PeerDelay, s.PeerLoss = flow.Sharing{}, x.delay, x.loss
	if x.on {
		s.Sharing = flow.DefaultSharing(0)
	}
}
