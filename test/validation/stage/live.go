package stage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Run is what a run in real time gave.
type Run struct {
	Figures
	Log   string                                          // the file with the gateway's log
	Lags  []Lag                                           // of the engines: how late they gave what they had computed
	Late  time.Duration                                   // the generator's lag at P99
	Took  time.Duration                                   // from the first call to the end of the last
	Spent struct{ Bench, Gateway, Engines time.Duration } // CPU time
}

// Busy is how many of the machine's cores the run had at work.
func (r *Run) Busy() float64 {
	return (r.Spent.Bench + r.Spent.Gateway + r.Spent.Engines).Seconds() / r.Took.Seconds()
}

// Lag is the emulator's, as /emulator/lag tells it.
type Lag struct {
	Wakes int64   `json:"wakes"`
	Mean  float64 `json:"mean_seconds"`
	P99   float64 `json:"p99_seconds"`
	Max   float64 `json:"max_seconds"`
}

// Live plays the workload over sockets, in real time.
func (s *Stage) Live(ctx context.Context, policy string) (*Run, error) {
	t, err := s.open(ctx, policy)
	if err != nil {
		return nil, err
	}
	defer t.close()
	// The first scrapes are over then.
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	r := &Run{Log: t.log}
	bench, err := t.bench(ctx, r)
	if err != nil {
		return nil, err
	}
	for _, address := range t.engines {
		var lag Lag
		if err := get(ctx, "http://"+address+"/emulator/lag", &lag); err != nil {
			return nil, err
		}
		r.Lags = append(r.Lags, lag)
	}
	t.close()
	r.Spent.Bench = spent(bench)
	r.Spent.Gateway = spent(t.all[len(t.all)-1])
	for _, engine := range t.all[:len(t.all)-1] {
		r.Spent.Engines += spent(engine)
	}
	return r, nil
}

// settle is longer than signals.scrape.
const settle = 3 * time.Second

// theatre is the running processes: the engines, then the gateway.
type theatre struct {
	*Stage
	policy, gateway, log string
	engines              []string
	all                  []*exec.Cmd
	end                  context.CancelFunc
}

func (s *Stage) open(ctx context.Context, policy string) (*theatre, error) {
	ctx, cancel := context.WithCancel(ctx)
	t := &theatre{Stage: s, policy: policy, end: cancel, log: filepath.Join(s.Dir, policy+".log")}
	if err := t.start(ctx); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *theatre) start(ctx context.Context) error {
	ports, err := freePorts(t.Replicas + 2)
	if err != nil {
		return err
	}
	t.gateway, t.engines = ports[0], ports[2:]
	admin := ports[1]
	var config strings.Builder
	fmt.Fprintf(&config, "listen: %s\nadmin: %s\nseed: %d\ndrain: 1s\ndrain_delay: 0s\nmodels:\n  m:\n    policy: %s\n", t.gateway, admin, Seed, t.policy)
	if t.TTFT > 0 {
		fmt.Fprintf(&config, "    slo: {ttft: %v, tpot: %v}\n", t.TTFT, t.TPOT)
	}
	config.WriteString("    endpoints:\n")
	for _, address := range t.engines {
		fmt.Fprintf(&config, "      - http://%s\n", address)
		args := []string{"engine", "--listen", address, "--model", "m", "--profile", t.Profile, "--control", "--shutdown-timeout", "1s"}
		if t.Blocks > 0 {
			args = append(args, "--num-gpu-blocks", strconv.Itoa(t.Blocks))
		}
		if err := t.run(t.command(ctx, args)); err != nil {
			return err
		}
	}
	file := filepath.Join(t.Dir, t.policy+".yaml")
	if err := os.WriteFile(file, []byte(config.String()), 0o600); err != nil {
		return err
	}
	log, err := os.Create(t.log)
	if err != nil {
		return err
	}
	defer log.Close() // the gateway has its own
	gateway := t.command(ctx, []string{"serve", "--config", file})
	gateway.Stderr = log
	if err := t.run(gateway); err != nil {
		return err
	}
	return ready(ctx, "http://"+admin+"/readyz")
}

func (t *theatre) run(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	t.all = append(t.all, cmd)
	return nil
}

// close ends what runs and waits for it; a second time does nothing.
func (t *theatre) close() {
	t.end()
	for _, cmd := range t.all {
		_ = cmd.Wait() // it was told to end
	}
}

// bench sends the calls, and notes in r what came of them.
func (t *theatre) bench(ctx context.Context, r *Run) (*exec.Cmd, error) {
	result := filepath.Join(t.Dir, t.policy+".json")
	args := []string{
		"bench", "--base-url", "http://" + t.gateway, "--model", "m", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions",
		"--dataset-name", "kvasir", "--dataset-path", t.Calls, "--self-timed", "--num-prompts", "1000000000", "--ignore-eos", "--ready-check-timeout-sec", "0", "--save-result", "--result-filename", result,
	}
	if t.LagBound > 0 {
		args = append(args, "--lag-bound", t.LagBound.String())
	}
	if t.TTFT > 0 {
		args = append(args, "--goodput", "ttft:"+t.TTFT.String(), "tpot:"+t.TPOT.String())
	}
	if t.Detailed {
		args = append(args, "--save-detailed")
	}
	cmd := t.command(ctx, args)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("kvasir bench: %w\n%s", err, out)
	}
	text, err := os.ReadFile(result)
	if err != nil {
		return nil, err
	}
	var report struct {
		Kvasir   Figures
		Failed   int
		Duration float64
		Lag      float64 `json:"p99_schedule_lag_ms"`
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, err
	}
	if report.Failed > 0 {
		return nil, fmt.Errorf("%d calls failed", report.Failed)
	}
	r.Figures = report.Kvasir
	r.Took = time.Duration(report.Duration * 1e9)
	r.Late = time.Duration(report.Lag * 1e6)
	return cmd, nil
}

// spent is the CPU time of a process that has ended.
func spent(cmd *exec.Cmd) time.Duration {
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// ready waits until the gateway can route.
func ready(ctx context.Context, url string) error {
	for range 300 {
		if get(ctx, url, nil) == nil {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.New("the gateway is not ready after 30 s")
}

// get reads JSON into v, unless that is nil. A status other than 200 is an error.
func get(ctx context.Context, url string, v any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	if v == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(v)
}
