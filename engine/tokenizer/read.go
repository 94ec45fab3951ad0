package tokenizer

import (
	"encoding/json"
	"slices"

	"kvasir/engine"
	"kvasir/internal/kvblock"
)

// Limits is what Read must know of the engine.
type Limits struct {
	Models      []string // names served, at least one; the first is the engine's own
	Adapters    []string // names of LoRA adapters, which are served as models; the n-th is the engine's adapter n, from 1
	MaxModelLen int      // tokens of prompt and answer together
	BlockTokens int      // tokens a KV block
	Seed        uint64   // of the answers' lengths and texts
}

// Bounds on one call.
const (
	MaxChoices = 128  // n
	MaxItems   = 2048 // prompts times n
)

// defaultMaxTokens bounds an answer of /v1/completions that names no bound.
const defaultMaxTokens = 16

// Call is what an engine reads in an API call.
type Call struct {
	Route     Route
	Model     string       // the adapter's name, or Limits.Models[0], whichever of the engine's names the call used
	Adapter   kvblock.Hash // of the engine; 0: none
	RequestID string       // from the body; "" where absent

	Stream          bool
	IncludeUsage    bool // end the stream with a usage chunk
	ContinuousUsage bool // usage in every chunk

	Choices      int // answers to each prompt (n)
	MaxTokens    int // bound of each answer; 0 where the route has no answer
	PromptTokens int // of all prompts, each counted once

	// Tool is the function that the answer calls, "" for none: an engine without a model
	// calls one only when it is made to. ToolNamed says that the call named it.
	Tool      string
	ToolNamed bool

	Base64     bool // encode embeddings so
	Dimensions int  // of an embedding

	Pairs []Pair // of a score or rerank call, one an item
	TopN  int    // rerank: how many results are wanted; 0: all

	// Given has the fields of a responses call that its answer repeats, as they came.
	Given map[string]json.RawMessage

	Items []Item // one a prompt and choice, the choices of a prompt together; none for CountTokens
}

// Item is one request to the engine and what it answers. The request's ID is left to the
// submitter.
type Item struct {
	Request engine.Request
	Answer  Answer       // zero where the route has no answer
	Hash    kvblock.Hash // of the whole prompt
}

// Read reads a call's body. It is a pure function: the same route, body and limits give the
// same Call. The error is always an *Error.
func Read(route Route, data []byte, l Limits) (*Call, error) {
	var faults []fault
	o := body(data, &faults)
	if len(faults) > 0 {
		return nil, malformed(faults)
	}
	r := reader{object: o, limits: l, call: &Call{Route: route, Model: l.Models[0], Choices: 1}}
	model := r.str("model")
	r.readCommon()
	prompts, err := r.readPrompts()
	if len(faults) > 0 {
		return nil, malformed(faults)
	}
	if e := l.checkModel(model); e != nil {
		return nil, e
	}
	if i := slices.Index(l.Adapters, model); i >= 0 {
		r.call.Model, r.call.Adapter = model, kvblock.Hash(i+1)
	}
	if err == nil {
		err = r.check()
	}
	if err == nil {
		err = r.build(prompts)
	}
	if err != nil {
		return nil, err
	}
	return r.call, nil
}

// checkModel refuses a name that the engine does not serve; none is allowed.
func (l *Limits) checkModel(name string) error {
	if name != "" && !slices.Contains(l.Models, name) && !slices.Contains(l.Adapters, name) {
		return unknownModel(name)
	}
	return nil
}

// reader is one Read under way.
type reader struct {
	object
	limits Limits
	call   *Call
	answer bounds
	given  bool // the call names answer.max
	cut    bool // the prompt is text: vLLM stops tokenizing where it is too long
	salt   string
	seed   kvblock.Hash // of the blocks
	begun  *begun       // nil: the answer begins with its first word
}

// readCommon reads the fields that are not the prompt.
func (r *reader) readCommon() {
	r.call.RequestID = r.str("request_id")
	r.salt = r.str("cache_salt")
	switch {
	case r.call.Route == Embeddings:
		r.call.Base64 = r.str("encoding_format") == "base64"
		r.call.Dimensions = embeddingDimensions
		if n, given := r.number("dimensions"); given {
			r.call.Dimensions = n
		}
	case r.call.Route.Generates():
		r.readAnswer()
	}
}

