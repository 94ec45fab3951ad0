package engine

// agenda knows when each decoding request next needs more than a token of a step: a KV
// block, or its end. It is a binary heap by (due, order), and each request knows its place
// in it, so that one that is preempted or aborted is taken out cheaply.
type agenda []*request

// atStart and atEnd are the values of request.due for what happens when a step starts, and
// when it ends.
func atStart(step int64) int64 { return 2 * step }
func atEnd(step int64) int64   { return 2*step + 1 }

// due returns the first request, by order of admission, that is due then; nil if none is.
func (a agenda) due(when int64) *request {
	if len(a) == 0 || a[0].due > when {
		return nil
	}
	return a[0]
}

// put adds the request, or moves it after its due has changed.
func (a *agenda) put(r *request) {
	if r.place == 0 {
		*a = append(*a, r)
		r.place = len(*a)
	}
	a.up(r)
	a.down(r)
}

func (a *agenda) remove(r *request) {
	h := *a
	last := h[len(h)-1]
	h[len(h)-1] = nil
	*a = h[:len(h)-1]
	if last != r {
		last.place = r.place
		h[last.place-1] = last
		a.up(last)
		a.down(last)
	}
	r.place = 0
}

func (a agenda) up(r *request) {
	i := r.place
	for ; i > 1 && r.before(a[i/2-1]); i /= 2 {
		a[i-1] = a[i/2-1]
		a[i-1].place = i
	}
	a[i-1], r.place = r, i
}

func (a agenda) down(r *request) {
	i := r.place
	for 2*i <= len(a) {
		child := 2 * i
		if child < len(a) && a[child].before(a[child-1]) {
			child++
		}
		if !a[child-1].before(r) {
			break
		}
		a[i-1] = a[child-1]
		a[i-1].place = i
		i = child
	}
	a[i-1], r.place = r, i
}

// before orders requests in the agenda.
func (r *request) before(o *request) bool {
	return r.due < o.due || r.due == o.due && r.order < o.order
}
