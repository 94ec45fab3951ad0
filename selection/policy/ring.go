package policy

import (
	"math/bits"
	"slices"

	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
	"kvasir/selection"
)

// scatter spreads keys that may be regular over the whole ring.
func scatter(key kvblock.Hash) uint64 {
	stream := seed.New(uint64(key), seed.Pick, 0, 0)
	return stream.Uint64()
}

const (
	pointsPerWeight = 160     // as in libketama and the vLLM router: shares within about 8 %
	maxPoints       = 1 << 18 // of a ring, with its scratch 10 MiB; above it all endpoints get fewer
)

// ring holds the points of all members, candidates or not. Points are uniform, so
// sorting them into as many buckets as there are points leaves about one in each:
// building takes linear time, which counts because the pool's calls wait meanwhile,
// and finding a place constant time.
type ring struct {
	built   bool
	version uint64
	points  []point // ascending
	first   []int32 // by bucket: index of its first point; a bucket more at the end
	shift   int     // a point's bucket is the bits of its place above this
	drawn   []point // scratch: the points before they are sorted
}

type point struct {
	at   uint64
	slot selection.Slot
}

// update rebuilds the ring if the pool's members have changed.
func (g *ring) update(v *selection.View) {
	if g.built && g.version == v.Version {
		return
	}
	g.built, g.version = true, v.Version
	g.draw(v)
	g.sort()
}

// draw fills g.drawn with the members' points. An endpoint's points are a stream of
// numbers that belongs to its name, so they are the same in every ring, and an
// endpoint that gets fewer has a beginning of the same stream.
func (g *ring) draw(v *selection.View) {
	wanted := 0.0
	for _, slot := range v.Members {
		wanted += float64(pointsPerWeight * v.Endpoints[slot].Weight)
	}
	scale := pointsPerWeight * min(1, maxPoints/wanted)
	g.drawn = g.drawn[:0]
	for _, slot := range v.Members {
		e := &v.Endpoints[slot]
		stream := seed.New(uint64(kvblock.Seed(e.Name)), seed.Pick, 0, 0)
		for range max(1, int(float64(scale*e.Weight)+0.5)) {
			g.drawn = append(g.drawn, point{stream.Uint64(), slot})
		}
	}
}

// sort sorts g.drawn into g.points.
func (g *ring) sort() {
	width := bits.Len(uint(len(g.drawn)))
	g.shift = 64 - width
	g.first = slices.Grow(g.first[:0], 1<<width+1)[:1<<width+1]
	clear(g.first)
	for _, p := range g.drawn {
		g.first[p.at>>g.shift+1]++
	}
	for b := range 1 << width {
		g.first[b+1] += g.first[b]
	}
	g.points = append(g.points[:0], g.drawn...)
	for _, p := range g.drawn {
		b := p.at >> g.shift
		g.points[g.first[b]] = p
		g.first[b]++ // becomes the first of the next bucket
	}
	copy(g.first[1:], g.first)
	g.first[0] = 0
	for i, p := range g.points { // within a bucket, by insertion
		for ; i > 0 && p.before(g.points[i-1]); i-- {
			g.points[i] = g.points[i-1]
		}
		g.points[i] = p
	}
}

func (p point) before(o point) bool { return p.at < o.at || p.at == o.at && p.slot < o.slot }

// find returns the index of the first point at or after place.
func (g *ring) find(place uint64) int {
	i := int(g.first[place>>g.shift])
	for i < len(g.points) && g.points[i].at < place {
		i++
	}
	if i == len(g.points) {
		return 0
	}
	return i
}
