package config

import (
	"time"

	"go.yaml.in/yaml/v3"

	"kvasir/gateway/limit"
)

// Tenant is who pays for calls.
type Tenant struct {
	// Unique. Keys point to it; a certificate's client belongs to the tenant of its own name, with cert: before it.
	Name string `config:"name"`
	// Its calls are also those that come without a key. Of one tenant at most.
	Anonymous bool `config:"anonymous"`
	// What its calls are like: interactive, background, or one of classes.
	Class string `config:"class"`
	// Its part of the service where calls wait, relative to other tenants.
	Share float64 `config:"share" allowed:">0..1000"`
	// What all its calls together may use.
	Caps Caps `config:"caps"`
	// What they may use of one model, beside that.
	Models []TenantModel `config:"models"`
}

// TenantModel bounds a tenant's use of a model.
type TenantModel struct {
	// The model's name, no alias.
	Model string `config:"model"`
	// What the tenant's calls of it may use.
	Caps Caps `config:"caps"`
}

// Class is what calls are like: how urgent, and until when they are worth anything.
type Class struct {
	// Unique. interactive (priority 0) and background (priority -1) are there without being listed; one that is listed replaces them.
	Name string `config:"name"`
	// Higher goes first. Below 0: the first to be refused when there is too much to do.
	Priority int `config:"priority" allowed:"-8..8"`
	// The first token is due within that; who can't have it by then is refused. 0: the model's deadline.
	Deadline time.Duration `config:"deadline" allowed:"0s or 1ms..24h"`
}

// Caps bounds what a tenant, a key or a model may use. A call over one of them gets 429.
type Caps struct {
	// Calls at a time. 0: no bound.
	Concurrency int `config:"concurrency" allowed:"0..1000000"`
	// Calls a minute. 0: no bound.
	RPM int `config:"rpm" allowed:"0..10000000"`
	// Tokens a minute, each counted by its weight. What a call will use is estimated and reserved when it comes, and corrected when it ends. 0: no bound.
	TPM int `config:"tpm" allowed:"0..1000000000"`
	// How much of rpm and tpm can be saved up, as what so much time brings.
	Burst time.Duration `config:"burst" allowed:"1s..10m"`
	// What a token counts in tpm.
	Weights Weights `config:"weights"`
}

// Weights says what a token counts: in a tenant's caps, to a thousandth, and in a fair queue.
type Weights struct {
	// One of the prompt that is computed.
	Input float64 `config:"input" allowed:"0..100"`
	// One of the prompt that was found in a prefix cache. Before the answer says so each counts as input.
	Cached float64 `config:"cached" allowed:"0..100"`
	// One of the answer.
	Output float64 `config:"output" allowed:"0..100"`
}

// FanOut bounds the calls of one conversation, such as an agent's children. A call beyond
// the bound is not refused; it waits until a sibling has ended.
type FanOut struct {
	// Calls of one conversation at a time. 0: no bound.
	Concurrency int `config:"concurrency" allowed:"0..100000"`
	// Most of its calls that wait. A further one gets 429.
	Waiting int `config:"waiting" allowed:"0..10000"`
	// Longest wait. Who has waited so long gets 503.
	MaxWait time.Duration `config:"max_wait" allowed:"10ms..1h"`
}

// DefaultTenant returns a tenant without a name, as a file's starts.
func DefaultTenant() Tenant { return Tenant{Class: "interactive", Share: 1, Caps: DefaultCaps()} }

// DefaultTenantModel returns the bounds of no model, as a file's start.
func DefaultTenantModel() TenantModel { return TenantModel{Caps: DefaultCaps()} }

// DefaultCaps returns the caps that bound nothing, as a file's start.
func DefaultCaps() Caps {
	return Caps{Burst: time.Minute, Weights: Weights(limit.DefaultWeights())}
}

// DefaultFanOut returns the bounds of conversations, which are off, as a file's start.
func DefaultFanOut() FanOut { return FanOut{Waiting: 256, MaxWait: time.Minute} }

// BuiltInClasses returns the classes that are there without being listed.
func BuiltInClasses() []Class {
	return []Class{{Name: "interactive"}, {Name: "background", Priority: -1}}
}

// AllClasses returns the classes of the configuration: the built-in ones, as far as the
// file does not replace them, and then its own.
func (c *Config) AllClasses() []Class {
	var out []Class
	listed := map[string]bool{}
	for _, x := range c.Classes {
		listed[x.Name] = true
	}
	for _, x := range BuiltInClasses() {
		if !listed[x.Name] {
			out = append(out, x)
		}
	}
	return append(out, c.Classes...)
}

func (t *Tenant) decode(d *decoder, n *yaml.Node, at where) {
	*t = DefaultTenant()
	d.fields(n, at, fieldsOf(t, at.canon))
}

func (t *TenantModel) decode(d *decoder, n *yaml.Node, at where) {
	*t = DefaultTenantModel()
	d.fields(n, at, fieldsOf(t, at.canon))
}
