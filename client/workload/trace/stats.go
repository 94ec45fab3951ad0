package trace

import (
	"math"
	"slices"
	"time"

	"kvasir/client/workload"
	"kvasir/internal/kvblock"
	"kvasir/internal/stats"
)

// Stats is what is in a trace. Times are by the recorded clock. What is not known of a trace
// is nil or empty.
type Stats struct {
	Name        string `json:"name"`
	BlockTokens int    `json:"block_tokens"` // 0: nothing is known of prefixes
	Sessions    int    `json:"sessions"`
	Calls       int    `json:"calls"`

	CallArrivals    *Arrivals `json:"call_arrivals,omitempty"`
	SessionArrivals *Arrivals `json:"session_arrivals,omitempty"`

	PromptTokens    *Distribution `json:"prompt_tokens,omitempty"`
	OutputTokens    *Distribution `json:"output_tokens,omitempty"`
	CallsPerSession *Distribution `json:"calls_per_session,omitempty"`
	Gaps            *Distribution `json:"gap_seconds,omitempty"` // from an answer to the next call

	Reuse *Reuse `json:"reuse,omitempty"`
}

// Arrivals says how something comes over time; nil where there are fewer than two, or all
// at one instant.
type Arrivals struct {
	SpanSeconds    float64 `json:"span_seconds"` // from the first to the last
	PerSecond      float64 `json:"per_second"`   // how many more than one came in the span
	InterarrivalCV float64 `json:"interarrival_cv"`
	Peaks          []Peak  `json:"peaks"`
}

// Peak is the fullest of the windows of a length that follow each other from the start. The
// last one, which the span ends in, is not looked at.
type Peak struct {
	WindowSeconds float64 `json:"window_seconds"`
	// OfMean is what came in it, as a multiple of the mean of these windows, and so at least 1;
	// nil where there are fewer than two.
	OfMean *float64 `json:"of_mean"`
}

