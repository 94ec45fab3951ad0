package admission

import (
	"time"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
)

// FlightConfig says when a call waits for another one that computes their common prefix.
type FlightConfig struct {
	MinTokens   int           // that it would find in the cache by waiting; 0: no call waits
	MaxWait     time.Duration // longest wait
	MaxSiblings int           // most calls that wait for one prefix
}

// DefaultFlights returns the bounds of a pool whose calls don't wait so.
func DefaultFlights() FlightConfig {
	return FlightConfig{MaxWait: 5 * time.Second, MaxSiblings: 64}
}

// On reports whether calls wait.
func (c FlightConfig) On() bool { return c.MinTokens > 0 }

// Flights are the prefixes of one pool that calls compute and no endpoint held when these
// were sent, and the calls that wait for them. A prefix is known by the hash of its last
// block, at depths that grow by a quarter; so a call has some two dozen at most, and what two
// calls share is found to within a fifth. It is not safe for concurrent use.
type Flights struct {
	cfg      FlightConfig
	byHash   map[kvblock.Hash]int32 // index of the flight
	flights  []flight
	free     int32
	patience *Queue     // the calls that wait, by when they do so no longer
	joined   []follower // by call
}

// flight is a prefix, and who computes it.
type flight struct {
	leader      int32 // the call's record
	first, last int32 // calls that wait for it, linked through joined
	n           int
	next        int32 // free list
}

type follower struct {
	flight     int32
	prev, next int32
}

// NewFlights returns no flights.
func NewFlights(c FlightConfig) *Flights {
	return &Flights{cfg: c, byHash: map[kvblock.Hash]int32{}, free: none, patience: New(Config{})}
}

// Config returns the configuration; Bound gives another one, to those that come.
func (f *Flights) Config() FlightConfig { return f.cfg }
func (f *Flights) Bound(c FlightConfig) { f.cfg = c }

// Waiting returns how many calls wait.
func (f *Flights) Waiting() int { return f.patience.Len() }

// deeper returns the next depth at which prefixes are known.
func deeper(depth int) int { return depth + max(depth/4, 1) }

// Lead notes that the call is sent with a prompt of these blocks, of which endpoints are
// believed to hold the first held, or to compute them already.
func (f *Flights) Lead(call int32, blocks []kvblock.Hash, held int) {
	for d := 1; d <= len(blocks); d = deeper(d) {
		if d <= held {
			continue
		}
		hash := blocks[d-1]
		if _, taken := f.byHash[hash]; taken {
			continue
		}
		i := f.free
		if i == none {
			i = int32(len(f.flights))
			f.flights = append(f.flights, flight{})
		} else {
			f.free = f.flights[i].next
		}
		f.flights[i] = flight{leader: call, first: none, last: none}
		f.byHash[hash] = i
	}
}

// Found is a prefix that is computed now.
type Found struct {
	Number int32 // of the flight
	Leader int32 // the call that computes it
	Depth  int   // blocks
	Landed int   // of those, the first ones that nobody computes
	First  int32 // who computes the first ones of the others
}

// Find returns the longest prefix of the blocks that is computed now and that another call
// may wait for.
func (f *Flights) Find(blocks []kvblock.Hash) (Found, bool) {
	if len(f.byHash) == 0 {
		return Found{}, false
	}
	x := Found{Number: none}
	for d := 1; d <= len(blocks); d = deeper(d) {
		if i, known := f.byHash[blocks[d-1]]; known {
			if x.Number == none {
				x.First = f.flights[i].leader
			}
			x.Number, x.Leader, x.Depth = i, f.flights[i].leader, d
		} else if x.Number == none {
			x.Landed = d
		}
	}
	return x, x.Number != none && f.flights[x.Number].n < f.cfg.MaxSiblings
}

// Follow lets a call wait for a flight that Find has returned, no longer than until.
func (f *Flights) Follow(call int32, id uint64, number int32, now, until mono.Time) {
	for int(call) >= len(f.joined) {
		f.joined = append(f.joined, follower{})
	}
	x := &f.flights[number]
	f.joined[call] = follower{flight: number, prev: x.last, next: none}
	if x.last != none {
		f.joined[x.last].next = call
	} else {
		x.first = call
	}
	x.last = call
	x.n++
	f.patience.Push(Waiter{Call: call, Rank: int64(until), ID: id, Since: now})
}

// Leave ends a call's wait and returns since when it has waited.
func (f *Flights) Leave(call int32) mono.Time {
	w, ok := f.patience.Remove(call)
	if !ok {
		return 0
	}
	j := &f.joined[call]
	x := &f.flights[j.flight]
	if j.prev != none {
		f.joined[j.prev].next = j.next
	} else {
		x.first = j.next
	}
	if j.next != none {
		f.joined[j.next].prev = j.prev
	} else {
		x.last = j.prev
	}
	x.n--
	return w.Since
}

// Next returns the call whose patience ends first, and when that is.
func (f *Flights) Next() (call int32, until mono.Time, ok bool) {
	w, ok := f.patience.Next(0, true)
	return w.Call, mono.Time(w.Rank), ok
}

// Landed ends the flights of all prefixes of the blocks, which an endpoint holds now, whoever
// led them. freed hears of each call that waits no longer, in the order in which they came
// to each prefix; it must call Leave for it and nothing else.
func (f *Flights) Landed(blocks []kvblock.Hash, freed func(call int32)) {
	f.end(blocks, none, freed)
}

// Lost ends the flights of a call that computes no longer and has held nothing.
func (f *Flights) Lost(leader int32, blocks []kvblock.Hash, freed func(call int32)) {
	f.end(blocks, leader, freed)
}

// end ends the flights of the blocks' prefixes; leader, unless it is none, says whose.
func (f *Flights) end(blocks []kvblock.Hash, leader int32, freed func(call int32)) {
	if len(f.byHash) == 0 {
		return
	}
	for d := 1; d <= len(blocks); d = deeper(d) {
		i, ok := f.byHash[blocks[d-1]]
		if !ok || leader != none && f.flights[i].leader != leader {
			continue
		}
		for f.flights[i].first != none {
			freed(f.flights[i].first)
		}
		delete(f.byHash, blocks[d-1])
		f.flights[i].next, f.free = f.free, i
	}
}
