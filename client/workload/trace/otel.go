package trace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"kvasir/client/workload"
)

// otelFormat reads graphs of calls as OpenTelemetry spans, in the form that inference-perf
// has them (kubernetes-sigs/inference-perf): an object with spans[], each with start_time,
// end_time and attributes, of which gen_ai.input.messages is the prompt, and
// gen_ai.output.text or gen_ai.output.messages the answer. Spans without a prompt are other
// work than calls. Where gen_ai.usage tells input_tokens and output_tokens (or prompt_tokens
// and completion_tokens), they are the lengths, otherwise the text's estimate; an answer that
// is not there has gen_ai.request.max_tokens.
//
// A file does not say what a call waited for. It is taken to have waited for all that had
// ended when it was sent, each directly unless another of these had waited for it.
func otelFormat() format {
	return format{
		name: OTel, about: "JSON with spans[] of OpenTelemetry's gen_ai attributes: inference-perf's graphs, as text",
		detect:      hasFields("spans"),
		blockTokens: textBlockTokens, text: true,
		prepare:  func(s *settings, _ []byte) error { s.untimed = true; return nil },
		sessions: func(s *settings) parseSession { return (&otel{settings: s}).session },
	}
}

// maxSpans bounds the calls of a graph, for each may wait for all others.
const maxSpans = 4096

type otel struct {
	*settings
	scanner
	messages scanner // of the text of an attribute
	text     textWriter
	spans    []span
}

// span is a call in a graph.
type span struct {
	call       workload.Call
	start, end time.Duration
}

func (o *otel) session(record []byte, s *workload.Session) (bool, error) {
	o.reset(record)
	o.text.blockTokens = o.blockTokens
	o.spans = o.spans[:0]
	for o.open('{'); o.more('}'); {
		switch string(o.name) {
		case "trace_id":
			s.ID = o.label()
		case "spans":
			for o.open('['); o.more(']'); {
				o.span()
			}
		default:
			o.skip()
		}
	}
	if o.end(); o.err != nil {
		return false, o.err
	}
	if len(o.spans) == 0 {
		return false, errors.New("spans has none with gen_ai.input.messages; allowed: one or more")
	}
	s.ID = cmp.Or(s.ID, strconv.Itoa(o.record+1))
	s.Calls = o.link()
	return true, nil
}

// span reads a span, and keeps it if it is a call.
func (o *otel) span() {
	var s span
	var started, ended, isCall bool
	for o.open('{'); o.more('}'); {
		switch string(o.name) {
		case "start_time":
			s.start, started = o.instant(), true
		case "end_time":
			if !o.null() {
				s.end, ended = o.instant(), true
			}
		case "attributes":
			isCall = o.attributes(&s.call)
		default:
			o.skip()
		}
	}
	switch {
	case o.err != nil || !isCall:
	case !started || !ended:
		o.fail("a span has no start_time or no end_time; allowed: both")
	case s.end < s.start:
		o.fail("end_time is %v before start_time; allowed: not before it", s.start-s.end)
	case len(o.spans) == maxSpans:
		o.fail("spans has more than %d calls; allowed: as many", maxSpans)
	default:
		o.spans = append(o.spans, s)
	}
}

func (o *otel) instant() time.Duration {
	at, err := wallClock(o.str())
	if err != nil && o.err == nil {
		o.err = err
	}
	return at
}

// attributes reads what was asked and answered, and reports whether the span is a call.
func (o *otel) attributes(c *workload.Call) bool {
	var messages, answer, answers []byte // copied, for the next string may take their room
	prompt, output, most := 0, -1, -1
	isCall := false
	for o.open('{'); o.more('}'); {
		if o.null() {
			continue
		}
		switch string(o.name) {
		case "gen_ai.input.messages":
			messages, isCall = append(messages[:0], o.str()...), true
		case "gen_ai.output.text":
			answer = append(answer[:0], o.str()...)
		case "gen_ai.output.messages":
			answers = append(answers[:0], o.str()...)
		case "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens":
			prompt = int(o.integer(string(o.name), 1, maxTokens))
		case "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens":
			output = int(o.integer(string(o.name), 0, maxTokens))
		case "gen_ai.request.max_tokens":
			most = int(o.integer("gen_ai.request.max_tokens", 1, maxTokens))
		default:
			o.skip()
		}
	}
	if o.err != nil || !isCall {
		return false
	}
	o.text.begin()
	o.said("gen_ai.input.messages", messages)
	asked, known := o.text.tokens(), len(o.text.Blocks())
	if answer == nil && answers != nil {
		o.said("gen_ai.output.messages", answers)
	}
	_, _ = o.text.Write(answer)
	c.PromptTokens = cmp.Or(prompt, asked)
	switch {
	case output >= 0:
		c.OutputTokens = output
	case answer != nil || answers != nil:
		c.OutputTokens = max(o.text.tokens()-asked, 1)
	case most >= 0:
		c.OutputTokens = most
	default:
		c.OutputTokens = o.AnswerTokens
	}
	all := slices.Clone(o.text.Blocks())
	// Where the lengths are not the text's, blocks are known as far as both go.
	full, both := c.PromptTokens/o.blockTokens, (c.PromptTokens+c.OutputTokens)/o.blockTokens
	c.Blocks = all[:min(known, full)]
	if prompt == 0 && len(c.Blocks) == full {
		c.AnswerBlocks = all[full:max(full, min(both, len(all)))]
	}
	return o.err == nil
}

// said reads the array of messages that an attribute holds as text.
func (o *otel) said(attribute string, messages []byte) {
	m := &o.messages
	m.reset(messages)
	for m.open('['); m.more(']'); {
		for m.open('{'); m.more('}'); {
			if string(m.name) == "content" {
				m.content("content", &o.text)
			} else {
				m.skip()
			}
		}
	}
	if m.end(); m.err != nil && o.err == nil {
		o.err = fmt.Errorf("%s: %w", attribute, m.err)
	}
}

// link puts the calls in their order and behind those that had ended.
func (o *otel) link() []workload.Call {
	slices.SortStableFunc(o.spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	calls := make([]workload.Call, len(o.spans))
	first := o.spans[0].start
	for i, s := range o.spans {
		c := s.call
		c.Offset = s.start - first
		free, waited := first, time.Duration(-1) // the latest end, and the latest start of what has ended
		for _, before := range o.spans[:i] {
			if before.end <= s.start {
				free, waited = max(free, before.end), max(waited, before.start)
			}
		}
		for j, before := range o.spans[:i] {
			if before.end <= s.start && before.end > waited {
				c.After = append(c.After, j)
			}
		}
		c.Gap = s.start - free
		calls[i] = c
	}
	return calls
}
