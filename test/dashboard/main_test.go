// Package dashboard checks what deploy has for monitoring, the alert rules and the dashboard,
// against a running kvasir serve: each expression parses, names series and labels that are
// exported, and finds something; each alert fires when it should, and none in a healthy run.
package dashboard

import (
	"os"
	"path/filepath"
	"testing"

	"kvasir/test/program"
)

func TestMain(m *testing.M) { os.Exit(program.Main(m)) }

const (
	dashboardFile  = "deploy/grafana/kvasir.json"
	alertsFile     = "deploy/prometheus/alerts.yaml"
	metricsFile    = "docs/metrics.md"
	operationsFile = "docs/operations.md"
)

// read returns a file of the repository.
func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
