package config

import (
	"time"

	"kvasir/api"
	"kvasir/gateway/attempt"
	"kvasir/selection/health"
	"kvasir/selection/policy"
	"kvasir/selection/prefix"
)

// Default returns the values of everything that a file doesn't say. It has no models:
// those have no default.
func Default() Config {
	return Config{
		Listen: "127.0.0.1:8080",
		Admin:  "127.0.0.1:9090",
		Limits: Limits{
			Body:     32 * MiB,
			Buffered: 1 * GiB,
			Calls:    8192,
			Event:    1 * MiB,
			Preamble: 256 * KiB,
		},
		Retry:  Retry(attempt.Default()),
		Health: Health(health.Default()),
		Prefix: Prefix{
			Block:       api.DefaultBlockBytes,
			Index:       prefix.DefaultBudgetBytes,
			Speculative: prefix.DefaultSpeculativeTTL,
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
		},
		Drain: 30 * time.Second,
		Log:   Log{Level: "info", Calls: true},
	}
}

// DefaultPool returns a pool without name and endpoints, as a file's pool starts.
func DefaultPool() Pool {
	p := Pool{
		Engine:  "vllm",
		Policy:  Policy{Name: "cache-aware"},
		Signals: Signals{Scrape: time.Second, MaxAge: 10 * time.Second},
	}
	if rule, ok := policy.Lookup(p.Policy.Name); ok {
		p.Policy.Params = rule.Params()
	}
	return p
}

// DefaultEndpoint returns an endpoint without URL and name, as a file's starts.
func DefaultEndpoint() Endpoint { return Endpoint{Weight: 1} }
