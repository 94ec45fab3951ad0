package dashboard

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// length of a scenario in scrapes: three hours.
const length = 3 * 60 * 4

// calm is three hours of a gateway with one model in one pool of two endpoints, in which all is
// well but for what any gateway sees. A line is a series without its target's labels, and its
// values as promtool writes them: 0+5x9 are 0, 5, … 45.
var calm = []string{
	`up 1x720`,
	`process_start_time_seconds 1000x720`,
	`process_open_fds 300x720`,
	`process_max_fds 65536x720`,
	`kvasir_calls_in_flight 30x720`,
	`kvasir_buffered_bytes 5000000x720`,
	`kvasir_config_reloads_total{result="applied"} 1x720`,
	`kvasir_config_reloads_total{result="refused"} 0x720`,
	`kvasir_config_reload_successful 1x720`,
	`kvasir_prefix_index_bytes{model="m"} 1000000x720`,
	`kvasir_calls_total{model="m",pool="p",outcome="success"} 0+150x720`,
	`kvasir_calls_total{model="m",pool="p",outcome="endpoint_failure"} 0+1x720`,
	`kvasir_calls_total{model="m",pool="p",outcome="back_pressure"} 0+1x720`,
	`kvasir_calls_total{model="m",pool="p",outcome="client_gone"} 0+3x720`,
	`kvasir_calls_total{model="unknown",pool="none",outcome="success"} 0x720`,
	`kvasir_calls_total{model="unknown",pool="none",outcome="refused"} 0+1x720`,
	`kvasir_refusals_total{reason="no_endpoint"} 0x720`,
	`kvasir_refusals_total{reason="buffers_full"} 0x720`,
	`kvasir_refusals_total{reason="too_many_calls"} 0x720`,
	`kvasir_refusals_total{reason="unknown_model"} 0+1x720`,
	`kvasir_refusals_total{reason="unauthorized"} 0x720`,
	`kvasir_retries_total{model="m",pool="p"} 0+2x720`,
	`kvasir_attempts_total{model="m",pool="p",endpoint="a",outcome="success"} 0+75x720`,
	`kvasir_attempts_total{model="m",pool="p",endpoint="b",outcome="success"} 0+75x720`,
	`kvasir_time_to_first_token_seconds_bucket{model="m",pool="p",le="1"} 0+149x720`,
	`kvasir_time_to_first_token_seconds_bucket{model="m",pool="p",le="5"} 0+150x720`,
	`kvasir_time_to_first_token_seconds_bucket{model="m",pool="p",le="20"} 0+150x720`,
	`kvasir_time_to_first_token_seconds_bucket{model="m",pool="p",le="+Inf"} 0+150x720`,
	`kvasir_discovery_age_seconds{model="m",pool="p"} 3x720`,
	of("a", `kvasir_endpoint_in_rotation`, "1x720"), of("b", `kvasir_endpoint_in_rotation`, "1x720"),
	of("a", `kvasir_endpoint_healthy`, "1x720"), of("b", `kvasir_endpoint_healthy`, "1x720"),
	of("a", `kvasir_endpoint_draining`, "0x720"), of("b", `kvasir_endpoint_draining`, "0x720"),
	of("a", `kvasir_ejections_total`, "0x720"), of("b", `kvasir_ejections_total`, "0x720"),
	of("a", `kvasir_endpoint_restarts_total`, "0x720"), of("b", `kvasir_endpoint_restarts_total`, "0x720"),
	of("a", `kvasir_signal_age_seconds`, "0.5x720"), of("b", `kvasir_signal_age_seconds`, "0.5x720"),
	of("a", `kvasir_prefix_trust`, "1x720"), of("b", `kvasir_prefix_trust`, "1x720"),
	scraped("a", "read", "0+15x720"), scraped("b", "read", "0+15x720"),
	scraped("a", "failed", "0x720"), scraped("b", "failed", "0x720"),
	scraped("a", "incomplete", "0x720"), scraped("b", "incomplete", "0x720"),
}

func of(endpoint, name, values string) string {
	return fmt.Sprintf(`%s{model="m",pool="p",endpoint=%q} %s`, name, endpoint, values)
}

