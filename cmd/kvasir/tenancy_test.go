package main

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"kvasir/config"
	"kvasir/gateway/limit"
	"kvasir/gateway/proxy"
)

// TestTenancy_IsWhatTheDocumentsExampleSays: the file in docs/tenants.md is accepted, and
// every part of it reaches the package that it is for.
func TestTenancy_IsWhatTheDocumentsExampleSays(t *testing.T) {
	page, err := os.ReadFile("../../docs/tenants.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	file, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("the page has no example")
	}
	c, err := config.Parse("tenants.yaml", []byte(file), config.Env{SkipSecrets: true})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tenancy(c), (proxy.Tenancy{
		Tenants: map[string]proxy.Tenant{"acme": {Class: "interactive", Share: 3}, "research": {Class: "batch", Share: 1}},
		Clients: map[string]proxy.Client{"acme-chat": {Tenant: "acme"}, "acme-nightly": {Tenant: "acme"}},
		Classes: map[string]proxy.Class{"interactive": {}, "background": {Priority: -1}, "batch": {Priority: -2, Deadline: 10 * time.Minute}},
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	usual := func(c limit.Caps) limit.Caps {
		if c.Burst = time.Minute; c.Weights == (limit.Weights{}) {
			c.Weights = limit.DefaultWeights()
		}
		return c
	}
	if got, want := caps(c), []limit.Rule{
		{Scope: limit.Scope{Kind: limit.Tenant, Name: "acme"}, Caps: usual(limit.Caps{Concurrency: 64, RPM: 1200, TPM: 2_000_000, Weights: limit.Weights{Input: 1, Cached: 0.1, Output: 1}})},
		{Scope: limit.Scope{Kind: limit.TenantModel, Name: "acme", Model: "llama-3.1-70b"}, Caps: usual(limit.Caps{TPM: 300_000})},
		{Scope: limit.Scope{Kind: limit.Tenant, Name: "research"}, Caps: usual(limit.Caps{})},
		{Scope: limit.Scope{Kind: limit.Key, Name: "acme-nightly"}, Caps: usual(limit.Caps{Concurrency: 16})},
		{Scope: limit.Scope{Kind: limit.Model, Name: "llama-3.1-8b"}, Caps: usual(limit.Caps{})},
		{Scope: limit.Scope{Kind: limit.Model, Name: "llama-3.1-70b"}, Caps: usual(limit.Caps{Concurrency: 256})},
	}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	n := &node{}
	defer n.transports.close()
	g, err := n.gatewayConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	if g.FanOut != (proxy.FanOut{Concurrency: 8, Waiting: 256, MaxWait: time.Minute}) || !reflect.DeepEqual(g.Caps, caps(c)) || !reflect.DeepEqual(g.Tenancy, tenancy(c)) {
		t.Errorf("%+v %+v %+v", g.FanOut, g.Caps, g.Tenancy)
	}
	if g.Models[0].Deadline != 20*time.Second || g.Models[0].Pools[0].PassPriority || !g.Models[1].Pools[0].PassPriority {
		t.Errorf("%+v", g.Models)
	}
}

// TestTenancy_AnonymousCallsHaveTheTenantThatSaysSo.
func TestTenancy_AnonymousCallsHaveTheTenantThatSaysSo(t *testing.T) {
	c := config.Default()
	c.Tenants = []config.Tenant{{Name: "a"}, {Name: "guests", Anonymous: true}}
	c.Clients.Keys = config.ClientKeys{{Name: "k", Raise: true}}
	if got := tenancy(&c); got.Anonymous != "guests" || !got.Clients["k"].Raise {
		t.Errorf("%+v", got)
	}
}
