package emulator

import (
	"kvasir/engine"
	"kvasir/internal/mono"
)

// metrics is what the emulator measures beside what the engine counts. Times are engine
// time. It holds no pointer to anything that changes, so a copy is a snapshot. Run owns it.
type metrics struct {
	cachedTokens int64 // prompt tokens of requests with a first output that were found in the prefix cache
	stepTokens   int   // of the step whose outputs are being measured

	ttft, itl, tpot, e2e                                            histogram // seconds
	queue, inference, prefill, decode                               histogram // seconds
	promptTokens, generationTokens, mostTokens, maxTokens, kvTokens histogram
	iterationTokens, choices                                        histogram
}

// Bounds of vLLM's histograms (vllm/v1/metrics/loggers.py).
var (
	firstTokenBounds = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	tokenBounds      = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	requestBounds    = []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	iterationBounds  = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
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
	for _, h := range []*histogram{&m.itl, &m.tpot} {
		h.bounds = tokenBounds
	}
	for _, h := range []*histogram{&m.e2e, &m.queue, &m.inference, &m.prefill, &m.decode} {
		h.bounds = requestBounds
	}
	lengths := lengthBounds(maxModelLen)
	for _, h := range []*histogram{&m.promptTokens, &m.generationTokens, &m.mostTokens, &m.maxTokens, &m.kvTokens} {
		h.bounds = lengths
	}
	m.iterationTokens.bounds, m.choices.bounds = iterationBounds, choicesBounds
}

// times is what is measured of one request.
type times struct {
	arrival                        mono.Time
	queued, scheduled, first, last mono.Time
	tokens, cached                 int
}

// output measures an output of a request whose prompt has so many tokens.
func (m *metrics) output(t *times, prompt int, out engine.Output) {
	if out.First {
		t.queued, t.scheduled, t.first, t.cached = out.Queued, out.Scheduled, out.At, out.Cached
		m.ttft.observe(out.At.Sub(t.arrival).Seconds())
		m.stepTokens += prompt
	} else {
		m.itl.observe(out.At.Sub(t.last).Seconds())
	}
	t.last = out.At
	t.tokens += out.Tokens
	m.stepTokens += out.Tokens
}

// step measures the step whose outputs have all been measured.
func (m *metrics) step() {
	m.iterationTokens.observe(float64(m.stepTokens))
	m.stepTokens = 0
}

// finish measures a request that has ended (vllm/v1/metrics/stats.py,
// update_from_finished_request; aborted ones are not measured).
func (m *metrics) finish(t *times, item int, c *call) {
	prompt := c.Items[item].Request.PromptTokens
	decode := t.last.Sub(t.first).Seconds()
	m.e2e.observe(t.last.Sub(t.arrival).Seconds())
	m.queue.observe(t.scheduled.Sub(t.queued).Seconds())
	m.inference.observe(t.last.Sub(t.scheduled).Seconds())
	m.prefill.observe(t.first.Sub(t.scheduled).Seconds())
	m.decode.observe(decode)
	m.tpot.observe(decode / float64(max(t.tokens-1, 1)))
	m.promptTokens.observe(float64(prompt))
	m.generationTokens.observe(float64(t.tokens))
	m.kvTokens.observe(float64(prompt - t.cached))
	if c.MaxTokens > 0 {
		m.maxTokens.observe(float64(c.MaxTokens))
	}
	g := &c.groups[item/c.Choices]
	g.most = max(g.most, t.tokens)
	if g.open--; g.open == 0 {
		m.mostTokens.observe(float64(g.most))
		m.choices.observe(float64(c.Choices))
	}
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
