package emulator

import (
	"kvasir/engine"
	"kvasir/internal/mono"
)

// metrics is what the emulator measures beside what the engine counts. Times are engine
// time. It holds no pointer to anything that changes, so a copy is a snapshot. Run owns it.
type metrics struct {
	cachedTokens int64 // prompt tokens of requests with a first output that were found in the prefix cache

	ttft, itl, tpot, e2e, decode                       histogram // seconds
	promptTokens, generationTokens, maxTokens, choices histogram
}

// Bounds of vLLM's histograms (vllm/v1/metrics/loggers.py).
var (
	firstTokenBounds = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	tokenBounds      = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	requestBounds    = []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	choicesBounds    = []float64{1, 2, 5, 10, 20}
)

// lengthBounds returns 1, 2 and 5 times the powers of ten up to most.
func lengthBounds(most int) []float64 {
	var bounds []float64
	for power := 1; ; power *= 10 {
		for _, m := range []int{1, 2, 5} {
			if m*power > most {
				return bounds
			}
			bounds = append(bounds, float64(m*power))
		}
	}
}

func (m *metrics) init(maxModelLen int) {
	m.ttft.bounds = firstTokenBounds
	m.itl.bounds, m.tpot.bounds = tokenBounds, tokenBounds
	m.e2e.bounds, m.decode.bounds = requestBounds, requestBounds
	lengths := lengthBounds(maxModelLen)
	m.promptTokens.bounds, m.generationTokens.bounds, m.maxTokens.bounds = lengths, lengths, lengths
	m.choices.bounds = choicesBounds
}

// times is what is measured of one request.
type times struct {
	arrival, first, last mono.Time
	tokens               int
}

// output measures an output of a request.
func (m *metrics) output(t *times, out engine.Output) {
	if out.First {
		t.first = out.At
		m.ttft.observe(out.At.Sub(t.arrival).Seconds())
	} else if out.Tokens > 0 {
		m.itl.observe(out.At.Sub(t.last).Seconds())
	}
	t.last = out.At
	t.tokens += out.Tokens
}

// finish measures a request that has ended.
func (m *metrics) finish(t *times, item int, c *call) {
	decode := t.last.Sub(t.first).Seconds()
	m.e2e.observe(t.last.Sub(t.arrival).Seconds())
	m.promptTokens.observe(float64(c.Items[item].Request.PromptTokens))
	if t.tokens == 0 {
		return
	}
	m.decode.observe(decode)
	if t.tokens > 1 {
		m.tpot.observe(decode / float64(t.tokens-1))
	}
	m.generationTokens.observe(float64(t.tokens))
	m.maxTokens.observe(float64(c.MaxTokens))
	m.choices.observe(float64(c.Choices))
}

// maxBuckets is at least the number of any histogram's bounds.
const maxBuckets = 32

// histogram counts values by upper bounds.
type histogram struct {
	bounds []float64 // ascending; never changed
	counts [maxBuckets + 1]uint64
	sum    float64
}

func (h *histogram) observe(v float64) {
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += v
}
