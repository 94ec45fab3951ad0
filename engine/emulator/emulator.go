// Package emulator is layer 4 (the inference engine), live: vLLM's HTTP API round one
// engine model, or several data-parallel ones, paced in real time. A client cannot tell it from vLLM except by the
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
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kvasir/engine"
	"kvasir/engine/tokenizer"
	"kvasir/internal/mono"
	"kvasir/internal/stats"
)

// Defaults of Config.
const (
	DefaultVersion      = "0.28.0"
	DefaultMaxBodyBytes = 64 << 20
)

// maxSpeed bounds Config.Speed: at a million, a step of the fastest device takes
// nanoseconds.
const maxSpeed = 1e6

// MaxRanks bounds Config.Ranks.
const MaxRanks = 64

// Config is one emulated engine.
type Config struct {
	Models   []string      // names it answers to, at least one; the first is its own
	Engine   engine.Config // one request of MaxModelLen tokens must fit into its KV blocks
	Adapters []Adapter     // LoRA adapters, each answering to its name; the engine must have slots for them
	Ranks    int           // data-parallel engines behind the one address, each as Engine says; 0 means 1

	Speed float64   // engine seconds a real second; 0 means 1
	Epoch time.Time // the engine's instant 0; zero means the start of Run
	Seed  uint64    // of the answers and the faults

	Faults Faults
	APIKey string // required in Authorization for /v1 and /v2 paths; "" asks for none

	// MaxQueued bounds the requests that run and wait over all ranks, as vLLM's
	// max_num_queued_reqs does from 0.29 on; 0 means no such bound.
	MaxQueued int

	// HidePromptDetails leaves cached_tokens out of usage, as vLLM does without
	// --enable-prompt-tokens-details.
	HidePromptDetails bool

	TrackLoad      bool // /load counts the calls in flight, as with vLLM's --enable-server-load-tracking; else it says 0
	EchoRequestIDs bool // answers have X-Request-Id, as with vLLM's --enable-request-id-headers
	HideCreated    bool // no _created families in /metrics, as with PROMETHEUS_DISABLE_CREATED_SERIES
	Control        bool // serve the paths under /emulator, and vLLM's own for sleep; see control.go

	Version      string // what /version reports; "" means DefaultVersion
	MaxBodyBytes int64  // most bytes of a call's body; 0 means DefaultMaxBodyBytes
}

// Limits returns what tokenizer.Read must know to read calls as this engine does.
func (c *Config) Limits() tokenizer.Limits {
	adapters := make([]string, len(c.Adapters))
	for i, a := range c.Adapters {
		adapters[i] = a.Name
	}
	return tokenizer.Limits{
		Models:      c.Models,
		Adapters:    adapters,
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
	c.checkAdapters(bad)
	if err := c.Engine.Validate(); err != nil {
		errs = append(errs, err)
	} else if room := c.Engine.NumBlocks * c.Engine.BlockTokens; c.Engine.MaxModelLen > room {
		bad("Engine.MaxModelLen", c.Engine.MaxModelLen, fmt.Sprintf("at most %d, the tokens of %d KV blocks", room, c.Engine.NumBlocks))
	}
	if c.Speed < 0 || c.Speed > maxSpeed || math.IsNaN(c.Speed) {
		bad("Speed", c.Speed, fmt.Sprintf("above 0, at most %g", float64(maxSpeed)))
	}
	if c.Ranks < 0 || c.Ranks > MaxRanks {
		bad("Ranks", c.Ranks, fmt.Sprintf("0 to %d", MaxRanks))
	}
	if c.MaxQueued < 0 {
		bad("MaxQueued", c.MaxQueued, "0 or more")
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
	fingerprint string // quoted
	model       string // quoted

	calls    atomic.Uint64 // calls accepted so far
	requests atomic.Uint64 // requests that were given a name so far
	started  atomic.Bool   // Run was called
	commands chan func(now mono.Time)
	done     chan struct{} // closed when Run has ended

	life        atomic.Pointer[life] // changed by Run
	connections connections
	imposed     imposition

	// Owned by Run.
	clock  clock
	ranks  []*rank
	pace   float64 // of Throttle
	asleep int     // sleep level, 0 awake
	loras  loraInfo
	lag    stats.Histogram // nanoseconds

	mu    sync.Mutex
	stats []engine.Stats // by rank
}

// New returns an engine that answers once Run is called.
func New(c Config) (*Server, error) {
	c.Ranks = cmp.Or(c.Ranks, 1)
	c.Speed = cmp.Or(c.Speed, 1)
	c.Version = cmp.Or(c.Version, DefaultVersion)
	c.MaxBodyBytes = cmp.Or(c.MaxBodyBytes, DefaultMaxBodyBytes)
	if err := c.Validate(); err != nil {
		return nil, err
	}
	ranks, err := newRanks(&c)
	if err != nil {
		return nil, err
	}
	c.Models, c.Adapters = slices.Clone(c.Models), slices.Clone(c.Adapters)
	s := &Server{
		cfg:         c,
		limits:      c.Limits(),
		model:       quote(c.Models[0]),
		fingerprint: quote(fingerprint(&c)),
		commands:    make(chan func(mono.Time)),
		done:        make(chan struct{}),
		clock:       clock{epoch: c.Epoch, speed: c.Speed},
		ranks:       ranks,
		pace:        1,
		stats:       make([]engine.Stats, c.Ranks),
	}
	s.life.Store(newLife(time.Now()))
	s.publish()
	return s, nil
}

// Model returns the engine's own model name.
func (s *Server) Model() string { return s.cfg.Models[0] }

// Stats returns what the engine reports as of the last step that Run has ended, summed over
// its ranks. It never waits.
func (s *Server) Stats() engine.Stats { return total(s.perRank()) }

func (s *Server) perRank() []engine.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.stats)
}

// publish takes what Stats returns until the next publish.
func (s *Server) publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, k := range s.ranks {
		s.stats[i] = k.engine.Stats()
	}
}
