package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// other is, for every key outside models, a value that isn't its default.
var other = map[string]string{
	"listen": "'[::1]:80'", "admin": "'[::1]:0'", "admin_token": "env:KEY", "admin_open": "true", "watch_file": "false", "page.labs": "false",
	"router": "r1", "seed": "18446744073709551615",
	"tls.cert": "cert.pem", "tls.key": "key.pem", "tls.client_ca": "cert.pem",
	"clients.anonymous": "true", "clients.keys": "[{name: a, sha256: " + strings.Repeat("a0", 32) + "}]", "clients.keys_file": "keys.txt",
	"limits.body": "1KiB", "limits.buffered": "64MiB", "limits.calls": "1", "limits.event": "2048", "limits.preamble": "1MiB",
	"limits.headers": "1MiB", "limits.connections": "1000000",
	"timeouts.header": "0", "timeouts.first_token": "24h", "timeouts.progress": "10ms", "timeouts.idle": "0s", "timeouts.total": "1m",
	"retry.attempts": "0", "retry.ratio": "1", "retry.floor": "0.5", "retry.total_floor": "7", "retry.backoff": "0", "retry.max_backoff": "1m", "retry.max_wait": "0",
	"health.failures": "1", "health.ejection": "100ms", "health.max_ejection": "24h", "health.max_ejected": "1", "health.probes": "2",
	"health.ratio": "0", "health.window": "1s", "health.volume": "1", "health.stall": "0", "health.stall_calls": "1",
	"health.busy": "0", "health.max_busy": "1h", "health.slow_start": "0", "health.slow_start_floor": "1", "health.blackout": "0",
	"prefix.block": "64", "prefix.index": "64GiB", "prefix.speculative": "100ms", "prefix.share": "all", "prefix.salt": "file:key.txt",
	"upstream.connect_timeout": "1s", "upstream.idle_timeout": "1s", "upstream.connections": "1",
	"client.header_timeout": "1s", "client.body_timeout": "1s", "client.idle_timeout": "1s", "client.write_timeout": "1s",
	"client.heartbeat": "0", "client.http2": "false",
	"tenants": "[{name: a, share: 2}]", "classes": "[{name: a, priority: 1}]",
	"fan_out.concurrency": "8", "fan_out.waiting": "1", "fan_out.max_wait": "1s",
	"drain": "0s", "drain_delay": "5s", "log.level": "debug", "log.calls": "false",
}

