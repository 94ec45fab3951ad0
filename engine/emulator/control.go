package emulator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"kvasir/engine"
	"kvasir/internal/mono"
)

// The control paths, served where Config.Control says so. What vLLM has a path for in its
// development mode is there as well.
//
//	GET    /emulator/fault             the fault that is imposed, as JSON
//	POST   /emulator/fault             impose one; the body is a Fault as JSON
//	DELETE /emulator/fault             lift it
//	POST   /emulator/slow?factor=F     steps take F times as long; 1 undoes it
//	POST   /emulator/restart?down=D    begin anew; for the duration D (default 0s) connections are reset
//	POST   /emulator/sleep?level=L     sleep (1 or 2, default 1); also /sleep
//	POST   /emulator/wake              wake; also /wake_up
//	GET    /emulator/lag               how late the outputs of steps came, as JSON (Lag)
//	GET    /is_sleeping                {"is_sleeping":false}
func (s *Server) controls() routes {
	return routes{
		"/emulator/fault":   {http.MethodGet: s.showFault, http.MethodPost: s.postFault, http.MethodDelete: s.liftFault},
		"/emulator/slow":    {http.MethodPost: s.postSlow},
		"/emulator/restart": {http.MethodPost: s.postRestart},
		"/emulator/sleep":   {http.MethodPost: s.postSleep},
		"/emulator/wake":    {http.MethodPost: s.postWake},
		"/emulator/lag":     {http.MethodGet: s.showLag},
		"/sleep":            {http.MethodPost: s.postSleep},
		"/wake_up":          {http.MethodPost: s.postWake},
		"/is_sleeping":      {http.MethodGet: s.isSleeping},
	}
}

// Throttle makes every step that starts from here on take factor times as long: above 0,
// at most engine.MaxPace; 1 undoes it. It outlives a restart. The error is a *ConfigError,
// or ctx's, or tells that Run has ended.
func (s *Server) Throttle(ctx context.Context, factor float64) error {
	if !(factor > 0 && factor <= engine.MaxPace) {
		return &ConfigError{"factor", factor, fmt.Sprintf("above 0, at most %g", float64(engine.MaxPace))}
	}
	return s.order(ctx, func(now mono.Time) {
		s.pace = factor
		for _, k := range s.ranks {
			k.engine.Throttle(now, factor)
		}
	})
}

// Sleep puts the engine to sleep as vLLM's sleep with mode "abort" does: calls in flight
// finish with the reason abort, what is cached is forgotten, and calls that come wait. level
// is 1 or 2; the engine's model sees no difference. Health stays as it is.
func (s *Server) Sleep(ctx context.Context, level int) error {
	if level != 1 && level != 2 {
		return &ConfigError{"level", level, "1 or 2"}
	}
	return s.order(ctx, func(now mono.Time) {
		s.asleep = level
		for _, k := range s.ranks {
			for id, r := range k.requests {
				k.engine.Abort(now, id)
				delete(k.requests, id)
				r.call.interrupt(r.item)
			}
			k.engine.Sleep(now)
		}
	})
}

// Wake undoes Sleep.
func (s *Server) Wake(ctx context.Context) error {
	return s.order(ctx, func(now mono.Time) {
		s.asleep = 0
		for _, k := range s.ranks {
			k.engine.Wake(now)
		}
	})
}

// Restart begins anew, as a process that dies and is started again: calls in flight find
// their connections reset, the counters are 0, the caches empty, and the start time is now
// plus down, until when every connection is reset. What is imposed and the pace stay. Under
// Serve idle connections are reset, too, except the one that ctx comes from.
func (s *Server) Restart(ctx context.Context, down time.Duration) error {
	if down < 0 || down > time.Hour {
		return &ConfigError{"down", down, "0s to 1h"}
	}
	ranks, err := newRanks(&s.cfg)
	if err != nil {
		return err
	}
	return s.order(ctx, func(now mono.Time) {
		old := s.life.Load()
		s.life.Store(newLife(time.Now().Add(down)))
		s.failAll(errGone)
		s.ranks, s.asleep, s.loras = ranks, 0, loraInfo{}
		for _, k := range s.ranks {
			if s.pace != 1 {
				k.engine.Throttle(now, s.pace)
			}
		}
		s.publish()
		close(old.ended)
		s.connections.breakAll(ctx)
	})
}

// order has Run apply a command and waits until it has.
func (s *Server) order(ctx context.Context, apply func(now mono.Time)) error {
	applied := make(chan struct{})
	if s.do(ctx, func(now mono.Time) { apply(now); close(applied) }) {
		<-applied
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errDead
}

func (s *Server) showFault(w http.ResponseWriter, _ *http.Request) {
	b, err := json.Marshal(s.Imposed())
	if err != nil { // a struct of strings and numbers
		panic(err)
	}
	writeJSON(w, http.StatusOK, b)
}

// maxFaultBytes bounds a Fault as JSON.
const maxFaultBytes = 4 << 10

func (s *Server) postFault(w http.ResponseWriter, r *http.Request) {
	var f Fault
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxFaultBytes))
	d.DisallowUnknownFields()
	err := d.Decode(&f)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = fmt.Errorf("more than one JSON value")
		}
	}
	if err == nil {
		err = s.Impose(f)
	}
	if err != nil {
		refuseControl(w, err)
		return
	}
	s.showFault(w, r)
}

func (s *Server) liftFault(w http.ResponseWriter, r *http.Request) {
	_ = s.Impose(Fault{}) // no fault is always allowed
	s.showFault(w, r)
}

func (s *Server) showLag(w http.ResponseWriter, r *http.Request) {
	lag, err := s.Lag(r.Context())
	var b []byte
	if err == nil {
		b, err = json.Marshal(lag)
	}
	if err != nil {
		refuseControl(w, err)
		return
	}
	writeJSON(w, http.StatusOK, b)
}

func (s *Server) postSlow(w http.ResponseWriter, r *http.Request) {
	factor, err := strconv.ParseFloat(r.URL.Query().Get("factor"), 64)
	if err == nil {
		err = s.Throttle(r.Context(), factor)
	}
	answerControl(w, err)
}

func (s *Server) postRestart(w http.ResponseWriter, r *http.Request) {
	var down time.Duration
	var err error
	if given := r.URL.Query().Get("down"); given != "" {
		down, err = time.ParseDuration(given)
	}
	if err == nil {
		err = s.Restart(r.Context(), down)
	}
	answerControl(w, err)
}

func (s *Server) postSleep(w http.ResponseWriter, r *http.Request) {
	level, err := 1, error(nil)
	if given := r.URL.Query().Get("level"); given != "" {
		level, err = strconv.Atoi(given)
	}
	if err == nil {
		err = s.Sleep(r.Context(), level)
	}
	answerControl(w, err)
}

func (s *Server) postWake(w http.ResponseWriter, r *http.Request) {
	answerControl(w, s.Wake(r.Context()))
}

func (s *Server) isSleeping(w http.ResponseWriter, r *http.Request) {
	views, ok := s.observe(r.Context())
	if !ok {
		writeError(w, errDead)
		return
	}
	writeJSON(w, http.StatusOK, fmt.Appendf(nil, `{"is_sleeping":%t}`, views[0].asleep > 0))
}

// answerControl says that an order was carried out, or why not.
func answerControl(w http.ResponseWriter, err error) {
	if err != nil {
		refuseControl(w, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func refuseControl(w http.ResponseWriter, err error) {
	writeJSON(w, http.StatusBadRequest, []byte(`{"error":`+quote(err.Error())+`}`))
}
