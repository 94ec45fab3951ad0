package report

import "time"

// Outputs are the streamed outputs of one call that brought content: text, reasoning, the
// call of a tool. One may carry several tokens (speculative decoding), so the gaps between
// them are inter-token latencies (ITL) and not times per token (article section 7.4).
//
// The zero Outputs is empty. Its memory is bounded by keptGaps and the call's seconds, unless
// KeepAll is set.
type Outputs struct {
	N           int
	First, Last time.Duration // since the run's start
	KeepAll     bool          // keep every gap, for a detailed result

	gaps    []time.Duration // the first keptGaps of them, or all
	more    *Distribution   // those after
	seconds []uint32        // outputs by whole second of the run, from that of First
}

// keptGaps is how many gaps of a call are kept as they are.
const keptGaps = 4096

// Reset makes o empty and keeps its memory.
func (o *Outputs) Reset() {
	*o = Outputs{KeepAll: o.KeepAll, gaps: o.gaps[:0], seconds: o.seconds[:0]}
}

// Add takes in an output that came at an instant not before the last one.
func (o *Outputs) Add(at time.Duration) {
	if o.N == 0 {
		o.First = at
	} else {
		o.gap(at - o.Last)
	}
	o.N, o.Last = o.N+1, at
	for index := int(at/time.Second - o.First/time.Second); index >= len(o.seconds); {
		o.seconds = append(o.seconds, 0)
	}
	o.seconds[len(o.seconds)-1]++
}

func (o *Outputs) gap(d time.Duration) {
	if o.KeepAll || len(o.gaps) < keptGaps {
		o.gaps = append(o.gaps, d)
		return
	}
	if o.more == nil {
		o.more = &Distribution{}
	}
	o.more.Add(d)
}

// addGaps counts every gap in d.
func (o *Outputs) addGaps(d *Distribution) {
	for _, gap := range o.gaps {
		d.Add(gap)
	}
	if o.more != nil {
		d.Merge(o.more)
	}
}
