package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"kvasir/test/endurance/internal/program"
)

// What the gateway is configured with, and therefore held against.
const (
	bodyLimit    = 256 << 10
	eventLimit   = 64 << 10
	preamble     = 32 << 10
	total        = 12 * time.Second // of one call, where the gateway bounds that
	writeTimeout = 3 * time.Second
	ratio        = 0.1
	floor        = 2
	attempts     = 3 // of one call, the first included
	totalFloor   = 6 // of all models' retries
	hedgeBudget  = 0.5
)

const common = `listen: 127.0.0.1:0
admin: 127.0.0.1:0
router: soak
seed: %d
limits:
  body: 256KiB
  buffered: 64MiB
  calls: 4096
  event: 64KiB
  preamble: 32KiB
retry:
  attempts: 2
  ratio: 0.1
  floor: 2
  backoff: 5ms
  max_backoff: 50ms
%sprefix:
  index: 8MiB
upstream:
  connect_timeout: 2s
  idle_timeout: 2s
client:
  header_timeout: 2s
  body_timeout: 3s
  idle_timeout: 30s
  write_timeout: 3s
%sdrain: 10s
health:
  failures: 3
  ejection: 500ms
%s%s%smodels:
`

// tuned are settings that a gateway may have, with values that suit a short run; what the
// binary does not accept is left out.
type tuned struct {
	retry, client, health, timeouts string
	hangs                           bool // the gateway bounds what hangs
	total                           time.Duration
	totalFloor                      bool            // all models' retries have a budget of their own
	tenants                         bool            // it knows keys, tenants, classes and conversations
	has                             map[string]bool // keys of models and pools, by name
	used                            []string
}

// optional are keys of models and pools that a gateway may have, each with a value that suits.
var optional = []struct{ name, line string }{
	{"deadline", "    deadline: 1s\n"},
	{"hedge", fmt.Sprintf("    hedge: {budget: %v, after: 50ms, whole: 100ms}\n", hedgeBudget)},
	{"commit", "    commit: first-visible\n"},
	{"queue fair", "        queue: {tokens: 2000, order: fair, length: 6, max_wait: 300ms}\n        overload: {waiting: 1, kv_usage: 0.2, refuse_from: 0.3, refuse_to: 0.6}\n"},
	{"queue least-slack", "        queue: {work: 20ms, order: least-slack, length: 6, max_wait: 300ms}\n"},
	{"breaker", "        breaker:\n          - {statuses: [429], failures: 1, trip: 300ms, max_trip: 1s, accept_retry_after: true, max_retry_after: 1s}\n" +
		"          - {failures: 3, trip: 500ms, max_trip: 1s}\n"},
}

// uses says which model or pool has which of the optional keys.
var uses = map[string][]string{
	"alpha": {"hedge"}, "beta": {"deadline"}, "gamma": {"commit"},
	"beta-only": {"queue fair"}, "gamma-first": {"breaker"}, "gamma-second": {"queue least-slack"},
}

// lines returns those of a model or pool that the gateway has.
func (t *tuned) lines(name string) string {
	text := ""
	for _, o := range optional {
		if t.has[o.name] && slices.Contains(uses[name], o.name) {
			text += o.line
		}
	}
	return text
}

func tune(b *program.Binary) tuned {
	var t tuned
	probe := func(section, line string) bool {
		ok := b.Accepts(section + ":\n" + line + "models:\n  m: [\"http://127.0.0.1:1\"]\n")
		if ok {
			t.used = append(t.used, section+"."+strings.TrimSpace(strings.TrimSuffix(line, "\n")))
		}
		return ok
	}
	for _, line := range []string{"  max_wait: 200ms\n"} {
		if probe("retry", line) {
			t.retry += line
		}
	}
	for _, line := range []string{"  max_ejection: 1s\n", "  busy: 100ms\n", "  max_busy: 300ms\n", "  slow_start: 1s\n", "  stall: 3s\n"} {
		if probe("health", line) {
			t.health += line
		}
	}
	for _, line := range []string{"  heartbeat: 100ms\n"} {
		if probe("client", line) {
			t.client += line
		}
	}
	if line := fmt.Sprintf("  total_floor: %d\n", totalFloor); probe("retry", line) {
		t.retry += line
		t.totalFloor = true
	}
	t.tenants = b.Accepts(configureTenants(personaKeys("probe"), hashed) + "models:\n  m: [\"http://127.0.0.1:1\"]\n")
	t.has = map[string]bool{}
	for _, o := range optional {
		pool := "    pools:\n      - endpoints: [\"http://127.0.0.1:1\"]\n        name: p\n"
		text := "models:\n  m:\n" + o.line + pool
		if strings.HasPrefix(o.line, "        ") {
			text = "models:\n  m:\n" + pool + o.line
		}
		if t.has[o.name] = b.Accepts(text); t.has[o.name] {
			t.used = append(t.used, o.name)
		}
	}
	if t.tenants {
		t.used = append(t.used, "keys", "tenants", "classes", "fan_out")
	}
	t.hangs = true
	// Above the -abort of 2s, as health.stall: that the other attempt of a hedged call is aborted must
	// not be a timeout's doing.
	for _, line := range []string{"  header: 3s\n", "  first_token: 4s\n", "  progress: 3s\n", "  idle: 3s\n", fmt.Sprintf("  total: %v\n", total)} {
		if probe("timeouts", line) {
			t.timeouts += line
			if strings.Contains(line, "total") {
				t.total = total
			}
		} else if !strings.Contains(line, "idle") {
			t.hangs = false
		}
	}
	if t.timeouts != "" {
		t.timeouts = "timeouts:\n" + t.timeouts
	}
	return t
}

