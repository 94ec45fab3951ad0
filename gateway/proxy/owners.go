package proxy

import (
	"sync"

	"kvasir/internal/kvblock"
	"kvasir/selection"
)

// owners remembers which endpoint gave which response: one that stores responses is the
// only one that can go on from them (field case F71). A response is known to the client
// that asked for it alone. What is remembered is bounded: the oldest half goes when the
// newer one is full. It does not outlast the process.
type owners struct {
	mu         sync.Mutex
	newer, old map[kvblock.Hash]owner
}

type owner struct {
	core       *core
	slot       selection.Slot
	generation uint32
}

// mostOwners bounds each half; an entry takes about 60 bytes.
const mostOwners = 1 << 16

func ownerKey(client string, id []byte) kvblock.Hash {
	return kvblock.Seed("response", client, string(id))
}

// note remembers who gave a response.
func (o *owners) note(client string, id []byte, e *endpoint, c *core) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.newer == nil || len(o.newer) >= mostOwners {
		o.old, o.newer = o.newer, map[kvblock.Hash]owner{}
	}
	o.newer[ownerKey(client, id)] = owner{c, e.slot, e.generation}
}

// find returns who gave a response of the model.
func (o *owners) find(client string, id []byte, c *core) (owner, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := ownerKey(client, id)
	found, ok := o.newer[key]
	if !ok {
		found, ok = o.old[key]
	}
	return found, ok && found.core == c
}
