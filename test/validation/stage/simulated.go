package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Simulated plays the workload in virtual time, a run for each policy, with the draws of the
// seed, and returns what each gave. The calls come rate times as fast as the workload says.
func (s *Stage) Simulated(ctx context.Context, seed uint64, rate float64, policies ...string) ([]Figures, error) {
	model, device, _ := strings.Cut(s.Profile, "/")
	args := []string{
		"sim", "--trace", s.Calls, "--policy", strings.Join(policies, ","), "--replicas", strconv.Itoa(s.Replicas),
		"--model", model, "--device", device, "--block-size", "16", "--warmup", "0", "--rate-scale", fmt.Sprint(rate),
		"--seed", strconv.FormatUint(seed, 10), "--format", "json",
	}
	if s.Blocks > 0 {
		args = append(args, "--num-gpu-blocks", strconv.Itoa(s.Blocks))
	}
	if s.TTFT > 0 {
		args = append(args, "--slo-ttft", s.TTFT.String(), "--slo-tpot", s.TPOT.String())
	}
	if s.Detailed {
		args = append(args, "--calls", filepath.Join(s.Dir, policies[0]+".csv"))
	}
	out, err := s.Output(ctx, args...)
	if err != nil {
		return nil, err
	}
	var report struct{ Results []Figures }
	if err := json.Unmarshal(out, &report); err != nil {
		return nil, err
	}
	if len(report.Results) != len(policies) {
		return nil, fmt.Errorf("%d results of %d policies", len(report.Results), len(policies))
	}
	return report.Results, nil
}
