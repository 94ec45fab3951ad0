package main

import (
	"kvasir/config"
	"kvasir/gateway/limit"
	"kvasir/gateway/proxy"
)

// tenancy says who pays for calls, and how urgent they are.
func tenancy(c *config.Config) proxy.Tenancy {
	t := proxy.Tenancy{Tenants: map[string]proxy.Tenant{}, Clients: map[string]proxy.Client{}, Classes: map[string]proxy.Class{}}
	for _, x := range c.Tenants {
		t.Tenants[x.Name] = proxy.Tenant{Class: x.Class, Share: x.Share}
		if x.Anonymous {
			t.Anonymous = x.Name
		}
	}
	for _, k := range c.Clients.Keys {
		t.Clients[k.Name] = proxy.Client{Tenant: k.Tenant, Raise: k.Raise}
	}
	for _, x := range c.AllClasses() {
		t.Classes[x.Name] = proxy.Class{Priority: x.Priority, Deadline: x.Deadline}
	}
	return t
}

// caps lists what may be used. Tenants and models are there without a bound, too: what they
// use is shown.
func caps(c *config.Config) []limit.Rule {
	var out []limit.Rule
	add := func(s limit.Scope, x config.Caps) {
		out = append(out, limit.Rule{Scope: s, Caps: limit.Caps{
			Concurrency: x.Concurrency, RPM: x.RPM, TPM: x.TPM, Burst: x.Burst, Weights: limit.Weights(x.Weights),
		}})
	}
	for _, t := range c.Tenants {
		add(limit.Scope{Kind: limit.Tenant, Name: t.Name}, t.Caps)
		for _, m := range t.Models {
			add(limit.Scope{Kind: limit.TenantModel, Name: t.Name, Model: m.Model}, m.Caps)
		}
	}
	for _, k := range c.Clients.Keys {
		if k.Caps != config.DefaultCaps() {
			add(limit.Scope{Kind: limit.Key, Name: k.Name}, k.Caps)
		}
	}
	for _, m := range c.Models {
		add(limit.Scope{Kind: limit.Model, Name: m.Name}, m.Caps)
	}
	return out
}
