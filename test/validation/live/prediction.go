package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
)

// predictor is the policy that predicts.
const predictor = "predicted-ttft"

// predictions are a gateway's: of each call, predicted by actual time to first token.
type predictions struct {
	policies map[string]int // calls, by the policy that placed them
	ratios   []float64
	short    int // calls without a prediction
}

// readPredictions reads a gateway's log.
func readPredictions(file string) (*predictions, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := &predictions{policies: map[string]int{}}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		var line struct {
			Message   string  `json:"msg"`
			Policy    string  `json:"policy"`
			TTFT      float64 `json:"ttft_seconds"`
			Predicted float64 `json:"predicted_ttft_seconds"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		if line.Message != "call" {
			continue
		}
		p.policies[line.Policy]++
		if line.TTFT <= 0 || line.Predicted <= 0 {
			p.short++
			continue
		}
		p.ratios = append(p.ratios, line.Predicted/line.TTFT)
	}
	return p, lines.Err()
}

// off returns a quantile of how far predictions are from what came, as a share of the latter.
func (p *predictions) off(q float64) float64 {
	var off []float64
	for _, r := range p.ratios {
		off = append(off, math.Abs(r-1))
	}
	return quantile(off, q)
}

// within returns the share of predictions that are off by no more than that.
func (p *predictions) within(most float64) float64 {
	n := 0
	for _, r := range p.ratios {
		if math.Abs(r-1) <= most {
			n++
		}
	}
	return float64(n) / float64(len(p.ratios))
}

// quantile is the least value that a share q of the values does not exceed; NaN of none.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}
