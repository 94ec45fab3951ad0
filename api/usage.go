package api

// Usage is what an answer says that it cost, in tokens. What it does not say is Unknown,
// never zero: vLLM reports cached tokens only when told to.
type Usage struct {
	Input  int // the whole prompt, cached tokens included, whatever the grammar calls it
	Output int
	Cached int // a part of Input
}

// unknownUsage is the usage of an answer that reports none.
func unknownUsage() Usage { return Usage{Unknown, Unknown, Unknown} }

// counts is a "usage" as it stands in an answer. OpenAI has two sets of names, and counts
// cached tokens as a part of the input. Anthropic counts them beside it: the prompt is
// input_tokens + cache_creation_input_tokens + cache_read_input_tokens.
type counts struct {
	input   int // prompt_tokens or input_tokens
	output  int // completion_tokens or output_tokens
	cached  int // prompt_tokens_details.cached_tokens or input_tokens_details.cached_tokens
	created int // cache_creation_input_tokens
	read    int // cache_read_input_tokens
}

var unknownCounts = counts{Unknown, Unknown, Unknown, Unknown, Unknown}

// usage adds up what Anthropic tells apart.
func (c counts) usage() Usage {
	u := Usage{c.input, c.output, c.cached}
	if c.read != Unknown {
		u.Cached = c.read
	}
	if u.Input != Unknown {
		u.Input += max(c.created, 0) + max(c.read, 0)
	}
	return u
}

// update takes in what a later report of the same answer says. Reports are cumulative: a
// count that the later one leaves out stays, and zero does not replace what was counted.
func (c *counts) update(later counts) {
	replace := func(old *int, n int) {
		if n > 0 || *old == Unknown {
			*old = n
		}
	}
	replace(&c.input, later.input)
	replace(&c.output, later.output)
	replace(&c.cached, later.cached)
	replace(&c.created, later.created)
	replace(&c.read, later.read)
}

// readUsage reads the value of "usage". It reports false where that is not an object.
func readUsage(w *walk) (counts, bool) {
	c := unknownCounts
	if !w.enter('{') {
		return counts{}, false
	}
	for {
		key, ok := w.field()
		if !ok {
			return c, true
		}
		switch string(key) {
		case "prompt_tokens", "input_tokens":
			c.input = count(w.value())
		case "completion_tokens", "output_tokens":
			c.output = count(w.value())
		case "cache_creation_input_tokens":
			c.created = count(w.value())
		case "cache_read_input_tokens":
			c.read = count(w.value())
		case "prompt_tokens_details", "input_tokens_details":
			if w.enter('{') {
				c.cached = cachedTokens(w)
			}
		default:
			w.value()
		}
	}
}

func cachedTokens(w *walk) int {
	cached := Unknown
	for {
		key, ok := w.field()
		if !ok {
			return cached
		}
		if v := w.value(); string(key) == "cached_tokens" {
			cached = count(v)
		}
	}
}

// maxCount is the highest number that is believed: sums of such numbers don't overflow.
const maxCount = 1 << 28

// count reads a number of tokens; whatever is none is Unknown.
func count(v []byte) int {
	if n, ok := parseInt(v); ok && 0 <= n && n <= maxCount {
		return n
	}
	return Unknown
}

// plausible makes zeros that can't be Unknown: there is no answer without input, and no
// content without output.
func (u Usage) plausible(content bool) Usage {
	if u.Input == 0 {
		u.Input, u.Cached = Unknown, Unknown
	}
	if u.Output == 0 && content {
		u.Output = Unknown
	}
	return u
}
