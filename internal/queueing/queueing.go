// Package queueing is pure: closed forms that size a pool, each with its source and with
// what it assumes. Waits are in units of the mean service time unless a name says seconds.
//
// A closed form is as good as its assumptions. All of these take arrivals that are
// independent of the load, queues without bound and a steady state; an engine has batches
// whose speed depends on their size, caches and preemption. The simulator has them too.
package queueing

import "math"

// Kingman returns the mean wait of a G/G/1 queue, first come first served, in heavy traffic:
//
//	Wq / E[S] ≈ ρ/(1−ρ) · (Ca² + Cs²)/2
//
// rho is the utilization, ca2 and cs2 the squared coefficients of variation of the times
// between arrivals and of service. It is exact for Poisson arrivals (PollaczekKhinchine),
// and otherwise an approximation that is too high at low utilization. The result is +Inf
// from a utilization of 1 on, and NaN where an argument is negative or NaN.
//
// Source: Kingman 1961; article 10.2.
func Kingman(rho, ca2, cs2 float64) float64 { return AllenCunneen(1, rho, ca2, cs2) }

// PollaczekKhinchine returns the mean wait of an M/G/1 queue in any order of service that
// does not look at the service times. It is exact:
//
//	Wq / E[S] = ρ/(1−ρ) · (1 + Cs²)/2
//
// Source: Pollaczek 1930, Khinchine 1932; article 1.2.
func PollaczekKhinchine(rho, cs2 float64) float64 { return Kingman(rho, 1, cs2) }

// Knee returns the utilization at which Kingman's wait is as given, in service times: the
// article's chart read horizontally (section 1.2).
func Knee(wait, ca2, cs2 float64) float64 { return wait / (wait + float64((ca2+cs2)/2)) }

// ErlangC returns the probability that a call has to wait in an M/M/c queue: c servers that
// work through offered erlangs (arrival rate times mean service time). It is 1 from c
// erlangs on. The time it takes grows with c.
//
// Source: Erlang 1917. B is the loss formula's recursion, which neither overflows nor
// cancels.
func ErlangC(servers int, offered float64) float64 {
	if offered == 0 {
		return 0
	}
	if offered >= float64(servers) {
		return 1
	}
	b := 1.0
	for k := 1; k <= servers; k++ {
		ab := float64(offered * b)
		b = ab / (float64(k) + ab)
		if b == 0 {
			return 0 // it is below the least positive number and only falls from here on
		}
	}
	rho := offered / float64(servers)
	return b / (1 - float64(rho*(1-b)))
}

// AllenCunneen returns the mean wait of a G/G/c queue, first come first served:
//
//	Wq / E[S] ≈ C(c, cρ) / (c·(1−ρ)) · (Ca² + Cs²)/2
//
// with ErlangC's C. It is exact for M/M/c and for M/G/1, where it is PollaczekKhinchine's,
// and an approximation elsewhere. Arguments and limits as for Kingman.
//
// Source: Allen, "Probability, Statistics, and Queueing Theory", 1978.
func AllenCunneen(servers int, rho, ca2, cs2 float64) float64 {
	switch {
	case servers < 1 || !(rho >= 0) || !(ca2 >= 0) || !(cs2 >= 0):
		return math.NaN()
	case rho >= 1:
		return math.Inf(1)
	}
	c := float64(servers)
	return ErlangC(servers, c*rho) / float64(c*(1-rho)) * (ca2 + cs2) / 2
}

// Thinned returns the squared coefficient of variation of the times between arrivals that
// are left when each one of a renewal process is kept with the given probability, as a
// router that picks at random splits its calls. Poisson arrivals stay Poisson.
//
// Source: Whitt, "The Queueing Network Analyzer", 1983.
func Thinned(ca2, kept float64) float64 { return 1 + float64(kept*(ca2-1)) }

// CeilingRate returns the most calls a second that a system of so many places completes
// when a call stays for residence seconds: Little's law with every place taken,
//
//	λ_max = L_max / W
//
// It holds for any distribution and any order of service. W grows with the batch, so this
// is the ceiling at the load at which W was measured.
//
// Source: Little 1961; article 1.3.
func CeilingRate(places int, residence float64) float64 { return float64(places) / residence }
