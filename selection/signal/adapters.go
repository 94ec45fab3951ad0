package signal

import (
	"slices"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
)

// MaxAdapters is how many adapters of a kind an endpoint's report keeps; the others are
// counted.
const MaxAdapters = 64

// Adapter returns the hash by which a LoRA adapter of that name is known. It is never 0,
// which stands for the base model.
func Adapter(name string) kvblock.Hash { return max(kvblock.Seed("adapter", name), 1) }

// Adapters is what an endpoint reports of LoRA adapters at one instant. The zero Adapters
// is unknown. Copies share what they hold, which is never changed.
//
// vLLM up to 0.28 names every adapter with a call in flight as running and as waiting, so
// that one which only waits looks as if it ran.
type Adapters struct {
	At   mono.Time
	kept *adapters // nil: unknown
}

type adapters struct {
	slots            int
	running, waiting AdapterSet
}

// AdaptersOf returns a report: the slots that hold an adapter each for the calls of a step
// (0: not told), and the adapters that run and that wait. The slices are not the caller's
// any longer.
func AdaptersOf(slots int, running, waiting []kvblock.Hash, at mono.Time) Adapters {
	return Adapters{At: at, kept: &adapters{slots: slots, running: newAdapterSet(running), waiting: newAdapterSet(waiting)}}
}

// Known reports whether anything was told.
func (a Adapters) Known() bool { return a.kept != nil }

// Slots returns how many slots there are, 0 where that is not known.
func (a Adapters) Slots() int {
	if a.kept == nil {
		return 0
	}
	return a.kept.slots
}

// Running returns the adapters that run.
func (a Adapters) Running() AdapterSet {
	if a.kept == nil {
		return AdapterSet{}
	}
	return a.kept.running
}

// Waiting returns the adapters that calls wait for.
func (a Adapters) Waiting() AdapterSet {
	if a.kept == nil {
		return AdapterSet{}
	}
	return a.kept.waiting
}

// AdapterSet is a set of adapters, of which at most MaxAdapters are known by name.
type AdapterSet struct {
	named []kvblock.Hash // ascending
	more  int
}

func newAdapterSet(hashes []kvblock.Hash) AdapterSet {
	slices.Sort(hashes)
	hashes = slices.Compact(hashes)
	n := min(len(hashes), MaxAdapters)
	return AdapterSet{named: slices.Clip(hashes[:n]), more: len(hashes) - n}
}

// Len returns how many adapters the set has.
func (s AdapterSet) Len() int { return len(s.named) + s.more }

// Has reports whether the adapter is known to be in the set.
func (s AdapterSet) Has(adapter kvblock.Hash) bool {
	_, found := slices.BinarySearch(s.named, adapter)
	return found
}

// Named returns the adapters that are known by name, ascending. The caller must not change
// them.
func (s AdapterSet) Named() []kvblock.Hash { return s.named }
