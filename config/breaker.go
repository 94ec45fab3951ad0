package config

import (
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// BreakerRules are the rules of a pool's circuit breaker, in a file a list of rules or one.
type BreakerRules []BreakerRule

// BreakerRule says what takes an endpoint of a pool out of rotation, and for how long.
type BreakerRule struct {
	// So many trip it: in a row, or within interval where that is set. 0: no number does.
	Failures int `config:"failures" allowed:"0..1000000"`
	// Share of the calls within interval that trips it. 0: none does.
	Ratio float64 `config:"ratio" allowed:"0..1"`
	// Fewest calls within interval for ratio to count.
	Volume int `config:"volume" allowed:"1..1000000"`
	// What is looked back on. 0: failures count in a row, however long they take.
	Interval time.Duration `config:"interval" allowed:"0s or 1s..1h"`
	// Answers with these count, whosever fault they are: a list of statuses such as 429 and ranges such as 500-599. Absent: failures that are the endpoint's own count, and the rule takes the place of health.failures and health.ratio.
	Statuses []Statuses `config:"statuses"`
	// Out of rotation for so long, then a call probes it; doubles with each probe that fails.
	Trip time.Duration `config:"trip" allowed:"100ms..24h"`
	// Bound of that. At least trip.
	MaxTrip time.Duration `config:"max_trip" allowed:"100ms..24h"`
	// An endpoint that names a time with Retry-After is out for so long, in place of trip. For rules with statuses.
	AcceptRetryAfter bool `config:"accept_retry_after"`
	// Bound of that time.
	MaxRetryAfter time.Duration `config:"max_retry_after" allowed:"100ms..720h"`
}

// Statuses are HTTP statuses from one to another, both included.
type Statuses struct{ From, To int }

const (
	// maxBreakerRules bounds the rules of a pool.
	maxBreakerRules = 16
	leastStatus     = 300
	mostStatus      = 599
)

// DefaultBreakerRule returns a rule as one of a file starts.
func DefaultBreakerRule() BreakerRule {
	return BreakerRule{Volume: 10, Trip: 10 * time.Second, MaxTrip: time.Minute, MaxRetryAfter: 24 * time.Hour}
}

func (rs *BreakerRules) decode(d *decoder, n *yaml.Node, at where) {
	switch n.Kind {
	case yaml.MappingNode:
		var one BreakerRule
		w := where{at.canon.index(0), at.shown}
		d.mark(w, n)
		one.decode(d, n, w)
		*rs = BreakerRules{one}
	case yaml.SequenceNode:
		d.list(reflect.ValueOf(rs).Elem(), n, at)
	default:
		d.mismatch(n, at, "a rule or a list of rules", strings.Join(names(fieldsOf(&BreakerRule{}, nil)), ", "))
	}
}

func (r *BreakerRule) decode(d *decoder, n *yaml.Node, at where) {
	*r = DefaultBreakerRule()
	d.fields(n, at, fieldsOf(r, at.canon))
}

func (s *Statuses) decode(d *decoder, n *yaml.Node, at where) {
	low, high, several := strings.Cut(n.Value, "-")
	if !several {
		high = low
	}
	from, to := statusOf(low), statusOf(high)
	if n.Kind != yaml.ScalarNode || n.Tag != strTag && n.Tag != intTag || from == 0 || to < from {
		d.mismatch(n, at, "a status such as 429 or a range such as 500-599", strconv.Itoa(leastStatus)+" to "+strconv.Itoa(mostStatus))
		return
	}
	*s = Statuses{from, to}
}

// statusOf reads a status; 0: it is none that may count.
func statusOf(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || strconv.Itoa(n) != text || n < leastStatus || n > mostStatus {
		return 0
	}
	return n
}

// breaker checks what the keys of a rule are together.
func (k *checker) breaker(rules BreakerRules, at path) {
	if len(rules) > maxBreakerRules {
		k.add(at, "has %d rules; allowed: at most %d", len(rules), maxBreakerRules)
	}
	for i, r := range rules {
		in := at.index(i)
		switch {
		case r.Failures == 0 && r.Ratio == 0:
			k.add(in, "missing: failures or ratio; without them the rule never trips")
		case r.Ratio > 0 && r.Interval == 0:
			k.add(in.key("interval"), "missing; ratio is the share of the calls within it")
		}
		atLeast(k, in.key("max_trip"), r.MaxTrip, "trip", r.Trip)
		if r.AcceptRetryAfter && len(r.Statuses) == 0 {
			k.add(in.key("accept_retry_after"), "has no effect without statuses")
		}
		for j, s := range r.Statuses {
			if s.From < leastStatus || s.To > mostStatus || s.To < s.From {
				k.add(in.key("statuses").index(j), "%d-%d is no range of statuses (allowed: %d to %d)", s.From, s.To, leastStatus, mostStatus)
			}
		}
	}
}
