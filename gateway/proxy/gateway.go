// Package proxy is layer 2 (gateway), live: the HTTP shell round gateway/flow. It reads
// a client's call, asks the machine where to send it, sends it, passes the answer's
// bytes on untouched while a reader beside the stream recognises what they mean, and
// accounts for the call.
//
// The life of a call is in call.go, one attempt in send.go, the answer's way back in
// receive.go and from there in plain.go or stream.go, the commitment point and the
// account in commit.go, what follows where an answer breaks off in seam.go; outlet.go is the
// way to the client, watchdog.go what ends attempts that take too long; router.go is the lock and the timer round the machine. service.go is
// what a configuration becomes, apply.go how the next one takes its place, and keep.go
// what keeps the knowledge of endpoints fresh.
package proxy

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/gateway/limit"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/observe/discovery"
	"kvasir/telemetry"
	"kvasir/upstream"
)

// Config is what a Gateway needs. All fields but those marked optional must be set. What
// Apply is given may differ in everything but the fields that say so.
type Config struct {
	Models []Model
	Limits Limits
	Access Access

	Tenancy Tenancy      // who pays
	Caps    []limit.Rule // what may be used; tenants, keys and models by their names
	FanOut  FanOut       // of conversations

	Timeouts      Timeouts       // of models that have none of their own
	Retry         attempt.Config // its Total bounds the retries of all models together; the zero Config: each model's own bound alone does
	Heartbeat     time.Duration  // between two comments toward a streaming client that waits; 0: none
	BlockBytes    int            // of the prefix hash, in bytes of text
	SharePrefixes bool           // among all clients; else those of each client are its own
	SaltKey       []byte         // makes a cache salt of each client's for engines that take one; empty: calls go as they are
	BodyTimeout   time.Duration  // for a client to send its whole body
	WriteTimeout  time.Duration  // for a client to take one write

	// ServerIdle is how long endpoints keep idle connections at the least. One that was idle
	// for longer, and breaks, may have been closed before it was used; one that was not
	// breaks because its endpoint does. 0: any that is used again is suspect.
	ServerIdle time.Duration

	Router    string            // this gateway's identity; staggers its scrapes among its peers
	Transport http.RoundTripper // to the endpoints of pools without one of their own; see NewTransport
	Log       *slog.Logger
	LogCalls  bool // one line a call, at level info

	Metrics *telemetry.Metrics // fixed
	// OnDecision, optional, gets every decision that was explained, outside any lock and
	// from the calls' goroutines. Machines whose Config has Explain set explain all.
	OnDecision func(model string, d *selection.Decision)
	// Peers, optional, are other gateways before the same endpoints: each is told what the
	// others send there. Fixed.
	Peers Peers
	// Epoch, optional, is the zero of the machines' clock; default: when New is called. Fixed.
	Epoch time.Time
}

// Limits bounds what all calls together, or one of them, may hold.
type Limits struct {
	Calls    int   // calls in flight over all models
	Body     int64 // bytes of one request body
	Buffered int64 // bytes of bodies, held preambles and large events over all calls
	Event    int   // bytes of a stream's event that is still looked into; at most sse.MaxLimit
	Preamble int   // bytes held back before a stream's first content
	// Headers bounds the bytes of a request's header; 0: the server's bound alone. The
	// server's should be a good deal above it: what meets that one is cut off.
	Headers int
}

// Model is one model that clients may ask for.
type Model struct {
	Name         string
	Aliases      []string
	Adapters     []string      // names of LoRA adapters, which the endpoints serve under these names
	KeyHeader    string        // request header whose hash policies see as the key; "" for none
	FirstVisible bool          // reasoning is not shown: an answer begins with its first content that is none
	Timeouts     *Timeouts     // nil: Config's
	Deadline     time.Duration // of the first token, of calls that name none; 0: none
	Continue     Continue      // of streams that break off
	Machine      flow.Config   // its Pools have the endpoints of Pools alone: those found are added
	Pools        []Pool        // parallel to Machine.Pools
}

