// Package config is the one file that describes a router: plain structs, their
// defaults, a strict reader that reports every mistake with its position, and a
// check that changes nothing. It has no layer: the program reads the file and hands
// each package its part.
//
// The reader takes YAML's plain core only. Anchors, aliases, merge keys, tags and
// further documents are refused, so a file says what it seems to say and can't grow
// while it is read.
package config

import (
	"time"

	"kvasir/selection/policy"
)

// The tags of the fields are the single source of the file's format: `config` is the
// key, `allowed` the range or the words that are accepted. The reader, Validate and
// docs/configuration.md follow them; the comments are the text of that document.

// Config is one whole file.
type Config struct {
	// Address on which clients call.
	Listen string `config:"listen" allowed:"host:port"`
	// Address of metrics, health and the pools' state, apart from the clients' one.
	Admin string `config:"admin" allowed:"host:port"`
	// Identity of this router among several; it staggers their scrapes. Empty: the host's name and the listen address.
	Router string `config:"router"`
	// Root of the randomness of ties and jitter. 0: taken from the clock at the start.
	Seed uint64 `config:"seed"`
	// Bounds on what is held in memory.
	Limits Limits `config:"limits"`
	// Further attempts for a call whose first content has not been sent.
	Retry Retry `config:"retry"`
	// When an endpoint leaves the rotation.
	Health Health `config:"health"`
	// The index of who holds which prefix.
	Prefix Prefix `config:"prefix"`
	// Connections to endpoints.
	Upstream Upstream `config:"upstream"`
	// Connections of clients.
	Client Client `config:"client"`
	// After SIGTERM: how long /readyz says 503 while calls are still taken, so that whoever balances over gateways notices before the listener closes.
	DrainDelay time.Duration `config:"drain_delay" allowed:"0s..10m"`
	// Then: time that calls in flight get to end.
	Drain time.Duration `config:"drain" allowed:"0s..1h"`
	// The program's own log.
	Log Log `config:"log"`
	// The models that clients may ask for, by name. At least one.
	Models Models `config:"models"`
}

// Limits bounds what is held in memory.
type Limits struct {
	// One request body.
	Body Size `config:"body" allowed:"1KiB..1GiB"`
	// Bodies and held preambles of all calls in flight. At least body and preamble together.
	Buffered Size `config:"buffered" allowed:"1MiB..1TiB"`
	// Calls in flight over all models.
	Calls int `config:"calls" allowed:"1..1000000"`
	// The largest stream event that is still inspected; a larger one passes through unread.
	Event Size `config:"event" allowed:"1KiB..64MiB"`
	// What is held back of one stream before its first content.
	Preamble Size `config:"preamble" allowed:"1KiB..64MiB"`
}

// Retry bounds further attempts. After the first content there are none.
type Retry struct {
	// Further attempts of one call.
	Attempts int `config:"attempts" allowed:"0..5"`
	// Further attempts as a share of all calls.
	Ratio float64 `config:"ratio" allowed:"0..1"`
	// Further attempts a second that are granted whatever the ratio says.
	Floor float64 `config:"floor" allowed:"0..100000"`
	// Wait before the first further attempt; it doubles, with jitter.
	Backoff time.Duration `config:"backoff" allowed:"0s..10s"`
	// Bound of that wait. At least backoff.
	MaxBackoff time.Duration `config:"max_backoff" allowed:"0s..1m"`
}

// Health says when an endpoint leaves the rotation.
type Health struct {
	// Consecutive failures before the first content that take an endpoint out.
	Failures int `config:"failures" allowed:"1..1000"`
	// How long it stays out before one call probes it.
	Ejection time.Duration `config:"ejection" allowed:"100ms..1h"`
}

