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
	"slices"
	"time"
)

// The tags of the fields are the single source of the file's format: `config` is the
// key, `allowed` the range, the words or the form that is accepted. The reader, Validate,
// docs/configuration.md and schema.json follow them; the comments are the text of those
// two.

// Config is one whole file.
type Config struct {
	// Address on which clients call.
	Listen string `config:"listen" allowed:"host:port"`
	// HTTPS on listen, where cert and key are set.
	TLS TLS `config:"tls"`
	// Who may call.
	Clients Clients `config:"clients"`
	// Address of metrics, health, the pools' state and what changes it, apart from the clients' one.
	Admin string `config:"admin" allowed:"host:port"`
	// Bearer token of admin: env:NAME or file:PATH, relative to the configuration file. Needed where admin is not on loopback. /metrics, /healthz and /readyz stay open: monitoring and orchestrators rarely send tokens, and these show no text and change nothing.
	AdminToken Secret `config:"admin_token"`
	// Serve admin off loopback without a token, to whoever reaches it.
	AdminOpen bool `config:"admin_open"`
	// The page on admin: a map, labs and the live system.
	Page Page `config:"page"`
	// Reload when this file, or one that it names, changes. SIGHUP reloads in any case.
	WatchFile bool `config:"watch_file"`
	// Identity of this router among several; it staggers their scrapes. Empty: the host's name and the listen address.
	Router string `config:"router"`
	// Root of the randomness of ties and jitter. 0: taken from the clock at the start.
	Seed uint64 `config:"seed"`
	// Who pays for calls, and what they may use. A key that names none is a tenant of its own by its name, as a certificate is; so it has the share 1, the class interactive and no caps.
	Tenants []Tenant `config:"tenants"`
	// What calls may be like, beside interactive and background.
	Classes []Class `config:"classes"`
	// Bounds on the calls of one conversation. Off where concurrency is 0.
	FanOut FanOut `config:"fan_out"`
	// Bounds on what is held at once.
	Limits Limits `config:"limits"`
	// How long the parts of a call may take.
	Timeouts Timeouts `config:"timeouts"`
	// Further attempts for a call whose first content has not been sent; each pool has a budget of its own, and all models one together.
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

	files []string // that a file's reader met, sorted
}

// Files returns the files that the configuration's own file names: secrets,
// certificates, keys. A reload that waits for changes watches them beside that file.
// Lists of endpoints are not among them: discovery watches those. They are sorted, and
// paths as a program in the same folder opens them. A configuration that was not read from
// a file has none.
func (c *Config) Files() []string {
	return slices.DeleteFunc(slices.Clone(c.files), func(name string) bool {
		for _, m := range c.Models {
			for _, p := range m.Pools {
				if p.Discover.File == name {
					return true
				}
			}
		}
		return false
	})
}

// Page is what the page on admin may do.
type Page struct {
	// Run labs for it, one at a time; each takes a core for some seconds beside the calls.
	Labs bool `config:"labs"`
}

// Limits bounds what is held at once.
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
	// The headers of one request.
	Headers Size `config:"headers" allowed:"4KiB..1MiB"`
	// Open connections of clients; a further one waits to be accepted.
	Connections int `config:"connections" allowed:"1..1000000"`
}

// Timeouts bounds the parts of a call, each by itself. 0 is no bound.
type Timeouts struct {
	// From sending a streamed call to its response header.
	Header time.Duration `config:"header" allowed:"0s or 10ms..24h"`
	// From sending a streamed call to its first content.
	FirstToken time.Duration `config:"first_token" allowed:"0s or 10ms..24h"`
	// Between two contents of a stream; pings and comments don't count.
	Progress time.Duration `config:"progress" allowed:"0s or 10ms..24h"`
	// Without any byte of a stream after its first content, or of an answer that has begun and is not streamed.
	Idle time.Duration `config:"idle" allowed:"0s or 10ms..24h"`
	// The whole call, waits and further attempts included.
	Total time.Duration `config:"total" allowed:"0s or 10ms..24h"`
}