// Pool is the live half of a pool.
type Pool struct {
	ServedAs     string // what the endpoints call the model; "" for its Name
	PolicyID     string // policies of the same id are the same rule with the same parameters; "": by the policy's name
	Dialect      upstream.Dialect
	Scrape       time.Duration     // between two scrapes of an endpoint; 0: none
	Probe        Probe             // of the health path
	Transport    http.RoundTripper // nil: Config.Transport
	Endpoints    []Endpoint        // parallel to the machine's
	Sources      []discovery.Source
	PassPriority bool   // endpoints are told each call's, and take it (vllm)
	Key          string // of endpoints that were found, sent as a bearer token; "" for none
}

// Probe says how an endpoint's health path is asked. The machine's Pool.Misses says how
// many failures in a row count.
type Probe struct {
	Path     string        // "": the dialect's
	Interval time.Duration // 0: it is not asked
	Timeout  time.Duration
}

// Endpoint is the live half of an endpoint.
type Endpoint struct {
	URL string // scheme, host, optional base path, no trailing slash
	Key string // sent as a bearer token; "" for none
}

// Gateway answers clients. It is safe for concurrent use.
type Gateway struct {
	service atomic.Pointer[service]
	metrics *telemetry.Metrics
	log     *slog.Logger
	epoch   time.Time
	clock   func() mono.Time
	peers   Peers       // nil: this gateway is alone
	peer    flow.PeerID // of this one among them
	unheard func()      // stops listening to them

	applying sync.Mutex // guards what follows
	cores    map[string]*core
	keeper   keeper

	allowance allowance
	owners    owners
	repeats   repeats
	purse     purse
	buffered  room
	calls     atomic.Int64 // in flight
	lastCall  atomic.Uint64
	idPrefix  string
	kept      sync.Pool // *call

	tap      atomic.Pointer[Tap] // nil: nobody watches
	draining atomic.Bool
	base     context.Context // of the calls
	cutAll   context.CancelCauseFunc
}

// New returns a gateway. Close it when it serves no more.
func New(cfg Config) (*Gateway, error) {
	if cfg.Epoch.IsZero() {
		cfg.Epoch = time.Now()
	}
	epoch := cfg.Epoch
	g := &Gateway{
		metrics: cfg.Metrics, log: cfg.Log, epoch: epoch, cores: map[string]*core{},
		clock: func() mono.Time { return mono.Time(time.Since(epoch)) },
	}
	g.allowance.clock = g.clock
	g.keeper.running = map[keptKey]*keptEndpoint{}
	g.base, g.cutAll = context.WithCancelCause(context.Background())
	g.kept.New = func() any { return &call{scratch: newScratch(), try: newTry()} }
	var prefix [4]byte
	if _, err := rand.Read(prefix[:]); err != nil {
		return nil, fmt.Errorf("choose this gateway's request ids: %w", err)
	}
	g.idPrefix = "kv-" + hex.EncodeToString(prefix[:]) + "-"
	if g.peers = cfg.Peers; g.peers != nil {
		var id [8]byte
		if _, err := rand.Read(id[:]); err != nil {
			return nil, fmt.Errorf("choose this gateway's identity among its peers: %w", err)
		}
		g.peer = flow.PeerID(binary.LittleEndian.Uint64(id[:]))
	}
	if err := g.Apply(cfg); err != nil {
		return nil, err
	}
	if g.peers != nil {
		g.unheard = g.peers.Listen(g.hear)
	}
	return g, nil
}

// Close stops the machines' timers. Call it after the last call has ended.
func (g *Gateway) Close() {
	if g.unheard != nil {
		g.unheard()
	}
	g.applying.Lock()
	defer g.applying.Unlock()
	for _, c := range g.cores {
		c.router.close()
	}
}

// Ready reports whether the gateway can route at least one model, and why not.
func (g *Gateway) Ready() (bool, string) {
	if g.draining.Load() {
		return false, "draining"
	}
	for _, m := range g.service.Load().models {
		for _, p := range m.router.snapshot().Pools {
			for _, e := range p.Endpoints {
				if e.Health == inRotation && !e.Draining {
					return true, ""
				}
			}
		}
	}
	return false, "no model has an endpoint that takes calls"
}

// newRequestID returns an id for a call whose client brought none.
func (g *Gateway) newRequestID(n uint64) string {
	return g.idPrefix + strconv.FormatUint(n, 10)
}
