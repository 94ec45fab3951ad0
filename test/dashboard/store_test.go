package dashboard

import (
	"cmp"
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
)

// interval is the time between two scrapes, and between two evaluations of the rules.
const interval = 15 * time.Second

// store keeps series in memory, as Prometheus would after it has scraped them.
type store struct {
	series map[string]*stored
	ticks  int // scrapes so far
	start  time.Time
}

type stored struct {
	lset   labels.Labels
	times  []int64
	values []float64
}

// targetLabels are those that Prometheus adds to what it scrapes.
var targetLabels = []string{"job", "instance"}

func target(lset labels.Labels) labels.Labels {
	return labels.NewBuilder(lset).Set("job", "kvasir").Set("instance", "gateway-1").Labels()
}

// ended is the value by which Prometheus notes that a series is there no longer.
var ended = math.Float64frombits(value.StaleNaN)

func newStore(start time.Time) *store {
	return &store{series: map[string]*stored{}, start: start}
}

// now returns the time of the next scrape.
func (s *store) now() time.Time { return s.start.Add(time.Duration(s.ticks) * interval) }

// add appends a sample to its series at the time of the scrape.
func (s *store) add(lset labels.Labels, value float64) {
	key := lset.String()
	one := s.series[key]
	if one == nil {
		one = &stored{lset: lset}
		s.series[key] = one
	}
	one.times = append(one.times, s.now().UnixMilli())
	one.values = append(one.values, value)
}

// scrape appends all samples of a page, as those of one gateway. Series that the page before
// had, and this one has not, end.
func (s *store) scrape(p page) {
	p.each(func(lset labels.Labels, value float64) { s.add(target(lset), value) })
	s.add(target(labels.FromStrings(model.MetricNameLabel, "up")), 1)
	now := s.now().UnixMilli()
	for _, one := range s.series {
		last := len(one.times) - 1
		if one.times[last] != now && !value.IsStaleNaN(one.values[last]) {
			s.add(one.lset, ended)
		}
	}
	s.ticks++
}

// Querier implements storage.Queryable.
func (s *store) Querier(_, _ int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := &set{}
		for _, one := range s.series {
			if matches(one.lset, matchers) {
				found.series = append(found.series, &storage.SeriesEntry{Lset: one.lset, SampleIteratorFn: one.iterator})
			}
		}
		slices.SortFunc(found.series, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
		return found
	}}, nil
}

func matches(lset labels.Labels, matchers []*labels.Matcher) bool {
	for _, m := range matchers {
		if !m.Matches(lset.Get(m.Name)) {
			return false
		}
	}
	return true
}

// iterator returns the samples as Prometheus reads them from a chunk.
func (one *stored) iterator(again chunkenc.Iterator) chunkenc.Iterator {
	chunk := chunkenc.NewXORChunk()
	appender, err := chunk.Appender()
	if err != nil {
		panic(err) // of an empty chunk that never happens
	}
	for i, at := range one.times {
		appender.Append(0, at, one.values[i])
	}
	return chunk.Iterator(again)
}

// set is a storage.SeriesSet of series that are there already.
type set struct {
	series []storage.Series
	next   int
}

func (s *set) Next() bool                        { s.next++; return s.next <= len(s.series) }
func (s *set) At() storage.Series                { return s.series[s.next-1] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

var promQL = parser.NewParser(parser.Options{})

var promEngine = promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true, Parser: promQL})

// query evaluates an expression at every scrape that the store has.
func (s *store) query(t testing.TB, expr string) promql.Matrix {
	t.Helper()
	q, err := promEngine.NewRangeQuery(context.Background(), s, nil, expr, s.start, s.now().Add(-interval), interval)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	result := q.Exec(context.Background())
	if result.Err != nil {
		t.Fatalf("%s: %v", expr, result.Err)
	}
	if len(result.Warnings) > 0 {
		t.Errorf("%s: %v", expr, result.Warnings)
	}
	matrix, err := result.Matrix()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	clone := slices.Clone(matrix) // Close takes the points back
	for i := range clone {
		clone[i].Floats = slices.Clone(clone[i].Floats)
	}
	return clone
}

// fires returns the labels with which an alert on the expression fires, once it has held for
// so long, at any time.
func (s *store) fires(t testing.TB, expr string, held time.Duration) (firing []labels.Labels) {
	t.Helper()
	for _, series := range s.query(t, expr) {
		since, last := int64(0), int64(0)
		for _, p := range series.Floats {
			if p.T-last > interval.Milliseconds() {
				since = p.T
			}
			last = p.T
			if p.T-since >= held.Milliseconds() {
				firing = append(firing, series.Metric)
				break
			}
		}
	}
	slices.SortFunc(firing, func(a, b labels.Labels) int { return cmp.Compare(a.String(), b.String()) })
	return firing
}
