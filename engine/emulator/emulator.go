// Package emulator is layer 4 (the inference engine), live: vLLM's HTTP API round one
// engine model, paced in real time. A client cannot tell it from vLLM except by the
// pseudo-words that it says: streams, usage, errors and metrics have vLLM's shapes (of
// version 0.28; vllm/entrypoints and vllm/v1/metrics in vllm-project/vllm).
//
// One goroutine, Run, owns the engine. It sleeps to the computed end of the running step
// and stamps what arrives, leaves or is scraped with its own reading of the clock, always
// after it has ended the steps that end by then. Outputs carry computed instants, so
// lateness does not add up, and a call's outputs are counted, not queued, so that a slow
// client holds up nobody.
package emulator

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kvasir/engine"
	"kvasir/engine/tokenizer"
	"kvasir/internal/mono"
)

// Defaults of Config.
const (
	DefaultVersion      = "0.28.0"
	DefaultMaxBodyBytes = 64 << 20
)

// maxSpeed bounds Config.Speed: at a million, a step of the fastest device takes
// nanoseconds.
const maxSpeed = 1e6

// Config is one emulated engine.
type Config struct {
	Models []string      // names it answers to, at least one; the first is its own
	Engine engine.Config // one request of MaxModelLen tokens must fit into its KV blocks

	Speed float64   // engine seconds a real second; 0 means 1
	Epoch time.Time // the engine's instant 0; zero means the start of Run
	Seed  uint64    // of the answers and the faults

	Faults Faults
	APIKey string // required in Authorization for /v1 paths; "" asks for none

	// HidePromptDetails leaves cached_tokens out of usage, as vLLM does without
	// --enable-prompt-tokens-details.
	HidePromptDetails bool

	Version      string // what /version reports; "" means DefaultVersion
	MaxBodyBytes int64  // most bytes of a call's body; 0 means DefaultMaxBodyBytes
}

// Limits returns what tokenizer.Read must know to read calls as this engine does.
func (c *Config) Limits() tokenizer.Limits {
	return tokenizer.Limits{
		Models:      c.Models,
		MaxModelLen: c.Engine.MaxModelLen,
		BlockTokens: c.Engine.BlockTokens,
		Seed:        c.Seed,
	}
}

// ConfigError is one mistake in a Config.
type ConfigError struct {
	Field   string
	Value   any
	Allowed string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("emulator: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Validate reports every mistake, joined; nil when there is none. It changes nothing.
func (c *Config) Validate() error {
	var errs []error
	bad := func(field string, value any, allowed string) {
		errs = append(errs, &ConfigError{field, value, allowed})
	}
	if len(c.Models) == 0 {
		bad("Models", "empty", "at least one name")
	}
	for i, m := range c.Models {
		if m == "" || slices.Contains(c.Models[:i], m) {
			bad("Models", fmt.Sprintf("%q", c.Models), "names that are not empty and differ")
			break
		}
	}
	if err := c.Engine.Validate(); err != nil {
		errs = append(errs, err)
	} else if room := c.Engine.NumBlocks * c.Engine.BlockTokens; c.Engine.MaxModelLen > room {
		bad("Engine.MaxModelLen", c.Engine.MaxModelLen, fmt.Sprintf("at most %d, the tokens of %d KV blocks", room, c.Engine.NumBlocks))
	}
	if c.Speed < 0 || c.Speed > maxSpeed || math.IsNaN(c.Speed) {
		bad("Speed", c.Speed, fmt.Sprintf("above 0, at most %g", float64(maxSpeed)))
	}
	if c.MaxBodyBytes < 0 {
		bad("MaxBodyBytes", c.MaxBodyBytes, "0 or more")
	}
	return errors.Join(append(errs, c.Faults.Validate())...)
}

// Server is one emulated engine. Its methods are safe for concurrent use.
type Server struct {
	cfg         Config
	limits      tokenizer.Limits
	born        time.Time
	fingerprint string // quoted
	model       string // quoted

	calls    atomic.Uint64 // calls accepted so far
	started  atomic.Bool   // Run was called
	commands chan func(now mono.Time)
	done     chan struct{} // closed when Run has ended

	// Owned by Run.
	clock    clock
	engine   *engine.Engine
	requests map[engine.ID]*request
	metrics  metrics

	mu    sync.Mutex
	stats engine.Stats
}

// New returns an engine that answers once Run is called.
func New(c Config) (*Server, error) {
	if c.Speed == 0 {
		c.Speed = 1
	}
	if c.Version == "" {
		c.Version = DefaultVersion
	}
	if c.MaxBodyBytes == 0 {
		c.MaxBodyBytes = DefaultMaxBodyBytes
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	e, err := engine.New(c.Engine)
	if err != nil {
		return nil, err
	}
	c.Models = slices.Clone(c.Models)
	s := &Server{
		cfg:         c,
		limits:      c.Limits(),
		born:        time.Now(),
		model:       quote(c.Models[0]),
		fingerprint: quote(fingerprint(&c)),
		commands:    make(chan func(mono.Time)),
		done:        make(chan struct{}),
		clock:       clock{epoch: c.Epoch, speed: c.Speed},
		engine:      e,
		requests:    map[engine.ID]*request{},
		stats:       e.Stats(),
	}
	s.metrics.init(c.Engine.MaxModelLen)
	return s, nil
}

// Model returns the engine's own model name.
func (s *Server) Model() string { return s.cfg.Models[0] }

// Stats returns what the engine reports as of the last step that Run has ended. It never
// waits.
func (s *Server) Stats() engine.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Handler returns vLLM's API. Calls that come before Run wait for it; those that come
// after it has ended find a dead engine.
func (s *Server) Handler() http.Handler {
	return routes{
		"/v1/chat/completions": {http.MethodPost: s.generate(tokenizer.Chat)},
		"/v1/completions":      {http.MethodPost: s.generate(tokenizer.Completions)},
		"/v1/embeddings":       {http.MethodPost: s.embed},
		"/v1/models":           {http.MethodGet: s.models},
		"/health":              {http.MethodGet: s.health},
		"/ping":                {http.MethodGet: s.health, http.MethodPost: s.health},
		"/version":             {http.MethodGet: s.version},
		"/metrics":             {http.MethodGet: s.scrape},
	}.handler(s.cfg.APIKey)
}