// The same for the keys of one model, pool and endpoint. A model needs more than one
// key to be valid, so each is a whole one.
var otherModel = map[string]string{
	"aliases":                          "{aliases: [b], pools: [{endpoints: [http://h:1]}]}",
	"calls":                            "{calls: 1, pools: [{endpoints: [http://h:1]}]}",
	"deadline":                         "{deadline: 2s, pools: [{endpoints: [http://h:1]}]}",
	"caps.concurrency":                 "{caps: {concurrency: 1}, pools: [{endpoints: [http://h:1]}]}",
	"caps.rpm":                         "{caps: {rpm: 1}, pools: [{endpoints: [http://h:1]}]}",
	"caps.tpm":                         "{caps: {tpm: 1}, pools: [{endpoints: [http://h:1]}]}",
	"caps.burst":                       "{caps: {rpm: 1, burst: 1s}, pools: [{endpoints: [http://h:1]}]}",
	"caps.weights.input":               "{caps: {tpm: 1, weights: {input: 2}}, pools: [{endpoints: [http://h:1]}]}",
	"caps.weights.cached":              "{caps: {tpm: 1, weights: {cached: 0}}, pools: [{endpoints: [http://h:1]}]}",
	"caps.weights.output":              "{caps: {tpm: 1, weights: {output: 0.5}}, pools: [{endpoints: [http://h:1]}]}",
	"pools.pass_priority":              "{pools: [{endpoints: [http://h:1], pass_priority: true}]}",
	"slo.ttft":                         "{slo: {ttft: 2s}, pools: [{endpoints: [http://h:1]}]}",
	"slo.tpot":                         "{slo: {tpot: 50ms}, pools: [{endpoints: [http://h:1]}]}",
	"commit":                           "{commit: first-visible, pools: [{endpoints: [http://h:1]}]}",
	"hedge.budget":                     "{hedge: {budget: 0.05}, pools: [{endpoints: [http://h:1]}]}",
	"hedge.after":                      "{hedge: {budget: 0.05, after: 400ms}, pools: [{endpoints: [http://h:1]}]}",
	"hedge.whole":                      "{hedge: {budget: 0.05, whole: 10s}, pools: [{endpoints: [http://h:1]}]}",
	"continue.times":                   "{continue: {times: 1}, pools: [{endpoints: [http://h:1]}]}",
	"continue.bytes":                   "{continue: {times: 1, bytes: 64KiB}, pools: [{endpoints: [http://h:1]}]}",
	"timeouts.header":                  "{timeouts: {header: 0}, pools: [{endpoints: [http://h:1]}]}",
	"timeouts.first_token":             "{timeouts: {first_token: 0}, pools: [{endpoints: [http://h:1]}]}",
	"timeouts.progress":                "{timeouts: {progress: 0}, pools: [{endpoints: [http://h:1]}]}",
	"timeouts.idle":                    "{timeouts: {idle: 0}, pools: [{endpoints: [http://h:1]}]}",
	"timeouts.total":                   "{timeouts: {total: 0}, pools: [{endpoints: [http://h:1]}]}",
	"pools.served_as":                  "{pools: [{served_as: b, endpoints: [http://h:1]}]}",
	"pools.name":                       "{pools: [{name: b, endpoints: [http://h:1]}]}",
	"pools.endpoints.url":              "{pools: [{endpoints: [{url: http://h:2, name: h:1}]}]}",
	"pools.endpoints.name":             "{pools: [{endpoints: [{url: http://h:1, name: b}]}]}",
	"pools.endpoints.weight":           "{pools: [{endpoints: [{url: http://h:1, weight: 0.5}]}]}",
	"pools.endpoints.key":              "{pools: [{endpoints: [{url: http://h:1, key: env:KEY}]}]}",
	"pools.policy":                     "{pools: [{endpoints: [http://h:1], policy: random}]}",
	"pools.single_flight.min_tokens":   "{pools: [{endpoints: [http://h:1], single_flight: {min_tokens: 1024}}]}",
	"pools.single_flight.max_wait":     "{pools: [{endpoints: [http://h:1], single_flight: {min_tokens: 1, max_wait: 1s}}]}",
	"pools.single_flight.max_siblings": "{pools: [{endpoints: [http://h:1], single_flight: {min_tokens: 1, max_siblings: 1}}]}",
	"pools.queue.work":                 "{pools: [{endpoints: [http://h:1], queue: {work: 500ms}}]}",
	"pools.queue.tokens":               "{pools: [{endpoints: [http://h:1], queue: {tokens: 8192}}]}",
	"pools.queue.limit":                "{pools: [{endpoints: [http://h:1], queue: {limit: gradient}}]}",
	"pools.queue.gradient.min":         "{pools: [{endpoints: [http://h:1], queue: {limit: gradient, gradient: {min: 5}}}]}",
	"pools.queue.gradient.max":         "{pools: [{endpoints: [http://h:1], queue: {limit: gradient, gradient: {max: 5}}}]}",
	"pools.queue.gradient.tolerance":   "{pools: [{endpoints: [http://h:1], queue: {limit: gradient, gradient: {tolerance: 5}}}]}",
	"pools.queue.order":                "{pools: [{endpoints: [http://h:1], queue: {work: 1ms, order: least-slack}}]}",
	"pools.queue.turn":                 "{pools: [{endpoints: [http://h:1], queue: {work: 1ms, turn: 2}}]}",
	"pools.queue.principal":            "{pools: [{endpoints: [http://h:1], queue: {work: 1ms, order: fair, principal: conversation}}]}",
	"pools.queue.weights.input":        "{pools: [{endpoints: [http://h:1], queue: {work: 1ms, order: fair, weights: {input: 3}}}]}",
	"pools.queue.weights.output":       "{pools: [{endpoints: [http://h:1], queue: {work: 1ms, order: fair, weights: {output: 3}}}]}",
	"pools.queue.weights.cached":       "{pools: [{endpoints: [http://h:1], queue: {work: 1ms, order: fair, weights: {cached: 1}}}]}",
	"pools.queue.quantum":              "{pools: [{endpoints: [http://h:1], queue: {work: 1ms, order: fair-local, quantum: 1}}]}",
	"pools.queue.max_wait_ratio":       "{pools: [{endpoints: [http://h:1], queue: {work: 1ms, max_wait_ratio: 4}}]}",
	"pools.overload.waiting":           "{pools: [{endpoints: [http://h:1], overload: {waiting: 0}}]}",
	"pools.overload.kv_usage":          "{pools: [{endpoints: [http://h:1], overload: {kv_usage: 0.9}}]}",
	"pools.overload.preemptions":       "{pools: [{endpoints: [http://h:1], overload: {preemptions: 10}}]}",
	"pools.overload.refuse_from":       "{pools: [{endpoints: [http://h:1], overload: {refuse_from: 0.5}}]}",
	"pools.overload.refuse_to":         "{pools: [{endpoints: [http://h:1], overload: {refuse_to: 2}}]}",
	"pools.queue.length":               "{pools: [{endpoints: [http://h:1], queue: {work: 1ms, length: 1}}]}",
	"pools.queue.bytes":                "{pools: [{endpoints: [http://h:1], queue: {work: 1ms, bytes: 1MiB}}]}",
	"pools.queue.max_wait":             "{pools: [{endpoints: [http://h:1], queue: {work: 1ms, max_wait: 10ms}}]}",
	"pools.signals.scrape":             "{pools: [{endpoints: [http://h:1], signals: {scrape: 0}}]}",
	"pools.signals.max_age":            "{pools: [{endpoints: [http://h:1], signals: {max_age: 0s}}]}",
	"pools.engine":                     "{pools: [{endpoints: [http://h:1], engine: sglang}]}",
	"pools.probe.path":                 "{pools: [{endpoints: [http://h:1], probe: {path: /ping}}]}",
	"pools.probe.interval":             "{pools: [{endpoints: [http://h:1], probe: {interval: 0}}]}",
	"pools.probe.timeout":              "{pools: [{endpoints: [http://h:1], probe: {timeout: 1m}}]}",
	"pools.probe.failures":             "{pools: [{endpoints: [http://h:1], probe: {failures: 1}}]}",
	"pools.breaker":                    "{pools: [{endpoints: [http://h:1], breaker: {statuses: [429], failures: 1}}]}",
	"pools.protocol":                   "{pools: [{endpoints: [http://h:1], protocol: h2c}]}",
	"pools.discover.dns":               "{pools: [{endpoints: [http://h:1], discover: {dns: 'h:1'}}]}",
	"pools.discover.srv":               "{pools: [{endpoints: [http://h:1], discover: {srv: _a._tcp.h}}]}",
	"pools.discover.file":              "{pools: [{endpoints: [http://h:1], discover: {file: key.txt}}]}",
	"pools.discover.interval":          "{pools: [{endpoints: [http://h:1], discover: {srv: h, interval: 1m}}]}",
	"pools.discover.scheme":            "{pools: [{endpoints: [http://h:1], discover: {srv: h, scheme: https}}]}",
	"pools.discover.resolver":          "{pools: [{endpoints: [http://h:1], discover: {srv: h, resolver: '[::1]:53'}}]}",
	"pools.discover.key":               "{pools: [{endpoints: [http://h:1], discover: {srv: h, key: env:KEY}}]}",
	"pools.tls.ca":                     "{pools: [{endpoints: [{url: https://h:1, name: h:1}], tls: {ca: cert.pem}}]}",
	"pools.tls.cert":                   "{pools: [{endpoints: [{url: https://h:1, name: h:1}], tls: {cert: cert.pem, key: key.pem}}]}",
	"pools.tls.key":                    "{pools: [{endpoints: [{url: https://h:1, name: h:1}], tls: {cert: cert.pem, key: key.pem}}]}",
	"pools.tls.server_name":            "{pools: [{endpoints: [{url: https://h:1, name: h:1}], tls: {server_name: i}}]}",
	"pools.tls.insecure":               "{pools: [{endpoints: [{url: https://h:1, name: h:1}], tls: {insecure: true}}]}",
	"adapters":                         "{adapters: [b], pools: [{endpoints: [http://h:1]}]}",
}

