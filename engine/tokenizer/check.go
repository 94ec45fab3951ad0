package tokenizer

import "slices"

// check refuses what is well formed and cannot be served.
func (r *reader) check() error {
	c := r.call
	switch {
	case c.Route == Embeddings:
		if f := r.str("encoding_format"); f != "" && f != "float" && f != "base64" {
			return badRequest("encoding_format", "encoding_format must be 'float' or 'base64', got '%s'.", f)
		}
		if c.Dimensions < 1 || c.Dimensions > embeddingDimensions {
			return badRequest("dimensions", "dimensions must be from 1 to %d, got %d.", embeddingDimensions, c.Dimensions)
		}
		return nil
	case !c.Route.Generates():
		return nil
	}
	if err := r.checkBounds(); err != nil {
		return err
	}
	if c.Route == Responses {
		if err := r.checkStore(); err != nil {
			return err
		}
	}
	if err := r.checkUnsupported(); err != nil {
		return err
	}
	return r.chooseTool()
}

func (r *reader) checkBounds() error {
	c, a := r.call, r.answer
	_, options := r.raw("stream_options")
	bound := c.Route.bound()
	switch {
	case options && !c.Stream && (c.Route == Chat || c.Route == Completions):
		return badRequest("stream_options", "Stream options can only be defined when `stream=True`.")
	case c.Choices < 1 || c.Choices > MaxChoices:
		return badRequest("n", "n must be from 1 to %d, got %d.", MaxChoices, c.Choices)
	case r.given && a.max < 1:
		return badRequest(bound, "max_tokens must be at least 1, got %d.", a.max)
	case a.min < 0:
		return badRequest("min_tokens", "min_tokens must be greater than or equal to 0, got %d.", a.min)
	case r.given && a.min > a.max:
		return badRequest("min_tokens", "min_tokens must be less than or equal to max_tokens=%d, got %d.", a.max, a.min)
	}
	return nil
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
	return nil
}

// chooseTool finds the function that the answer has to call. Left to itself the engine
// calls none.
func (r *reader) chooseTool() error {
	c := r.call
	raw, ok := r.raw("tool_choice")
	if !ok || c.Route == Completions {
		return nil
	}
	name, choice := "", ""
	if s, ok := text(raw); ok {
		choice = s
	} else {
		o := r.child(raw, "tool_choice")
		choice, name = o.str("type"), o.str("name")
		if f, ok := o.raw("function"); ok {
			name = o.child(f, "function").str("name")
		}
	}
	switch choice {
	case "auto", "none":
		return nil
	case "required", "any":
	case "function", "tool":
		c.ToolNamed = true
	default:
		return badRequest("tool_choice", "tool_choice must be 'auto', 'none', 'required' or a function, got '%s'.", choice)
	}
	if c.Route == Responses {
		return badRequest("tool_choice", "tool_choice must be 'auto' or 'none': this engine is emulated and calls no tools in responses.")
	}
	names := r.toolNames()
	if len(names) == 0 {
		return badRequest("tool_choice", "When using `tool_choice`, `tools` must be set.")
	}
	if !c.ToolNamed {
		c.Tool = names[0]
		return nil
	}
	if slices.Contains(names, name) {
		c.Tool = name
		return nil
	}
	return badRequest("tool_choice", "The tool specified in `tool_choice` does not match any of the specified `tools`")
}

// toolNames returns the names of the functions that the call offers.
func (r *reader) toolNames() []string {
	var names []string
	for i, raw := range r.list("tools") {
		o := r.child(raw, "tools", i)
		if f, ok := o.raw("function"); ok {
			o = o.child(f, "function")
		}
		if n := o.str("name"); n != "" {
			names = append(names, n)
		}
	}
	return names
}