func scraped(endpoint, result, values string) string {
	return fmt.Sprintf(`kvasir_scrapes_total{model="m",pool="p",endpoint=%q,result=%q} %s`, endpoint, result, values)
}

// played returns a store with the calm series, some of them in place of those of the same
// name and labels. A value that is _, or not there, is of a series that has ended.
func played(t testing.TB, calm []string, instead ...string) *store {
	t.Helper()
	s := newStore(time.Unix(1_800_000_000, 0))
	lines := map[string]string{}
	var order []string
	for _, line := range append(slices.Clone(calm), instead...) {
		name, _, _ := strings.Cut(line, " ")
		if _, known := lines[name]; !known {
			order = append(order, name)
		}
		lines[name] = line
	}
	for _, name := range order {
		lset, values, err := promQL.ParseSeriesDesc(lines[name])
		if err != nil {
			t.Fatalf("%s: %v", lines[name], err)
		}
		there := false
		for s.ticks = range length {
			switch {
			case s.ticks < len(values) && !values[s.ticks].Omitted:
				s.add(target(lset), values[s.ticks].Value)
				there = true
			case there:
				s.add(target(lset), ended)
				there = false
			}
		}
	}
	s.ticks = length
	return s
}

// scenarios are what can go wrong, and all the alerts that then fire.
var scenarios = []struct {
	name    string
	without string   // calm series that are not there at all, as a pattern
	instead []string // what differs from calm
	alerts  string
}{
	{name: "nothing"},
	{name: "no calls at all",
		without: `kvasir_(calls|attempts|retries)_total|_bucket`,
		instead: []string{
			`kvasir_calls_total{model="m",pool="p",outcome="success"} 0x720`,
			`kvasir_calls_total{model="m",pool="p",outcome="endpoint_failure"} 0x720`,
			`kvasir_attempts_total{model="m",pool="p",endpoint="a",outcome="success"} 0x720`,
			`kvasir_retries_total{model="m",pool="p"} 0x720`,
			`kvasir_refusals_total{reason="unknown_model"} 0x720`,
			`kvasir_time_to_first_token_seconds_bucket{model="m",pool="p",le="+Inf"} 0x720`,
		}},
	{name: "both endpoints are ejected",
		instead: []string{
			of("a", `kvasir_endpoint_in_rotation`, "1x40 0x680"), of("b", `kvasir_endpoint_in_rotation`, "1x40 0x680"),
			of("a", `kvasir_ejections_total`, "0x40 1x680"), of("b", `kvasir_ejections_total`, "0x40 1x680"),
			`kvasir_calls_total{model="m",pool="p",outcome="success"} 0+150x40 6000x680`,
			`kvasir_calls_total{model="m",pool="p",outcome="endpoint_failure"} 0x40 0+10x680`,
			`kvasir_calls_total{model="m",pool="p",outcome="client_gone"} 0x720`,
			`kvasir_calls_total{model="m",pool="p",outcome="back_pressure"} 0x720`,
			`kvasir_refusals_total{reason="no_endpoint"} 0x40 0+100x680`,
		},
		alerts: "KvasirModelWithoutEndpoint KvasirModelNotAnswering KvasirCallsFail KvasirRefusals KvasirEndpointOut"},
	{name: "both are down, and one stays in rotation since it is the last",
		instead: []string{
			of("a", `kvasir_endpoint_in_rotation`, "1x40 0x680"),
			of("a", `kvasir_endpoint_healthy`, "1x40 0x680"), of("b", `kvasir_endpoint_healthy`, "1x40 0x680"),
			`kvasir_calls_total{model="m",pool="p",outcome="success"} 0+150x40 6000x680`,
			`kvasir_calls_total{model="m",pool="p",outcome="endpoint_failure"} 0x40 0+150x680`,
		},
		alerts: "KvasirModelWithoutEndpoint KvasirModelNotAnswering KvasirCallsFail KvasirEndpointOut"},
	{name: "discovery finds nobody from the start",
		without: `endpoint="`,
		instead: []string{`kvasir_refusals_total{reason="no_endpoint"} 0+100x720`},
		alerts:  "KvasirModelWithoutEndpoint KvasirRefusals"},
	{name: "one endpoint is drained and the other ejected",
		instead: []string{
			of("a", `kvasir_endpoint_draining`, "0x40 1x400 0x280"),
			of("b", `kvasir_endpoint_in_rotation`, "1x40 0x400 1x280"),
		},
		alerts: "KvasirModelWithoutEndpoint KvasirEndpointOut"},
	{name: "an endpoint is ejected for ten minutes",
		instead: []string{of("a", `kvasir_endpoint_in_rotation`, "1x40 0x40 1x640"), of("a", `kvasir_ejections_total`, "0x40 1x680")},
		alerts:  "KvasirEndpointOut"},
	{name: "an endpoint is ejected for two minutes",
		instead: []string{of("a", `kvasir_endpoint_in_rotation`, "1x40 0x8 1x672"), of("a", `kvasir_ejections_total`, "0x40 1x680")}},
	{name: "an endpoint that drains is stopped",
		instead: []string{of("a", `kvasir_endpoint_draining`, "0x40 1x80 0x600"), of("a", `kvasir_endpoint_in_rotation`, "1x60 0x60 1x600")}},
	{name: "a drain is forgotten",
		instead: []string{of("a", `kvasir_endpoint_draining`, "1x720")},
		alerts:  "KvasirEndpointDraining"},
	{name: "an endpoint flaps",
		instead: []string{of("a", `kvasir_ejections_total`, "0x40 1x10 2x10 3x10 4x10 5x640")},
		alerts:  "KvasirEndpointFlaps"},
	{name: "an engine restarts again and again",
		instead: []string{of("a", `kvasir_endpoint_restarts_total`, "0x40 1x40 2x40 3x40 4x560")},
		alerts:  "KvasirEndpointRestarts"},
	{name: "one call in ten fails",
		instead: []string{`kvasir_calls_total{model="m",pool="p",outcome="endpoint_failure"} 0+17x720`},
		alerts:  "KvasirCallsFail"},
	{name: "one call in ten fails for two minutes",
		instead: []string{`kvasir_calls_total{model="m",pool="p",outcome="endpoint_failure"} 0x40 0+17x8 136x672`}},
	{name: "the only call of the night fails",
		without: `kvasir_calls_total\{model="m"|kvasir_calls_total\{model="unknown"|unknown_model`,
		instead: []string{
			`kvasir_calls_total{model="m",pool="p",outcome="success"} 0x720`,
			`kvasir_calls_total{model="m",pool="p",outcome="endpoint_failure"} 0x40 1x680`,
		}},
	{name: "one call in ten meets back-pressure",
		instead: []string{`kvasir_calls_total{model="m",pool="p",outcome="back_pressure"} 0+17x720`},
		alerts:  "KvasirBackPressure"},
	{name: "the gateway is full",
		instead: []string{
			`kvasir_refusals_total{reason="too_many_calls"} 0+5x720`,
			`kvasir_calls_in_flight 8000x720`,
		},
		alerts: "KvasirRefusals KvasirCallsNearLimit"},
	{name: "a key is lost",
		instead: []string{
			`kvasir_refusals_total{reason="unauthorized"} 0+60x720`,
			`kvasir_calls_total{model="unknown",pool="none",outcome="refused"} 0+61x720`,
		},
		alerts: "KvasirClientErrors"},
	{name: "clients leave",
		instead: []string{`kvasir_calls_total{model="m",pool="p",outcome="client_gone"} 0+60x720`},
		alerts:  "KvasirClientsLeave"},
	{name: "first tokens are slow",
		instead: []string{
			`kvasir_time_to_first_token_seconds_bucket{model="m",pool="p",le="1"} 0+100x720`,
			`kvasir_time_to_first_token_seconds_bucket{model="m",pool="p",le="5"} 0+120x720`,
		},
		alerts: "KvasirSlowFirstToken"},
	{name: "retries make up for a bad endpoint",
		instead: []string{`kvasir_retries_total{model="m",pool="p"} 0+30x720`},
		alerts:  "KvasirRetryShare"},
	{name: "the retry budget is nearly spent",
		instead: []string{`kvasir_retries_total{model="m",pool="p"} 0+150x720`},
		alerts:  "KvasirRetryShare KvasirRetryBudget"},
	{name: "an endpoint reports no load",
		instead: []string{of("a", `kvasir_signal_age_seconds`, "0.5x40 15+15x680")},
		alerts:  "KvasirSignalStale"},
	{name: "an endpoint that is out reports no load",
		instead: []string{
			of("a", `kvasir_signal_age_seconds`, "0.5x40 15+15x10 0.5x670"),
			of("a", `kvasir_endpoint_in_rotation`, "1x40 0x12 1x668"),
			scraped("a", "read", "0+15x40 600x12 600+15x668"), scraped("a", "failed", "0x40 0+15x12 180x668"),
		}},
	{name: "an endpoint's prefix caching is off",
		instead: []string{of("a", `kvasir_prefix_trust`, "1x40 0x680")},
		alerts:  "KvasirPrefixUntrusted"},
	{name: "an endpoint caches little for ten minutes",
		instead: []string{of("a", `kvasir_prefix_trust`, "1x40 0x40 1x640")}},
	{name: "an endpoint that is out was not trusted",
		instead: []string{
			of("a", `kvasir_prefix_trust`, "1x20 0x700"),
			of("a", `kvasir_endpoint_in_rotation`, "1x40 0x680"),
		},
		alerts: "KvasirEndpointOut"},
	{name: "scrapes lack numbers",
		instead: []string{scraped("a", "incomplete", "0+15x720"), scraped("a", "read", "0x720")},
		alerts:  "KvasirScrapesFail"},
	{name: "discovery fails",
		instead: []string{`kvasir_discovery_age_seconds{model="m",pool="p"} 3x40 15+15x680`},
		alerts:  "KvasirDiscoveryStale"},
	{name: "no gateway is scraped",
		without: `.`,
		instead: []string{`up{job="another"} 1x720`},
		alerts:  "KvasirAbsent"},
	{name: "the gateway is down",
		without: `^(kvasir|process)_`,
		instead: []string{`up 1x40 0x30 1x650`, `kvasir_calls_in_flight 30x40 _x30 30x650`},
		alerts:  "KvasirAbsent KvasirGatewayDown"},
	{name: "the gateway restarts again and again",
		instead: []string{`process_start_time_seconds 1000x40 2000x40 3000x40 4000x600`},
		alerts:  "KvasirGatewayRestarts"},
	{name: "a configuration is refused",
		instead: []string{`kvasir_config_reload_successful 1x40 0x680`},
		alerts:  "KvasirReloadRefused"},
	{name: "a certificate and its key are replaced one after the other",
		instead: []string{`kvasir_config_reload_successful 1x40 0x2 1x678`}},
	{name: "buffers are nearly full",
		instead: []string{`kvasir_buffered_bytes 1000000000x720`},
		alerts:  "KvasirBuffersNearlyFull"},
	{name: "descriptors run out",
		instead: []string{`process_open_fds 60000x720`},
		alerts:  "KvasirFileDescriptors"},
	{name: "a call ends unclassified",
		instead: []string{`kvasir_attempts_total{model="m",pool="p",endpoint="a",outcome="unclassified"} _x40 1x680`},
		alerts:  "KvasirUnclassified"},
}

// Each alert fires in a scenario of its own, and in none where it should not.
func TestAlertsFire(t *testing.T) {
	rules := alerts(t)
	fired := map[string]bool{}
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			base := calm
			if sc.without != "" {
				not := regexp.MustCompile(sc.without)
				base = slices.DeleteFunc(slices.Clone(calm), not.MatchString)
			}
			s := played(t, base, sc.instead...)
			var got []string
			for _, rule := range rules {
				if len(s.fires(t, rule.Expr, time.Duration(rule.For))) > 0 {
					got = append(got, rule.Alert)
					fired[rule.Alert] = true
				}
			}
			want := strings.Fields(sc.alerts)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("alerts that fire: %v, want %v", got, want)
			}
		})
	}
	for _, rule := range rules {
		if !fired[rule.Alert] {
			t.Errorf("%s fires in no scenario", rule.Alert)
		}
	}
}
