package api

// Usage is what an answer says that it cost, in tokens. What it does not say is Unknown,
// never zero: vLLM reports cached tokens only when told to.
type Usage struct {
	Input  int // prompt_tokens
	Output int // completion_tokens
	Cached int // prompt_tokens_details.cached_tokens, a part of Input
}

// unknownUsage is the usage of an answer that reports none.
func unknownUsage() Usage { return Usage{Unknown, Unknown, Unknown} }

// readUsage reads the value of "usage". It reports false where that is not an object.
func readUsage(w *walk) (Usage, bool) {
	u := unknownUsage()
	if !w.enter('{') {
		return Usage{}, false
	}
	for {
		key, ok := w.field()
		if !ok {
			return u, true
		}
		switch string(key) {
		case "prompt_tokens":
			u.Input = count(w.value())
		case "completion_tokens":
			u.Output = count(w.value())
		case "prompt_tokens_details":
			if w.enter('{') {
				u.Cached = cachedTokens(w)
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

// count reads a number of tokens; whatever is none is Unknown.
func count(v []byte) int {
	if n, ok := parseInt(v); ok && n >= 0 {
		return n
	}
	return Unknown
}

// Tally adds up what the chunks of one answer said. The zero Tally is ready to use.
type Tally struct {
	Chunks   int  // all of them, preamble included
	Content  bool // content was seen
	Visible  bool // visible content was seen
	Finished bool // a finish_reason was seen
	Failed   bool // an error was seen
	Done     bool // the end mark was seen
	usage    Usage
	hasUsage bool
}

// Add takes in the next chunk.
func (t *Tally) Add(c Chunk) {
	t.Chunks++
	t.Content = t.Content || c.Kind == Content
	t.Visible = t.Visible || c.Visible
	t.Finished = t.Finished || c.Finish != nil
	t.Failed = t.Failed || c.Kind == Failure
	t.Done = t.Done || c.Kind == Done
	if c.HasUsage && (!t.hasUsage || c.Usage.Input > 0 || c.Usage.Output > 0) {
		t.usage, t.hasUsage = c.Usage, true
	}
}

// Usage returns the last usage that the chunks gave. It is cumulative, so earlier ones
// are not added; one that is all zeros does not replace another. A zero that can't be
// is Unknown: there is no answer without input, and no content without output.
func (t *Tally) Usage() Usage {
	if !t.hasUsage {
		return unknownUsage()
	}
	return t.usage.plausible(t.Content)
}

func (u Usage) plausible(content bool) Usage {
	if u.Input == 0 {
		u.Input, u.Cached = Unknown, Unknown
	}
	if u.Output == 0 && content {
		u.Output = Unknown
	}
	return u
}
