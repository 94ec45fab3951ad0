package emulator

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// keepAlive is how long an idle connection stays open: uvicorn's default in vLLM. A client
// that keeps connections longer finds them reset.
const keepAlive = 5 * time.Second

// headerTimeout bounds how long a client may take to send a request's head.
const headerTimeout = 10 * time.Second

// lastWords is how long handlers have to end once the engine has.
const lastWords = time.Second

// Serve runs the engine and answers on l until ctx ends. Then it takes no more calls, gives
// those in flight the grace to end, fails the rest, and returns. It closes l. The error is
// nil when ctx has ended it.
func (s *Server) Serve(ctx context.Context, l net.Listener, grace time.Duration) error {
	server := &http.Server{
		Handler: s.Handler(), IdleTimeout: keepAlive, ReadHeaderTimeout: headerTimeout,
		ConnState: s.connections.follow, ConnContext: remember,
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	// The engine outlives ctx by the grace.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer server.Close()
	var runErr error
	ran, served := make(chan struct{}), make(chan error, 1)
	wg.Go(func() {
		defer close(ran)
		runErr = s.Run(running)
	})
	wg.Go(func() { served <- server.Serve(l) })
	select {
	case err := <-served:
		stop()
		<-ran
		return errors.Join(err, runErr)
	case <-ran:
		return runErr
	case <-ctx.Done():
	}
	if !shutdown(server, grace) {
		stop()
		<-ran
		shutdown(server, lastWords)
	}
	return nil
}

// shutdown reports whether all calls ended within the grace.
func shutdown(server *http.Server, grace time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	return server.Shutdown(ctx) == nil
}