// alsoChanged lists the keys that can't change alone, with what changes as well.
var alsoChanged = map[string][]string{
	"tls.cert":          {"tls.key"},
	"tls.key":           {"tls.cert"},
	"tls.client_ca":     {"tls.cert", "tls.key"},
	"clients.keys_file": {"clients.keys"},
	"fan_out.waiting":   {"fan_out.concurrency"}, "fan_out.max_wait": {"fan_out.concurrency"},
	"models.caps.burst": {"models.caps.rpm"}, "models.caps.weights.input": {"models.caps.tpm"},
	"models.caps.weights.cached": {"models.caps.tpm"}, "models.caps.weights.output": {"models.caps.tpm"},
	"models.pools.single_flight.max_wait":     {"models.pools.single_flight.min_tokens"},
	"models.pools.single_flight.max_siblings": {"models.pools.single_flight.min_tokens"},
	"models.pools.queue.gradient.min":         {"models.pools.queue.limit"},
	"models.pools.queue.gradient.max":         {"models.pools.queue.limit"},
	"models.pools.queue.gradient.tolerance":   {"models.pools.queue.limit"},
	"models.pools.queue.order":                {"models.pools.queue.work"},
	"models.pools.queue.length":               {"models.pools.queue.work"},
	"models.pools.queue.turn":                 {"models.pools.queue.work"},
	"models.pools.queue.max_wait_ratio":       {"models.pools.queue.work"},
	"models.pools.queue.principal":            {"models.pools.queue.work", "models.pools.queue.order"},
	"models.pools.queue.weights.input":        {"models.pools.queue.work", "models.pools.queue.order"},
	"models.pools.queue.weights.output":       {"models.pools.queue.work", "models.pools.queue.order"},
	"models.pools.queue.weights.cached":       {"models.pools.queue.work", "models.pools.queue.order"},
	"models.pools.queue.quantum":              {"models.pools.queue.work", "models.pools.queue.order"},
	"models.pools.queue.bytes":                {"models.pools.queue.work"},
	"models.pools.queue.max_wait":             {"models.pools.queue.work"},
	"models.hedge.after":                      {"models.hedge.budget"},
	"models.hedge.whole":                      {"models.hedge.budget"},
	"models.continue.bytes":                   {"models.continue.times"},
	"timeouts.header":                         {"models.timeouts.header"},
	"timeouts.first_token":                    {"models.timeouts.first_token"},
	"timeouts.progress":                       {"models.timeouts.progress"},
	"timeouts.idle":                           {"models.timeouts.idle"},
	"timeouts.total":                          {"models.timeouts.total"},
	"models.pools.tls.ca":                     {"models.pools.endpoints.url"},
	"models.pools.tls.cert":                   {"models.pools.endpoints.url", "models.pools.tls.key"},
	"models.pools.tls.key":                    {"models.pools.endpoints.url", "models.pools.tls.cert"},
	"models.pools.tls.server_name":            {"models.pools.endpoints.url"},
	"models.pools.tls.insecure":               {"models.pools.endpoints.url"},
	"models.pools.discover.interval":          {"models.pools.discover.srv"},
	"models.pools.discover.scheme":            {"models.pools.discover.srv"},
	"models.pools.discover.resolver":          {"models.pools.discover.srv"},
	"models.pools.discover.key":               {"models.pools.discover.srv"},
}

