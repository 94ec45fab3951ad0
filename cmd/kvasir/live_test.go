package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kvasir/web"
)

// shown is kvasir serve before engines, all over real sockets, with a watcher.
type shown struct {
	t           *testing.T
	base, admin string
	engines     []func() int // each ends one
	file        string

	mu     sync.Mutex
	state  web.LiveState
	events map[string][]string // data of all that came, by name
	all    strings.Builder
}

const liveToken = "kv_live_token"

func serveLive(t *testing.T, engines int) *shown {
	t.Helper()
	s := &shown{t: t, events: map[string][]string{}}
	var list []string
	for i := range engines {
		out, _, end := start(t, "engine", "--listen", "127.0.0.1:0", "--model", "m")
		s.engines = append(s.engines, sync.OnceValue(end))
		list = append(list, fmt.Sprintf("{url: %q, name: e%d}", out.find(t, `answers at (http://[^/]+)/v1`), i+1))
	}
	s.file = filepath.Join(t.TempDir(), "kvasir.yaml")
	text := "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nadmin_token: file:token\nmodels:\n  m: {slo: {ttft: 1m, tpot: 1m}, endpoints: [" + strings.Join(list, ", ") + "]}\n"
	for name, text := range map[string]string{s.file: text, filepath.Join(filepath.Dir(s.file), "token"): liveToken} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, log, end := start(t, "serve", "--config", s.file)
	s.base = "http://" + log.find(t, `"listen":"([^"]+)"`)
	s.admin = "http://" + log.find(t, `"page":"http://([^"]+)/"`)
	t.Cleanup(func() {
		if code := end(); code != 0 {
			t.Errorf("serve: exit %d\n%s", code, log)
		}
		for _, end := range s.engines {
			end()
		}
	})
	return s
}

// watch follows the stream until the test ends, or the gateway does.
func (s *shown) watch() {
	s.t.Helper()
	transport := &http.Transport{}
	resp, err := (&http.Client{Transport: transport}).Get(s.admin + "/v1/live")
	if err != nil || resp.StatusCode != 200 {
		s.t.Fatalf("%v %v", resp, err)
	}
	var reading sync.WaitGroup
	s.t.Cleanup(func() {
		_ = resp.Body.Close()
		transport.CloseIdleConnections()
		reading.Wait()
	})
	reading.Go(func() {
		name := ""
		lines := bufio.NewReader(resp.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if word, ok := strings.CutPrefix(line, "event: "); ok {
				name = strings.TrimSpace(word)
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				s.heard(name, data)
			}
		}
	})
}

func (s *shown) heard(name, data string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events[name] = append(s.events[name], data)
	s.all.WriteString(data)
	if name == "state" {
		s.state = web.LiveState{}
		if err := json.Unmarshal([]byte(data), &s.state); err != nil {
			s.t.Errorf("%v in %s", err, data)
		}
	}
}

