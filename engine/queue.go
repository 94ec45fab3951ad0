package engine

// queue is the waiting requests, or the running ones, linked through their prev and next
// fields, so that putting one in front and taking one out of the middle are cheap. The zero
// queue is empty.
type queue struct {
	head, tail *request
	n          int
}

func (q *queue) pushBack(r *request) {
	r.prev, r.next = q.tail, nil
	if q.tail != nil {
		q.tail.next = r
	} else {
		q.head = r
	}
	q.tail = r
	q.n++
}

func (q *queue) pushFront(r *request) {
	r.prev, r.next = nil, q.head
	if q.head != nil {
		q.head.prev = r
	} else {
		q.tail = r
	}
	q.head = r
	q.n++
}

func (q *queue) remove(r *request) {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		q.head = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		q.tail = r.prev
	}
	r.prev, r.next = nil, nil
	q.n--
}
