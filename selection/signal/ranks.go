package signal

import (
	"cmp"
	"math"
	"slices"

	"kvasir/internal/mono"
)

// MaxRanks is how many data-parallel ranks behind one address are kept apart. Of more,
// the lowest are; the numbers of all are in the Load.
const MaxRanks = 64

// Rank is what one data-parallel rank reports. A number that it doesn't tell is NaN.
type Rank struct {
	ID int32 // as the engine counts its ranks, from 0

	Running, Waiting, KVUsage, WaitingTokens          float64
	PrefixQueries, PrefixHits, Generated, Preemptions float64
}

// UnknownRank returns a rank of which nothing is told.
func UnknownRank(id int32) Rank {
	u := math.NaN()
	return Rank{ID: id, Running: u, Waiting: u, KVUsage: u, WaitingTokens: u,
		PrefixQueries: u, PrefixHits: u, Generated: u, Preemptions: u}
}

func (r *Rank) numbers() [8]*float64 {
	return [...]*float64{&r.Running, &r.Waiting, &r.KVUsage, &r.WaitingTokens,
		&r.PrefixQueries, &r.PrefixHits, &r.Generated, &r.Preemptions}
}

// Ranks is what the ranks behind one address report, all at one instant. The zero Ranks
// has none: an engine of one rank, whose numbers are the Load's, or one that doesn't
// tell its ranks apart. Copies share what they hold, which is never changed.
type Ranks struct {
	At   mono.Time
	kept *[]Rank // ascending by ID, at least one, at most MaxRanks; nil: none
}

// RanksOf returns ranks, which must have an ID each of its own and aren't the caller's
// any longer. Rank 0 alone is none: it is all that the usual engine has. Another one
// alone is kept, for there are more, of which this one report says nothing.
func RanksOf(ranks []Rank, at mono.Time) Ranks {
	if len(ranks) == 0 || len(ranks) == 1 && ranks[0].ID == 0 {
		return Ranks{}
	}
	slices.SortFunc(ranks, byID)
	kept := slices.Clip(ranks[:min(len(ranks), MaxRanks)])
	return Ranks{At: at, kept: &kept}
}

func byID(a, b Rank) int { return cmp.Compare(a.ID, b.ID) }

// All returns the ranks, ascending by ID. The caller must not change them.
func (r Ranks) All() []Rank {
	if r.kept == nil {
		return nil
	}
	return *r.kept
}

// Len returns how many ranks there are, at most MaxRanks.
func (r Ranks) Len() int { return len(r.All()) }

// Join returns the ranks of r and better, two reports of one moment. Where both tell a
// number of a rank, that of better counts.
func (r Ranks) Join(better Ranks) Ranks {
	if better.kept == nil {
		return r
	}
	if r.kept == nil {
		return better
	}
	joined := slices.Clone(*r.kept)
	for _, b := range *better.kept {
		i, found := slices.BinarySearchFunc(joined, b, byID)
		if !found {
			joined = slices.Insert(joined, i, b)
			continue
		}
		from := b.numbers()
		for k, n := range joined[i].numbers() {
			if !math.IsNaN(*from[k]) {
				*n = *from[k]
			}
		}
	}
	return RanksOf(joined, better.At)
}
