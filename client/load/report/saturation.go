package report

import (
	"fmt"
	"math"
	"time"
)

// The borders beyond which a run was asked for more than the endpoint can do.
const (
	leastSent     = 0.95 // of the rate that was offered
	mostFailed    = 0.05 // of the calls
	fillingUp     = 0.2  // of the sending: how much of its beginning tells nothing of growth
	leastBins     = 8    // fewer tell nothing of growth
	leastSlope    = 2.5  // of a regression's slope, in its standard errors
	leastIncrease = 0.5  // over the time looked at, as a part of the mean
)

// Saturated returns why the endpoint could not keep up with the run; nothing where it could.
// It could not where
//
//   - less than 95 % of the offered rate was sent: calls waited for a slot, or the generator
//     was too slow;
//   - more than 5 % of the calls failed;
//   - over the sending, its first fifth left out, both the calls in flight and the TTFT grew,
//     by a line fitted to each second's values: at a slope of more than 2.5 times its
//     standard error, and by more than half of the mean. A queue that only fills grows in
//     the one, noise in one or the other. (GuideLLM stops by the slopes of the same two.)
//
// A run of less than eight seconds' sending is too short to show growth.
func (r *Result) Saturated() []string {
	var why []string
	if sent, offered := r.SendRate(), r.Offered(); sent < leastSent*offered {
		why = append(why, fmt.Sprintf("sent %.2f calls a second of %.2f offered, under the bound of %s of it", sent, offered, percent(leastSent)))
	}
	if share := ratio(r.Failed, r.Completed+r.Failed); share > mostFailed {
		why = append(why, fmt.Sprintf("%s of the calls failed, over the bound of %s", percent(math.Ceil(share*1e4)/1e4), percent(mostFailed)))
	}
	var flight, waits line
	from, to := time.Duration(fillingUp*float64(r.LastIntended)), r.LastIntended
	for i, b := range r.timeline.bins {
		at := time.Duration(i) * r.timeline.width
		if at < from || at+r.timeline.width > to {
			continue
		}
		flight.add(at.Seconds(), float64(b.inFlight))
		if b.ttfts > 0 {
			waits.add(at.Seconds(), b.ttft.Seconds()/float64(b.ttfts))
		}
	}
	if flight.grows() && waits.grows() {
		why = append(why, "the queue grew: calls in flight and TTFT rose all the time")
	}
	return why
}

// line is a least-squares line through points.
type line struct {
	n                float64
	x, y, xx, xy, yy float64 // sums
	least, most      float64 // of x
}

func (l *line) add(x, y float64) {
	if l.n == 0 {
		l.least = x
	}
	l.most = x
	l.n++
	l.x, l.y = l.x+x, l.y+y
	l.xx, l.xy, l.yy = l.xx+float64(x*x), l.xy+float64(x*y), l.yy+float64(y*y)
}

// grows reports whether the line rises by more than noise and by more than a little.
func (l *line) grows() bool {
	if l.n < leastBins {
		return false
	}
	sxx := l.xx - float64(l.x*l.x/l.n)
	sxy := l.xy - float64(l.x*l.y/l.n)
	syy := l.yy - float64(l.y*l.y/l.n)
	slope := sxy / sxx
	residual := max(syy-float64(slope*sxy), 0)
	standardError := math.Sqrt(residual / (l.n - 2) / sxx)
	return slope > leastSlope*standardError && slope*(l.most-l.least) > leastIncrease*l.y/l.n
}
