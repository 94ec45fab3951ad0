package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/net/netutil"

	"kvasir/config"
	"kvasir/gateway/attempt"
	"kvasir/gateway/proxy"
	"kvasir/telemetry"
	"kvasir/web"
)

// node is a gateway in service: its two listeners and what runs beside them. serve and
// demo run one.
type node struct {
	gateway     *proxy.Gateway
	metrics     *telemetry.Metrics
	live        *web.Live
	labs        atomic.Bool // page.labs of the configuration in service
	transports  transports
	certs       certificates // of the data listener
	data, admin *http.Server
	dataAddr    string
	adminAddr   string
	log         *slog.Logger
	level       *slog.LevelVar // nil: the level is fixed
	failed      chan error     // a listener that stopped by itself
	stopWatch   context.CancelFunc
	watched     chan struct{}

	started  *config.Config // with which the process began
	applying sync.Mutex
	config   *config.Config // in service; guarded by applying
}

// nodeOptions is what a node has beside its configuration.
type nodeOptions struct {
	log    *slog.Logger
	level  *slog.LevelVar
	reload func() error // for the admin API; nil: there is nothing to reload
}

// startNode opens the listeners and begins to serve. Both are open when it returns. A
// seed that c does not name is chosen, and written to c.
func startNode(c *config.Config, o nodeOptions) (*node, error) {
	if c.Seed == 0 {
		c.Seed = uint64(time.Now().UnixNano())
	}
	n := &node{failed: make(chan error, 2), watched: make(chan struct{}), log: o.log, level: o.level, started: c, config: c}
	n.labs.Store(c.Page.Labs)
	registry := prometheus.NewRegistry()
	n.metrics = telemetry.New(registry, attempt.Failures()...)
	cfg, err := n.gatewayConfig(c)
	if err != nil {
		return nil, err
	}
	if n.gateway, err = proxy.New(cfg); err != nil {
		return nil, err
	}
	n.metrics.Applied(time.Now())
	n.metrics.Built(buildVersion())
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		telemetry.State(n.gateway.State))

	dataListener, err := n.listen(c)
	if err != nil {
		return nil, err
	}
	adminListener, err := net.Listen("tcp", c.Admin)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("admin %s: %w", c.Admin, err), dataListener.Close())
	}
	n.dataAddr, n.adminAddr = dataListener.Addr().String(), adminListener.Addr().String()

	errorLog := log.New(serverLog{o.log}, "", 0)
	n.data = &http.Server{
		Handler: n.gateway, BaseContext: n.gateway.BaseContext, ErrorLog: errorLog,
		ReadHeaderTimeout: c.Client.HeaderTimeout, IdleTimeout: c.Client.IdleTimeout, MaxHeaderBytes: headerSlack * int(c.Limits.Headers),
		DisableGeneralOptionsHandler: true, // it would answer whoever asks
		Protocols:                    protocols(c), HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streamsPerConnection,
			// A connection that takes no byte holds up all of its calls.
			WriteByteTimeout: c.Client.WriteTimeout, SendPingTimeout: c.Client.IdleTimeout / 2, PingTimeout: pingTimeout,
		},
	}
	n.live = web.NewLive(web.LiveConfig{
		Gateway: n.gateway, Calls: n.metrics, MayChange: c.AdminToken.Reveal() != "", Policies: policyNames(),
	})
	n.admin = &http.Server{
		Handler:           n.gateway.Admin(adminConfig(c, registry, n.labs.Load, n.live, o.reload)),
		ErrorLog:          errorLog,
		ReadHeaderTimeout: c.Client.HeaderTimeout, ReadTimeout: time.Minute, WriteTimeout: time.Minute,
		IdleTimeout: c.Client.IdleTimeout, MaxHeaderBytes: 64 << 10, ConnContext: smallBuffer,
	}
	go n.run(n.data, dataListener)
	go n.run(n.admin, adminListener)

	ctx, cancel := context.WithCancel(context.Background())
	n.stopWatch = cancel
	go func() {
		defer close(n.watched)
		var live sync.WaitGroup
		live.Go(func() { n.live.Run(ctx) })
		n.gateway.Watch(ctx)
		live.Wait()
	}()
	return n, nil
}

// adminBuffer bounds what the kernel takes for an admin client that does not read. A watcher's
// stream is small: the kernel's own choice, megabytes, would take it for minutes, in which
// nobody sees that the watcher takes nothing.
const adminBuffer = 32 << 10

// smallBuffer is a http.Server's ConnContext that sets it.
func smallBuffer(ctx context.Context, c net.Conn) context.Context {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(adminBuffer) // else the kernel's own
	}
	return ctx
}

// headerSlack is how many times as much of a header is read as is allowed, so that who sends
// a little too much can be told so.
const headerSlack = 4

// streamsPerConnection bounds the calls of one HTTP/2 connection.
const streamsPerConnection = 1000

// pingTimeout is how long an HTTP/2 client that says nothing has to answer a ping.
const pingTimeout = 15 * time.Second

// protocols says what the data listener speaks: HTTP/2 by ALPN with TLS, by prior
// knowledge without.
func protocols(c *config.Config) *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP1(true)
	p.SetHTTP2(c.Client.HTTP2)
	p.SetUnencryptedHTTP2(c.Client.HTTP2)
	return p
}

// listen opens the data listener.
func (n *node) listen(c *config.Config) (net.Listener, error) {
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen %s: %w", c.Listen, err)
	}
	l = netutil.LimitListener(l, c.Limits.Connections)
	if c.TLS.Cert == "" {
		return l, nil
	}
	if err := n.certs.load(c.TLS); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	cfg := n.certs.config()
	if c.Client.HTTP2 {
		cfg.NextProtos = []string{"h2", "http/1.1"}
	}
	return tls.NewListener(l, cfg), nil
}

// serverLog takes what net/http's server has to say: a handler's panic is a fault of this
// program, the rest are clients' mistakes.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Write(p []byte) (int, error) {
	level := slog.LevelDebug
	if bytes.Contains(p, []byte("panic serving")) {
		level = slog.LevelError
	}
	l.log.Log(context.Background(), level, strings.TrimSpace(string(p)))
	return len(p), nil
}

func (n *node) run(s *http.Server, l net.Listener) {
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		n.failed <- err
	}
}

// stop drains: readiness goes first, after the delay the data listener, calls in flight
// get until grace is over, then what is left is cut. It returns how that went.
func (n *node) stop(delay, grace time.Duration) error {
	n.gateway.Drain()
	time.Sleep(delay) // a second signal ends the process, so this need not be interrupted
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	err := n.data.Shutdown(ctx)
	if err != nil {
		err = n.cut(grace)
	}
	n.stopWatch()
	<-n.watched
	n.gateway.Close()
	n.transports.close()
	return errors.Join(err, n.admin.Close())
}

// lastWords is how long calls that are cut have to tell their clients.
const lastWords = time.Second

// cut ends the calls that did not end in time, and the connections that are left.
func (n *node) cut(grace time.Duration) error {
	var err error
	if calls := n.gateway.InFlight(); calls > 0 {
		err = fmt.Errorf("calls still in flight after %v were cut: %d", grace, calls)
	}
	n.gateway.Cut()
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	if n.data.Shutdown(ctx) == nil {
		return err
	}
	return errors.Join(err, n.data.Close())
}

// newLogger writes JSON lines from the level on.
func newLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(telemetry.NewCallHandler(w, level))
}

// logLevel returns the level of a configuration, which was validated.
func logLevel(c *config.Config) slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(c.Log.Level)); err != nil {
		return slog.LevelInfo
	}
	return l
}
