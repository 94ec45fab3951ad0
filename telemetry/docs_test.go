package telemetry

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

var update = flag.Bool("update", false, "rewrite the table in docs/metrics.md")

const (
	docsFile   = "../docs/metrics.md"
	tableBegin = "<!-- table: go test ./telemetry -run Docs -update -->\n"
	tableEnd   = "<!-- end of table -->\n"
)

// table writes the catalogue as docs/metrics.md shows it.
func table() string {
	var b strings.Builder
	b.WriteString("| series | type | unit | labels | meaning |\n|---|---|---|---|---|\n")
	for _, s := range catalog {
		labels := "–"
		if len(s.labels) > 0 {
			labels = "`" + strings.Join(s.labels, "` `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", s.name, s.kind, s.unit, labels, s.help)
	}
	return b.String()
}

func TestDocsShowTheCatalogue(t *testing.T) {
	page, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(page), tableBegin)
	old, tail, ended := strings.Cut(rest, tableEnd)
	if !ok || !ended {
		t.Fatalf("%s has no table between %q and %q", docsFile, tableBegin, tableEnd)
	}
	if old == table() {
		return
	}
	if !*update {
		t.Fatalf("%s is out of date: run go test ./telemetry -run Docs -update", docsFile)
	}
	if err := os.WriteFile(docsFile, []byte(head+tableBegin+table()+tableEnd+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The catalogue is what the registry has, no more and no less: name, type, help, labels.
func TestDocsCatalogueIsWhatIsRegistered(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := New(reg, "broken", "busy")
	m.Configure(twoModels)
	m.Built("v")
	m.Pool(twoModels[0].Model, twoModels[0].Pools[0].Pool).Attempt("", 0, EndpointFailure, "broken")
	reg.MustRegister(State(fullSnapshot))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		got[f.GetName()] = fmt.Sprint(strings.ToLower(f.GetType().String()), labels, f.GetHelp())
	}
	for _, s := range catalog {
		labels := slices.Sorted(slices.Values(s.labels))
		if wanted := fmt.Sprint(s.kind, labels, s.help); got[s.name] != wanted {
			t.Errorf("%s: registered as %q, catalogued as %q", s.name, got[s.name], wanted)
		}
		delete(got, s.name)
	}
	for name := range got {
		t.Errorf("%s is registered and not in the catalogue", name)
	}
}

func TestDocsNameEveryLabelValue(t *testing.T) {
	page, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for o := range outcomes {
		names = append(names, o.String())
	}
	for r := NotRefused + 1; r < refusals; r++ {
		names = append(names, r.String())
	}
	for _, name := range append(names, unknownName, noPool) {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("%s does not name the label value %s", docsFile, name)
		}
	}
}
