package lab

import "kvasir/selection/signal"

// A pool for teaching, in ticks, as article 4.2 describes its own: a replica prefills or
// decodes in a tick, and what is cached takes no KV.

// call is a request of the routing lab, with what became of it.
type call struct {
	at     int // tick of its arrival
	family int // whose prefix it begins with
	head   int // tokens of that prefix
	tail   int // further tokens of the prompt
	output int // tokens of the answer

	cached bool // the replica held the prefix when it was admitted
	need   int  // tokens of KV that it occupies while it is prefilled and decoded
	left   int  // tokens still to prefill, then to decode
	first  int  // tick after which the first token is there
	end    int  // tick after which the last one is
}

func (c *call) prompt() int { return c.head + c.tail }

// replica is an engine of the routing lab.
type replica struct {
	prefillRate int // tokens a tick
	capacity    int // tokens of KV
	slots       int // calls that are decoded at once

	waiting    []*call
	prefilling *call
	running    []*call
	used       int          // tokens of KV that running and prefilling calls occupy
	queued     int          // tokens of KV that waiting calls will need, cache aside
	held       map[int]bool // families whose prefix was prefilled here
	promised   map[int]bool // families that were sent here

	assigned, completed int
	busy, prefills      int // ticks in which it worked, and in which it prefilled
}

func newReplica(prefillRate, capacity, slots int) *replica {
	return &replica{prefillRate: prefillRate, capacity: capacity, slots: slots, held: map[int]bool{}, promised: map[int]bool{}}
}

// outstanding returns the accepted and not yet finished calls.
func (r *replica) outstanding() int {
	n := len(r.waiting) + len(r.running)
	if r.prefilling != nil {
		n++
	}
	return n
}

// load returns what an engine reports of itself, with a token of KV as a block.
func (r *replica) load() signal.Load {
	running := len(r.running)
	if r.prefilling != nil {
		running++
	}
	gauge := func(x float64) signal.Gauge { return signal.Known(x, 0) }
	return signal.Load{Running: gauge(float64(running)), Waiting: gauge(float64(len(r.waiting))),
		KVUsage: gauge(float64(r.used) / float64(r.capacity)), KVBlocks: gauge(float64(r.capacity)), BlockTokens: gauge(1)}
}

// accept takes a call.
func (r *replica) accept(c *call) {
	r.waiting = append(r.waiting, c)
	r.queued += c.prompt() + c.output
	r.promised[c.family] = true
	r.assigned++
}

// admit starts the prefill of the first call that waits, if there is a place and its KV fits
// or nobody else has any. Nothing overtakes it.
func (r *replica) admit() {
	if r.prefilling != nil || len(r.waiting) == 0 || len(r.running) >= r.slots {
		return
	}
	c := r.waiting[0]
	fresh := c.prompt()
	cached := r.held[c.family]
	if cached {
		fresh = c.tail
	}
	need := fresh + c.output
	if r.used > 0 && r.used+need > r.capacity {
		return
	}
	r.waiting = r.waiting[1:]
	r.queued -= c.prompt() + c.output
	c.cached, c.need, c.left = cached, need, fresh
	r.used += need
	r.prefilling = c
}

// step is one tick: a prefill step where there is one to do, else a decode step. It returns
// the tokens that were put out.
func (r *replica) step(tick int) (output int) {
	r.admit()
	switch {
	case r.prefilling != nil:
		r.busy, r.prefills = r.busy+1, r.prefills+1
		c := r.prefilling
		if c.left -= r.prefillRate; c.left > 0 {
			return 0
		}
		r.prefilling = nil
		r.held[c.family] = true
		c.first = tick + 1
		c.left = c.output - 1 // the prefill's last step puts out the first token
		if c.left == 0 {
			r.finish(c, tick)
		} else {
			r.running = append(r.running, c)
		}
		return 1
	case len(r.running) > 0:
		r.busy++
		kept := r.running[:0]
		output = len(r.running)
		for _, c := range r.running {
			if c.left--; c.left > 0 {
				kept = append(kept, c)
			} else {
				r.finish(c, tick)
			}
		}
		r.running = kept
	}
	return output
}

func (r *replica) finish(c *call, tick int) {
	c.end = tick + 1
	r.used -= c.need
	r.completed++
}
