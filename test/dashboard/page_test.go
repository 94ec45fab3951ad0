package dashboard

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// page is a metrics page: its families by name.
type page map[string]*dto.MetricFamily

func parsePage(t testing.TB, text []byte) page {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// labelsOf returns the names of the labels that a family's series have, in order.
func (p page) labelsOf(family string) []string {
	names := map[string]bool{}
	for _, m := range p[family].GetMetric() {
		for _, l := range m.GetLabel() {
			names[l.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// values returns the values that a label has in a family, those of a histogram's buckets
// among them.
func (p page) values(family, label string) map[string]bool {
	values := map[string]bool{}
	for _, m := range p[family].GetMetric() {
		for _, b := range m.GetHistogram().GetBucket() {
			if label == "le" {
				values[strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64)] = true
			}
		}
		for _, l := range m.GetLabel() {
			if l.GetName() == label {
				values[l.GetValue()] = true
			}
		}
	}
	return values
}

// each calls do with every sample of the page, as Prometheus stores it.
func (p page) each(do func(lset labels.Labels, value float64)) {
	for name, family := range p {
		for _, m := range family.GetMetric() {
			sample := func(suffix string, v float64, more ...string) {
				b := labels.NewBuilder(labels.FromStrings(more...))
				for _, l := range m.GetLabel() {
					b.Set(l.GetName(), l.GetValue())
				}
				do(b.Set(model.MetricNameLabel, name+suffix).Labels(), v)
			}
			switch {
			case m.Counter != nil:
				sample("", m.Counter.GetValue())
			case m.Gauge != nil:
				sample("", m.Gauge.GetValue())
			case m.Summary != nil:
				sample("_sum", m.Summary.GetSampleSum())
				sample("_count", float64(m.Summary.GetSampleCount()))
				for _, q := range m.Summary.GetQuantile() {
					sample("", q.GetValue(), "quantile", fmt.Sprint(q.GetQuantile()))
				}
			case m.Histogram != nil:
				sample("_sum", m.Histogram.GetSampleSum())
				sample("_count", float64(m.Histogram.GetSampleCount()))
				for _, b := range m.Histogram.GetBucket() {
					border := fmt.Sprint(b.GetUpperBound())
					if math.IsInf(b.GetUpperBound(), 1) {
						border = "+Inf"
					}
					sample("_bucket", float64(b.GetCumulativeCount()), "le", border)
				}
			}
		}
	}
}
