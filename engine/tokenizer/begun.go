package tokenizer

import "kvasir/internal/kvblock"

// begun is a chat whose last message is an answer that was begun: with continue_final_message
// the engine goes on with it. Where the words are those that this engine would have said to the
// messages before, it says the rest of them, as a model goes on with its own words; else it says
// what comes to its mind after such a prompt.
type begun struct {
	before prompt // the messages before, and the beginning of an answer
	said   string
}

// openEnd returns how the chat's last message is gone on with; nil where it is no text of the
// assistant's.
func (c *chat) openEnd() *begun {
	n := len(c.messages) - 1
	if !c.goOn || n < 0 {
		return nil
	}
	last := c.messages[n]
	if last.role != "assistant" || last.name != "" || len(last.calls) > 0 || len(last.parts) != 1 || last.parts[0].media {
		return nil
	}
	before := *c
	before.messages, before.generate, before.goOn = c.messages[:n], true, false
	return &begun{before: before.render, said: last.parts[0].text}
}

// draw decides the answer to the prompt with the given hash.
func (r *reader) draw(hash kvblock.Hash, choice int, b bounds) Answer {
	if g := r.begun; g != nil {
		var e encoder
		e.reset(r.seed, r.limits.BlockTokens)
		g.before(&e)
		whole, said := b, (len(g.said)+pieceBytes-1)/pieceBytes
		whole.max += said
		if b.min > 0 {
			whole.min += said
		}
		if rest, ok := draw(r.limits.Seed, e.blocks.Tail(), choice, whole).after(g.said); ok {
			return rest
		}
	}
	return draw(r.limits.Seed, hash, choice, b)
}
