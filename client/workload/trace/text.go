package trace

import (
	"io"

	"kvasir/internal/kvblock"
)

// textWriter counts and hashes text and keeps none of it. A token is taken to be four bytes
// (kvblock.TokenBytes), and messages to have nothing between them: real counts differ with
// language and tokenizer, and a chat template adds a few to each message.
type textWriter struct {
	kvblock.Writer
	blockTokens int
}

func (t *textWriter) begin() { t.Reset(0, t.blockTokens*kvblock.TokenBytes) }

// tokens returns how many tokens there are so far, 1 at least: what little text there is
// is a prompt.
func (t *textWriter) tokens() int { return min(max(t.Len()/kvblock.TokenBytes, 1), maxTokens) }

// content reads the text of a message into w: a string, or an array of parts as the chat API
// has them.
func (s *scanner) content(field string, w io.Writer) {
	switch s.peek() {
	case '"':
		_, _ = w.Write(s.str())
	case 'n':
		s.null()
	case '[':
		for s.open('['); s.more(']'); {
			s.part(field, w)
		}
	default:
		s.fail("%s is %s; allowed: a string, or an array of parts with text", field, s.excerpt(s.i))
	}
}

// part reads an element of an array of text.
func (s *scanner) part(field string, w io.Writer) {
	if s.peek() == '"' {
		_, _ = w.Write(s.str())
		return
	}
	found := false
	for s.open('{'); s.more('}'); {
		switch string(s.name) {
		case "text", "content", "contents":
			found = true
			s.content(field, w)
		default:
			s.skip()
		}
	}
	if !found {
		s.fail("%s has a part without text; allowed: text alone, for the tokens of other parts are not known", field)
	}
}
