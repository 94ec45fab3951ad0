package proxy

import (
	"encoding/json"
	"math"
	"strconv"

	"kvasir/selection"
	"kvasir/telemetry"
)

// explained is the JSON of a decision in the x-kvasir-explain response header.
type explained struct {
	Pool         string            `json:"pool"`
	Policy       string            `json:"policy"`
	Reason       string            `json:"reason"`
	Attempt      int               `json:"attempt"`
	Predicted    short             `json:"predicted_ttft_seconds,omitempty"`
	Chosen       string            `json:"chosen"`
	Conversation string            `json:"conversation,omitempty"`
	Candidates   []json.RawMessage `json:"candidates"`
	Omitted      int               `json:"candidates_omitted,omitempty"`

	shown []int // which of the decision's candidates these are
}

type explainedEndpoint struct {
	Endpoint      string   `json:"endpoint"`
	Score         *float64 `json:"score"` // null: the policy did not look at it
	Overlap       int      `json:"overlap_blocks"`
	OverlapTokens int      `json:"overlap_tokens"`
	Trust         string   `json:"prefix_trust,omitempty"` // in the overlap; absent: the policy does not go by it
	Outstanding   int      `json:"outstanding"`
	SignalAge     *float64 `json:"signal_age_seconds"` // null: no signal
	Parts         numbers  `json:"parts,omitempty"`    // of the score
	Signals       []source `json:"signals,omitempty"`
}

// source is what is known of an endpoint's load from one source, of one age.
type source struct {
	Source selection.Source `json:"source"`
	Age    short            `json:"age_seconds"`
	Values numbers          `json:"values"`
}

// short is a number to four digits, as people read it; null where it is none.
type short float64

func (s short) MarshalJSON() ([]byte, error) { return appendShort(nil, float64(s)), nil }

func appendShort(b []byte, x float64) []byte {
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return append(b, "null"...)
	case x == math.Trunc(x) && math.Abs(x) < 1e15: // counts stay whole
		return strconv.AppendFloat(b, x, 'f', 0, 64)
	default:
		return strconv.AppendFloat(b, x, 'g', 4, 64)
	}
}

// numbers is an object of numbers that keeps their order. The names are constants that need
// no escapes.
type numbers []selection.Part

func (n numbers) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, p := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, p.Name...)
		b = append(b, `":`...)
		b = appendShort(b, p.Value)
	}
	return append(b, '}'), nil
}

// sources groups readings that have source and age in common.
func sources(readings []selection.Reading) []source {
	var out []source
	for i, r := range readings {
		if i == 0 || r.Source != readings[i-1].Source || r.Age != readings[i-1].Age {
			out = append(out, source{Source: r.Source, Age: short(r.Age.Seconds())})
		}
		last := &out[len(out)-1]
		last.Values = append(last.Values, selection.Part{Name: r.Name, Value: r.Value})
	}
	return out
}

// What bounds the candidates in the header: proxies on the way commonly refuse headers over
// 8 KiB, the others among them.
const (
	maxExplained      = 32
	maxExplainedBytes = 7 << 10
)

func explain(d *selection.Decision) string {
	return string(marshal(explainAtMost(d, maxExplained, maxExplainedBytes)))
}

// explainAtMost describes at most so many candidates, in so many bytes of JSON.
func explainAtMost(d *selection.Decision, most, mostBytes int) explained {
	chosen := explainCandidate(&d.Candidates[d.Chosen])
	out := explained{
		Pool: d.Pool, Policy: d.Policy, Reason: string(d.Reason), Attempt: d.Attempt,
		Predicted: short(d.Predicted.Seconds()), Chosen: d.Candidates[d.Chosen].Endpoint,
		Conversation: telemetry.ConversationName(uint64(d.Conversation)),
	}
	places, room := most-1, mostBytes-len(chosen) // the chosen one has its own
	for i := range d.Candidates {
		text := chosen
		if i != d.Chosen {
			if places == 0 {
				continue
			}
			if text = explainCandidate(&d.Candidates[i]); len(text) > room {
				places = 0
				continue
			}
			places--
			room -= len(text)
		}
		out.Candidates = append(out.Candidates, text)
		out.shown = append(out.shown, i)
	}
	out.Omitted = len(d.Candidates) - len(out.Candidates)
	return out
}

func explainCandidate(k *selection.Candidate) json.RawMessage {
	e := explainedEndpoint{
		Endpoint: k.Endpoint, Overlap: k.Overlap, OverlapTokens: k.OverlapTokens, Trust: k.Trust, Outstanding: k.Outstanding, Score: finite(k.Score),
		Parts: k.Parts, Signals: sources(k.Signals),
	}
	if k.SignalAge >= 0 {
		age := k.SignalAge.Seconds()
		e.SignalAge = &age
	}
	return marshal(e)
}

// marshal is json.Marshal of what has no float that is NaN or infinite, and so no error.
func marshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return []byte("null")
	}
	return text
}
