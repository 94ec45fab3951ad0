package dashboard

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// expression is a query that people or Prometheus ask.
type expression struct {
	name   string   // where it is
	text   string   // PromQL, the dashboard's variables filled in
	shown  []string // labels that its legend shows
	silent bool     // it finds nothing while all is well, and some trouble can't be had here
}

// expressions returns those of the alerts, the dashboard and the documents.
func expressions(t testing.TB) (all []expression) {
	t.Helper()
	for _, rule := range alerts(t) {
		all = append(all, expression{name: "alert " + rule.Alert, text: rule.Expr, silent: true})
	}
	all = append(all, panelExpressions(t)...)
	for _, name := range []string{metricsFile, operationsFile} {
		for line := range strings.Lines(string(read(t, name))) {
			for _, text := range unquote(line) {
				if strings.ContainsAny(text, "({=> ") && strings.Contains(text, "kvasir_") {
					all = append(all, expression{name: name + " " + text, text: text, silent: true})
				}
			}
		}
	}
	return all
}

// variables are what Grafana puts in for the dashboard's variables.
var variables = strings.NewReplacer("$__rate_interval", "1m", "$gateway", "gateway-1", "$model", ".+", "$pool", ".+", "$endpoint", ".+")

// check fails where the expression does not parse, names what is not exported, or finds
// nothing.
func (e *expression) check(t *testing.T, r *run) {
	expr, err := promQL.ParseExpr(e.text)
	if err != nil {
		t.Fatal(err)
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			checkSelector(t, r.page, n)
		case *parser.AggregateExpr:
			if !n.Without {
				checkGrouping(t, n.Grouping, n.Expr)
			}
		case *parser.BinaryExpr:
			if m := n.VectorMatching; m != nil && m.On {
				checkGrouping(t, m.MatchingLabels, n.LHS)
				checkGrouping(t, m.MatchingLabels, n.RHS)
			}
		}
		return nil
	})
	found := r.store.query(t, e.text)
	if len(found) == 0 && !e.silent {
		t.Errorf("nothing is found by %s", e.text)
	}
	for _, series := range found {
		for _, name := range e.shown {
			if !series.Metric.Has(name) {
				t.Errorf("the legend shows %s, which %v has not", name, series.Metric)
			}
		}
	}
}

// family returns the family that a series is part of, and the label that comes with it.
func family(p page, name string) (base, extra string) {
	for suffix, label := range map[string]string{"_bucket": "le", "_sum": "", "_count": ""} {
		if base, ok := strings.CutSuffix(name, suffix); ok && p[base] != nil {
			return base, label
		}
	}
	return name, ""
}

var word = regexp.MustCompile(`[a-z0-9_]+`)

// checkSelector compares a selector with the page and docs/metrics.md: the series, its labels,
// and those of their values that are constants.
func checkSelector(t *testing.T, p page, s *parser.VectorSelector) {
	if s.Name == "up" {
		return // Prometheus' own
	}
	base, extra := family(p, s.Name)
	if p[base] == nil {
		t.Errorf("%s is not exported", s.Name)
		return
	}
	doc, own := catalogue(t)[base]
	if !own && strings.HasPrefix(base, "kvasir_") {
		t.Errorf("%s is not documented", base)
	}
	known := append(p.labelsOf(base), targetLabels...)
	if extra != "" {
		known = append(known, extra)
	}
	for _, m := range s.LabelMatchers {
		switch {
		case m.Name == model.MetricNameLabel || slices.Contains(targetLabels, m.Name):
		case !slices.Contains(known, m.Name):
			t.Errorf("%s has no label %s; it has %v", s.Name, m.Name, known)
		case slices.Contains([]string{"model", "pool", "endpoint"}, m.Name):
			// The configuration's names.
		default:
			allowed := append(labelValues(t, m.Name), word.FindAllString(doc.meaning, -1)...)
			for value := range strings.SplitSeq(m.Value, "|") {
				if !slices.Contains(allowed, value) && !p.values(base, m.Name)[value] {
					t.Errorf("%s: the label %s has no value %q", s.Name, m.Name, value)
				}
			}
		}
	}
}

// checkGrouping fails for a label that none of the expression's series has: to group by it
// would silently group by nothing.
func checkGrouping(t *testing.T, names []string, expr parser.Expr) {
	all := catalogue(t)
	known := append([]string{"le", "quantile"}, targetLabels...)
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			name := s.Name
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if base, ok := strings.CutSuffix(name, suffix); ok && all[base].kind == "histogram" {
					name = base
				}
			}
			known = append(known, all[name].labels...)
		}
		return nil
	})
	for _, name := range names {
		if !slices.Contains(known, name) {
			t.Errorf("%s is grouped by %s, which none of its series has", expr, name)
		}
	}
}
