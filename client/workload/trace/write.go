package trace

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"kvasir/client/workload"
	"kvasir/internal/kvblock"
)

// Write writes a trace in Kvasir's own format (docs/traces.md), which Open reads back as the
// same source: the same sessions with the same hashes. It returns how many sessions there
// were. It writes in small pieces; what fails is w's error, the source's, or a session that
// contradicts workload.Session or is longer than MaxRecord.
func Write(w io.Writer, t *Trace) (sessions int, err error) {
	out := bufio.NewWriterSize(w, 64<<10)
	b := appendHeader(nil, t)
	for s, err := range t.Sessions {
		if err != nil {
			return sessions, err
		}
		if err := s.Validate(t.BlockTokens); err != nil {
			return sessions, fmt.Errorf("session %q: %w", s.ID, err)
		}
		if _, err := out.Write(b); err != nil {
			return sessions, err
		}
		if b = appendSession(b[:0], &s); len(b) > MaxRecord {
			return sessions, fmt.Errorf("session %q takes %d bytes; allowed: %d, the length of a line", s.ID, len(b), MaxRecord)
		}
		sessions++
	}
	if _, err := out.Write(b); err != nil {
		return sessions, err
	}
	return sessions, out.Flush()
}

func appendHeader(b []byte, t *Trace) []byte {
	b = appendInt(b, `{"kvasir_trace":`, Version)
	b = appendString(b, `,"name":`, t.Name)
	b = appendInt(b, `,"block_tokens":`, int64(t.BlockTokens))
	if spread := max(t.Bin, t.Spread); spread > 0 {
		b = appendInt(b, `,"spread_within_ns":`, int64(spread))
	}
	if !t.Timed && t.SessionRate > 0 {
		b = append(b, `,"drawn_sessions_per_second":`...)
		b = strconv.AppendFloat(b, t.SessionRate, 'g', -1, 64)
	}
	if t.Estimated {
		b = append(b, `,"tokens_estimated":true`...)
	}
	return append(b, "}\n"...)
}

func appendSession(b []byte, s *workload.Session) []byte {
	b = appendString(b, `{"id":`, s.ID)
	b = appendInt(b, `,"at_ns":`, int64(s.At))
	if s.Class != "" {
		b = appendString(b, `,"class":`, s.Class)
	}
	b = appendTerms(b, &s.Terms)
	b = append(b, `,"calls":[`...)
	for i := range s.Calls {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendCall(b, s.Calls, i)
	}
	return append(b, "]}\n"...)
}

func appendTerms(b []byte, t *workload.Terms) []byte {
	if t.Tenant != "" {
		b = appendString(b, `,"tenant":`, t.Tenant)
	}
	if t.Share > 0 {
		b = strconv.AppendFloat(append(b, `,"share":`...), t.Share, 'g', -1, 64)
	}
	if t.Priority != 0 {
		b = appendInt(b, `,"priority":`, int64(t.Priority))
	}
	if t.Deadline > 0 {
		b = appendInt(b, `,"deadline_ns":`, int64(t.Deadline))
	}
	return b
}

func appendCall(b []byte, calls []workload.Call, i int) []byte {
	c := &calls[i]
	b = appendInt(b, `{"prompt_tokens":`, int64(c.PromptTokens))
	b = appendInt(b, `,"output_tokens":`, int64(c.OutputTokens))
	if c.Adapter != "" {
		b = appendString(b, `,"adapter":`, c.Adapter)
	}
	for k, after := range c.After {
		before := ","
		if k == 0 {
			before = `,"after":[`
		}
		b = appendInt(b, before, int64(after))
	}
	if len(c.After) > 0 {
		b = append(b, ']')
	}
	if c.Gap > 0 {
		b = appendInt(b, `,"gap_ns":`, int64(c.Gap))
	}
	if c.Offset > 0 {
		b = appendInt(b, `,"offset_ns":`, int64(c.Offset))
	}
	from, shared := prefixOf(calls, i)
	if shared > 0 {
		b = appendInt(b, `,"prefix":[`, int64(from))
		b = append(appendInt(b, ",", int64(shared)), ']')
	}
	parent := kvblock.Hash(0)
	if shared > 0 {
		parent = c.Blocks[shared-1]
	}
	b = appendBlocks(b, `,"blocks":[`, parent, c.Blocks[shared:])
	if n := len(c.Blocks); n > 0 {
		parent = c.Blocks[n-1]
	}
	return append(appendBlocks(b, `,"answer_blocks":[`, parent, c.AnswerBlocks), '}')
}

// prefixOf returns the call with which a call shares most blocks, of those that it waits for
// and the one before it.
func prefixOf(calls []workload.Call, i int) (from, shared int) {
	try := func(j int) {
		if n := sharedBlocks(&calls[j], calls[i].Blocks); n > shared {
			from, shared = j, n
		}
	}
	for _, j := range calls[i].After {
		try(j)
	}
	if i > 0 {
		try(i - 1)
	}
	return from, shared
}

// sharedBlocks returns with how many blocks of a call's prompt and answer a prompt begins.
func sharedBlocks(c *workload.Call, blocks []kvblock.Hash) int {
	n := equal(c.Blocks, blocks)
	if n == len(c.Blocks) {
		n += equal(c.AnswerBlocks, blocks[n:])
	}
	return n
}

// equal returns how many hashes two chains have in common at their start.
func equal(a, b []kvblock.Hash) int {
	n := min(len(a), len(b))
	if n > 0 && &a[0] == &b[0] {
		return n
	}
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// appendBlocks writes the ids of blocks that follow the prefix parent, those that count up
// as a pair of the first and how many; nothing where there are none.
func appendBlocks(b []byte, field string, parent kvblock.Hash, blocks []kvblock.Hash) []byte {
	if len(blocks) == 0 {
		return b
	}
	b = append(b, field...)
	for i := 0; i < len(blocks); {
		first := workload.Added(parent, blocks[i])
		parent = blocks[i]
		n := 1
		for ; i+n < len(blocks) && workload.Added(parent, blocks[i+n]) == first+uint64(n); n++ {
			parent = blocks[i+n]
		}
		if i > 0 {
			b = append(b, ',')
		}
		if n == 1 {
			b = strconv.AppendUint(b, first, 10)
		} else {
			b = strconv.AppendUint(append(b, '['), first, 10)
			b = append(appendInt(b, ",", int64(n)), ']')
		}
		i += n
	}
	return append(b, ']')
}

func appendInt(b []byte, before string, n int64) []byte {
	return strconv.AppendInt(append(b, before...), n, 10)
}

// appendString writes a string as JSON has it; what is not UTF-8 in it becomes U+FFFD.
func appendString(b []byte, before, s string) []byte {
	b = append(append(b, before...), '"')
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
