package trace

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"kvasir/client/workload"
	"kvasir/internal/kvblock"
)

// Version is that of the Kvasir trace format which Write writes, and the one that is read.
const Version = 1

// kvasirFormat reads what Write has written. docs/traces.md describes it. A field that it
// does not have is an error: a later version may mean something by it.
func kvasirFormat() format {
	return format{
		name: Kvasir, about: "JSONL with a header and one session a line: Kvasir's own, version 1",
		detect:   hasFields("kvasir_trace"),
		prepare:  func(s *settings, first []byte) error { return (&told{settings: s}).header(first) },
		sessions: func(s *settings) parseSession { return (&told{settings: s}).session },
	}
}

// told reads Kvasir's own format.
type told struct {
	*settings
	scanner
	used   int
	chains []toldChain // of the session's calls
	named  string      // the latest adapter
}

// toldChain is the prompt and the answer of a call.
type toldChain struct {
	all  []kvblock.Hash
	free bool // what lies behind all in memory is still to be had
}

func (k *told) header(record []byte) error {
	k.reset(record)
	version := int64(0)
	for k.open('{'); k.more('}'); {
		switch string(k.name) {
		case "kvasir_trace":
			version = k.integer("kvasir_trace", Version, Version)
		case "name":
			k.source = string(k.str())
		case "block_tokens":
			k.blockTokens = int(k.integer("block_tokens", 0, maxBlockTokens))
		case "spread_within_ns":
			k.spread = time.Duration(k.integer("spread_within_ns", 0, int64(forever)))
		case "drawn_sessions_per_second":
			k.drawn = k.positive("drawn_sessions_per_second")
		case "tokens_estimated":
			k.estimated = k.truth("tokens_estimated")
		default:
			k.unknown("the header")
		}
	}
	if k.end(); k.err == nil && version == 0 {
		k.fail("kvasir_trace is missing; allowed: %d, in a header on the first line", Version)
	}
	return k.err
}

func (s *scanner) unknown(where string) {
	s.fail("%s has a field %s; allowed: those of version %d (docs/traces.md)", where, excerpt(s.name), Version)
}

// positive reads a number above 0.
func (s *scanner) positive(field string) float64 {
	b := s.number(field)
	f, err := strconv.ParseFloat(string(b), 64)
	if s.err == nil && (err != nil || !(f > 0)) {
		s.fail("%s is %s; allowed: numbers above 0", field, excerpt(b))
	}
	return f
}

// share reads a tenant's share.
func (s *scanner) share() float64 {
	f := s.positive("share")
	if s.err == nil && f > workload.MaxShare {
		s.fail("share is %v; allowed: above 0, to %v", f, float64(workload.MaxShare))
	}
	return f
}

// truth reads true or false.
func (s *scanner) truth(field string) bool {
	switch s.peek() {
	case 't':
		s.word("true")
		return s.err == nil
	case 'f':
		s.word("false")
	default:
		s.fail("%s is %s; allowed: true, false", field, s.excerpt(s.i))
	}
	return false
}

func (k *told) session(record []byte, s *workload.Session) (bool, error) {
	if k.record == 0 {
		return false, k.header(record)
	}
	k.reset(record)
	k.used, k.chains = 0, k.chains[:0]
	for k.open('{'); k.more('}'); {
		switch string(k.name) {
		case "id":
			s.ID = string(k.str())
		case "at_ns":
			s.At = k.nanoseconds("at_ns")
		case "class":
			s.Class = string(k.str())
		case "tenant":
			s.Tenant = string(k.str())
		case "share":
			s.Share = k.share()
		case "priority":
			s.Priority = int(k.integer("priority", -workload.MaxPriority, workload.MaxPriority))
		case "deadline_ns":
			s.Deadline = k.nanoseconds("deadline_ns")
		case "calls":
			for k.open('['); k.more(']'); {
				s.Calls = append(s.Calls, k.call())
			}
		default:
			k.unknown("the session")
		}
	}
	if k.end(); k.err != nil {
		return false, k.err
	}
	if len(s.Calls) == 0 {
		return false, errors.New("calls has none; allowed: one or more")
	}
	return true, nil
}

func (s *scanner) nanoseconds(field string) time.Duration {
	return time.Duration(s.integer(field, 0, int64(forever)))
}

