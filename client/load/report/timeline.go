package report

import "time"

// bin is what happened in a part of the run.
type bin struct {
	intended, sent, completed, failed int
	outputs                           int           // streamed outputs of calls that succeeded
	inFlight                          int           // the most calls in flight at once
	ttft, ttftMost                    time.Duration // of calls intended in it, from the intended send: sum, greatest
	ttfts                             int
}

// timeline is a run by time: bins of a second, and where a run has more than mostBins
// seconds of twice that, and so on. Memory is bounded by mostBins.
type timeline struct {
	width time.Duration
	bins  []bin
}

const mostBins = 4096

// at returns the bin of an instant.
func (t *timeline) at(instant time.Duration) *bin {
	if t.width == 0 {
		t.width = time.Second
	}
	for instant/t.width >= mostBins {
		t.halve()
	}
	for int(instant/t.width) >= len(t.bins) {
		t.bins = append(t.bins, bin{})
	}
	return &t.bins[max(instant/t.width, 0)]
}

// halve makes each two bins one.
func (t *timeline) halve() {
	for i := 0; i < len(t.bins); i += 2 {
		b := t.bins[i]
		if i+1 < len(t.bins) {
			b.merge(t.bins[i+1])
		}
		t.bins[i/2] = b
	}
	t.bins = t.bins[:(len(t.bins)+1)/2]
	t.width *= 2
}

func (b *bin) merge(o bin) {
	b.intended, b.sent, b.completed, b.failed = b.intended+o.intended, b.sent+o.sent, b.completed+o.completed, b.failed+o.failed
	b.outputs += o.outputs
	b.inFlight = max(b.inFlight, o.inFlight)
	b.ttft, b.ttftMost, b.ttfts = b.ttft+o.ttft, max(b.ttftMost, o.ttftMost), b.ttfts+o.ttfts
}

// coarse returns the timeline in at most n bins, for a chart.
func (t *timeline) coarse(n int) timeline {
	c := timeline{t.width, append([]bin(nil), t.bins...)}
	for len(c.bins) > n {
		c.halve()
	}
	return c
}
