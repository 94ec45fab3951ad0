package dashboard

import (
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
)

// alerts returns the rules as Prometheus loads them.
func alerts(t testing.TB) (rules []rulefmt.Rule) {
	t.Helper()
	groups, errs := rulefmt.Parse(read(t, alertsFile), false, model.UTF8Validation, promQL, slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil {
		t.FailNow()
	}
	for _, g := range groups.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

// anchor returns where a heading is found on a page, as forges write it.
func anchor(heading string) string {
	return strings.ReplaceAll(strings.ToLower(heading), " ", "-")
}

var heading = regexp.MustCompile(`(?m)^#+ (.+)$`)

func TestAlertsSayWhatToDo(t *testing.T) {
	anchors := map[string]bool{} // of the headings that are names of alerts: not named by one yet
	for _, m := range heading.FindAllStringSubmatch(string(read(t, operationsFile)), -1) {
		if strings.HasPrefix(m[1], "Kvasir") {
			anchors[anchor(m[1])] = true
		}
	}
	names := map[string]bool{}
	for _, rule := range alerts(t) {
		if rule.Alert == "" || names[rule.Alert] {
			t.Errorf("%q is no alert, or there twice", rule.Alert)
		}
		names[rule.Alert] = true
		if severity := rule.Labels["severity"]; !slices.Contains([]string{"critical", "warning", "info"}, severity) {
			t.Errorf("%s has the severity %q", rule.Alert, severity)
		}
		if time.Duration(rule.For) < time.Minute {
			t.Errorf("%s fires after %v: one bad scrape is enough", rule.Alert, rule.For)
		}
		for _, annotation := range []string{"summary", "description"} {
			if len(rule.Annotations[annotation]) < 10 {
				t.Errorf("%s has no %s", rule.Alert, annotation)
			}
		}
		file, at, _ := strings.Cut(rule.Annotations["runbook"], "#")
		if file != operationsFile || at != anchor(rule.Alert) || !anchors[at] {
			t.Errorf("%s: %s has no section for it at %q", rule.Alert, operationsFile, rule.Annotations["runbook"])
		}
		delete(anchors, at)
	}
	for at := range anchors {
		t.Errorf("%s has a section %s, which no alert leads to", operationsFile, at)
	}
}

// What docs/operations.md says of a series is of one that there is.
func TestOperationsNameRealSeries(t *testing.T) {
	all := catalogue(t)
	for _, name := range regexp.MustCompile(`\bkvasir_[a-z0-9_]+`).FindAllString(string(read(t, operationsFile)), -1) {
		if _, ok := all[name]; !ok {
			t.Errorf("%s names %s, which %s does not list", operationsFile, name, metricsFile)
		}
	}
}