// beside is what the files of tls need that change one key alone.
var beside = map[string]string{
	"tls.cert": "key: key.pem", "tls.key": "cert: cert.pem", "tls.client_ca": "cert: cert.pem, key: key.pem",
	"fan_out.waiting": "concurrency: 1", "fan_out.max_wait": "concurrency: 1",
}

// leaves lists the values of a configuration by their keys.
func leaves(v reflect.Value, in string, out map[string]any) {
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Tag.Get("config")
		switch {
		case name == "":
		case f.Type() == reflect.TypeFor[Policy]() || f.Type() == reflect.TypeFor[Secret]() || f.Type() == reflect.TypeFor[ClientKeys]() ||
			f.Type() == reflect.TypeFor[BreakerRules]() || f.Type() == reflect.TypeFor[[]Tenant]() || f.Type() == reflect.TypeFor[[]Class]():
			out[in+name] = f.Interface()
		case f.Kind() == reflect.Struct:
			leaves(f, in+name+".", out)
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			for i := range f.Len() {
				leaves(f.Index(i), in+name+".", out)
			}
		default:
			out[in+name] = f.Interface()
		}
	}
}

// changed lists the keys whose values differ.
func changed(a, b map[string]any) []string {
	var keys []string
	for key := range a {
		if !reflect.DeepEqual(a[key], b[key]) {
			keys = append(keys, key)
		}
	}
	return keys
}

// fileWith returns a whole file in which key has another value than its default.
func fileWith(t *testing.T, key string) string {
	t.Helper()
	if modelKey, ok := strings.CutPrefix(key, "models."); ok {
		model, ok := otherModel[modelKey]
		if !ok {
			t.Errorf("no other value for %s", key)
		}
		return "models: {a: " + model + "}\n"
	}
	const models = "models: {a: {pools: [{endpoints: [http://h:1]}]}}\n"
	section, name, nested := strings.Cut(key, ".")
	switch {
	case !nested:
		return fmt.Sprintf("%s%s: %s\n", models, section, other[key])
	case beside[key] != "":
		return fmt.Sprintf("%s%s: {%s: %s, %s}\n", models, section, name, other[key], beside[key])
	}
	return fmt.Sprintf("%s%s: {%s: %s}\n", models, section, name, other[key])
}

// valuesOf returns the values of a file by their keys.
func valuesOf(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	leaves(reflect.ValueOf(parse(t, text)).Elem(), "", out)
	return out
}

func TestParse_EveryKeyHasItsEffectAndNoOther(t *testing.T) {
	values := valuesOf(t, "models: {a: {pools: [{endpoints: [http://h:1]}]}}\n")
	if len(values) != len(other)+len(otherModel) {
		t.Errorf("the file has %d keys, the tables %d", len(values), len(other)+len(otherModel))
	}
	for key := range values {
		text := fileWith(t, key)
		want := append([]string{key}, alsoChanged[key]...)
		got := changed(values, valuesOf(t, text))
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("%s\nchanges %v, want %v", text, got, want)
		}
	}
}
