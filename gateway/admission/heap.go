package admission

// heap is a binary heap of indices into what its keeper has. Every operation takes time in
// proportion to the logarithm of its length, and allocates only to grow.
type heap struct{ items []int32 }

// keeper owns what a heap's indices stand for.
type keeper interface {
	before(a, b int32) bool
	moved(item int32, at int) // the item is now at this place of the heap
}

func (h *heap) push(k keeper, item int32) {
	h.items = append(h.items, item)
	h.up(k, len(h.items)-1)
}

// remove takes the item out that is at the place.
func (h *heap) remove(k keeper, at int) {
	last := len(h.items) - 1
	item := h.items[last]
	h.items = h.items[:last]
	if at < last {
		h.items[at] = item
		k.moved(item, at)
		h.fix(k, at)
	}
}

// fix restores the order after the item at the place has changed its own.
func (h *heap) fix(k keeper, at int) {
	if !h.up(k, at) {
		h.down(k, at)
	}
}

// up moves an item towards the top and reports whether it moved.
func (h *heap) up(k keeper, at int) bool {
	item, from := h.items[at], at
	for at > 0 {
		parent := (at - 1) / 2
		if !k.before(item, h.items[parent]) {
			break
		}
		h.set(k, at, h.items[parent])
		at = parent
	}
	h.set(k, at, item)
	return at != from
}

// down moves an item away from the top.
func (h *heap) down(k keeper, at int) {
	item := h.items[at]
	for {
		child := 2*at + 1
		if child >= len(h.items) {
			break
		}
		if right := child + 1; right < len(h.items) && k.before(h.items[right], h.items[child]) {
			child = right
		}
		if !k.before(h.items[child], item) {
			break
		}
		h.set(k, at, h.items[child])
		at = child
	}
	h.set(k, at, item)
}

func (h *heap) set(k keeper, at int, item int32) {
	h.items[at] = item
	k.moved(item, at)
}
