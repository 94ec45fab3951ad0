package trace

import (
	"errors"
	"fmt"
	"time"

	"kvasir/client/workload"
)

// agentsFormat reads agent sessions as kv-cache-tester has them (callanjfox/kv-cache-tester,
// traces): a JSON object each, with requests[] in the order of their times. A request has t
// (seconds since the session's start), in and out (tokens), api_time (how long it took),
// think_time (from the end of the request before it) and hash_ids, the numbers of its
// prompt's blocks, local to the session. An element with type subagent has requests of its
// own. Read as well: t, in, out, api, think and h, the same ids as inclusive ranges.
//
// What the reader makes of it:
//
//   - A request waits for the one before it in its branch; think_time is the gap. Where it or
//     the time of the request before is missing, the gap is what is left between the recorded
//     instants, an answer being taken to have lasted Options.TokenTime a token.
//   - A subagent's branch begins behind the request that ran before its start. Its requests
//     count from that start, which is t where it was launched to run beside its parent
//     (duration_ms is null), and t less duration_ms where the parent waited for it: then t is
//     its end, and the parent's next request waits for its last one.
//   - The head of a branch's prompts, (tool_tokens + system_tokens) / block_size blocks, has
//     ids that are the same in all sessions and branches with the same two numbers. So tools
//     and system prompt are shared, as they are where the trace was taken; the file can't show
//     it, its ids being local. A request whose prompt does not begin as its branch's first one
//     keeps its own ids.
//   - Sessions have no time of their own; they come at Options.SessionRate.
func agentsFormat() format {
	return format{
		name: Agents, about: "JSON of agent sessions with requests[] and block ids: kv-cache-tester",
		detect: hasFields("requests", "block_size"),
		rate:   1. / 60,
		prepare: func(s *settings, first []byte) error {
			s.untimed = true
			b, err := (&agents{settings: s}).read(first)
			if err == nil {
				s.blockTokens = b.blockTokens
			}
			return err
		},
		sessions: func(s *settings) parseSession { return (&agents{settings: s}).session },
	}
}

// agents reads the text of sessions; agent_session.go makes sessions of it.
type agents struct {
	*settings
	scanner
	runs []run // of the record
}

// run is so many ids, one behind the other.
type run struct {
	first uint64
	n     int
}

// branch is what one agent, or a subagent of it, has asked.
type branch struct {
	id           string
	blockTokens  int
	tool, system int
	items        []item
	begun        bool // requests was there

	// Of a subagent: t as above, and how long it took, if its parent waited for it.
	t, lasted time.Duration
	waited    bool
}

// item is an element of requests[]: a request or, where sub is not nil, a subagent.
type item struct {
	sub              *branch
	t, api, think    time.Duration
	hasAPI, hasThink bool
	in, out          int
	runs             []run
	blocks           int // of all runs
}

// session reads a record.
func (a *agents) session(record []byte, s *workload.Session) (bool, error) {
	b, err := a.read(record)
	if err != nil {
		return false, err
	}
	if b.blockTokens != a.blockTokens {
		return false, fmt.Errorf("block_size is %d; allowed: %d, as in the file's first session", b.blockTokens, a.blockTokens)
	}
	m := planner{settings: a.settings, local: uint64(a.record+1) << 32}
	return true, m.plan(b, s)
}

// read parses a record.
func (a *agents) read(record []byte) (*branch, error) {
	a.reset(record)
	a.runs = a.runs[:0]
	b := a.branch()
	a.end()
	switch {
	case a.err != nil:
		return nil, a.err
	case b.blockTokens == 0:
		return nil, fmt.Errorf("block_size is missing; allowed: 1 to %d", maxBlockTokens)
	case len(b.items) == 0:
		return nil, errors.New("requests has none; allowed: one or more")
	}
	return b, nil
}

// maxHead bounds tool_tokens and system_tokens.
const maxHead = 1<<20 - 1