// endpointNames are the six upstreams. Those named unsteady go down and up again.
var endpointNames = []string{"e0", "e1", "e2", "e3", "e4", "e5"}

var unsteady = map[string]bool{"e2": true, "e5": true}

// pool is a pool of the run's configuration; its name is a base path of each of its
// endpoints.
type pool struct {
	name, served, policy string
	endpoints            []string
}

type model struct {
	name, alias string
	calls       int
	pools       []pool
}

// models are several models, pools and policies over the six endpoints. Calls for calm meet
// no fault but the caller's own.
var models = []model{
	{"alpha", "", 0, []pool{
		{"alpha-main", "alpha", "cache-aware", []string{"e0", "e1", "e2"}},
		{"alpha-spare", "alpha", "round-robin", []string{"e5"}}}},
	{"beta", "beta-alias", 0, []pool{{"beta-only", "beta/inner name", "least-outstanding", []string{"e3", "e4", "e5"}}}},
	{"gamma", "", 0, []pool{
		{"gamma-first", "gamma", "power-of-two", []string{"e5", "e2"}},
		{"gamma-second", "gamma-2", "cache-aware", []string{"e0", "e3", "e4"}}}},
	{"narrow", "", 3, []pool{{"narrow-only", "narrow", "weighted-least-request", []string{"e0", "e4"}}}},
	{calm, "", 0, []pool{{"calm-only", calm, "round-robin", []string{"e1", "e3", "e4"}}}},
}

const calm = "calm"

// keyed are the endpoints that ask for a key.
var keyed = map[string]bool{"e1": true, "e3": true, "e5": true}

// unmeasured is the endpoint that has no metrics page: its load must stay unknown.
const unmeasured = "e4"

func keyVariable(endpoint string) string { return "SOAK_KEY_" + strings.ToUpper(endpoint) }

// hashed is a key as the file has it.
func hashed(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// personaKeys makes a key for each persona that has one.
func personaKeys(salt string) map[string]string {
	keys := map[string]string{}
	for _, p := range personas {
		if p.name != "" {
			keys[p.name] = "sk-client-" + p.name + "-" + salt
		}
	}
	return keys
}

// configuration writes the gateway's file. addr gives the endpoints' addresses.
func configuration(seed uint64, t tuned, tenants string, addr func(string) string) string {
	var s strings.Builder
	fmt.Fprintf(&s, common, seed, t.retry, t.client, t.health, t.timeouts, tenants)
	for _, m := range models {
		fmt.Fprintf(&s, "  %s:\n", m.name)
		if m.alias != "" {
			fmt.Fprintf(&s, "    aliases: [%s]\n", m.alias)
		}
		if m.calls > 0 {
			fmt.Fprintf(&s, "    calls: %d\n", m.calls)
		}
		s.WriteString(t.lines(m.name))
		s.WriteString("    pools:\n")
		for _, p := range m.pools {
			fmt.Fprintf(&s, "      - name: %s\n        served_as: %q\n        policy: %s\n%s        endpoints:\n", p.name, p.served, p.policy, t.lines(p.name))
			for _, e := range p.endpoints {
				fmt.Fprintf(&s, "          - {url: \"http://%s/%s\", name: %s", addr(e), p.name, e)
				if keyed[e] {
					fmt.Fprintf(&s, ", key: \"env:%s\"", keyVariable(e))
				}
				s.WriteString("}\n")
			}
		}
	}
	return s.String()
}
