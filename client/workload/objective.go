package workload

import (
	"fmt"
	"strconv"
	"time"
)

// Metric is a latency that an objective bounds, by the definitions of the results.
type Metric string

// The metrics of objectives.
const (
	TTFT Metric = "ttft" // time to first token
	ITL  Metric = "itl"  // gap between two outputs of one answer
	E2E  Metric = "e2e"  // until the answer's end
)

// Objective says that a share of the calls must stay within a latency.
type Objective struct {
	Metric Metric
	Share  float64 // of the calls, for ITL of the gaps; 0.99 bounds P99
	Most   time.Duration
}

// String returns the objective as in ttft p99 ≤ 1s.
func (o Objective) String() string {
	return fmt.Sprintf("%s p%s ≤ %v", o.Metric, strconv.FormatFloat(o.Share*100, 'g', 6, 64), o.Most)
}
