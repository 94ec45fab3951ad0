package trace

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"kvasir/internal/mono"
	"kvasir/internal/seed"
)

// Which draws of a seed are meant, beside the numbers that generators use.
const (
	binDraws     = 1 << 40
	arrivalDraws = 1<<40 + 1
	sampleDraws  = 1<<40 + 2
)

// maxBin bounds how many calls of one bin are held, to be spread.
const maxBin = 1 << 16

// spread gives rows their time since the file's first call. Those that share a timestamp
// are put uniformly into the bin, in their order; no two rows come at the same instant:
// where the file says so, they are a nanosecond apart.
func (p *pass) spread(rows iter.Seq[*row]) iter.Seq[*row] {
	return func(yield func(*row) bool) {
		last := time.Duration(-1)
		out := func(r *row) bool {
			r.at = max(r.at, last+1)
			last = r.at
			return yield(r)
		}
		var start time.Duration
		begun, more := false, true
		var bin []*row
		flush := func(width time.Duration) {
			p.scatter(bin, width)
			for _, r := range bin {
				more = more && out(r)
			}
			bin = bin[:0]
		}
		for r := range rows {
			if !begun {
				begun, start = true, r.at
			}
			r.at -= start
			if p.bin == 0 {
				if more = out(r); !more {
					return
				}
				continue
			}
			if len(bin) > 0 && bin[0].at != r.at {
				if flush(min(p.bin, r.at-bin[0].at)); !more {
					return
				}
			}
			if len(bin) == maxBin {
				p.err = fmt.Errorf("%s: more than %d calls have the timestamp of line %d; read it raw", p.name, maxBin, p.records.start)
				return
			}
			bin = append(bin, r)
		}
		if p.err == nil {
			flush(p.bin)
		}
	}
}

// scatter moves rows of one timestamp to instants drawn uniformly from the bin.
func (p *pass) scatter(rows []*row, width time.Duration) {
	if len(rows) == 0 || width < 1 {
		return
	}
	draws := seed.New(p.Seed, seed.Workload, uint64(rows[0].at), binDraws)
	at := make([]int64, len(rows))
	for i := range at {
		at[i] = draws.Int64n(int64(width))
	}
	slices.Sort(at)
	for i, r := range rows {
		r.at += time.Duration(at[i])
	}
}

// arrivals are the instants at which sessions without a time come: a Poisson process.
type arrivals struct {
	seed uint64
	rate float64 // a second
	n    uint64
	at   time.Duration
}

// next returns the next instant, at least a nanosecond behind the one before it.
func (a *arrivals) next() time.Duration {
	draws := seed.New(a.seed, seed.Workload, a.n, arrivalDraws)
	a.n++
	a.at = plus(a.at, max(mono.FromSeconds(min(exponential(&draws)/a.rate, 1e9)), 1))
	return a.at
}

// exponential draws from the exponential distribution with mean 1 by comparisons alone, so
// that the result is the same on every platform (von Neumann, "Various techniques used in
// connection with random digits", 1951): runs of falling uniform draws are looked at, and
// the first draw of the first run of odd length is the fraction; each run of even length
// before it adds 1.
func exponential(draws *seed.Rand) float64 {
	for whole := 0.0; ; whole++ {
		first := draws.Float64()
		length := 1
		for low := first; ; length++ {
			next := draws.Float64()
			if next >= low {
				break
			}
			low = next
		}
		if length%2 == 1 {
			return whole + first
		}
	}
}