// call reads a call. Its blocks may stand before the prefix that they go on from, so they
// are held as ids until all is read.
func (k *told) call() workload.Call {
	var c workload.Call
	var prompt, answer []run
	from, shared := -1, 0
	for k.open('{'); k.more('}'); {
		switch string(k.name) {
		case "after":
			for k.open('['); k.more(']'); {
				if c.After = append(c.After, int(k.integer("after", 0, maxTokens))); k.err == nil && slices.Max(c.After) >= len(k.chains) {
					k.fail("after is %v of call %d; allowed: calls before it, from 0", c.After, len(k.chains))
				}
			}
		case "gap_ns":
			c.Gap = k.nanoseconds("gap_ns")
		case "offset_ns":
			c.Offset = k.nanoseconds("offset_ns")
		case "adapter":
			c.Adapter = k.adapter()
		case "prompt_tokens":
			c.PromptTokens = int(k.integer("prompt_tokens", 1, maxTokens))
		case "output_tokens":
			c.OutputTokens = int(k.integer("output_tokens", 0, maxTokens))
		case "prefix":
			from, shared = k.prefix()
		case "blocks":
			prompt = k.blockRuns("blocks")
		case "answer_blocks":
			answer = k.blockRuns("answer_blocks")
		default:
			k.unknown("the call")
		}
	}
	if k.err == nil && c.PromptTokens == 0 {
		k.fail("prompt_tokens is missing; allowed: whole numbers from 1 to %d", maxTokens)
	}
	if k.err == nil {
		k.link(&c, from, shared, prompt, answer)
	}
	return c
}

// adapter reads an adapter's name. Most calls have the one of the call before.
func (k *told) adapter() string {
	if name := k.str(); string(name) != k.named {
		k.named = string(name)
	}
	return k.named
}

// prefix reads which call of the session a prompt begins as, and for how many blocks.
func (k *told) prefix() (from, shared int) {
	var pair [2]int
	n := 0
	for k.open('['); k.more(']'); n++ {
		pair[min(n, 1)] = int(k.integer("prefix", 0, maxBlocks))
	}
	from, shared = pair[0], pair[1]
	switch {
	case k.err != nil:
	case n != 2:
		k.fail("prefix has %d numbers; allowed: two, a call and a number of blocks", n)
	case from >= len(k.chains):
		k.fail("prefix is of call %d; allowed: calls before this one, from 0", from)
	case shared > len(k.chains[from].all):
		k.fail("prefix is the first %d blocks of call %d; allowed: at most %d, as that call and its answer have", shared, from, len(k.chains[from].all))
	}
	return from, shared
}

// blockRuns reads ids: numbers, and pairs of a first id and how many count up from it.
func (k *told) blockRuns(field string) []run {
	var runs []run
	for k.open('['); k.more(']'); {
		if k.peek() != '[' {
			runs = append(runs, run{k.unsigned(field), 1})
			continue
		}
		var r run
		n := 0
		for k.open('['); k.more(']'); n++ {
			switch n {
			case 0:
				r.first = k.unsigned(field)
			case 1:
				r.n = int(k.integer(field, 1, maxBlocks))
			default:
				k.skip()
			}
		}
		if k.err == nil && n != 2 {
			k.fail("%s has a run of %d numbers; allowed: two, an id and a number of blocks", field, n)
		}
		runs = append(runs, r)
	}
	return runs
}

// link makes the chain of a call.
func (k *told) link(c *workload.Call, from, shared int, prompt, answer []run) {
	grown := chain{used: &k.used}
	if from >= 0 {
		grown.all = k.chains[from].all
		switch {
		case shared < len(grown.all):
			grown.keep(shared)
		case !k.chains[from].free:
			grown.all = slices.Clip(grown.all)
			k.used += shared
		}
		if shared == len(k.chains[from].all) {
			k.chains[from].free = false
		}
	}
	for _, r := range prompt {
		if !grown.add(r.first, r.n) {
			k.err = errBlocks
			return
		}
	}
	c.Blocks = slices.Clip(grown.all)
	for _, r := range answer {
		if !grown.add(r.first, r.n) {
			k.err = errBlocks
			return
		}
	}
	c.AnswerBlocks = slices.Clip(grown.all[len(c.Blocks):])
	k.chains = append(k.chains, toldChain{all: grown.all, free: true})
	if k.used > maxBlocks {
		k.err = fmt.Errorf("call %d: %w", len(k.chains)-1, errBlocks)
	}
}