// Retry bounds further attempts. After the first content there are none.
type Retry struct {
	// Further attempts of one call.
	Attempts int `config:"attempts" allowed:"0..5"`
	// Further attempts as a share of the calls that are answered: of each pool's, at that pool, and of all models' together.
	Ratio float64 `config:"ratio" allowed:"0..1"`
	// Further attempts a second, at each pool, that are granted whatever the ratio says.
	Floor float64 `config:"floor" allowed:"0..100000"`
	// Likewise of all models together.
	TotalFloor float64 `config:"total_floor" allowed:"0..100000"`
	// The longest wait before the first further attempt, of which any part is as likely (full jitter); it doubles with each.
	Backoff time.Duration `config:"backoff" allowed:"0s..10s"`
	// Bound of that wait. At least backoff.
	MaxBackoff time.Duration `config:"max_backoff" allowed:"0s..1m"`
	// The longest Retry-After of an endpoint that is waited for where nobody else can answer.
	MaxWait time.Duration `config:"max_wait" allowed:"0s..10m"`
}

// Health says when an endpoint leaves the rotation, for how long, and how it comes back.
type Health struct {
	// Consecutive failures before the first content that take an endpoint out.
	Failures int `config:"failures" allowed:"1..1000"`
	// Share of failed calls within window that takes it out too. 0: never.
	Ratio float64 `config:"ratio" allowed:"0..1"`
	// What ratio looks back on.
	Window time.Duration `config:"window" allowed:"1s..10m"`
	// Fewest calls within window for ratio to count.
	Volume int `config:"volume" allowed:"1..1000000"`
	// How long it stays out before one call probes it; doubles with each probe that fails.
	Ejection time.Duration `config:"ejection" allowed:"100ms..1h"`
	// Bound of that. At least ejection.
	MaxEjection time.Duration `config:"max_ejection" allowed:"100ms..24h"`
	// Panic threshold: the share of a model's last pool that doubtful evidence may take out: a ratio, statuses of a breaker's rule, a stall. Refused connections have no such bound, but one endpoint always stays. An earlier pool may empty; then the next one serves.
	MaxEjected float64 `config:"max_ejected" allowed:"0..1"`
	// Calls that may probe an endpoint at once when its time is over (half open).
	Probes int `config:"probes" allowed:"1..100"`
	// Without a sign of life for so long, while stall_calls wait for their first content, an endpoint is out. 0: never.
	Stall time.Duration `config:"stall" allowed:"0s or 100ms..1h"`
	// Calls that must wait for that.
	StallCalls int `config:"stall_calls" allowed:"1..1000"`
	// How long an endpoint that has no room, and names no time, is left alone.
	Busy time.Duration `config:"busy" allowed:"0s..1m"`
	// Bound of the time that it names with Retry-After.
	MaxBusy time.Duration `config:"max_busy" allowed:"0s..1h"`
	// How long a new or restarted endpoint takes to its full share. 0: it has it at once.
	SlowStart time.Duration `config:"slow_start" allowed:"0s or 1s..1h"`
	// Its share at the start.
	SlowStartFloor float64 `config:"slow_start_floor" allowed:">0..1"`
	// For how long the load counts as unknown that a new or restarted endpoint reports of itself: it is idle and cold. 0: it counts at once.
	Blackout time.Duration `config:"blackout" allowed:"0s or 1s..1h"`
}

// Prefix sizes the index of who holds which prefix.
type Prefix struct {
	// Bytes a block of text, for the first 64 blocks of a prompt; eight times that behind them. A multiple of 4, so that token ids never straddle two blocks.
	Block int `config:"block" allowed:"64..4096"`
	// Memory of the index of one model.
	Index Size `config:"index" allowed:"1MiB..64GiB"`
	// How long a prefix is believed to be where its call was sent, unless the answer confirms it.
	Speculative time.Duration `config:"speculative" allowed:"100ms..1h"`
	// Whose calls are taken to share prefixes. client: those of one client, by its key's name or its certificate; a shorter wait tells others nothing of its prompts then, as far as routing goes. all: those of all clients.
	Share string `config:"share" allowed:"client, all"`
	// Secret from which a cache_salt is made for each client, so that engines share prefixes among the calls of one client only. It is set in calls to vllm and sglang, which take one, together with a salt that the call brings. At least 16 characters, the same for all gateways. Absent: calls go as they are.
	Salt Secret `config:"salt"`
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
	// Silence after which a streaming client that waits is sent a comment, so that nothing between takes the connection for dead. 0: never.
	Heartbeat time.Duration `config:"heartbeat" allowed:"0s or 100ms..10m"`
	// Speak HTTP/2 with clients that ask for it: with TLS by ALPN, without by prior knowledge.
	HTTP2 bool `config:"http2"`
}

// Log is about the program's own log.
type Log struct {
	// The least severe level that is written.
	Level string `config:"level" allowed:"debug, info, warn, error"`
	// Write one line a call, without any text of prompt or answer.
	Calls bool `config:"calls"`
}
