package proxy

import (
	"encoding/binary"

	"kvasir/api"
	"kvasir/internal/kvblock"
)

// agentHeaders are headers in which coding agents and their relatives name a session, in
// the form that net/http gives them: Claude Code's, Codex' in its two spellings, and that of
// OpenCode and others. Where several are there the first one counts.
var agentHeaders = [...]string{"X-Claude-Code-Session-Id", "Session_id", "Session-Id", "X-Session-Affinity"}

// conversation returns the conversation that a call belongs to: what a client names, first of
// the header x-session-id, the body's session_id or prompt_cache_key and an agent's header,
// else how its messages begin, which is the same in every turn. It is each client's own: two
// clients that say the same have different ones. 0: there is nothing to go by.
func (c *call) conversation(q *api.Request, opening kvblock.Hash) kvblock.Hash {
	id := append(c.session[:0], c.in.Header.Get("X-Session-Id")...)
	for _, named := range [...][]byte{q.SessionID, q.PromptCacheKey} {
		if len(id) == 0 {
			id = append(id, named...)
		}
	}
	for _, name := range agentHeaders {
		if len(id) == 0 {
			id = append(id, c.in.Header.Get(name)...)
		}
	}
	c.session = id
	client := kvblock.Seed("conversation", c.record.Client)
	switch {
	case len(id) > 0:
		return kvblock.Chain(client, id)
	case opening != 0:
		c.session = binary.LittleEndian.AppendUint64(id, uint64(opening))
		return kvblock.Chain(client, c.session)
	}
	return 0
}