// branch reads the object of a session.
func (a *agents) branch() *branch {
	b := new(branch)
	for a.open('{'); a.more('}'); {
		if a.null() {
			continue
		}
		switch string(a.name) {
		case "id":
			b.id = string(a.str())
		case "block_size":
			b.blockTokens = int(a.integer("block_size", 1, maxBlockTokens))
		case "hash_id_scope":
			if scope := string(a.str()); a.err == nil && scope != "local" {
				a.fail("hash_id_scope is %q; allowed: local", scope)
			}
		default:
			a.member(b)
		}
	}
	return b
}

// member reads what sessions and subagents have alike.
func (a *agents) member(b *branch) {
	switch string(a.name) {
	case "tool_tokens":
		b.tool = int(a.integer("tool_tokens", 0, maxHead))
	case "system_tokens":
		b.system = int(a.integer("system_tokens", 0, maxHead))
	case "requests":
		b.begun = true
		for a.open('['); a.more(']'); {
			b.items = append(b.items, a.item())
		}
	default:
		a.skip()
	}
}

// item reads an element of requests[]: a subagent, if it has requests, or else a request.
func (a *agents) item() item {
	var r item
	var b branch
	hasOut, hasIDs := false, false
	for a.open('{'); a.more('}'); {
		if a.null() {
			continue
		}
		switch string(a.name) {
		case "t":
			r.t = a.duration("t", time.Second)
		case "in":
			r.in = int(a.integer("in", 1, maxTokens))
		case "out":
			r.out, hasOut = int(a.integer("out", 0, maxTokens)), true
		case "api", "api_time":
			r.api, r.hasAPI = a.duration("api_time", time.Second), true
		case "think", "think_time":
			r.think, r.hasThink = a.duration("think_time", time.Second), true
		case "h":
			hasIDs = true
			a.ranges(&r)
		case "hash_ids":
			hasIDs = true
			a.ids(&r)
		case "duration_ms":
			b.lasted, b.waited = a.duration("duration_ms", time.Millisecond), true
		default:
			a.member(&b)
		}
	}
	switch {
	case a.err != nil:
	case b.begun && len(b.items) == 0:
		a.fail("a subagent's requests has none; allowed: one or more")
	case b.begun:
		b.t = r.t
		return item{t: r.t, sub: &b}
	case r.in == 0:
		a.fail("in is missing; allowed: whole numbers from 1 to %d", maxTokens)
	case !hasOut:
		a.fail("out is missing; allowed: whole numbers from 0 to %d", maxTokens)
	case !hasIDs:
		a.fail("hash_ids is missing; allowed: the ids of the prompt's blocks")
	}
	return r
}

// maxLocal bounds the ids of a session.
const maxLocal = 1<<32 - 1

// ranges reads ids as inclusive ranges.
func (a *agents) ranges(r *item) {
	start := len(a.runs)
	for a.open('['); a.more(']'); {
		var ends [2]int64
		n := 0
		for a.open('['); a.more(']'); n++ {
			ends[min(n, 1)] = a.integer("an end of a range of h", 0, maxLocal)
		}
		if a.err == nil && (n != 2 || ends[1] < ends[0]) {
			a.fail("h has a range of %d numbers, %v; allowed: a first and a last id", n, ends)
		}
		if a.err == nil {
			a.run(r, start, uint64(ends[0]), int(ends[1]-ends[0])+1)
		}
	}
	r.runs = a.runs[start:len(a.runs):len(a.runs)]
}

// ids reads ids one by one.
func (a *agents) ids(r *item) {
	start := len(a.runs)
	for a.open('['); a.more(']'); {
		if id := a.integer("an id of hash_ids", 0, maxLocal); a.err == nil {
			a.run(r, start, uint64(id), 1)
		}
	}
	r.runs = a.runs[start:len(a.runs):len(a.runs)]
}

func (a *agents) run(r *item, start int, first uint64, n int) {
	r.blocks += n
	if k := len(a.runs) - 1; k >= start && a.runs[k].first+uint64(a.runs[k].n) == first {
		a.runs[k].n += n
		return
	}
	a.runs = append(a.runs, run{first, n})
}
