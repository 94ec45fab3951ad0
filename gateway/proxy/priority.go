package proxy

import (
	"strconv"
	"strings"

	"kvasir/api"
)

// engineHeader is vLLM's: it goes before the body's field priority.
const engineHeader = "X-Vllm-Priority"

// enginePriority returns the call's priority in the engine's words, where lower goes first.
// What the client says to the engine itself can lower it and not raise it.
func (c *call) enginePriority() int {
	most := -c.standing.priority
	if n, err := strconv.Atoi(strings.TrimSpace(c.in.Header.Get(engineHeader))); err == nil {
		return max(most, n)
	}
	if c.asked.PriorityAt != (api.Span{}) {
		return max(most, c.asked.Priority)
	}
	return most
}