// Prefix sizes the index of who holds which prefix.
type Prefix struct {
	// Bytes a block of text. A multiple of 4, so that token ids never straddle two blocks.
	Block int `config:"block" allowed:"64..4096"`
	// Memory of the index of one model.
	Index Size `config:"index" allowed:"1MiB..64GiB"`
	// How long a prefix is believed to be where its call was sent, unless the answer confirms it.
	Speculative time.Duration `config:"speculative" allowed:"100ms..1h"`
}

// Upstream is about connections to endpoints.
type Upstream struct {
	// Time to establish a connection.
	ConnectTimeout time.Duration `config:"connect_timeout" allowed:"10ms..1m"`
	// An idle connection is closed after this; keep it below the engine's own (uvicorn: 5s).
	IdleTimeout time.Duration `config:"idle_timeout" allowed:"100ms..1h"`
	// Idle connections kept per endpoint.
	Connections int `config:"connections" allowed:"1..100000"`
}

// Client is about connections of clients.
type Client struct {
	// Time to send a request's headers.
	HeaderTimeout time.Duration `config:"header_timeout" allowed:"100ms..5m"`
	// Time to send a request's body.
	BodyTimeout time.Duration `config:"body_timeout" allowed:"100ms..1h"`
	// An idle connection is closed after this.
	IdleTimeout time.Duration `config:"idle_timeout" allowed:"1s..1h"`
	// One write to a client that does not read may take this long.
	WriteTimeout time.Duration `config:"write_timeout" allowed:"100ms..1h"`
}

// Log is about the program's own log.
type Log struct {
	// The least severe level that is written.
	Level string `config:"level" allowed:"debug, info, warn, error"`
	// Write one line a call, without any text of prompt or answer.
	Calls bool `config:"calls"`
}

// Models are a file's models in its order.
type Models []Model

// Model is a name that clients ask for, and who answers.
type Model struct {
	// The key in models: the name that clients ask for.
	Name string
	// Further names for the model. Unique over all models.
	Aliases []string `config:"aliases"`
	// Calls in flight for this model. 0: no bound of its own.
	Calls int `config:"calls" allowed:"0..1000000"`
	// Who answers, in order of preference; a later pool is used when the earlier has no endpoint in rotation.
	Pools []Pool `config:"pools"`
}

// Pool is a set of endpoints that serve the same model and are interchangeable.
type Pool struct {
	// Unique within the model. A single pool is named default, several need a name each.
	Name string `config:"name"`
	// The name by which the endpoints know the model. Empty: the model's own name.
	ServedAs string `config:"served_as"`
	// What the endpoints are.
	Engine string `config:"engine" allowed:"vllm"`
	// The pool's endpoints: each a URL, or a mapping. At least one.
	Endpoints []Endpoint `config:"endpoints"`
	// How an endpoint is picked: a policy's name, or a mapping of its name and parameters.
	Policy Policy `config:"policy"`
	// What is read from the endpoints' metrics.
	Signals Signals `config:"signals"`
}

// Endpoint is one address that can answer.
type Endpoint struct {
	// http or https, a host (IPv6 in brackets), a base path where there is one. A final /v1 and slashes are cut off.
	URL string `config:"url" allowed:"URL"`
	// Unique within the model; shown in metrics and answers. Empty: host:port and the base path.
	Name string `config:"name"`
	// Capacity relative to the pool's other endpoints.
	Weight float64 `config:"weight" allowed:">0..1000"`
	// Sent as bearer token: env:NAME or file:PATH, relative to the configuration file.
	Key Secret `config:"key"`
}

// Policy is a selection rule with its parameters. Params is never nil in a Config
// that Validate accepts.
type Policy struct {
	Name   string
	Params policy.Params
}

// Signals says what is read from the endpoints' metrics.
type Signals struct {
	// Interval at which an endpoint's /metrics is read. 0: never.
	Scrape time.Duration `config:"scrape" allowed:"0s or 100ms..5m"`
	// An older value counts as unknown. 0: any age counts. At least scrape.
	MaxAge time.Duration `config:"max_age" allowed:"0s or 100ms..1h"`
}
