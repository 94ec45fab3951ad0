// Package signal is layer 3 (endpoint selection), pure: numbers that an endpoint
// reports about itself, each with the instant at which it was true.
//
// A number that was never reported, or that is too old, is not zero: it is unknown,
// and whoever reads it must say what it falls back to (article section 5.6;
// invariant 8 of the field cases).
package signal

import (
	"time"

	"kvasir/internal/mono"
)

// Gauge is one reported number. The zero Gauge is unknown.
type Gauge struct {
	Value float64
	At    mono.Time // when it was true, by the clock of the machine that reads it
	Known bool
}

// Known returns a gauge that was v at the instant at.
func Known(v float64, at mono.Time) Gauge { return Gauge{Value: v, At: at, Known: true} }

// Fresh returns the value and true when it is known and at most maxAge old. A
// non-positive maxAge accepts any age.
func (g Gauge) Fresh(now mono.Time, maxAge time.Duration) (float64, bool) {
	if !g.Known || (maxAge > 0 && now.Sub(g.At) > maxAge) {
		return 0, false
	}
	return g.Value, true
}

// Age returns how long ago the value was true, or -1 when it is unknown.
func (g Gauge) Age(now mono.Time) time.Duration {
	if !g.Known {
		return -1
	}
	return now.Sub(g.At)
}

// Load is what an endpoint last reported of itself. Fields that its engine does not
// report stay unknown. Where several data-parallel ranks are behind one address, counts
// are their sum and KVUsage is their mean.
type Load struct {
	Running     Gauge // calls in the engine's batch
	Waiting     Gauge // calls the engine has accepted and not yet scheduled
	KVUsage     Gauge // share of KV blocks in use, 0 to 1
	KVBlocks    Gauge // KV blocks in total, constant while the engine lives
	BlockTokens Gauge // tokens a KV block, constant while the engine lives

	WaitingTokens Gauge // input tokens that wait for prefill and aren't in the prefix cache

	PrefixQueries Gauge // prompt tokens looked up in the prefix cache, a counter
	PrefixHits    Gauge // of those, tokens found, a counter
	Generated     Gauge // answer tokens, a counter
	Preemptions   Gauge // calls put back from the batch for want of KV blocks, a counter

	// Started is when the engine's process started, by a clock of the engine's and in a
	// unit of its own: Unix seconds for vLLM, its host's microseconds for llama.cpp. It
	// is of use beside an earlier one of the same endpoint alone.
	Started Gauge

	Ranks Ranks // each data-parallel rank's share in the numbers above

	Adapters Adapters // LoRA adapters in use; unknown where the engine serves none
}

// gauges returns every Gauge of a Load.
func (l *Load) gauges() [11]*Gauge {
	return [...]*Gauge{
		&l.Running, &l.Waiting, &l.KVUsage, &l.KVBlocks, &l.BlockTokens, &l.WaitingTokens,
		&l.PrefixQueries, &l.PrefixHits, &l.Generated, &l.Preemptions, &l.Started,
	}
}

// Merge takes from newer every field that it knows; what it does not know stays, with
// the age that it had. Ranks are those of the newest report of load: one that tells no
// ranks apart leaves none.
func (l *Load) Merge(newer Load) {
	from := newer.gauges()
	for i, g := range l.gauges() {
		if from[i].Known {
			*g = *from[i]
		}
	}
	if newer.moves() {
		l.Ranks = newer.Ranks
	}
	if newer.Adapters.Known() {
		l.Adapters = newer.Adapters
	}
}

// moves reports whether one of the numbers that move with load is known.
func (l *Load) moves() bool { return l.Running.Known || l.Waiting.Known || l.KVUsage.Known }

// Stamped returns l with every known field true at the instant at.
func (l Load) Stamped(at mono.Time) Load {
	for _, g := range l.gauges() {
		g.At = at
	}
	if l.Ranks.Len() > 0 {
		l.Ranks.At = at
	}
	if l.Adapters.Known() {
		l.Adapters.At = at
	}
	return l
}

// WithoutLoad returns l with the numbers unknown that move with load. Counters and what is
// constant stay.
func (l Load) WithoutLoad() Load {
	l.Running, l.Waiting, l.KVUsage, l.WaitingTokens, l.Ranks = Gauge{}, Gauge{}, Gauge{}, Gauge{}, Ranks{}
	return l
}

// Age returns the age of the newest of the numbers that move with load, or -1 when none
// of them is known.
func (l *Load) Age(now mono.Time) time.Duration {
	age := time.Duration(-1)
	for _, g := range [...]*Gauge{&l.Running, &l.Waiting, &l.KVUsage} {
		if a := g.Age(now); a >= 0 && (age < 0 || a < age) {
			age = a
		}
	}
	return age
}

// KVUsageMax returns the share of KV blocks in use of the fullest rank, which a mean
// hides: a rank at 1 preempts while another one is empty. Without ranks it is KVUsage.
func (l *Load) KVUsageMax() Gauge {
	most := l.KVUsage
	for _, r := range l.Ranks.All() {
		if r.KVUsage > most.Value { // never true of NaN
			most = Known(r.KVUsage, l.Ranks.At)
		}
	}
	return most
}
