package lab

import (
	"fmt"

	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/policy"
)

// router is a policy of the catalogue with a view that the lab fills: what the policy
// believes of the replicas, true or stale. Replica i has slot i.
type router struct {
	policy selection.Policy
	view   selection.View
	root   uint64
	number uint64 // of the router, so that routers draw apart from each other
	draws  uint64
}

// newRouter returns a router with the policy that p builds.
func newRouter(p policy.Params, replicas int, root, number uint64) *router {
	r := &router{policy: p.New(), root: root, number: number}
	r.view = selection.View{
		Version:   1,
		Endpoints: make([]selection.Endpoint, replicas),
		Book:      make([]selection.Book, replicas),
		Position:  make([]int32, replicas),
		Scores:    make([]float64, replicas),
		Overlap:   make([]int32, replicas),
	}
	for i := range replicas {
		r.view.Members = append(r.view.Members, selection.Slot(i))
		r.view.Position[i] = int32(i)
		r.view.Endpoints[i].Name, r.view.Endpoints[i].Weight = fmt.Sprintf("replica %d", i+1), 1
	}
	r.view.Candidates = r.view.Members
	return r
}

// pick asks the policy for a replica.
func (r *router) pick(q *selection.Request) int {
	rand := seed.New(r.root, seed.Pick, r.number, r.draws)
	r.draws++
	return int(r.view.Candidates[r.policy.Pick(&r.view, q, &rand).Index])
}

// believes returns the outstanding calls of each replica as the router counts them, in into.
func (r *router) believes(into []int32) []int32 {
	into = into[:0]
	for i := range r.view.Book {
		into = append(into, r.view.Book[i].Outstanding)
	}
	return into
}

// among makes the first n replicas the candidates.
func (r *router) among(n int) {
	r.view.Candidates, r.view.Scores = r.view.Members[:n], r.view.Scores[:n]
	for i := range r.view.Position {
		r.view.Position[i] = selection.None
		if i < n {
			r.view.Position[i] = int32(i)
		}
	}
}
