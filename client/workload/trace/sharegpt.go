package trace

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"kvasir/client/workload"
	"kvasir/internal/kvblock"
)

// shareGPTFormat reads conversations as ShareGPT has them: a JSON array, or JSONL, of objects
// with conversations[] of from and value; messages[] of role and content is read as well.
// Each message of the assistant is an answer, and the call's prompt is all that was said
// before it. Answers before any question belong to the first prompt, and answers in a row
// are one. A last question without an answer is a call whose answer has
// Options.AnswerTokens. Nothing is known of times: conversations come at
// Options.SessionRate, their turns Options.ThinkTime after the answers.
func shareGPTFormat() format {
	return format{
		name: ShareGPT, about: "JSON or JSONL with conversations[] of from and value: ShareGPT, as text",
		detect: func(first []byte) bool {
			names := fields(first)
			return names["conversations"] || names["conversation"]
		},
		blockTokens: textBlockTokens, text: true,
		prepare:  func(s *settings, _ []byte) error { s.untimed = true; return nil },
		sessions: func(s *settings) parseSession { return (&shareGPT{settings: s}).session },
	}
}

// textBlockTokens is in how long blocks text is cut: vLLM's block size.
const textBlockTokens = 16

// shareGPT reads conversations.
type shareGPT struct {
	*settings
	scanner
	said  textWriter   // of the conversation so far
	held  bytes.Buffer // the text of the message that is being read
	asked bool         // there is something to answer
	calls []workload.Call
}

func (c *shareGPT) session(record []byte, s *workload.Session) (bool, error) {
	c.reset(record)
	c.said.blockTokens, c.asked, c.calls = c.blockTokens, false, nil
	c.said.begin()
	found := false
	for c.open('{'); c.more('}'); {
		switch string(c.name) {
		case "id":
			s.ID = c.label()
		case "conversations", "conversation", "messages":
			found = true
			for c.open('['); c.more(']'); {
				c.message()
			}
		default:
			c.skip()
		}
	}
	if c.end(); c.err != nil {
		return false, c.err
	}
	if c.asked {
		c.call(c.AnswerTokens)
	}
	switch {
	case !found:
		return false, errors.New("conversations is missing; allowed: an array of messages")
	case len(c.calls) == 0:
		return false, errors.New("conversations has no question; allowed: one or more messages that are no answers")
	}
	s.ID = cmp.Or(s.ID, strconv.Itoa(c.record+1))
	s.Calls = c.calls
	c.link(s.Calls)
	return true, nil
}

// call adds a call whose prompt is all that was said.
func (c *shareGPT) call(output int) {
	c.calls = append(c.calls, workload.Call{PromptTokens: c.said.tokens(), OutputTokens: output})
	c.asked = false
}

// link puts the calls behind each other and gives them their blocks. The prompts are heads
// of one text, so they share its blocks.
func (c *shareGPT) link(calls []workload.Call) {
	all := slices.Clone(c.said.Blocks())
	for i := range calls {
		call := &calls[i]
		prompt := min(call.PromptTokens/c.blockTokens, len(all))
		both := min((call.PromptTokens+call.OutputTokens)/c.blockTokens, len(all))
		call.Blocks, call.AnswerBlocks = all[:prompt:prompt], all[prompt:both:both]
		if i > 0 {
			before := &calls[i-1]
			call.After, call.Gap = []int{i - 1}, c.ThinkTime
			call.Offset = plus(plus(before.Offset, time.Duration(before.OutputTokens)*c.TokenTime), call.Gap)
		}
	}
}

// label reads what names something, a string or a number.
func (s *scanner) label() string {
	if s.peek() == '"' {
		return string(s.str())
	}
	if s.null() {
		return ""
	}
	return string(s.number("id"))
}

// message reads a message.
func (c *shareGPT) message() {
	from := ""
	c.held.Reset()
	for c.open('{'); c.more('}'); {
		switch string(c.name) {
		case "from", "role":
			from = string(c.str())
		case "value", "content":
			c.content(string(c.name), &c.held)
		default:
			c.skip()
		}
	}
	switch {
	case c.err != nil:
	case slices.Contains(askers, from):
		_, _ = c.said.Write(c.held.Bytes())
		c.asked = true
	case slices.Contains(answerers, from):
		c.answered()
	default:
		c.fail("from is %q; allowed: %s, and for answers %s", from, strings.Join(askers, ", "), strings.Join(answerers, ", "))
	}
}

// answered adds the message as an answer, or to the answer before it.
func (c *shareGPT) answered() {
	if c.asked {
		c.call(0)
	}
	before := c.said.Len() / kvblock.TokenBytes
	_, _ = c.said.Write(c.held.Bytes())
	n := c.said.Len()/kvblock.TokenBytes - before
	if len(c.calls) > 0 {
		last := &c.calls[len(c.calls)-1]
		last.OutputTokens = min(last.OutputTokens+n, maxTokens)
		if last.OutputTokens == 0 && c.held.Len() > 0 {
			last.OutputTokens = 1
		}
	}
}

// Who says what, in the names that conversations in circulation have.
var (
	askers    = []string{"human", "user", "system", "developer", "tool", "function", "function_response", "observation"}
	answerers = []string{"gpt", "function_call", "assistant", "chatgpt", "bing", "bard", "model"}
)
