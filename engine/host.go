package engine

import (
	"fmt"
	"math"

	"kvasir/accelerator"
	"kvasir/internal/kvblock"
)

// HostTier is a second home of KV blocks, in the host's memory: a cached block that the
// device needs for something else is kept there, and loaded back for a request that
// continues its device hit with it. Who is used least recently is evicted. Copies to the
// host cost nothing, and a step waits for what is loaded for it (vLLM's OffloadingConnector
// copies when a block is full and lets the request wait instead).
type HostTier struct {
	Blocks    int     // of BlockTokens tokens (kv_offloading_size by a block's bytes); 0: no tier, and Bandwidth must be 0
	Bandwidth float64 // bytes a second from the host to the device, in all; a block has BlockTokens · the profile's KVBytesPerToken
}

// minBandwidth bounds HostTier.Bandwidth: what is slower is a mistake of unit.
const minBandwidth = 1e6

func (h *HostTier) validate(c *Config, bad func(field string, value any, allowed string)) {
	if h.Blocks < 0 || h.Blocks >= math.MaxInt32 {
		bad("Host.Blocks", h.Blocks, fmt.Sprintf("0 to %d", math.MaxInt32-1))
	}
	switch {
	case h.Blocks == 0 && h.Bandwidth != 0:
		bad("Host.Bandwidth", h.Bandwidth, "0 where Host.Blocks is 0")
	case h.Blocks > 0 && !(h.Bandwidth >= minBandwidth && h.Bandwidth <= math.MaxFloat64):
		bad("Host.Bandwidth", h.Bandwidth, fmt.Sprintf("%g bytes a second or more", minBandwidth))
	}
	if h.Blocks > 0 && !c.PrefixCaching {
		bad("PrefixCaching", false, "true where Host.Blocks is above 0")
	}
}

// loadTime returns how long a block takes to the device.
func (c *Config) loadTime() accelerator.Femtoseconds {
	if c.Host.Blocks == 0 {
		return 0
	}
	return accelerator.FromSeconds(float64(c.BlockTokens) * float64(c.Profile.KVBytesPerToken) / c.Host.Bandwidth)
}

// behind puts a pool of so many blocks behind p. Its blocks are all free, in the order of
// their latest use.
func (p *kvPool) behind(blocks int) {
	if blocks > 0 {
		p.host = new(kvPool)
		p.host.init(blocks, p.tokens)
	}
}

// loadable returns how many of the request's blocks after its hit the host has.
func (p *kvPool) loadable(r *request, hits int) int {
	if p.host == nil {
		return 0
	}
	n := 0
	for most := (r.known() - 1) / p.tokens; hits+n < most; n++ {
		if h, ok := r.hash(hits + n); !ok || p.host.index.at(p.host.find(h)) == none {
			break
		}
	}
	return n
}

// load uses the host's copies of the request's n blocks after those that it has. As in
// release the end of a chain comes first.
func (p *kvPool) load(r *request, n int) {
	for i := len(r.blocks) + n - 1; i >= len(r.blocks); i-- {
		h, _ := r.hash(i)
		p.host.store(h)
	}
}

// store makes the hash's block the latest used, in place of the one that was not used for
// longest if it is not there.
func (p *kvPool) store(h kvblock.Hash) {
	id := p.index.at(p.find(h))
	if id == none {
		id = p.blocks[p.end()].next
		p.forget(id)
		p.remember(id, h)
	}
	p.removeFree(id)
	p.insertFree(id, p.end())
}
