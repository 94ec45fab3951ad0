package emulator

import (
	"sync"

	"kvasir/engine"
	"kvasir/engine/tokenizer"
)

// call is an API call in flight: where its handler and the engine's goroutine meet. What
// the engine gave is counted, so a handler that waits for its client holds a constant
// amount of memory and the engine's goroutine never waits for it.
type call struct {
	*tokenizer.Call

	life *life
	pin  int // data-parallel rank that the client chose, or anyRank

	wake chan struct{} // capacity 1: progress or err changed

	groups []group // of Run: one a prompt

	mu       sync.Mutex
	progress []progress // by item
	err      error      // why nothing more will come
}

// anyRank lets the engine choose.
const anyRank = -1

// group is what the choices of one prompt share.
type group struct {
	open int // choices that have not finished
	most int // tokens of the longest answer that has
}

// progress is what the engine has computed of one item.
type progress struct {
	tokens   int // of the answer, so far
	cached   int // prompt tokens found in the prefix cache
	started  bool
	finished bool
	aborted  bool // finished because the engine was put to sleep
}

// newCall names the call's requests for the engine: the numbers from first on.
func newCall(c *tokenizer.Call, l *life, first engine.ID) *call {
	for i := range c.Items {
		c.Items[i].Request.ID = first + engine.ID(i)
	}
	n := len(c.Items)
	groups := make([]group, n/c.Choices)
	for i := range groups {
		groups[i].open = c.Choices
	}
	return &call{Call: c, life: l, pin: anyRank, wake: make(chan struct{}, 1), groups: groups, progress: make([]progress, n)}
}

// deliver counts an output. The engine's goroutine calls it.
func (c *call) deliver(item int, out engine.Output) {
	c.mu.Lock()
	p := &c.progress[item]
	p.tokens += out.Tokens
	p.cached, p.started = out.Cached, true
	p.finished = p.finished || out.Finished
	c.mu.Unlock()
	c.signal()
}

// interrupt finishes an item whose request was taken back from it.
func (c *call) interrupt(item int) {
	c.mu.Lock()
	p := &c.progress[item]
	p.started, p.finished, p.aborted = true, true, true
	c.mu.Unlock()
	c.signal()
}

// fail says that nothing more will come.
func (c *call) fail(err error) {
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
	c.signal()
}

func (c *call) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// read copies the progress into dst.
func (c *call) read(dst []progress) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	copy(dst, c.progress)
	return c.err
}

// over reports whether the engine has nothing left to do for the call.
func (c *call) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil || finished(c.progress)
}

// finished reports whether the engine has nothing left to compute.
func finished(items []progress) bool {
	for _, p := range items {
		if !p.finished {
			return false
		}
	}
	return true
}

// usage is what a call took.
type usage struct{ prompt, cached, completion int }

// usage sums up the progress; a prompt counts once, whatever the number of its choices.
func (c *call) usage(items []progress) usage {
	u := usage{prompt: c.PromptTokens}
	for i, p := range items {
		u.completion += p.tokens
		if i%c.Choices == 0 {
			u.cached += p.cached
		}
	}
	return u
}