// until waits for a state in which something holds, and returns how long that took.
func (s *shown) until(what string, limit time.Duration, holds func(web.LiveState) bool) time.Duration {
	s.t.Helper()
	began := time.Now()
	for {
		s.mu.Lock()
		ok := len(s.state.Models) > 0 && holds(s.state)
		s.mu.Unlock()
		took := time.Since(began)
		switch {
		case ok:
			return took
		case took > limit:
			s.t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func endpointOf(state web.LiveState, name string) web.LiveEndpoint {
	for _, e := range state.Models[0].Pools[0].Endpoints {
		if e.Endpoint == name {
			return e
		}
	}
	return web.LiveEndpoint{}
}

func (s *shown) operate(path, token, body string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), "POST", s.admin+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := bufio.NewReader(resp.Body).ReadString('\n')
	return resp.StatusCode, text
}

func (s *shown) call() {
	s.t.Helper()
	ask := strings.Replace(fmt.Sprintf(question, "m"), `"stream":true`, `"stream":true,"stream_options":{"include_usage":true}`, 1)
	if status, text := fetch(s.t, http.MethodPost, s.base+"/v1/chat/completions", ask); status != 200 {
		s.t.Fatalf("%d %s", status, text)
	}
}

// An engine that dies while no call is there to notice is shown out of rotation within three
// seconds.
func TestLive_ShowsAnEngineThatDies(t *testing.T) {
	s := serveLive(t, 2)
	s.watch()
	s.until("both in rotation, and known", 10*time.Second, func(x web.LiveState) bool {
		return endpointOf(x, "e1").SignalAge != nil && endpointOf(x, "e2").SignalAge != nil
	})
	s.engines[1]()
	took := s.until("e2 out of rotation", 20*time.Second, func(x web.LiveState) bool {
		e := endpointOf(x, "e2")
		return e.State == "ejected" && e.Cause == "unhealthy" && !e.Healthy
	})
	t.Logf("after %v", took.Round(time.Millisecond))
	if took > 3*time.Second {
		t.Errorf("it took %v to show", took)
	}
	if e := endpointOf(s.state, "e1"); e.State != "in_rotation" {
		t.Errorf("the other one: %+v", e)
	}
}

// The kernel takes little for an admin client that does not read, so that a watcher of whom
// nothing is heard gives back its place.
func TestAdmin_BuffersLittleForAClient(t *testing.T) {
	engine := engineServer(t)
	r := runNode(t, fmt.Sprintf("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nmodels: {m: [%q]}\n", engine.URL))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	r.node.admin.ConnContext(t.Context(), server)
	raw, err := server.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	size, fault := 0, error(nil)
	if err := raw.Control(func(fd uintptr) { size, fault = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF) }); err != nil || fault != nil {
		t.Fatal(err, fault)
	}
	if size > 2*adminBuffer { // Linux doubles what it is told, for its own records
		t.Errorf("the kernel takes %d bytes, at most %d are wanted", size, 2*adminBuffer)
	}
}

func TestLive_ShowsCallsDecisionsAndWhatAnOperatorDoes(t *testing.T) {
	s := serveLive(t, 2)
	s.watch()
	s.until("a state", 5*time.Second, func(web.LiveState) bool { return true })
	if !s.state.MayChange {
		t.Error("a token is configured, and nothing can be changed")
	}
	model := `"model":"m"`
	for _, x := range []struct {
		path, body string
		holds      func(web.LiveState) bool
	}{
		{"/v1/endpoints/drain", `{` + model + `,"endpoint":"e1"}`, func(x web.LiveState) bool { return endpointOf(x, "e1").Draining }},
		{"/v1/endpoints/undrain", `{` + model + `,"endpoint":"e1"}`, func(x web.LiveState) bool { return !endpointOf(x, "e1").Draining }},
		{"/v1/endpoints/weight", `{` + model + `,"endpoint":"e1","weight":2.5}`, func(x web.LiveState) bool { return endpointOf(x, "e1").Weight == 2.5 }},
		{"/v1/reload", ``, func(x web.LiveState) bool { return endpointOf(x, "e1").Weight == 2.5 }},
		{"/v1/shadow", `{` + model + `,"policy":"round-robin"}`, func(x web.LiveState) bool {
			p := x.Models[0].Pools[0].Shadow
			return p != nil && p.Policy == "round-robin"
		}},
	} {
		for _, token := range []string{"", "wrong"} {
			if status, text := s.operate(x.path, token, x.body); status != 401 {
				t.Errorf("%s with token %q: %d %s", x.path, token, status, text)
			}
		}
		if status, text := s.operate(x.path, liveToken, x.body); status != 200 {
			t.Errorf("%s: %d %s", x.path, status, text)
		}
		s.until(x.path, 5*time.Second, x.holds)
	}
	if status, text := s.operate("/v1/shadow", liveToken, `{`+model+`,"policy":"nobody"}`); status != 400 || !strings.Contains(text, `allowed: random, round-robin`) {
		t.Errorf("a policy that there is not: %d %s", status, text)
	}
	const calls = 5
	for range calls {
		s.call()
		time.Sleep(120 * time.Millisecond) // decisions are sampled
	}
	s.until("all calls in the window", 5*time.Second, func(x web.LiveState) bool { return x.Models[0].Window.Calls == calls })
	s.mu.Lock()
	w, p := s.state.Models[0].Window, s.state.Models[0].Pools[0]
	decisions, outcomes, all := s.events["decision"], s.events["outcome"], s.all.String()
	s.mu.Unlock()
	if w.TTFT.N != calls || *w.TTFT.P50 <= 0 || w.Goodput == nil || w.Goodput.Within != calls || w.Failures+w.Refusals != 0 || w.OutputPerSecond == nil || w.TPOT.N != calls {
		t.Errorf("window %+v, goodput %+v", w, w.Goodput)
	}
	if p.Shadow.Picks != calls || p.Endpoints[0].Window.Calls+p.Endpoints[1].Window.Calls != calls {
		t.Errorf("shadow %+v, endpoints %+v", p.Shadow, p.Endpoints)
	}
	if len(decisions) != calls || len(outcomes) != calls || !strings.Contains(decisions[0], `"shadow":{"policy":"round-robin"`) {
		t.Errorf("%d decisions and %d outcomes of %d calls\n%v", len(decisions), len(outcomes), calls, decisions)
	}
	if len(s.events["history"]) != 1 {
		t.Errorf("%d histories", len(s.events["history"]))
	}
	if strings.Contains(all, "Hello") {
		t.Error("the stream has text of a prompt")
	}
	if status, text := s.operate("/v1/shadow", liveToken, `{`+model+`,"policy":""}`); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	s.until("the shadow is off", 5*time.Second, func(x web.LiveState) bool { return x.Models[0].Pools[0].Shadow == nil })
}

// The demo prints where its page is, and the token that lets it change something.
func TestDemo_PrintsItsPageAndItsToken(t *testing.T) {
	stdout, _, end := start(t, "demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--engines", "2", "--no-traffic")
	page := stdout.find(t, `page +(http://\S+)/\n`)
	token := stdout.find(t, `admin token +(\S+)`)
	s := &shown{t: t, admin: page, events: map[string][]string{}}
	if status, text := fetch(t, http.MethodGet, page+"/", ""); status != 200 || !strings.Contains(text, "<html") {
		t.Errorf("the page: %d %.200s", status, text)
	}
	const off = `{"model":"llama-3.1-8b","policy":"lmetric"}`
	if status, _ := s.operate("/v1/shadow", "", off); status != 401 {
		t.Errorf("without a token: %d", status)
	}
	if status, text := s.operate("/v1/shadow", token, off); status != 200 {
		t.Errorf("with the token that the demo prints: %d %s", status, text)
	}
	if code := end(); code != 0 {
		t.Errorf("exit %d", code)
	}
}
