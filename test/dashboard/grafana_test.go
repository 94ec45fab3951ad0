package dashboard

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// panelTypes are those that the dashboard may use; their options and queries are checked
// against Grafana's own types.
var panelTypes = []string{"timeseries", "stat", "state-timeline"}

// panelUnits are the units that it may use.
var panelUnits = []string{units.RequestsPerSecond, units.EventsPerSecond, units.CountsPerSecond, units.PercentUnit,
	units.Seconds, units.BytesIEC, units.Short, units.NoUnit, "suffix: tok/s"}

var register = sync.OnceFunc(func() {
	r := cog.NewRuntime()
	r.RegisterPanelcfgVariant(timeseries.VariantConfig())
	r.RegisterPanelcfgVariant(stat.VariantConfig())
	r.RegisterPanelcfgVariant(statetimeline.VariantConfig())
	r.RegisterDataqueryVariant(prometheus.VariantConfig())
})

// classic is the model that every Grafana imports; the newer one is nothing to older releases.
//
//lint:ignore SA1019 deprecated in favour of the newer one
type classic = dashboard.Dashboard

// load reads the dashboard and fails for every field that Grafana does not know.
func load(t testing.TB) *classic {
	t.Helper()
	register()
	text := read(t, dashboardFile)
	err := (&classic{}).UnmarshalJSONStrict(text)
	if all, ok := errors.AsType[cog.BuildErrors](err); err != nil && (!ok || len(all) > 0) { // none is an empty list
		t.Fatal(err)
	}
	d := &classic{} // the strict reader judges, and leaves out panels that are right
	if err := json.Unmarshal(text, d); err != nil {
		t.Fatal(err)
	}
	if len(panels(d)) < 30 {
		t.Fatalf("%d panels were read", len(panels(d)))
	}
	return d
}

// panels returns the panels that are no rows, those in collapsed rows included.
func panels(d *classic) (all []dashboard.Panel) {
	for _, p := range d.Panels {
		if p.Panel != nil {
			all = append(all, *p.Panel)
		}
		if p.RowPanel != nil {
			all = append(all, p.RowPanel.Panels...)
		}
	}
	return all
}

var shown = regexp.MustCompile(`\{\{ *(\w+) *\}\}`)

// panelExpressions returns the dashboard's queries, with its variables filled in.
func panelExpressions(t testing.TB) (all []expression) {
	t.Helper()
	d := load(t)
	for _, p := range panels(d) {
		for _, target := range p.Targets {
			q := target.(*prometheus.Dataquery)
			e := expression{name: fmt.Sprintf("panel %s %s", *p.Title, *q.RefId), text: variables.Replace(q.Expr)}
			for _, m := range shown.FindAllStringSubmatch(*q.LegendFormat, -1) {
				e.shown = append(e.shown, m[1])
			}
			all = append(all, e)
		}
	}
	for _, a := range d.Annotations.List {
		all = append(all, expression{name: "annotation " + a.Name, text: variables.Replace(*a.Expr)})
	}
	for _, v := range d.Templating.List {
		if v.Query == nil || v.Query.Map == nil {
			continue
		}
		// What Grafana asks for label_values(selector, label) are the values of the label in
		// the series that the selector finds.
		args, ok := strings.CutPrefix(strings.TrimSuffix(v.Query.Map["query"].(string), ")"), "label_values(")
		comma := strings.LastIndex(args, ", ")
		if !ok || comma < 0 {
			t.Errorf("variable %s: %v is no label_values", v.Name, v.Query.Map["query"])
			continue
		}
		selector, label := args[:comma], args[comma+2:]
		all = append(all, expression{name: "variable " + v.Name, text: fmt.Sprintf("group by (%s) (%s)", label, variables.Replace(selector)), shown: []string{label}})
	}
	return all
}

func TestDashboardIsWhole(t *testing.T) {
	d := load(t)
	ids := map[uint32]string{}
	taken := map[[2]uint32]string{}
	for _, p := range d.Panels {
		var id uint32
		var title string
		var pos dashboard.GridPos
		if p.RowPanel != nil {
			id, title, pos = p.RowPanel.Id, *p.RowPanel.Title, *p.RowPanel.GridPos
		} else {
			id, title, pos = *p.Panel.Id, *p.Panel.Title, *p.Panel.GridPos
		}
		if other, twice := ids[id]; twice {
			t.Errorf("%s and %s both have the id %d", title, other, id)
		}
		ids[id] = title
		if pos.W == 0 || pos.H == 0 || pos.X+pos.W > 24 {
			t.Errorf("%s does not fit into the grid: %+v", title, pos)
		}
		for x := pos.X; x < pos.X+pos.W; x++ {
			for y := pos.Y; y < pos.Y+pos.H; y++ {
				if other, twice := taken[[2]uint32{x, y}]; twice {
					t.Fatalf("%s lies on %s", title, other)
				}
				taken[[2]uint32{x, y}] = title
			}
		}
	}
	for _, p := range panels(d) {
		title := *p.Title
		switch {
		case !slices.Contains(panelTypes, p.Type):
			t.Errorf("%s is a %s; allowed: %v", title, p.Type, panelTypes)
		case p.Description == nil || len(*p.Description) < 10:
			t.Errorf("%s has no description", title)
		case p.Datasource == nil || *p.Datasource.Uid != "${datasource}":
			t.Errorf("%s is bound to a data source of its own", title)
		case len(p.Targets) == 0:
			t.Errorf("%s asks for nothing", title)
		}
		if unit := p.FieldConfig.Defaults.Unit; unit == nil || !slices.Contains(panelUnits, *unit) {
			t.Errorf("%s has no unit, or one of its own", title)
		}
	}
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	if want := []string{"datasource", "gateway", "model", "pool", "endpoint"}; !slices.Equal(variables, want) {
		t.Errorf("the variables are %v, want %v", variables, want)
	}
}

// Every series is on the dashboard: a new one is to be shown, not only exported.
func TestDashboardShowsEverySeries(t *testing.T) {
	var text strings.Builder
	for _, e := range panelExpressions(t) {
		text.WriteString(e.text + "\n")
	}
	for name := range catalogue(t) {
		if !regexp.MustCompile(`\b` + name + `(_bucket)?\b`).MatchString(text.String()) {
			t.Errorf("no panel shows %s", name)
		}
	}
}
