package trace

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// promptsFormat reads prompts as text, one a line, as benchmarks take them: vLLM's custom
// dataset (prompt, output_tokens), AIPerf's single_turn (text or texts), multi_turn (turns[]
// of these), and mooncake_trace with text_input or messages[]. A call has output_len,
// output_tokens, output_length or max_tokens, otherwise Options.AnswerTokens; timestamp and
// delay are milliseconds, delay from the end of the session's call before. Calls with one
// session_id follow each other, each with its whole prompt. Turns, and messages whose
// message_mode is delta, come on top of prompt and answer before them.
func promptsFormat() format {
	return format{
		name: Prompts, about: "JSONL with prompt, text, text_input, messages[] or turns[]: vLLM's custom, AIPerf's single_turn and multi_turn, as text",
		detect: func(first []byte) bool {
			names := fields(first)
			return slices.ContainsFunc(promptFields, func(f string) bool { return names[f] })
		},
		blockTokens: textBlockTokens, unit: time.Millisecond, grouped: true, text: true,
		rows: func(s *settings) parseRows {
			p := &prompts{settings: s}
			p.said.blockTokens = s.blockTokens
			return p.parse
		},
	}
}

// promptFields are where text may stand; a call has one of them.
var promptFields = []string{"prompt", "text", "texts", "text_input", "messages", "turns"}

type prompts struct {
	*settings
	scanner
	said textWriter
	rows []*row // of the record
}

func (p *prompts) parse(record []byte, emit func(*row) bool) error {
	p.reset(record)
	p.rows = p.rows[:0]
	p.turn(&row{}, false)
	if p.end(); p.err != nil {
		return p.err
	}
	for _, r := range p.rows {
		if !emit(r) {
			break
		}
	}
	return nil
}

// turn reads a call, or an object that has turns.
func (p *prompts) turn(r *row, inner bool) {
	found, hasOutput := "", false
	r.delta = inner
	for p.open('{'); p.more('}'); {
		if p.null() { // what is absent may be written so
			continue
		}
		name := string(p.name)
		if slices.Contains(promptFields, name) && found != "" {
			p.fail("%s stands beside %s; allowed: one of them", name, found)
			return
		}
		switch name {
		case "prompt", "text", "texts", "text_input", "messages":
			found = name
			p.said.begin()
			p.content(name, &p.said)
		case "turns":
			found = name
			if inner {
				p.fail("turns stands within turns; allowed: calls")
				return
			}
			for p.open('['); p.more(']'); {
				p.turn(&row{}, true)
			}
		case "output_len", "output_tokens", "output_length", "max_tokens":
			r.output, hasOutput = int(p.integer(name, 0, maxTokens)), true
		case "timestamp":
			r.at, r.timed = p.duration(name, p.unit), true
		case "delay":
			r.delay, r.hasDelay = p.duration(name, p.unit), true
		case "session_id":
			r.session = p.label()
		case "message_mode":
			switch mode := string(p.str()); mode {
			case "delta":
				r.delta = true
			case "history":
			default:
				p.fail("message_mode is %q; allowed: history, delta", mode)
			}
		default:
			p.skip()
		}
	}
	switch {
	case p.err != nil:
	case found == "turns":
		p.chat(r)
	case found == "":
		p.err = fmt.Errorf("there is no text; allowed: one of %v", promptFields)
	default:
		r.prompt, r.blocks = p.said.tokens(), slices.Clone(p.said.Blocks())
		r.delta = r.delta && (inner || r.session != "")
		if !hasOutput {
			r.output = p.AnswerTokens
		}
		p.rows = append(p.rows, r)
	}
}

// chat makes the turns that were read a session.
func (p *prompts) chat(r *row) {
	if len(p.rows) == 0 {
		p.err = errors.New("turns has none; allowed: one or more")
		return
	}
	if r.session == "" {
		r.session = "#" + strconv.Itoa(p.record+1)
	}
	for _, turn := range p.rows {
		turn.session = r.session
	}
	p.rows[len(p.rows)-1].last = true
}
