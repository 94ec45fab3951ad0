package config

import (
	"time"

	"kvasir/selection/policy"
)

// Models are a file's models in its order.
type Models []Model

// Model is a name that clients ask for, and who answers.
type Model struct {
	// The key in models: the name that clients ask for.
	Name string
	// Further names for the model. Unique over all models.
	Aliases []string `config:"aliases"`
	// LoRA adapters of the model, by the names under which the endpoints serve them. Unique over all models.
	Adapters []string `config:"adapters"`
	// Calls in flight for this model. 0: no bound of its own.
	Calls int `config:"calls" allowed:"0..1000000"`
	// The first token is due within that, of calls that name no deadline and whose class has none. Who can't have it by then is refused; what is merely wanted is an slo. 0: none.
	Deadline time.Duration `config:"deadline" allowed:"0s or 1ms..24h"`
	// What all calls of the model may use.
	Caps Caps `config:"caps"`
	// What callers want: what policies weigh, and from which calls that wait are ordered. Nothing is refused or ended for it.
	SLO SLO `config:"slo"`
	// When a streamed answer begins to pass to the client, so that no other attempt may follow or run beside it: with its first content, reasoning included, or with the first that is no reasoning. The latter is for routes whose users are not shown reasoning: it is held back until then, as far as limits.preamble goes, and comes at once.
	Commit string `config:"commit" allowed:"first-content, first-visible"`
	// A second attempt beside one whose first token is late; the first to answer goes on, the other is aborted. Off where budget is 0.
	Hedge Hedge `config:"hedge"`
	// A stream that breaks off goes on at another endpoint, which is prompted with what was said. Off where times is 0.
	Continue Continue `config:"continue"`
	// Bounds that differ from the router's timeouts; those that are not given are as there.
	Timeouts Timeouts `config:"timeouts"`
	// Who answers, in order of preference; a later pool is used when the earlier has no endpoint in rotation.
	Pools []Pool `config:"pools"`
}

// SLO is what callers want of a model.
type SLO struct {
	// Time to first token. 0: nothing is said; policies go by what calls usually get.
	TTFT time.Duration `config:"ttft" allowed:"0s or 1ms..1h"`
	// Mean time between the tokens that follow. 0: likewise.
	TPOT time.Duration `config:"tpot" allowed:"0s or 100us..1m"`
}

// Hedge says which calls get a second attempt while the first one runs.
type Hedge struct {
	// Hedges as a share of the model's calls, over 10 seconds. 0: none. 0.05 is what hedging at p95 needs.
	Budget float64 `config:"budget" allowed:"0..1"`
	// How long a streamed call may be without content until it is hedged: a time, or a percentile of the pool's own times to first token, over the newest 512 and once there are 100.
	After string `config:"after" allowed:"p50..p99.9 or 1ms..10m"`
	// The same for answers that are not streamed; they come when they are whole, so only a long time says that one is late. 0: those are not hedged.
	Whole time.Duration `config:"whole" allowed:"0s or 1ms..10m"`
}

// Continue says which streams go on elsewhere where they break off after their first content.
type Continue struct {
	// How often one answer is continued, within its further attempts. 0: never, it ends with an error.
	Times int `config:"times" allowed:"0..5"`
	// The longest answer that is continued: what was said is kept until it ends.
	Bytes Size `config:"bytes" allowed:"1KiB..1GiB"`
}

