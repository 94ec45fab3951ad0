package upstream

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection/signal"
	"kvasir/upstream/exposition"
)

// number is what the samples of a page tell; dialects give their series' names to it.
type number uint8

const (
	running number = iota
	waiting
	kvUsage
	kvBlocks
	blockTokens
	waitingTokens
	prefixQueries
	prefixHits
	generated
	preemptions
	started
	numbers         // how many there are
	unwanted number = 255
)

// counter reports whether the number counts up. A sum of one that lacks a part would
// look as if it went backwards.
func (n number) counter() bool { return n >= prefixQueries && n <= preemptions }

// byRank reports whether the number is kept for each rank.
func (n number) byRank() bool { return n != kvBlocks && n != blockTokens && n != started }

// noRank is the rank of what isn't told by rank.
const noRank = -1

// countMax is the largest number below which a float counts without gaps.
const countMax = 1 << 53

// sample is one usable value of a page.
type sample struct {
	number   number
	spelling uint8 // under which of the number's names; of two, the lower one is newer
	rank     int32 // data-parallel rank, or noRank
	shard    int32 // which of the processes that are one rank together; each reports for the rank
	value    float64
}

// tally collects the samples of a page and makes a Load of them.
type tally struct {
	samples []sample
	report  Report
	bad     [numbers]uint8 // spellings, as bits, under which an impossible value stood

	adapters adapterSample
}

// adapterSample is what the newest sample tells of LoRA adapters.
type adapterSample struct {
	at               float64 // Unix time; 0: there is none
	slots            int
	running, waiting []kvblock.Hash
}

// add takes a value from least to most. Another one, NaN included, is impossible.
func (t *tally) add(s sample, least, most float64) {
	if !(s.value >= least && s.value <= most) {
		t.refuse(s.number, s.spelling)
		return
	}
	t.samples = append(t.samples, s)
}

// refuse takes note of a value that can't be.
func (t *tally) refuse(n number, spelling uint8) {
	t.report.BadValues++
	t.bad[n] |= 1 << spelling
}

// load makes a Load of the samples, true at the instant at, and finishes the report.
//
// Of a number with several spellings the newest one that has a usable value is believed.
// Within a rank the samples of its lowest shard count, the others repeat them. Counts
// are summed over ranks, shares are their mean.
func (t *tally) load(at mono.Time) (signal.Load, Report) {
	slices.SortStableFunc(t.samples, func(a, b sample) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.spelling, b.spelling),
			cmp.Compare(a.rank, b.rank), cmp.Compare(a.shard, b.shard))
	})
	var l signal.Load
	var ranks []signal.Rank
	for rest := t.samples; len(rest) > 0; {
		all, newest := 0, 0
		for ; all < len(rest) && rest[all].number == rest[0].number; all++ {
			if rest[all].spelling == rest[0].spelling {
				newest++
			}
		}
		ranks = t.fold(&l, ranks, rest[:newest], at)
		rest = rest[all:]
	}
	l.Ranks = signal.RanksOf(ranks, at)
	if a := &t.adapters; a.at > 0 {
		l.Adapters = signal.AdaptersOf(a.slots, a.running, a.waiting, at)
	}
	t.report.Missing = missing(&l)
	return l, t.report
}

// fold puts one number, told by the samples in group, into the Load and, as far as it
// is told by rank, into ranks.
func (t *tally) fold(l *signal.Load, ranks []signal.Rank, group []sample, at mono.Time) []signal.Rank {
	n, spelling := group[0].number, group[0].spelling
	sum, count := 0.0, 0
	least, most := group[0].value, group[0].value
	for rest := group; len(rest) > 0; {
		rank, shard := rest[0].rank, rest[0].shard
		part, parts := 0.0, 0
		for ; len(rest) > 0 && rest[0].rank == rank; rest = rest[1:] {
			if v := rest[0].value; rest[0].shard == shard {
				part, parts = part+v, parts+1
				least, most = min(least, v), max(most, v)
			}
		}
		sum, count = sum+part, count+parts
		if n == kvUsage {
			part /= float64(parts)
		}
		if rank != noRank && n.byRank() {
			ranks = setRank(ranks, rank, n, part)
		}
	}
	v := sum
	switch {
	case n == kvUsage:
		v = sum / float64(count)
	case n == started:
		v = most
	case n == blockTokens && least != most:
		t.report.BadValues++ // ranks that differ have no block size in common
		return ranks
	case n == blockTokens:
		v = most
	case n.counter() && t.bad[n]&(1<<spelling) != 0:
		return ranks
	}
	*loadField(l, n) = signal.Known(v, at)
	return ranks
}

func loadField(l *signal.Load, n number) *signal.Gauge {
	return [numbers]*signal.Gauge{
		running: &l.Running, waiting: &l.Waiting, kvUsage: &l.KVUsage, kvBlocks: &l.KVBlocks, blockTokens: &l.BlockTokens,
		waitingTokens: &l.WaitingTokens, prefixQueries: &l.PrefixQueries, prefixHits: &l.PrefixHits,
		generated: &l.Generated, preemptions: &l.Preemptions, started: &l.Started,
	}[n]
}

// setRank puts a rank's number into ranks, which are ascending and at most the lowest
// signal.MaxRanks.
func setRank(ranks []signal.Rank, id int32, n number, v float64) []signal.Rank {
	i, found := slices.BinarySearchFunc(ranks, id, func(r signal.Rank, id int32) int { return cmp.Compare(r.ID, id) })
	if i == signal.MaxRanks {
		return ranks
	}
	if !found {
		ranks = slices.Insert(ranks, i, signal.UnknownRank(id))
		ranks = ranks[:min(len(ranks), signal.MaxRanks)]
	}
	*rankField(&ranks[i], n) = v
	return ranks
}

func rankField(r *signal.Rank, n number) *float64 {
	return [numbers]*float64{
		running: &r.Running, waiting: &r.Waiting, kvUsage: &r.KVUsage, waitingTokens: &r.WaitingTokens,
		prefixQueries: &r.PrefixQueries, prefixHits: &r.PrefixHits, generated: &r.Generated, preemptions: &r.Preemptions,
	}[n]
}

// label returns the whole number, from least to the largest int32, in a label of a
// series. It is told where the sample has the label and that is neither empty nor
// Python's None, and ok where it is either not told or can be.
func label(s *exposition.Scanner, name string, least int32) (v int32, told, ok bool) {
	text, found := s.Label(name)
	if !found || text == "" || text == "None" {
		return 0, false, true
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < int64(least) {
		return 0, true, false
	}
	return int32(n), true, true
}

// rankLabel returns the rank in a label, or none where there is no such label or it
// names no rank.
func rankLabel(s *exposition.Scanner, name string, none int32) int32 {
	if v, told, ok := label(s, name, 0); told && ok {
		return v
	}
	return none
}

// cutPrefix returns a metric's name without its engine's prefix, after which a colon
// stands, or an underscore where an exporter on the way allows no colons.
func cutPrefix(name []byte, prefix string) (rest []byte, ok bool) {
	rest, ok = bytes.CutPrefix(name, []byte(prefix))
	if !ok || len(rest) == 0 || rest[0] != ':' && rest[0] != '_' {
		return nil, false
	}
	return rest[1:], true
}

// cutTotal returns the base of a counter's name, and its spelling: 0 with _total, as
// Prometheus' formats have it, 1 without, as OpenMetrics may.
func cutTotal(name []byte) (base []byte, spelling uint8) {
	if base, ok := bytes.CutSuffix(name, []byte("_total")); ok {
		return base, 0
	}
	return name, 1
}
