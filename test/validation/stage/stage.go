// Package stage plays one workload with one policy: over sockets and in real time, with kvasir
// bench against emulated engines behind kvasir serve, and in virtual time, with kvasir sim.
package stage

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Stage is where a workload is played, and by what.
type Stage struct {
	Kvasir   string // the binary
	Dir      string // for files, which stay until somebody removes them
	Calls    string // the workload, in Kvasir's own format: times, lengths and prefixes are settled
	Replicas int
	Profile  string        // of the engines, as kvasir engine names it
	Blocks   int           // KV blocks of an engine; 0: what the profile's memory holds
	TTFT     time.Duration // the SLO, which policies are told; 0: none
	TPOT     time.Duration
	Detailed bool          // keep every call of both sides, in POLICY.json and POLICY.csv of Dir
	LagBound time.Duration // of the generator's lag at P99, above which a run is refused; 0: bench's own
}

// Figures are what both tools tell, in seconds; the keys of their JSON.
type Figures struct {
	Calls  float64   `json:"calls"`
	TTFT   Quantiles `json:"ttft_s"`
	TPOT   Quantiles `json:"tpot_s"`
	E2E    Quantiles `json:"e2e_s"`
	Good   *float64  `json:"slo_attainment"` // share of calls; nil without an SLO
	Cached *float64  `json:"cached_token_ratio"`
}

// Quantiles are of a latency, in seconds.
type Quantiles struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
}

// Seed is that of both sides' draws: a rule that picks at random picks the same endpoint for
// the n-th call of a gateway, live and simulated.
const Seed = 1

// New makes a stage's folder and, unless a binary is given, builds one from the repository two
// folders up.
func New(ctx context.Context, binary string) (*Stage, error) {
	dir, err := os.MkdirTemp("", "kvasir-validation-")
	if err != nil {
		return nil, err
	}
	s := &Stage{Kvasir: binary, Dir: dir}
	if binary == "" {
		s.Kvasir = filepath.Join(dir, "kvasir")
		if out, err := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join("..", ".."), "-o", s.Kvasir, "./cmd/kvasir").CombinedOutput(); err != nil {
			_ = os.RemoveAll(dir)
			return nil, fmt.Errorf("go build: %w\n%s", err, out)
		}
	}
	return s, nil
}

// Settle writes the stretch of a trace that is to be played, so many times as fast, and plays
// it from now on.
func (s *Stage) Settle(ctx context.Context, trace string, length time.Duration, rate float64) error {
	s.Calls = filepath.Join(s.Dir, "calls.jsonl")
	args := []string{"trace", "convert", "--force", "--seed", "1", "--rate", fmt.Sprint(rate)}
	if length > 0 {
		args = append(args, "--for", length.String())
	}
	_, err := s.Output(ctx, append(args, trace, s.Calls)...)
	return err
}

// Output runs kvasir and returns what it prints.
func (s *Stage) Output(ctx context.Context, args ...string) ([]byte, error) {
	cmd := s.command(ctx, args)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("kvasir %s: %w\n%s%s", args[0], err, complaint.String(), out)
	}
	return out, nil
}

// command is ended as an operator would end it.
func (s *Stage) command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.Kvasir, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}
