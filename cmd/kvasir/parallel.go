package main

import (
	"errors"
	"sync"

	"kvasir/sim/contest"
)

// parallel calls f for 0 to n-1, so many at a time, and returns the errors. After one of them
// nothing is begun any more.
func parallel(jobs, n int, f func(int) error) error {
	slots := make(chan struct{}, jobs)
	errs := make([]error, n)
	failed := make(chan struct{})
	var once sync.Once
	var all sync.WaitGroup
begin:
	for i := range n {
		select {
		case slots <- struct{}{}:
		case <-failed:
			break begin
		}
		all.Go(func() {
			defer func() { <-slots }()
			if errs[i] = f(i); errs[i] != nil {
				once.Do(func() { close(failed) })
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// drawer is what a contest's cell has its sessions from.
type drawer func(seed uint64) (*contest.Draw, error)

// remember makes a drawer keep what it returned for each seed. It is safe for concurrent use.
func remember(draw drawer) drawer {
	type kept struct {
		once sync.Once
		draw *contest.Draw
		err  error
	}
	var all sync.Map
	return func(seed uint64) (*contest.Draw, error) {
		k, _ := all.LoadOrStore(seed, &kept{})
		x := k.(*kept)
		x.once.Do(func() { x.draw, x.err = draw(seed) })
		return x.draw, x.err
	}
}
