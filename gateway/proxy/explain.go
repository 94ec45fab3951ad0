package proxy

import (
	"encoding/json"
	"math"

	"kvasir/selection"
)

// explained is the JSON of a decision in the x-kvasir-explain response header.
type explained struct {
	Pool       string              `json:"pool"`
	Policy     string              `json:"policy"`
	Reason     string              `json:"reason"`
	Attempt    int                 `json:"attempt"`
	Chosen     string              `json:"chosen"`
	Candidates []explainedEndpoint `json:"candidates"`
	Omitted    int                 `json:"candidates_omitted,omitempty"`
}

type explainedEndpoint struct {
	Endpoint      string   `json:"endpoint"`
	Score         *float64 `json:"score"` // null: the policy did not look at it
	Overlap       int      `json:"overlap_blocks"`
	OverlapTokens int      `json:"overlap_tokens"`
	Outstanding   int      `json:"outstanding"`
	SignalAge     *float64 `json:"signal_age_seconds"` // null: no signal
}

// maxExplained bounds the candidates in the header; proxies on the way commonly refuse
// headers over 8 KiB.
const maxExplained = 32

func explain(d *selection.Decision) string {
	out := explained{
		Pool: d.Pool, Policy: d.Policy, Reason: string(d.Reason), Attempt: d.Attempt,
		Chosen: d.Candidates[d.Chosen].Endpoint,
	}
	for i, k := range d.Candidates {
		if len(out.Candidates) == maxExplained-1 && i < d.Chosen {
			continue // keep a place for the chosen one
		}
		if len(out.Candidates) == maxExplained {
			break
		}
		e := explainedEndpoint{
			Endpoint: k.Endpoint, Overlap: k.Overlap, OverlapTokens: k.OverlapTokens, Outstanding: k.Outstanding,
		}
		if !math.IsNaN(k.Score) && !math.IsInf(k.Score, 0) {
			e.Score = &k.Score
		}
		if k.SignalAge >= 0 {
			age := k.SignalAge.Seconds()
			e.SignalAge = &age
		}
		out.Candidates = append(out.Candidates, e)
	}
	out.Omitted = len(d.Candidates) - len(out.Candidates)
	text, err := json.Marshal(out)
	if err != nil {
		return "" // no float in it is NaN or infinite, so this does not happen
	}
	return string(text)
}
