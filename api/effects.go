package api

// Effects reports whether the body that was read last asks for more than an answer, so that it
// had better be answered once: it is stored or runs in the background (OpenAI's store and
// background), goes on from what is stored (previous_response_id, conversation), or lets the
// engine run tools itself. Those are a tool of any type but function and custom, which the client
// runs, and Anthropic's container and mcp_servers. Some tools of other types are the client's to
// run as well (computer use, a local shell); they count here all the same, since new ones come
// faster than a list of them.
//
// Sources: OpenAI's and Anthropic's API references, as of November 2026.
func (r *Reader) Effects() bool {
	for _, f := range [...]field{fieldStore, fieldBackground, fieldContainer, fieldMCPServers, fieldPreviousResponseID, fieldConversation} {
		if r.says(f) {
			return true
		}
	}
	w := walk{b: r.value(fieldTools)}
	if w.b == nil || !w.enter('[') {
		return false
	}
	for w.element() {
		if !w.enter('{') {
			continue
		}
		for {
			key, more := w.field()
			if !more {
				break
			}
			if string(key) != "type" {
				w.value()
				continue
			}
			switch string(w.value()) {
			case `"function"`, `"custom"`, "null":
			default:
				return true
			}
		}
	}
	return false
}
