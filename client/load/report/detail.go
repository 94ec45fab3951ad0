package report

import (
	"cmp"
	"slices"
	"time"
)

// detail is a call in a detailed result.
type detail struct {
	intended, sent, ttft, end time.Duration
	input, output             int
	gaps                      []time.Duration
	text, failure             string
}

func detailOf(s *Sample) detail {
	d := detail{intended: s.Intended, sent: s.Sent, end: s.End, input: s.Usage.Input, text: s.Text}
	if d.input < 0 {
		d.input = s.Prompt
	}
	if s.Failure != "" {
		d.failure = string(s.Failure) + ": " + s.Detail
		return d
	}
	d.ttft, d.gaps = s.TTFT(), slices.Clone(s.Outputs.gaps)
	d.output, _ = s.Tokens()
	return d
}

// detailed adds the lists of vLLM's detailed results, one entry a call in the order in which
// calls were to be sent, and the intended sends.
func (r *Result) detailed(o *object) {
	slices.SortStableFunc(r.details, func(a, b detail) int { return cmp.Compare(a.intended, b.intended) })
	var inputs, outputs []int
	var ttfts, starts, intended []float64
	itls := [][]float64{}
	var texts, failures []string
	for _, d := range r.details {
		inputs, outputs = append(inputs, d.input), append(outputs, d.output)
		ttfts = append(ttfts, d.ttft.Seconds())
		starts, intended = append(starts, d.sent.Seconds()), append(intended, d.intended.Seconds())
		gaps := make([]float64, len(d.gaps))
		for i, gap := range d.gaps {
			gaps[i] = gap.Seconds()
		}
		itls = append(itls, gaps)
		texts, failures = append(texts, d.text), append(failures, d.failure)
	}
	o.add("input_lens", inputs)
	o.add("output_lens", outputs)
	o.add("ttfts", ttfts)
	o.add("itls", itls)
	o.add("start_times", starts)
	o.add("generated_texts", texts)
	o.add("errors", failures)
	o.add("intended_start_times", intended)
}
