package policy

import (
	"flag"
	"fmt"
	"math"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite docs/policies.md")

// TestParamsRefuse sets one parameter at a time to a value that is out of range, and
// expects an error that names the parameter, the value and what is allowed.
func TestParamsRefuse(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, test := range []struct {
		rule, param string
		bad, good   []any
	}{
		{"power-of-two", "choice_count", []any{1, 0, -2}, []any{2, 3, 1000}},
		{"weighted-least-request", "active_request_bias", []any{-0.1, nan, inf}, []any{0.0, 0.5, 1.0, 100.0}},
		{"ewma-latency", "decay", []any{time.Duration(0), -time.Second}, []any{time.Nanosecond, time.Hour}},
		{"consistent-hash", "key", []any{"", "body", "Prompt"}, []any{"prompt", "header"}},
		{"consistent-hash", "header", []any{"", "x session", "x:y", "é"}, []any{"X-Session-ID", "cookie"}},
		{"consistent-hash", "blocks", []any{0, -1}, []any{1, 500}},
		{"consistent-hash", "load_factor", []any{1.0, 0.0, -2.0, nan, inf}, []any{1.01, 2.0}},
		{"cache-aware", "cache_threshold", []any{-0.1, 1.1, nan}, []any{0.0, 1.0}},
		{"cache-aware", "balance_abs_threshold", []any{-1}, []any{0, 32}},
		{"cache-aware", "balance_rel_threshold", []any{0.9, nan, inf}, []any{1.0, 1.0001}},
		{"sticky-until-saturated", "affinity_threshold", []any{-0.1, 1.1, nan}, []any{0.0, 0.6, 1.0}},
		{"sticky-until-saturated", "max_ttft_penalty", []any{-time.Second}, []any{time.Duration(0), time.Minute}},
		{"sticky-until-saturated", "peak_prefill_throughput", []any{0.0, -1.0, nan, inf}, []any{0.5, 39065.0}},
		{"cache-aware-spill", "cache_threshold", []any{-0.1, 1.1, nan}, []any{0.0, 1.0}},
		{"cache-aware-spill", "balance_abs_threshold", []any{-1}, []any{0, 32}},
		{"cache-aware-spill", "balance_rel_threshold", []any{0.9, nan, inf}, []any{1.0, 1.0001}},
		{"cache-aware-spill", "overlap_decay", []any{-0.1, nan, inf}, []any{0.0, 2.0}},
		{"cache-aware-spill", "selection_temperature", []any{-0.1, nan, inf}, []any{0.0, 0.5}},
		{"prefix-hash", "prefix_token_count", []any{0, -1}, []any{1, 4096}},
		{"prefix-hash", "load_factor", []any{0.9, nan, inf}, []any{1.0, 2.0}},
		{"prefix-hash", "balance_abs_threshold", []any{-1}, []any{0, 10}},
		{"predicted-ttft", "work", []any{-0.1, nan, inf}, []any{0.0, 3.0}},
		{"predicted-ttft", "decode", []any{-0.1, nan, inf}, []any{0.0, 3.0}},
		{"predicted-ttft", "interference", []any{-0.1, nan, inf}, []any{0.0, 3.0}},
		{"predicted-ttft", "crowding", []any{-0.1, nan, inf}, []any{0.0, 3.0}},
		{"predicted-ttft", "window", []any{time.Duration(0), -time.Second}, []any{time.Millisecond, time.Hour}},
		{"weighted-scorers", "queue_weight", []any{-0.1, nan, inf}, []any{0.0, 2.5}},
		{"weighted-scorers", "kv_cache_utilization_weight", []any{-0.1, nan, inf}, []any{0.0, 2.5}},
		{"weighted-scorers", "prefix_cache_weight", []any{-0.1, nan, inf}, []any{0.0, 2.5}},
		{"weighted-scorers", "running_requests_weight", []any{-0.1, nan, inf}, []any{0.0, 2.5}},
		{"weighted-scorers", "active_request_weight", []any{-0.1, nan, inf}, []any{0.0, 2.5}},
		{"weighted-scorers", "token_load_weight", []any{-0.1, nan, inf}, []any{0.0, 2.5}},
		{"weighted-scorers", "no_hit_lru_weight", []any{-0.1, nan, inf}, []any{0.0, 2.5}},
		{"weighted-scorers", "lora_affinity_weight", []any{-0.1, nan, inf}, []any{0.0, 2.5}},
		{"weighted-scorers", "session_affinity_weight", []any{-0.1, nan, inf}, []any{0.0, 2.5}},
		{"weighted-scorers", "prefix_match_length_weight", []any{-0.1, 1.1, nan}, []any{0.0, 1.0}},
		{"weighted-scorers", "active_idle_threshold", []any{-1}, []any{0, 5}},
		{"weighted-scorers", "active_max_busy_score", []any{-0.1, 1.1, nan}, []any{0.0, 1.0}},
		{"weighted-scorers", "queue_threshold_tokens", []any{0, -1}, []any{1, 1 << 30}},
		{"weighted-scorers", "session_header", []any{"x session", "ü"}, []any{"", "cookie", "x-session-id"}},
		{"weighted-scorers", "session_ttl", []any{time.Duration(0), -time.Second}, []any{time.Nanosecond}},
		{"weighted-scorers", "affinity_threshold", []any{-0.1, 1.1, nan}, []any{0.0, 0.8}},
		{"weighted-scorers", "max_ttft_penalty", []any{-time.Second}, []any{time.Duration(0)}},
		{"weighted-scorers", "peak_prefill_throughput", []any{0.0, nan, inf}, []any{1.0}},
		{"weighted-scorers", "exploration_probability", []any{-0.1, 1.1, nan}, []any{0.0, 1.0}},
		{"weighted-scorers", "max_active_requests", []any{-1}, []any{0, 5}},
		{"weighted-scorers", "max_running_requests", []any{-1}, []any{0, 5}},
		{"weighted-scorers", "max_waiting_requests", []any{-1}, []any{0, 5}},
		{"weighted-scorers", "max_kv_cache_utilization", []any{-0.1, 1.1, nan}, []any{0.0, 0.8}},
		{"weighted-scorers", "picker", []any{"", "max", "Random"}, []any{"max-score", "random", "weighted-random"}},
		{"kv-cost", "overlap_score_credit", []any{-0.1, nan, inf}, []any{0.0, 1.5}},
		{"kv-cost", "overlap_score_credit_decay", []any{-0.1, nan, inf}, []any{0.0, 10.0}},
		{"kv-cost", "host_cache_hit_weight", []any{-0.1, nan, inf}, []any{0.0, 1.0}},
		{"kv-cost", "disk_cache_hit_weight", []any{-0.1, nan, inf}, []any{0.0, 1.0}},
		{"kv-cost", "prefill_load_scale", []any{-0.1, nan, inf}, []any{0.0, 2.0}},
		{"kv-cost", "decode_active_request_weight", []any{-0.1, nan, inf}, []any{0.0, 8.0}},
		{"kv-cost", "router_temperature", []any{-0.1, nan, inf}, []any{0.0, 0.5}},
		{"sticky-until-saturated", "exploration_probability", []any{-0.1, 1.1, nan}, []any{0.0, 0.01, 1.0}},
		{"lora-affinity", "then", []any{"", "lora-affinity", "fastest"}, []any{"random", "cache-aware"}},
		{"lora-affinity", "slack", []any{-1}, []any{0, 100}},
		{"lora-affinity", "slots", []any{0, -3}, []any{1, 64}},
	} {
		rule, ok := Lookup(test.rule)
		if !ok {
			t.Fatalf("no rule %s", test.rule)
		}
		for _, value := range test.good {
			if errs := set(t, rule.Params(), test.param, value).Validate(); errs != nil {
				t.Errorf("%s: %s = %v is refused: %v", test.rule, test.param, value, errs)
			}
		}
		for _, value := range test.bad {
			params := set(t, rule.Params(), test.param, value)
			before := fmt.Sprintf("%#v", params)
			errs := params.Validate()
			if len(errs) != 1 || errs[0].Param != test.param || errs[0].Allowed == "" ||
				fmt.Sprint(errs[0].Value) != fmt.Sprint(value) || !strings.Contains(errs[0].Error(), errs[0].Allowed) {
				t.Errorf("%s: %s = %v gives %v", test.rule, test.param, value, errs)
			}
			if fmt.Sprintf("%#v", params) != before {
				t.Errorf("%s: Validate changed %s", test.rule, before)
			}
		}
	}
}

// TestParamsReportEveryMistake: all that is wrong is reported at once.
func TestParamsReportEveryMistake(t *testing.T) {
	if errs := (&ConsistentHash{}).Validate(); len(errs) != 4 {
		t.Errorf("four mistakes give %v", errs)
	}
	if errs := (&CacheAware{-1, -1, -1}).Validate(); len(errs) != 3 {
		t.Errorf("three mistakes give %v", errs)
	}
	if errs := (&StickyUntilSaturated{-1, -1, -1, -1}).Validate(); len(errs) != 4 {
		t.Errorf("four mistakes give %v", errs)
	}
}

// TestParamsCanBeDecoded: fields have the types and tags that a configuration needs.
func TestParamsCanBeDecoded(t *testing.T) {
	snake := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	for _, rule := range Catalog() {
		eachField(rule.Params(), func(f reflect.StructField, v reflect.Value) {
			switch v.Interface().(type) {
			case float64, int, string, bool, time.Duration:
			default:
				t.Errorf("%s: %s has type %s", rule.Name, f.Name, f.Type)
			}
			if !snake.MatchString(f.Tag.Get("config")) || f.Tag.Get("doc") == "" || !f.IsExported() {
				t.Errorf("%s: %s has tags %q", rule.Name, f.Name, f.Tag)
			}
		})
	}
}

func eachField(p Params, do func(reflect.StructField, reflect.Value)) {
	v := reflect.ValueOf(p).Elem()
	for i := range v.NumField() {
		do(v.Type().Field(i), v.Field(i))
	}
}

func set(t *testing.T, p Params, param string, value any) Params {
	found := false
	eachField(p, func(f reflect.StructField, v reflect.Value) {
		if f.Tag.Get("config") == param {
			v.Set(reflect.ValueOf(value))
			found = true
		}
	})
	if !found {
		t.Fatalf("no parameter %s in %T", param, p)
	}
	return p
}

// TestPoliciesDocIsCurrent compares docs/policies.md with the catalogue; run it with
// -update to rewrite the file.
func TestPoliciesDocIsCurrent(t *testing.T) {
	const path = "../../docs/policies.md"
	want := policiesDoc()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the catalogue says; run: go test ./selection/policy -run PoliciesDoc -update", path)
	}
}

