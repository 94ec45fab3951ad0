package api

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// Continuation is how a streamed call's body is changed so that another engine goes on where
// an answer broke off: it is prompted with what was said so far (article section 9.4). A text
// completion's prompt is made longer by it; a chat gets it as the last message, the
// assistant's own, which the engine is told to go on with.
type Continuation struct {
	chat   bool
	at     int // in the body: where what was said goes
	first  int // likewise: before its first field
	bounds [3]bound
	n      int
	stops  [][]byte // decoded
}

// bound is a number of tokens of the answer that the body names.
type bound struct {
	at   Span
	n    int
	most bool // of tokens at most; else at least
}

// ReadContinuation reads how the body of a call can be continued, or says why it can't. Read
// has found the body sound. Continued is what is one text that the engine makes up as it goes:
//
//   - one answer, to one prompt that is a string, or to a conversation that does not end with
//     words put into the assistant's mouth;
//   - not under a grammar (response_format, a forced tool, guided and structured outputs): the
//     engine would begin the grammar anew in the middle of a text;
//   - without log probabilities, token ids, the prompt's echo or a suffix, of which the second
//     answer knows nothing that belongs to the first;
//   - a text completion only with a bound on its tokens: without one, how many are left is the
//     engine's secret (vLLM and SGLang stop after 16).
//
// Sources: vLLM's and SGLang's protocol.py for the fields' names.
func ReadContinuation(g Grammar, body []byte) (Continuation, error) {
	c := Continuation{chat: g == Chat}
	if g != Chat && g != Completions {
		return c, errors.New("only chats and text completions are continued")
	}
	w := walk{b: body}
	if !w.enter('{') {
		return c, errors.New("the body is no JSON object")
	}
	c.first = w.i
	var wrong error
	for {
		key, ok := w.field()
		if !ok {
			break
		}
		if err := c.field(string(key), &w); err != nil && wrong == nil {
			wrong = err
		}
	}
	switch {
	case wrong != nil:
		return c, wrong
	case w.bad:
		return c, errors.New("the body is no JSON object")
	case c.at == 0:
		return c, errors.New("there is no prompt that can be made longer")
	case !c.chat && !slices.ContainsFunc(c.bounds[:c.n], func(b bound) bool { return b.most }):
		return c, errors.New("max_tokens is not given: how many are left is not known")
	}
	return c, nil
}

// field takes in one field of the body, whose value w stands before.
func (c *Continuation) field(key string, w *walk) error {
	w.at()
	start := w.i
	switch key {
	case "prompt":
		if v := w.value(); len(v) > 1 && v[0] == '"' {
			if !c.chat {
				c.at = w.i - 1
			}
			return nil
		}
		return errors.New("prompt is not one string")
	case "messages":
		return c.messages(w)
	}
	v := w.value()
	if len(v) == 0 || v[0] == 'n' {
		return nil
	}
	set := v[0] != 'f'
	switch key {
	case "max_tokens", "max_completion_tokens", "min_tokens":
		return c.bound(Span{start, w.i}, v, key != "min_tokens")
	case "n", "best_of":
		if string(v) != "1" {
			return fmt.Errorf("%s is not 1", key)
		}
	case "stop":
		return c.stop(v)
	case "tool_choice", "function_call":
		if string(v) != `"auto"` && string(v) != `"none"` {
			return fmt.Errorf("%s forces a call", key)
		}
	case "response_format":
		if string(unquoted(member(v, "type"))) != "text" {
			return errors.New("response_format is not text")
		}
	case "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structural_tag",
		"json_schema", "regex", "ebnf", "grammar",
		"echo", "suffix", "logprobs", "top_logprobs", "prompt_logprobs", "return_token_ids", "return_tokens_as_token_ids",
		"truncate_prompt_tokens", "prompt_embeds", "audio", "use_beam_search", "stream_interval",
		"continue_final_message", "add_generation_prompt":
		if set {
			return fmt.Errorf("%s is set", key)
		}
	}
	return nil
}

// member returns the value of an object's member, nil where there is none.
func member(object []byte, name string) []byte {
	w := walk{b: object}
	if !w.enter('{') {
		return nil
	}
	var found []byte
	for {
		key, ok := w.field()
		if !ok {
			return found
		}
		if own := string(key) == name; own {
			found = w.value()
		} else {
			w.value()
		}
	}
}

// messages finds the end of the conversation.
func (c *Continuation) messages(w *walk) error {
	if !w.enter('[') {
		return errors.New("messages is no list")
	}
	var last []byte
	for w.element() {
		last = w.value()
	}
	if c.chat {
		c.at = w.i - 1
	}
	if role := unquoted(member(last, "role")); len(role) == 0 || string(role) == "assistant" {
		return errors.New("messages does not end with a message of somebody else's than the assistant")
	}
	return nil
}

// bound takes in a number of tokens. What is not above 0 is no bound.
func (c *Continuation) bound(at Span, v []byte, most bool) error {
	n, ok := parseInt(v)
	if !ok || c.n == len(c.bounds) {
		return errors.New("a bound on tokens is no whole number, or given twice")
	}
	if n > 0 {
		c.bounds[c.n] = bound{at, n, most}
		c.n++
	}
	return nil
}

// stop takes in the sequences that end the answer.
func (c *Continuation) stop(v []byte) error {
	w := walk{b: v}
	if w.at() != '[' {
		w.b = slices.Concat([]byte("["), v, []byte("]"))
	}
	for more := w.enter('[') && w.element(); more; more = w.element() {
		s := w.value()
		if len(s) < 2 || s[0] != '"' {
			return errors.New("stop is no text, and no list of texts")
		}
		c.stops = append(c.stops, appendDecoded(nil, unquoted(s)))
	}
	return nil
}

// Chat reports whether the body is a chat's.
func (c *Continuation) Chat() bool { return c.chat }

// Splits reports whether what was said so far, as it stands between the quotes of JSON strings,
// ends with the beginning of a stop sequence. The next engine looks for stop sequences in what
// it says itself, and would not see one that lies across the seam.
func (c *Continuation) Splits(said []byte) bool {
	if len(c.stops) == 0 {
		return false
	}
	text := appendDecoded(nil, said)
	for _, s := range c.stops {
		for n := min(len(s)-1, len(text)); n > 0; n-- {
			if bytes.HasSuffix(text, s[:n]) {
				return true
			}
		}
	}
	return false
}

// Edits gives body, of which ReadContinuation has made c, what was said so far: said, as it
// stands between the quotes of JSON strings, in so many tokens. fields are further fields of a
// chat that make its engine go on with the last message, each with a comma behind it. It
// reports false where no token is left to be said.
func (c *Continuation) Edits(said []byte, tokens int, fields string) ([]Edit, bool) {
	var edits []Edit
	if c.chat && fields != "" {
		edits = append(edits, Edit{At: Span{c.first, c.first}, Value: []byte(fields)})
	}
	text := said
	if c.chat {
		text = slices.Concat([]byte(`,{"role":"assistant","content":"`), said, []byte(`"}`))
	}
	edits = append(edits, Edit{At: Span{c.at, c.at}, Value: text})
	for _, b := range c.bounds[:c.n] {
		left := b.n - tokens
		if b.most && left <= 0 {
			return nil, false
		}
		edits = append(edits, Edit{At: b.at, Value: strconv.AppendInt(nil, int64(max(left, 0)), 10)})
	}
	slices.SortStableFunc(edits, func(a, b Edit) int { return a.At.Start - b.At.Start })
	return edits, true
}