// readAnswer reads what a call says about its answer.
func (r *reader) readAnswer() {
	c := r.call
	c.Stream = r.flag("stream", false)
	r.answer.max, r.given = r.number(c.Route.bound())
	r.answer.ignoreEOS = r.flag("ignore_eos", false)
	if n, given := r.number("seed"); given {
		r.limits.Seed ^= uint64(n) * 0x9e3779b97f4a7c15
	}
	switch c.Route {
	case Messages:
		r.readMessageOptions()
		return
	case Responses:
		r.readResponseOptions()
		return
	case Chat:
		if n, given := r.number("max_completion_tokens"); given {
			r.answer.max, r.given = n, true
		}
	case Completions:
		if !r.given {
			r.answer.max, r.given = defaultMaxTokens, true
		}
	}
	if raw, ok := r.raw("stream_options"); ok {
		options := r.child(raw, "stream_options")
		c.IncludeUsage = options.flag("include_usage", false)
		c.ContinuousUsage = c.IncludeUsage && options.flag("continuous_usage_stats", false)
	}
	if n, given := r.number("n"); given {
		c.Choices = n
	}
	r.answer.min, _ = r.number("min_tokens")
}

// build makes the items.
func (r *reader) build(prompts []prompt) error {
	c := r.call
	if len(prompts)*c.Choices > MaxItems {
		return badRequest("", "%d prompts with n=%d are more than %d answers.", len(prompts), c.Choices, MaxItems)
	}
	c.Items = make([]Item, 0, len(prompts)*c.Choices)
	seed := kvblock.Seed("vllm", r.limits.Models[0], r.salt)
	if c.Adapter != 0 {
		seed = kvblock.Seed("vllm", r.limits.Models[0], r.salt, c.Model)
	}
	r.seed = seed
	var e encoder
	for _, write := range prompts {
		for choice := range c.Choices {
			e.reset(seed, r.limits.BlockTokens)
			write(&e)
			if choice == 0 {
				c.PromptTokens += e.tokens
			}
			if c.Route == CountTokens {
				continue
			}
			item, err := r.item(&e, choice)
			if err != nil {
				return err
			}
			c.Items = append(c.Items, item)
		}
	}
	return nil
}

// item makes the request of one prompt, which e has read, and one choice.
func (r *reader) item(e *encoder, choice int) (Item, error) {
	q := engine.Request{PromptTokens: e.tokens, Adapter: r.call.Adapter}
	item := Item{Hash: e.blocks.Tail()}
	whole := len(e.blocks.Blocks())
	if r.call.Route.Generates() {
		a := r.answer
		if !r.given {
			a.max = r.limits.MaxModelLen - e.tokens
		}
		if err := r.fits(e.tokens, a.max); err != nil {
			return Item{}, err
		}
		r.call.MaxTokens = max(r.call.MaxTokens, a.max)
		item.Answer = r.draw(item.Hash, choice, a)
		item.Answer.encode(e)
		q.OutputTokens = item.Answer.Tokens
		if !item.Answer.Stop {
			q.Reason = engine.Length
		}
	} else if e.tokens > r.limits.MaxModelLen {
		return Item{}, r.tooLong(e.tokens, 0)
	}
	all := slices.Clone(e.blocks.Blocks())
	q.Blocks, q.AnswerBlocks = all[:whole:whole], all[whole:]
	item.Request = q
	return item, nil
}

// fits refuses a prompt that leaves no room for the answer. output is the call's bound or,
// where it names none, the room.
func (r *reader) fits(input, output int) error {
	limit := r.limits.MaxModelLen
	switch {
	case r.given && input+output > limit:
		return r.tooLong(input, output)
	case !r.given && output < 0:
		return r.tooLong(input, 0)
	case !r.given && output < 1:
		return badRequest(r.call.Route.bound(), "max_tokens must be at least 1, got %d.", output)
	}
	return nil
}
