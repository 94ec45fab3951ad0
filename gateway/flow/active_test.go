package flow

import (
	"slices"
	"testing"

	"kvasir/gateway/attempt"
	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
	"kvasir/selection"
)

// using is lightest that keeps what it saw of blocks in use.
type using struct {
	lightest
	active []int32
	blocks []int64
}

func (*using) UsesActive() {}

func (u *using) Pick(v *selection.View, q *selection.Request, r *seed.Rand) selection.Choice {
	u.active, u.blocks = slices.Clone(v.Active), u.blocks[:0]
	for _, b := range v.Book {
		u.blocks = append(u.blocks, b.ActiveBlocks)
	}
	return u.lightest.Pick(v, q, r)
}

// TestActive_IsWhatTheCallsUnderWayShare: a policy sees the unique blocks of the calls at
// each endpoint, and how many of its call's own are among them, until the calls end.
func TestActive_IsWhatTheCallsUnderWayShare(t *testing.T) {
	p := &using{}
	m := New(newConfig(newTestPool("p", p, "a", "b")))
	arrive := func(id int, blocks ...kvblock.Hash) Action {
		q := request(id)
		q.Blocks = blocks
		return only(t, m.Step(m.last+1, Arrive(q)))
	}
	see := func(what string, active []int32, blocks []int64) {
		t.Helper()
		if !slices.Equal(p.active, active) || !slices.Equal(p.blocks, blocks) {
			t.Errorf("%s: saw %v of the call's and %v blocks in use, want %v and %v", what, p.active, p.blocks, active, blocks)
		}
	}
	a := arrive(1, 1, 2, 3)
	see("the first", []int32{0, 0}, []int64{0, 0})
	b := arrive(2, 1, 2, 4, 5)
	see("the second", []int32{2, 0}, []int64{3, 0})
	c := arrive(3, 1, 2, 4, 5, 6)
	see("the third", []int32{2, 4}, []int64{3, 4})
	d := arrive(4, 1, 7)
	see("the fourth", []int32{1, 1}, []int64{6, 4})
	if a.Slot != 0 || b.Slot != 1 || c.Slot != 0 || d.Slot != 1 {
		t.Fatalf("sent to %d, %d, %d, %d", a.Slot, b.Slot, c.Slot, d.Slot)
	}
	m.Step(m.last+1, Done(a.Ticket, 0, attempt.Success, Usage{})) // no content came, but it has ended
	arrive(5, 1, 2, 3)
	see("after an end, of which the block 3 went", []int32{2, 2}, []int64{5, 5})
}

// TestActive_BeginsWithTheCallsThatRun: a pool whose policy comes to use it finds the calls
// counted that were sent before, and one whose policy no longer does gives them back.
func TestActive_BeginsWithTheCallsThatRun(t *testing.T) {
	c := newConfig(newTestPool("p", lightest{}, "a"))
	m := New(c)
	send := func(id int) Action {
		q := request(id)
		q.Blocks = []kvblock.Hash{1, kvblock.Hash(10 + id)}
		return only(t, m.Step(m.last+1, Arrive(q)))
	}
	a := send(1)
	c.Pools[0].Policy = &using{}
	m.Reconfigure(m.last+1, c)
	b := send(2)
	if got := m.books[0].ActiveBlocks; got != 3 {
		t.Errorf("%d blocks in use, want 3", got)
	}
	c.Pools[0].Policy = lightest{}
	m.Reconfigure(m.last+1, c)
	send(3)
	m.Step(m.last+1, Left(a.Ticket))
	m.Step(m.last+1, Left(b.Ticket))
	m.Snapshot(m.last + 1)
	if got, left := m.books[0].ActiveBlocks, m.active.Len(); got != 0 || left != 0 {
		t.Errorf("%d blocks in use and %d known after the calls' end", got, left)
	}
}