// Pool is a set of endpoints that serve the same model and are interchangeable.
type Pool struct {
	// Unique within the model. A single pool is named default, several need a name each.
	Name string `config:"name"`
	// The name by which the endpoints know the model. Empty: the model's own name.
	ServedAs string `config:"served_as"`
	// What the endpoints are.
	Engine string `config:"engine" allowed:"vllm, sglang, llamacpp"`
	// The pool's endpoints: each a URL, or a mapping. At least one, unless discover finds them.
	Endpoints []Endpoint `config:"endpoints"`
	// Where further endpoints are found, again and again.
	Discover Discover `config:"discover"`
	// Calls that wait at the router until an endpoint has room. Off where neither work nor tokens is set.
	Queue Queue `config:"queue"`
	// When the pool is saturated, and calls are refused that would come too late.
	Overload Overload `config:"overload"`
	// Calls that wait for another one which computes a prefix that they share. Off where min_tokens is 0.
	SingleFlight SingleFlight `config:"single_flight"`
	// Tell the endpoints each call's priority in the body's field priority, where lower goes first. vllm takes it with --scheduling-policy priority, and refuses it without.
	PassPriority bool `config:"pass_priority"`
	// How an endpoint is picked: a policy's name, or a mapping of its name and parameters.
	Policy Policy `config:"policy"`
	// What is read from the endpoints' metrics.
	Signals Signals `config:"signals"`
	// How an endpoint is asked for its health beside calls.
	Probe Probe `config:"probe"`
	// What takes an endpoint out of rotation beside what health says: a rule, or a list of rules.
	Breaker BreakerRules `config:"breaker"`
	// What is spoken with the endpoints: http1, h2 (https endpoints) or h2c (http endpoints).
	Protocol string `config:"protocol" allowed:"http1, h2, h2c"`
	// How https endpoints are trusted.
	TLS PoolTLS `config:"tls"`
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
	Scrape time.Duration `config:"scrape" allowed:"0s or 50ms..5m"`
	// An older value counts as unknown. 0: any age counts. At least scrape.
	MaxAge time.Duration `config:"max_age" allowed:"0s or 100ms..1h"`
}

// Probe asks an endpoint for its health beside the calls.
type Probe struct {
	// Path of the request. Empty: the engine's own.
	Path string `config:"path" allowed:"/path"`
	// Time between two requests to one endpoint. 0: none are sent.
	Interval time.Duration `config:"interval" allowed:"0s or 100ms..10m"`
	// Time to answer; a later answer is a failure.
	Timeout time.Duration `config:"timeout" allowed:"10ms..1m"`
	// Consecutive failures that take an endpoint out of rotation.
	Failures int `config:"failures" allowed:"1..1000"`
}

// Queue says how little an endpoint is given at a time, and how much may wait meanwhile.
type Queue struct {
	// An endpoint is given another call while less prefill than this is unstarted there: sent, and without a first token. In time, as predicted. 0: no such bound.
	Work time.Duration `config:"work" allowed:"0s or 1ms..10m"`
	// Likewise, in prompt tokens that are not in its prefix cache, as far as is known. 0: no such bound.
	Tokens int `config:"tokens" allowed:"0..1000000000"`
	// An endpoint is given another call while it has fewer in flight than a limit that is found from how late its first tokens are: more while they are in time, fewer while they are not. none: no such bound.
	Limit string `config:"limit" allowed:"none, gradient"`
	// How that limit is found.
	Gradient Gradient `config:"gradient"`
	// Who goes first of equal priority: who came first; who has the least time left until its first token is due; whose is due first; whose principal has had the least service; likewise, but as far as quantum allows whose prefix an endpoint with room holds.
	Order string `config:"order" allowed:"fifo, least-slack, deadline, fair, fair-local"`
	// Of so many calls that go, one is of a lower priority where some wait. 0: none is before those of higher priority have gone.
	Turn int `config:"turn" allowed:"0..1000"`
	// Between whom service is shared, in a fair order.
	Principal string `config:"principal" allowed:"tenant, conversation"`
	// What tokens weigh in service, in a fair order.
	Weights Weights `config:"weights"`
	// How far a principal may be ahead and still go first, in weighted tokens. Of the order fair-local.
	Quantum float64 `config:"quantum" allowed:"1..1000000000"`
	// Most calls that wait. A further one gets 429 at once, as past the next two bounds.
	Length int `config:"length" allowed:"1..1000000"`
	// Most bytes of their bodies.
	Bytes Size `config:"bytes" allowed:"1KiB..1TiB"`
	// Longest predicted wait of a call that comes. Who has waited so long gets 503.
	MaxWait time.Duration `config:"max_wait" allowed:"10ms..10m"`
	// Likewise, as a multiple of the mean time from a call's dispatch to its end. 0: no such bound.
	MaxWaitRatio float64 `config:"max_wait_ratio" allowed:"0..1000"`
}

