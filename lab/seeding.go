package lab

// seeding gives a seeded experiment the roots of its draws: seed 1 and on. Experiments embed
// it.
type seeding struct {
	before int // seeds that are passed over
}

// root returns what run number s, from 0, draws from.
func (d seeding) root(s int) uint64 { return uint64(d.before + s + 1) }

// skip passes over the first n seeds, so that a run shares no draw with those on them.
func (d *seeding) skip(n int) { d.before = n }
