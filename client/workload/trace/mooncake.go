package trace

import (
	"fmt"
	"time"

	"kvasir/client/workload"
	"kvasir/internal/kvblock"
)

// Mooncake's traces (Qin et al., "Mooncake", FAST 2025; kvcache-ai/Mooncake,
// FAST25-release/traces) have one call a line: timestamp in milliseconds, input_length,
// output_length, and hash_ids, one for each 512 tokens of the prompt, the last of which may
// stand for fewer. vLLM's timed_trace reads the same. AIPerf's mooncake_trace adds
// session_id, delay (milliseconds from the end of the session's call before) and
// context_mode, and lets output_length, timestamp and hash_ids be absent. Prompts of a
// session come on top of each other there, unless its context_mode is
// message_array_with_responses.
func mooncakeFormat() format {
	return format{
		name: Mooncake, about: "JSONL with hash_ids: Mooncake, vLLM's timed_trace, AIPerf's mooncake_trace",
		detect:      hasFields("input_length"),
		blockTokens: 512, unit: time.Millisecond, grouped: true,
		rows: func(s *settings) parseRows { return (&hashed{settings: s}).mooncake },
	}
}

// Bailian's traces (alibaba-edu/qwen-bailian-usagetraces-anon) are Mooncake's with
// timestamps in seconds, blocks of 16 tokens, and chats: chat_id names a call, parent_chat_id
// the one that it goes on from, or -1. Each prompt is whole. type is the class.
func bailianFormat() format {
	return format{
		name: Bailian, about: "JSONL of Qwen-Bailian: hash_ids of 16 tokens, chat_id, parent_chat_id",
		detect:      hasFields("chat_id", "input_length"),
		blockTokens: 16, unit: time.Second, grouped: true,
		rows: func(s *settings) parseRows { return (&hashed{settings: s}).bailian },
	}
}

// hashed reads lines with hash ids.
type hashed struct {
	*settings
	scanner
	ids []uint64

	// What a line may have beside a row's fields.
	whole              bool // context_mode says that prompts are
	hasInput, hasIDs   bool
	hasOutput, hasChat bool
}

func (h *hashed) mooncake(record []byte, emit func(*row) bool) error {
	r, err := h.read(record)
	if err != nil {
		return err
	}
	r.delta = r.session != "" && !h.whole
	emit(r)
	return nil
}

func (h *hashed) bailian(record []byte, emit func(*row) bool) error {
	r, err := h.read(record)
	switch {
	case err != nil:
		return err
	case !h.hasChat:
		return fmt.Errorf("chat_id is missing; allowed: a whole number")
	case !r.timed:
		return fmt.Errorf("timestamp is missing; allowed: seconds, from 0")
	}
	r.session = r.id
	emit(r)
	return nil
}

// read reads a line of either format.
func (h *hashed) read(record []byte) (*row, error) {
	r := new(row)
	h.reset(record)
	h.ids = h.ids[:0]
	h.whole, h.hasInput, h.hasIDs, h.hasOutput, h.hasChat = false, false, false, false, false
	for h.open('{'); h.more('}'); {
		h.field(r)
	}
	if h.end(); h.err != nil {
		return nil, h.err
	}
	if !h.hasInput {
		return nil, fmt.Errorf("input_length is missing; allowed: whole numbers from 1 to %d", maxTokens)
	}
	if !h.hasOutput {
		r.output = h.AnswerTokens
	}
	return r, h.chain(r)
}

func (h *hashed) field(r *row) {
	if h.peek() == 'n' { // AIPerf writes what is absent as null
		h.skip()
		return
	}
	switch string(h.name) {
	case "timestamp":
		r.at, r.timed = h.duration("timestamp", h.unit), true
	case "input_length":
		r.prompt, h.hasInput = int(h.integer("input_length", 1, maxTokens)), true
	case "output_length":
		r.output, h.hasOutput = int(h.integer("output_length", 0, maxTokens)), true
	case "hash_ids":
		h.hasIDs = true
		for h.open('['); h.more(']'); {
			h.ids = append(h.ids, h.unsigned("an id of hash_ids"))
		}
	case "session_id":
		r.session = string(h.str())
	case "delay":
		r.delay, r.hasDelay = h.duration("delay", h.unit), true
	case "context_mode":
		switch mode := string(h.str()); mode {
		case "message_array_with_responses":
			h.whole = true
		case "deltas_without_responses":
		default:
			h.fail("context_mode is %q; allowed: message_array_with_responses, deltas_without_responses", mode)
		}
	case "chat_id":
		h.hasChat = true
		r.id = string(h.number("chat_id"))
	case "parent_chat_id":
		if after := h.number("parent_chat_id"); string(after) != "-1" {
			r.after = string(after)
		}
	case "type":
		r.class = string(h.str())
	default:
		h.skip()
	}
}

// chain makes blocks of the ids: those of full blocks. An id stands for its prefix in these
// traces; chained, it does so whatever the ids are.
func (h *hashed) chain(r *row) error {
	if !h.hasIDs || len(h.ids) == 0 {
		return nil
	}
	full := r.prompt / h.blockTokens
	if n := len(h.ids); n < full || n > (r.prompt+h.blockTokens-1)/h.blockTokens {
		return fmt.Errorf("hash_ids has %d ids, and input_length %d is %d full blocks of %d tokens; allowed: one id for each of them, and one for the rest (another length of blocks can be set)",
			n, r.prompt, full, h.blockTokens)
	}
	r.blocks = make([]kvblock.Hash, full)
	var head kvblock.Hash
	for i, id := range h.ids[:full] {
		head = workload.Extend(head, id)
		r.blocks[i] = head
	}
	return nil
}
