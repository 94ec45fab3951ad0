package config

import (
	"time"

	"kvasir/api"
	"kvasir/gateway/admission"
	"kvasir/gateway/attempt"
	"kvasir/selection/health"
	"kvasir/selection/policy"
	"kvasir/selection/prefix"
)

// Default returns the values of everything that a file doesn't say. It has no models:
// those have no default.
func Default() Config {
	return Config{
		Listen:    "127.0.0.1:8080",
		Admin:     "127.0.0.1:9090",
		Page:      Page{Labs: true},
		WatchFile: true,
		Limits: Limits{
			Body:     32 * MiB,
			Buffered: 1 * GiB,
			Calls:    8192,
			Event:    1 * MiB,
			Preamble: 256 * KiB,

			Headers:     64 * KiB,
			Connections: 16384,
		},
		Timeouts: Timeouts{
			Header:     30 * time.Second,
			FirstToken: 2 * time.Minute,
			Progress:   time.Minute,
			Idle:       time.Minute,
			Total:      time.Hour,
		},
		Retry:  Retry(attempt.Default()),
		Health: Health(health.Default()),
		FanOut: DefaultFanOut(),
		Prefix: Prefix{
			Block:       api.DefaultBlockBytes,
			Index:       prefix.DefaultBudgetBytes,
			Speculative: prefix.DefaultSpeculativeTTL,
			Share:       "client",
		},
		Upstream: Upstream{
			ConnectTimeout: 5 * time.Second,
			IdleTimeout:    4 * time.Second,
			Connections:    1024,
		},
		Client: Client{
			HeaderTimeout: 10 * time.Second,
			BodyTimeout:   60 * time.Second,
			IdleTimeout:   120 * time.Second,
			WriteTimeout:  60 * time.Second,
			Heartbeat:     15 * time.Second,
			HTTP2:         true,
		},
		Drain: 30 * time.Second,
		Log:   Log{Level: "info", Calls: true},
	}
}

// DefaultModel returns a model without name and pools, as one of a file starts whose
// router has the timeouts of Default.
func DefaultModel() Model {
	return Model{Timeouts: Default().Timeouts, Caps: DefaultCaps(), Commit: CommitFirstContent, Hedge: DefaultHedge(), Continue: DefaultContinue()}
}

// The values of a model's commit.
const (
	CommitFirstContent = "first-content"
	CommitFirstVisible = "first-visible"
)

// DefaultHedge returns what hedges nothing, as a file's hedge starts.
func DefaultHedge() Hedge { return Hedge{After: "p95"} }

// DefaultContinue returns what continues nothing, as a file's continue starts.
func DefaultContinue() Continue { return Continue{Bytes: MiB} }

// DefaultPool returns a pool without name and endpoints, as a file's pool starts.
func DefaultPool() Pool {
	p := Pool{
		Engine: "vllm",
		Queue:  DefaultQueue(),

		Overload: defaultOverload(),

		SingleFlight: SingleFlight(admission.DefaultFlights()),
		Policy:       Policy{Name: "predicted-ttft"},
		Signals:      Signals{Scrape: time.Second, MaxAge: 10 * time.Second},

		Discover: DefaultDiscover(),
		Probe:    Probe{Interval: 5 * time.Second, Timeout: 2 * time.Second, Failures: 3},
		Protocol: "http1",
	}
	if rule, ok := policy.Lookup(p.Policy.Name); ok {
		p.Policy.Params = rule.Params()
	}
	return p
}

// What Queue.Limit may be.
const (
	LimitNone     = "none"
	LimitGradient = "gradient"
)

// DefaultQueue returns the queue of a pool that holds nothing, as a file's queue starts.
func DefaultQueue() Queue {
	q := admission.Default()
	f := q.Fairness
	return Queue{
		Limit: LimitNone, Gradient: Gradient{Min: q.Gradient.Min, Max: q.Gradient.Max, Tolerance: q.Gradient.Tolerance},
		Order: q.Order.String(), Turn: q.Turn, Principal: f.By.String(), Weights: Weights{Input: f.Input, Cached: f.Cached, Output: f.Output}, Quantum: f.Quantum,
		Length: q.Length, Bytes: Size(q.Bytes), MaxWait: q.MaxWait, MaxWaitRatio: q.MaxWaitRatio,
	}
}

func defaultOverload() Overload {
	o := admission.DefaultOverload()
	return Overload{o.Waiting, o.KVUsage, o.Preemptions, o.Ramp.From, o.Ramp.To}
}

// DefaultEndpoint returns an endpoint without URL and name, as a file's starts.
func DefaultEndpoint() Endpoint { return Endpoint{Weight: 1} }

// DefaultDiscover returns what finds no endpoints, as a file's discover starts.
func DefaultDiscover() Discover { return Discover{Interval: 5 * time.Second, Scheme: "http"} }
