package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"kvasir/test/endurance/internal/ledger"
	"kvasir/test/endurance/internal/program"
	"kvasir/test/endurance/internal/report"
)

// stage is the processes of a run: four engines, and one gateway after another.
type stage struct {
	o       options
	out     io.Writer
	binary  *program.Binary
	engines []*program.Engine
	gateway *program.Gateway
	rules   *report.Rules
	config  string
	addr    string // of the gateway, the same for each
	home    string // where the gateway runs, and all that it may write to

	mu      sync.Mutex
	records map[string][]ledger.Record
}

const engines = 4

// promises are this program's rules.
var promises = []string{
	"setup as many calls in flight, and waiting on the victim, as the run is for",
	"before no error before content but what the retry budget refuses",
	"budget the budget's floor of retries is granted",
	"after an answer cut after content ends with one typed error event and no [DONE]",
	"record every call that got an answer is recorded once",
	"rotation a dead engine leaves rotation, and one that is back returns",
	"drain SIGTERM loses no call, and the listener closes",
	"restart after SIGKILL the gateway is ready in under a second, with nothing to repair",
	"abort engines stop working for a gateway that is gone",
}

func newStage(out io.Writer, o options) (*stage, error) {
	k := &stage{o: o, out: out, rules: report.NewRules(promises...), records: map[string][]ledger.Record{}}
	if _, err := program.RaiseFiles(uint64(o.clients)*8 + 1024); err != nil {
		return nil, err
	}
	var err error
	if k.binary, err = program.Build(o.binary); err != nil {
		return nil, err
	}
	fail := func(err error) (*stage, error) { return nil, errors.Join(err, k.close()) }
	k.home = filepath.Join(k.binary.Dir, "home")
	if err := os.Mkdir(k.home, 0o700); err != nil {
		return fail(err)
	}
	var urls []string
	for range engines {
		e, err := k.startEngine("127.0.0.1:0")
		if err != nil {
			return fail(err)
		}
		k.engines = append(k.engines, e)
		urls = append(urls, "http://"+e.Addr)
	}
	if k.addr, err = program.FreeAddr(); err != nil {
		return fail(err)
	}
	admin, err := program.FreeAddr()
	if err != nil {
		return fail(err)
	}
	// As it is by default, but for what the flags say, and a drain that waits for the slowest answer, and says so
	// a second before.
	text := fmt.Sprintf("listen: %s\nadmin: %s\nseed: %d\ndrain_delay: 1s\ndrain: 90s\nhealth:\n  ejection: %v\nmodels:\n  m:\n    policy: least-outstanding\n    endpoints: [%s]\n",
		k.addr, admin, o.seed, o.ejection, strings.Join(urls, ", "))
	if k.config, err = k.binary.WriteConfig("kill.yaml", text); err != nil {
		return fail(err)
	}
	if err := k.startGateway(); err != nil {
		return fail(err)
	}
	fmt.Fprintf(out, "kill: %d clients, seed %d; %d engines at speed %g, %d requests at once\n", o.clients, o.seed, engines, o.speed, o.seqs)
	return k, nil
}

func (k *stage) startEngine(addr string) (*program.Engine, error) {
	return k.binary.StartEngine("--listen", addr, "--model", "m", "--speed", fmt.Sprint(k.o.speed),
		"--max-num-seqs", fmt.Sprint(k.o.seqs), "--max-num-batched-tokens", "512", "--seed", fmt.Sprint(k.o.seed))
}

func (k *stage) startGateway() (err error) {
	env := []string{"HOME=" + k.home, "TMPDIR=" + k.home, "XDG_CACHE_HOME=" + k.home, "XDG_STATE_HOME=" + k.home, "XDG_CONFIG_HOME=" + k.home}
	k.gateway, err = k.binary.StartGateway(k.home, k.config, env, k.line)
	return err
}

// line takes a line of the gateway's log.
func (k *stage) line(text []byte) {
	if k.o.verbose && !bytes.Contains(text, []byte(`"msg":"call"`)) {
		fmt.Fprintf(os.Stderr, "%s\n", text)
	}
	var r ledger.Record
	if json.Unmarshal(text, &r) != nil || r.Msg != "call" {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.records[r.ID] = append(k.records[r.ID], r)
}

// record waits a moment for a call's record, which follows its answer.
func (k *stage) record(id string) []ledger.Record {
	for end := time.Now().Add(3 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		k.mu.Lock()
		r := k.records[id]
		k.mu.Unlock()
		if len(r) > 0 || time.Now().After(end) {
			return r
		}
	}
}

func (k *stage) close() error {
	var errs []error
	if k.gateway != nil {
		errs = append(errs, k.gateway.Stop(100*time.Second))
	}
	for _, e := range k.engines {
		errs = append(errs, e.Stop(20*time.Second))
	}
	return errors.Join(append(errs, k.binary.Clean())...)
}

// endpoint returns what /v1/pools says of an engine.
func (k *stage) endpoint(e *program.Engine) (program.Endpoint, error) {
	list, err := k.gateway.Pools()
	if err != nil {
		return program.Endpoint{}, err
	}
	for _, m := range list {
		for _, p := range m.Pools {
			for _, x := range p.Endpoints {
				if x.Endpoint == e.Addr {
					return x, nil
				}
			}
		}
	}
	return program.Endpoint{}, fmt.Errorf("/v1/pools has no endpoint %s", e.Addr)
}

// until polls an engine's state every two milliseconds and returns how long it took to
// become, or to stop being, in rotation.
func (k *stage) until(e *program.Engine, in bool, limit time.Duration) (time.Duration, string, error) {
	began := time.Now()
	for {
		x, err := k.endpoint(e)
		if err != nil {
			return 0, "", err
		}
		took := time.Since(began)
		if (x.State == "in_rotation") == in || took > limit {
			return took, x.State, nil
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// work returns how many requests the engines that live have.
func (k *stage) work() (float64, error) {
	sum := 0.0
	for _, e := range k.engines {
		resp, err := http.Get("http://" + e.Addr + "/metrics")
		if err != nil {
			return 0, err
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it was read
		if err != nil {
			return 0, err
		}
		p, err := program.ParsePage(text)
		if err != nil {
			return 0, err
		}
		sum += p.Sum("vllm:num_requests_running") + p.Sum("vllm:num_requests_waiting")
	}
	return sum, nil
}