// policiesDoc renders the catalogue.
func policiesDoc() string {
	var b strings.Builder
	b.WriteString("# Policies\n\n" +
		"<!-- Generated from selection/policy/catalog.go: go test ./selection/policy -run PoliciesDoc -update -->\n\n" +
		"A pool's policy picks the endpoint for a call. Of equals one is drawn at random. A decision that is asked\n" +
		"for (`x-kvasir-explain: 1`) names the reason, one of those listed, and every candidate's score, the lowest\n" +
		"of which is the one chosen. How to add one: [add-a-policy.md](add-a-policy.md).\n\n" +
		"| policy | picks | source | reasons |\n|---|---|---|---|\n")
	for _, rule := range Catalog() {
		reasons := make([]string, len(rule.Reasons))
		for i, r := range rule.Reasons {
			reasons[i] = "`" + string(r) + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", rule.Name, rule.Doc, rule.Source, strings.Join(reasons, ", "))
	}
	b.WriteString("\n## Parameters\n\nA policy that isn't listed has none.\n\n" +
		"| policy | parameter | default | meaning |\n|---|---|---|---|\n")
	for _, rule := range Catalog() {
		eachField(rule.Params(), func(f reflect.StructField, v reflect.Value) {
			fmt.Fprintf(&b, "| `%s` | `%s` | `%v` | %s |\n", rule.Name, f.Tag.Get("config"), v.Interface(), f.Tag.Get("doc"))
		})
	}
	return b.String()
}
