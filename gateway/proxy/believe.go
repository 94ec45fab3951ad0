package proxy

import "kvasir/api"

// Bounds of what an endpoint's usage is believed.
const (
	// broughtTokens is room for what a prompt has beside its body's bytes: what a URL brings, a
	// file that was uploaded before, a template.
	broughtTokens = 1 << 16
	// storedTokens is the same of /v1/responses, where an id may stand for all that was said before.
	storedTokens = 1 << 20
	// mostAnswer is more than any model's answer has.
	mostAnswer = 1 << 20
)

// most returns how many tokens the call can have at most, of its prompt and of its answer. A
// token has a byte at least, so a prompt has no more of them than its body has bytes, beside
// what the body only names. An answer keeps to max_tokens; where that is not given, and of
// /v1/completions, one call of which may have any number of prompts, it is mostAnswer.
//
// More than that is a lie or a fault: it is in the record as reported, but is charged to
// nobody, else one answer could shut its tenant out for days.
func (c *call) most() (prompt, answer int) {
	prompt, answer = int(c.request.Bytes)+broughtTokens, mostAnswer
	if c.route.grammar == api.Responses {
		prompt += storedTokens - broughtTokens
	}
	if m := c.asked.MaxTokens; m > 0 && c.route.grammar != api.Completions {
		answer = min(answer, min(m, mostAsked)*max(min(c.asked.N, mostAsked), 1))
	}
	return prompt, answer
}

// textOfToken is how many bytes of an answer are taken for a token where nothing else is
// known of it.
const textOfToken = 4

// mostFrame bounds what of an event is taken for its frame: the names and numbers round its
// content.
const mostFrame = 1 << 10

// hear counts an event of content, of so many bytes.
func (a *answer) hear(bytes int) {
	a.contents++
	a.heardBytes += int64(bytes)
	if frame := min(bytes, mostFrame); a.contents == 1 || frame < a.frame {
		a.frame = frame
	}
}

// heard estimates the tokens of the events that came: one each, or one for four bytes of
// their contents where that is more. An event's content is what it has beyond its frame, which
// is as long as the shortest event, so the common event of a token or two counts as one.
func (a *answer) heard() int {
	content := a.heardBytes - int64(a.contents)*int64(a.frame)
	return max(a.contents, int(content/textOfToken))
}
