package upstream

import (
	"math"
	"strconv"

	"kvasir/internal/mono"
	"kvasir/selection/signal"
	"kvasir/upstream/exposition"
)

// VLLM returns the dialect of vLLM's V1 engine (vllm/v1/metrics/loggers.py).
//
// A page has a series of each name for every engine behind the address (label engine,
// the data-parallel rank). Counts are summed over them. The share of KV blocks in use
// is their mean, each engine counting the same, for the ranks of one deployment have
// equal caches. Where a name was changed, the newer name is believed as soon as it has
// one usable value: kv_cache_usage_perc was gpu_cache_usage_perc, and the counters of
// the prefix cache began with gpu_ too. Counters stand with _total in Prometheus'
// formats and may stand without it in OpenMetrics.
//
// Of num_gpu_blocks each engine keeps one empty (the null block), which no call can use
// and which the share in use does not count; it is left out here too.
//
// The share is from 0 to 1, whatever "perc" suggests: "1 means 100 percent usage".
func VLLM() Dialect {
	return Dialect{Name: "vllm", MetricsPath: "/metrics", ReadLoad: readVLLM}
}

// vllmSeries is a name that readVLLM wants.
type vllmSeries int

const (
	vllmUnwanted vllmSeries = iota
	vllmRunning
	vllmWaiting
	vllmUsage
	vllmUsageOld
	vllmQueriesTotal
	vllmQueries
	vllmQueriesTotalOld
	vllmQueriesOld
	vllmHitsTotal
	vllmHits
	vllmHitsTotalOld
	vllmHitsOld
	vllmStarted
	vllmCacheConfig
	vllmSeriesCount
)

func vllmSeriesOf(name []byte) vllmSeries {
	switch string(name) {
	case "vllm:num_requests_running":
		return vllmRunning
	case "vllm:num_requests_waiting":
		return vllmWaiting
	case "vllm:kv_cache_usage_perc":
		return vllmUsage
	case "vllm:gpu_cache_usage_perc":
		return vllmUsageOld
	case "vllm:prefix_cache_queries_total":
		return vllmQueriesTotal
	case "vllm:prefix_cache_queries":
		return vllmQueries
	case "vllm:gpu_prefix_cache_queries_total":
		return vllmQueriesTotalOld
	case "vllm:gpu_prefix_cache_queries":
		return vllmQueriesOld
	case "vllm:prefix_cache_hits_total":
		return vllmHitsTotal
	case "vllm:prefix_cache_hits":
		return vllmHits
	case "vllm:gpu_prefix_cache_hits_total":
		return vllmHitsTotalOld
	case "vllm:gpu_prefix_cache_hits":
		return vllmHitsOld
	case "process_start_time_seconds":
		return vllmStarted
	case "vllm:cache_config_info":
		return vllmCacheConfig
	}
	return vllmUnwanted
}

func readVLLM(page []byte, at mono.Time) (signal.Load, Report) {
	var (
		all    [vllmSeriesCount]tally
		blocks tally // over cache_config_info's labels
		size   tally
		report Report
	)
	s := exposition.NewScanner(page, func(name []byte) bool { return vllmSeriesOf(name) != vllmUnwanted })
	for s.Scan() {
		report.Samples++
		ok := true
		switch series := vllmSeriesOf(s.Name()); series {
		case vllmCacheConfig:
			ok = blocks.addLabel(s, "num_gpu_blocks")
			ok = size.addLabel(s, "block_size") && ok
		case vllmUsage, vllmUsageOld:
			ok = all[series].add(s.Value(), 0, 1)
		case vllmStarted:
			ok = all[series].add(s.Value(), 1, countMax)
		default:
			ok = all[series].add(s.Value(), 0, countMax)
		}
		if !ok {
			report.BadValues++
		}
	}
	report.BadLines = s.Bad()
	if size.n > 0 && size.least != size.most {
		size = tally{} // engines that differ have no block size in common
		report.BadValues++
	}

	load := signal.Load{
		Running:       all[vllmRunning].sumAt(at),
		Waiting:       all[vllmWaiting].sumAt(at),
		KVUsage:       first(all[vllmUsage], all[vllmUsageOld]).meanAt(at),
		KVBlocks:      blocks.gauge(blocks.sum-float64(blocks.n), at),
		BlockTokens:   size.mostAt(at),
		PrefixQueries: first(all[vllmQueriesTotal:vllmHitsTotal]...).sumAt(at),
		PrefixHits:    first(all[vllmHitsTotal:vllmStarted]...).sumAt(at),
		Started:       all[vllmStarted].mostAt(at),
	}
	report.missing("running", load.Running)
	report.missing("waiting", load.Waiting)
	report.missing("kv_usage", load.KVUsage)
	return load, report
}

func (r *Report) missing(name string, g signal.Gauge) {
	if !g.Known {
		r.Missing = append(r.Missing, name)
	}
}

// countMax is the largest number below which a float counts without gaps.
const countMax = 1 << 53

// tally is what the usable samples of one series add up to. Without any it is unknown.
type tally struct {
	n                int
	sum, least, most float64
}

// add takes a value from least to most, and refuses another one, NaN included.
func (t *tally) add(v, least, most float64) bool {
	if !(v >= least && v <= most) {
		return false
	}
	if t.n == 0 {
		t.least, t.most = v, v
	}
	t.n++
	t.sum += v
	t.least, t.most = min(t.least, v), max(t.most, v)
	return true
}

// addLabel takes the whole number, 1 or more, in a label of an information series. An
// absent label, and Python's None, say nothing, which is not wrong.
func (t *tally) addLabel(s *exposition.Scanner, name string) bool {
	text, ok := s.Label(name)
	if !ok || text == "None" {
		return true
	}
	v, err := strconv.ParseInt(text, 10, 64)
	return err == nil && t.add(float64(v), 1, math.MaxInt32)
}

func (t tally) sumAt(at mono.Time) signal.Gauge  { return t.gauge(t.sum, at) }
func (t tally) meanAt(at mono.Time) signal.Gauge { return t.gauge(t.sum/float64(t.n), at) }
func (t tally) mostAt(at mono.Time) signal.Gauge { return t.gauge(t.most, at) }

func (t tally) gauge(v float64, at mono.Time) signal.Gauge {
	if t.n == 0 {
		return signal.Gauge{}
	}
	return signal.Known(v, at)
}

// first returns the first tally that has a value.
func first(ts ...tally) tally {
	for _, t := range ts {
		if t.n > 0 {
			return t
		}
	}
	return tally{}
}
