package tokenizer

import (
	"fmt"
	"slices"

	"kvasir/engine"
	"kvasir/internal/kvblock"
)

// Route is an API call that an engine computes.
type Route uint8

// The routes.
const (
	Chat        Route = iota // POST /v1/chat/completions
	Completions              // POST /v1/completions
	Embeddings               // POST /v1/embeddings
)

// Path returns the route's path.
func (r Route) Path() string {
	switch r {
	case Chat:
		return "/v1/chat/completions"
	case Completions:
		return "/v1/completions"
	case Embeddings:
		return "/v1/embeddings"
	}
	return fmt.Sprintf("Route(%d)", uint8(r))
}

// Limits is what Read must know of the engine.
type Limits struct {
	Models      []string // names served, at least one; the first is the engine's own
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
	Model     string // Limits.Models[0], whichever name the call used
	RequestID string // from the body; "" where absent

	Stream          bool
	IncludeUsage    bool // end the stream with a usage chunk
	ContinuousUsage bool // usage in every chunk

	Choices      int // answers to each prompt (n)
	MaxTokens    int // bound of each answer; 0 for embeddings
	PromptTokens int // of all prompts, each counted once

	Base64     bool // encode embeddings so
	Dimensions int  // of an embedding

	Items []Item // one a prompt and choice, the choices of a prompt together
}

// Item is one request to the engine and what it answers. The request's ID is left to the
// submitter.
type Item struct {
	Request engine.Request
	Answer  Answer       // zero for an embedding
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
	if model != "" && !slices.Contains(l.Models, model) {
		return nil, unknownModel(model)
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

// reader is one Read under way.
type reader struct {
	object
	limits Limits
	call   *Call
	answer bounds
	given  bool // the call names answer.max
	salt   string
}

// readCommon reads the fields that are not the prompt.
func (r *reader) readCommon() {
	c := r.call
	c.RequestID = r.str("request_id")
	r.salt = r.str("cache_salt")
	if c.Route == Embeddings {
		c.Base64 = r.str("encoding_format") == "base64"
		c.Dimensions = embeddingDimensions
		if n, given := r.number("dimensions"); given {
			c.Dimensions = n
		}
		return
	}
	c.Stream = r.flag("stream", false)
	if raw, ok := r.raw("stream_options"); ok {
		options := r.child(raw, "stream_options")
		c.IncludeUsage = options.flag("include_usage", false)
		c.ContinuousUsage = c.IncludeUsage && options.flag("continuous_usage_stats", false)
	}
	if n, given := r.number("n"); given {
		c.Choices = n
	}
	r.answer.max, r.given = r.number("max_tokens")
	if c.Route == Chat {
		if n, given := r.number("max_completion_tokens"); given {
			r.answer.max, r.given = n, true
		}
	} else if !r.given {
		r.answer.max, r.given = defaultMaxTokens, true
	}
	r.answer.min, _ = r.number("min_tokens")
	r.answer.ignoreEOS = r.flag("ignore_eos", false)
	if n, given := r.number("seed"); given {
		r.limits.Seed ^= uint64(n) * 0x9e3779b97f4a7c15
	}
}

// check refuses what is well formed and cannot be served.
func (r *reader) check() error {
	c, a := r.call, r.answer
	if c.Route == Embeddings {
		if f := r.str("encoding_format"); f != "" && f != "float" && f != "base64" {
			return badRequest("encoding_format", "encoding_format must be 'float' or 'base64', got '%s'.", f)
		}
		if c.Dimensions < 1 || c.Dimensions > embeddingDimensions {
			return badRequest("dimensions", "dimensions must be from 1 to %d, got %d.", embeddingDimensions, c.Dimensions)
		}
		return nil
	}
	_, options := r.raw("stream_options")
	switch {
	case options && !c.Stream:
		return badRequest("stream_options", "Stream options can only be defined when `stream=True`.")
	case c.Choices < 1 || c.Choices > MaxChoices:
		return badRequest("n", "n must be from 1 to %d, got %d.", MaxChoices, c.Choices)
	case r.given && a.max < 1:
		return badRequest("max_tokens", "max_tokens must be at least 1, got %d.", a.max)
	case a.min < 0:
		return badRequest("min_tokens", "min_tokens must be greater than or equal to 0, got %d.", a.min)
	case r.given && a.min > a.max:
		return badRequest("min_tokens", "min_tokens must be less than or equal to max_tokens=%d, got %d.", a.max, a.min)
	}
	return r.checkUnsupported()
}

// checkUnsupported refuses what an answer of pseudo-words would get wrong.
func (r *reader) checkUnsupported() error {
	unsupported := func(param string) error {
		return badRequest(param, "%s is not supported: this engine is emulated and has no model.", param)
	}
	for _, name := range []string{"echo", "logprobs"} {
		if raw, ok := r.raw(name); ok && string(raw) != "false" {
			return unsupported(name)
		}
	}
	for _, name := range []string{"prompt_logprobs", "prompt_embeds", "suffix"} {
		if _, ok := r.raw(name); ok {
			return unsupported(name)
		}
	}
	if raw, ok := r.raw("tool_choice"); ok {
		if s, _ := text(raw); s != "auto" && s != "none" {
			return badRequest("tool_choice", "tool_choice must be 'auto' or 'none': this engine is emulated and calls no tools.")
		}
	}
	return nil
}

// build makes the items.
func (r *reader) build(prompts []prompt) error {
	c := r.call
	if len(prompts)*c.Choices > MaxItems {
		return badRequest("", "%d prompts with n=%d are more than %d answers.", len(prompts), c.Choices, MaxItems)
	}
	c.Items = make([]Item, 0, len(prompts)*c.Choices)
	seed := kvblock.Seed("vllm", c.Model, r.salt)
	var e encoder
	for _, write := range prompts {
		for choice := range c.Choices {
			e.reset(seed, r.limits.BlockTokens)
			write(&e)
			if choice == 0 {
				c.PromptTokens += e.tokens
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
	q := engine.Request{PromptTokens: e.tokens}
	item := Item{Hash: e.blocks.Tail()}
	whole := len(e.blocks.Blocks())
	if r.call.Route != Embeddings {
		a := r.answer
		if !r.given {
			a.max = r.limits.MaxModelLen - e.tokens
		}
		if err := r.fits(e.tokens, a.max); err != nil {
			return Item{}, err
		}
		r.call.MaxTokens = max(r.call.MaxTokens, a.max)
		item.Answer = draw(r.limits.Seed, item.Hash, choice, a)
		item.Answer.encode(e)
		q.OutputTokens = item.Answer.Tokens
		if !item.Answer.Stop {
			q.Reason = engine.Length
		}
	} else if e.tokens > r.limits.MaxModelLen {
		return Item{}, badRequest("input_tokens", "This model's maximum context length is %d tokens. However, you requested %d "+
			"tokens in the input for embedding generation. Please reduce the length of the input.", r.limits.MaxModelLen, e.tokens)
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
		return tooLong(limit, input, output)
	case !r.given && output < 0:
		return tooLong(limit, input, 0)
	case !r.given && output < 1:
		return badRequest("max_tokens", "max_tokens must be at least 1, got %d.", output)
	}
	return nil
}
