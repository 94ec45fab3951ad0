package lab

import (
	"errors"

	"kvasir/sim"
)

// seeding gives a seeded experiment the roots of its draws: seed 1 and on. Experiments embed
// it.
type seeding struct {
	before  int         // seeds that are passed over
	stopped func() bool // nil: never
}

// root returns what run number s, from 0, draws from. Between seeds a run may be stopped.
func (d seeding) root(s int) uint64 {
	d.ask()
	return uint64(d.before + s + 1)
}

// skip passes over the first n seeds, so that a run shares no draw with those on them.
func (d *seeding) skip(n int) { d.before = n }

// stopWhen has the run asked now and then whether to give up.
func (d *seeding) stopWhen(stopped func() bool) { d.stopped = stopped }

// ErrStopped is returned by a run that was told to give up.
var ErrStopped = errors.New("the lab was stopped")

// askEvery is after how many steps a run that takes long on one seed asks whether to give up.
const askEvery = 1 << 12

// ask ends the run where it is to give up.
func (d seeding) ask() {
	if d.stopped != nil && d.stopped() {
		panic(ended{ErrStopped})
	}
}

// fail ends the run with what a simulation or a reader says.
func (d seeding) fail(err error) {
	if errors.Is(err, sim.ErrStopped) {
		err = ErrStopped
	}
	panic(ended{err})
}

// ended is what a run panics with to end early, from however deep; play recovers it.
type ended struct{ err error }

// play runs the experiment.
func play(x experiment, o *Options, seeds int) (f Findings, err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case ended:
			err = p.err
		default:
			panic(p)
		}
	}()
	if s, ok := x.(interface{ stopWhen(func() bool) }); ok {
		s.stopWhen(o.Stopped)
	}
	return x.run(seeds), nil
}
