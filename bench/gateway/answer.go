package main

import (
	"fmt"
	"hash/crc32"
	"strings"
)

// castagnoli is the checksum of bodies both ways; CPUs have an instruction for it.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumHeader is the answer's header in which the upstream says the checksum of the body
// that it got: a gateway that loses or changes bytes is found out.
const sumHeader = "X-Body-Sum"

const doneEvent = "data: [DONE]\n\n"

// plainAnswer is the answer to a call that is not streamed, of about 200 tokens.
var plainAnswer = fmt.Appendf(nil, `{"id":"chatcmpl-5b1f2e6c7a904f6f","object":"chat.completion","created":1796002998,"model":"bench",`+
	`"choices":[{"index":0,"message":{"role":"assistant","content":"%s","refusal":null,"tool_calls":[]},"logprobs":null,"finish_reason":"stop"}],`+
	`"usage":{"prompt_tokens":1024,"total_tokens":1224,"completion_tokens":200,"prompt_tokens_details":{"cached_tokens":768}}}`,
	strings.Repeat(`It returns \"nil\" then.\n`, 40))

// event is one event of a streamed answer; each takes about 200 bytes.
func event(choices, rest string) string {
	return `data: {"id":"chatcmpl-5b1f2e6c7a904f6f","object":"chat.completion.chunk","created":1796002998,"model":"bench","choices":[` +
		choices + `]` + rest + "}\n\n"
}

// events returns the answer with n content events: a role, the content, a finish reason,
// usage and the end mark, each to be sent by itself.
func events(n int) []string {
	out := []string{event(`{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}`, "")}
	for i := range n {
		out = append(out, event(fmt.Sprintf(`{"index":0,"delta":{"content":" %s"},"logprobs":null,"finish_reason":null}`, words[i%len(words)]), ""))
	}
	return append(out,
		event(`{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"stop"}`, ""),
		event("", fmt.Sprintf(`,"usage":{"prompt_tokens":1024,"total_tokens":%d,"completion_tokens":%d}`, 1024+n, n)),
		doneEvent)
}

// expected is what the client must get to a call.
type expected struct {
	bytes int64
	sum   uint32
}

func expectedAnswer(c cell) expected {
	body := plainAnswer
	if c.Events > 0 {
		body = []byte(strings.Join(events(c.Events), ""))
	}
	return expected{int64(len(body)), crc32.Checksum(body, castagnoli)}
}