// Distribution is a summary. Mean, CV (standard deviation by mean) and Max are exact;
// quantiles are by nearest rank, to within 0.8 %.
type Distribution struct {
	Mean float64 `json:"mean"`
	CV   float64 `json:"cv"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// Reuse is what caches of prefixes could save, if calls took no time: shares are of the full
// blocks of all prompts. Answers are in the caches where it is known what they are.
type Reuse struct {
	Blocks         int64 `json:"prompt_blocks"`
	DistinctBlocks int   `json:"distinct_blocks"` // of these; answers have others

	Infinite        float64 `json:"infinite_cache_share"`              // of one cache that forgets nothing
	InfinitePrompts float64 `json:"infinite_cache_prompts_only_share"` // the same, were answers not cached

	// By call, of the infinite cache: the mean and the median share, and how many calls find
	// anything.
	PerCallMean float64 `json:"per_call_share_mean"`
	PerCallP50  float64 `json:"per_call_share_p50"`
	CallsHit    float64 `json:"calls_with_reuse_share"`

	// How long ago the longest shared prefix of a call was last used.
	CallsAgo   *Distribution `json:"calls_ago,omitempty"`
	SecondsAgo *Distribution `json:"seconds_ago,omitempty"`

	LRU []LRUShare     `json:"lru,omitempty"`
	Top []SharedPrefix `json:"top_prefixes,omitempty"`
}

// LRUShare is what one LRU cache saves.
type LRUShare struct {
	CacheTokens int     `json:"cache_tokens"`
	Share       float64 `json:"share"`
}

// SharedPrefix is a prefix that several calls have.
type SharedPrefix struct {
	Tokens int `json:"tokens"`
	Calls  int `json:"calls"`
}

// cacheTokens are the sizes of the LRU caches that are looked at, rising.
var cacheTokens = [...]int{100_000, 500_000, 1_000_000, 4_000_000, 16_000_000}

// topPrefixes is how many shared prefixes are listed.
const topPrefixes = 10

// Summarize reads a source to its end and says what is in it. It holds the sessions under
// way and about 260 bytes for each distinct block, of which there may be MaxDistinct.
func Summarize(s workload.Source) (*Stats, error) {
	out := &Stats{Name: s.Name, BlockTokens: s.BlockTokens}
	var begun, calls counted
	var perSession, prompt, output, gaps collected
	watched := s
	watched.Sessions = func(yield func(workload.Session, error) bool) {
		for session, err := range s.Sessions {
			if err == nil {
				out.Sessions++
				begun.add(session.At)
				perSession.add(float64(len(session.Calls)), 1)
			}
			if !yield(session, err) {
				return
			}
		}
	}
	reuse := newReuse(s.BlockTokens)
	for c, err := range timeline(watched) {
		if err != nil {
			return nil, err
		}
		out.Calls++
		calls.add(c.at)
		prompt.add(float64(c.call.PromptTokens), 1)
		output.add(float64(c.call.OutputTokens), 1)
		if len(c.call.After) > 0 {
			gaps.add(c.call.Gap.Seconds(), 1e9)
		}
		if err := reuse.add(c); err != nil {
			return nil, err
		}
	}
	out.CallArrivals, out.SessionArrivals = calls.arrivals(), begun.arrivals()
	out.PromptTokens, out.OutputTokens = prompt.distribution(), output.distribution()
	out.CallsPerSession, out.Gaps = perSession.distribution(), gaps.distribution()
	out.Reuse = reuse.result()
	return out, nil
}

// CallArrivals reads a source to its end and returns how its calls come: what Summarize says
// of them, in less time.
func CallArrivals(s workload.Source) (*Arrivals, error) {
	var calls counted
	for c, err := range timeline(s) {
		if err != nil {
			return nil, err
		}
		calls.add(c.at)
	}
	return calls.arrivals(), nil
}

// windows are those in which the peak is looked for.
var windows = [...]time.Duration{time.Second, 10 * time.Second, time.Minute}

// counted follows how something comes.
type counted struct {
	n           int
	first, last time.Duration
	squares     float64             // of the gaps in seconds, summed up
	at          [len(windows)]int64 // number of the window that last is in
	count       [len(windows)]int   // what came in it
	most        [len(windows)]int   // and in the fullest before it
}

func (c *counted) add(at time.Duration) {
	if c.n == 0 {
		c.first, c.last = at, at
	}
	gap := (at - c.last).Seconds()
	c.squares += float64(gap * gap)
	c.n++
	c.last = at
	for i, w := range windows {
		if n := int64((at - c.first) / w); n != c.at[i] {
			c.most[i] = max(c.most[i], c.count[i])
			c.at[i], c.count[i] = n, 0
		}
		c.count[i]++
	}
}

func (c *counted) arrivals() *Arrivals {
	span := (c.last - c.first).Seconds()
	if c.n < 2 || span == 0 {
		return nil
	}
	gaps := float64(c.n - 1)
	mean := span / gaps
	a := &Arrivals{SpanSeconds: span, PerSecond: gaps / span, InterarrivalCV: cv(mean, c.squares/gaps)}
	for i, w := range windows {
		p := Peak{WindowSeconds: w.Seconds()}
		if c.at[i] >= 2 {
			ofMean := float64(c.most[i]) * float64(c.at[i]) / float64(c.n-c.count[i])
			p.OfMean = &ofMean
		}
		a.Peaks = append(a.Peaks, p)
	}
	return a
}

// cv returns the coefficient of variation by the mean and the mean of the squares; 0 where
// the mean is 0.
func cv(mean, squares float64) float64 {
	if mean == 0 {
		return 0
	}
	return math.Sqrt(max(squares-float64(mean*mean), 0)) / mean
}

// collected collects a distribution of numbers from 0 in bounded memory.
type collected struct {
	histogram             stats.Histogram
	unit                  float64 // of the histogram, in parts of 1
	sum, squares, largest float64
}

// add counts a value, of which the quantiles see multiples of 1/parts.
func (s *collected) add(v, parts float64) {
	s.unit = parts
	s.sum += v
	s.squares += float64(v * v)
	s.largest = max(s.largest, v)
	s.histogram.Add(int64(float64(v*parts) + 0.5))
}

func (s *collected) distribution() *Distribution {
	n := float64(s.histogram.Count())
	if n == 0 {
		return nil
	}
	at := func(q float64) float64 { return float64(s.histogram.Quantile(q)) / s.unit }
	return &Distribution{
		Mean: s.sum / n, CV: cv(s.sum/n, s.squares/n),
		P50: at(0.5), P95: at(0.95), P99: at(0.99), Max: s.largest,
	}
}

// reuse follows what caches could save.
type reuse struct {
	blockTokens int
	stack       *stack
	chain       []int32 // of the call
	calls       int32
	blocks      int64
	distinct    int     // of the blocks, those that differ
	hits        []int64 // of each cache, and of the infinite one
	prompts     int64   // of the infinite one, without answers
	shares      collected
	withBlocks  int
	found       int
	callsAgo    collected
	secondsAgo  collected
}

func newReuse(blockTokens int) *reuse {
	if blockTokens < 1 {
		return &reuse{}
	}
	var sizes []int
	for _, tokens := range cacheTokens {
		if n := tokens / blockTokens; n > 0 {
			sizes = append(sizes, n)
		}
	}
	return &reuse{blockTokens: blockTokens, stack: newStack(sizes), hits: make([]int64, len(sizes)+1)}
}

// add counts a call. A prefix is found as far as its blocks are; as a prompt's blocks are
// used last one first, those before a block are found wherever it is.
func (r *reuse) add(c sent) error {
	if r.blockTokens < 1 || len(c.call.Blocks) == 0 {
		r.calls++
		return nil
	}
	r.chain = r.chain[:0]
	known, asked, parent, salt := 0, 0, int32(-1), c.call.Salt()
	for _, blocks := range [2][]kvblock.Hash{c.call.Blocks, c.call.AnswerBlocks} {
		for _, h := range blocks {
			i, err := r.stack.get(workload.Salted(h, salt), parent)
			if err != nil {
				return err
			}
			r.chain = append(r.chain, i)
			parent = i
		}
	}
	prompt := r.chain[:len(c.call.Blocks)]
	for known < len(prompt) && r.stack.nodes[prompt[known]].stacked {
		b := &r.stack.nodes[prompt[known]]
		for l := int(b.level); l < len(r.hits); l++ {
			r.hits[l]++
		}
		if b.prompted && asked == known {
			asked++
		}
		known++
	}
	r.count(c, prompt, known, asked)
	for _, i := range slices.Backward(r.chain) {
		r.stack.use(i)
		b := &r.stack.nodes[i]
		b.latest, b.at = r.calls, c.at
	}
	for _, i := range prompt {
		b := &r.stack.nodes[i]
		if !b.prompted {
			r.distinct++
		}
		b.prompted = true
		b.calls++
	}
	r.calls++
	return nil
}

// count adds up what a call has found.
func (r *reuse) count(c sent, prompt []int32, known, asked int) {
	r.blocks += int64(len(prompt))
	r.prompts += int64(asked)
	r.withBlocks++
	r.shares.add(float64(known)/float64(len(prompt)), 1e6)
	if known == 0 {
		return
	}
	r.found++
	b := &r.stack.nodes[prompt[known-1]]
	r.callsAgo.add(float64(r.calls-b.latest), 1)
	r.secondsAgo.add((c.at - b.at).Seconds(), 1e9)
}

func (r *reuse) result() *Reuse {
	if r.blocks == 0 {
		return nil
	}
	of := func(n int64) float64 { return float64(n) / float64(r.blocks) }
	out := &Reuse{
		Blocks: r.blocks, DistinctBlocks: r.distinct,
		Infinite: of(r.hits[len(r.hits)-1]), InfinitePrompts: of(r.prompts),
		PerCallMean: r.shares.distribution().Mean, PerCallP50: r.shares.distribution().P50,
		CallsHit: float64(r.found) / float64(r.withBlocks),
		CallsAgo: r.callsAgo.distribution(), SecondsAgo: r.secondsAgo.distribution(),
		Top: r.top(),
	}
	skipped := len(cacheTokens) - len(r.stack.sizes)
	for l, tokens := range cacheTokens[skipped:] {
		out.LRU = append(out.LRU, LRUShare{tokens, of(r.hits[l])})
	}
	return out
}

// top returns the shared prefixes that save most, in tokens. Of those that lie on one path
// and are similar in length the best stands for all.
func (r *reuse) top() []SharedPrefix {
	nodes := r.stack.nodes
	left := make([]bool, len(nodes)) // may still be listed
	for i := range nodes {
		left[i] = nodes[i].calls > 1
		if p := nodes[i].parent; p >= 0 && nodes[p].calls == nodes[i].calls {
			left[p] = false // the longer prefix has as many calls
		}
	}
	below := make([]bool, len(nodes))
	var top []SharedPrefix
	for range topPrefixes {
		best, most := -1, int64(0)
		for i := range nodes {
			if saves := int64(nodes[i].depth) * int64(nodes[i].calls-1); left[i] && saves > most {
				best, most = i, saves
			}
		}
		if best < 0 {
			break
		}
		b := &nodes[best]
		top = append(top, SharedPrefix{Tokens: int(b.depth) * r.blockTokens, Calls: int(b.calls)})
		for i := best; i >= 0 && 2*nodes[i].depth > b.depth; i = int(nodes[i].parent) {
			left[i] = false
		}
		for i := range nodes { // a block's number is above that of the block before it
			p := nodes[i].parent
			below[i] = i == best || p >= 0 && below[p]
			left[i] = left[i] && !(below[i] && nodes[i].depth < 2*b.depth)
		}
	}
	return top
}