// Gradient says how an endpoint's limit on calls in flight is found.
type Gradient struct {
	// Least limit.
	Min int `config:"min" allowed:"1..100000"`
	// Greatest limit. At least min.
	Max int `config:"max" allowed:"1..100000"`
	// How many times as late as at half of the limit first tokens may be, each in multiples of its call's own prefill.
	Tolerance float64 `config:"tolerance" allowed:"1..100"`
}

// Overload says when a pool is saturated, so that calls below priority 0 stay out, and when
// calls are refused because they would come too late.
type Overload struct {
	// Calls waiting in an endpoint's engine at which it is saturated; its unstarted prefill counts likewise at the model's slo.ttft. 0: neither says anything.
	Waiting float64 `config:"waiting" allowed:"0..1000000"`
	// Share of its KV blocks in use, likewise. 0: it says nothing.
	KVUsage float64 `config:"kv_usage" allowed:"0..1"`
	// Preemptions a second, likewise; in a pool with a queue the endpoint gets no further call then. 0: they say nothing.
	Preemptions float64 `config:"preemptions" allowed:"0..1000000"`
	// Part of the time that a call's own deadline leaves beside its own prefill: where the wait before that is predicted to be longer, the call is refused now and then, more often the longer it is.
	RefuseFrom float64 `config:"refuse_from" allowed:"0..100"`
	// Part from which on every such call is refused. 0: none is.
	RefuseTo float64 `config:"refuse_to" allowed:"0..100"`
}

// SingleFlight says when a call waits until a sibling has computed their common prefix, which
// no endpoint holds: when agents fan out.
type SingleFlight struct {
	// Prompt tokens that a call must save by waiting. 0: none waits.
	MinTokens int `config:"min_tokens" allowed:"0..10000000"`
	// Longest wait; nobody waits longer than twice the time of the prefill that it saves.
	MaxWait time.Duration `config:"max_wait" allowed:"1ms..10m"`
	// Most calls that wait for one prefix.
	MaxSiblings int `config:"max_siblings" allowed:"1..100000"`
}

// Discover finds a pool's endpoints at run time: exactly one of DNS, SRV and File is set.
// The zero Discover finds none.
type Discover struct {
	// Host and port: every address of the host is an endpoint, such as those of a headless service.
	DNS string `config:"dns" allowed:"name:port"`
	// Name of SRV records; each target with its port is an endpoint.
	SRV string `config:"srv" allowed:"NAME"`
	// A file that lists endpoints, relative to the configuration file.
	File string `config:"file" allowed:"PATH"`
	// Time between two looks.
	Interval time.Duration `config:"interval" allowed:"100ms..1h"`
	// How endpoints that are found as an address are called.
	Scheme string `config:"scheme" allowed:"http, https"`
	// Name server to ask with dns and srv. Empty: the machine's.
	Resolver string `config:"resolver" allowed:"name:port"`
	// Sent as bearer token to what is found: env:NAME or file:PATH, relative to the configuration file.
	Key Secret `config:"key"`
}

// IsSet tells whether endpoints are to be found.
func (s Discover) IsSet() bool { return s.sources() > 0 }

func (s Discover) sources() int {
	n := 0
	for _, source := range []string{s.DNS, s.SRV, s.File} {
		if source != "" {
			n++
		}
	}
	return n
}

// PoolTLS says how a pool's https endpoints are trusted.
type PoolTLS struct {
	// CAs in PEM that signed the endpoints' certificates. Empty: the machine's.
	CA string `config:"ca" allowed:"PATH"`
	// Certificate in PEM that the router shows to endpoints. Set together with key.
	Cert string `config:"cert" allowed:"PATH"`
	// Its private key in PEM.
	Key string `config:"key" allowed:"PATH"`
	// The name in the endpoints' certificates, where it isn't the URL's host.
	ServerName string `config:"server_name" allowed:"NAME"`
	// Don't check the endpoints' certificates: whoever is on the way can read and change everything.
	Insecure bool `config:"insecure"`
}

func (t PoolTLS) isSet() bool { return t != PoolTLS{} }
