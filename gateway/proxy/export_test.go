package proxy

import "testing"

// IsCall reports whether calls come in by the path.
func IsCall(path string) bool { return byPath[path] != nil }

// BenchmarkOffer is what a call pays for a dashboard that nobody looks at.
func BenchmarkOffer(b *testing.B) {
	c := &call{g: &Gateway{}}
	b.ReportAllocs()
	for b.Loop() {
		c.offer()
		c.showEnd()
	}
}
