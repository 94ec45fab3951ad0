package upstream

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Answer is what an endpoint has to say, in a route's own grammar. Every piece of content
// carries the mark.
type Answer struct {
	Text     string
	Type     string // content type
	Preamble int    // where the first content begins; of a body that is no stream, 0
	Borders  []int  // ends of events
	Error    func(code int) string
}

const (
	jsonType   = "application/json"
	streamType = "text/event-stream"
)

// Streams reports whether a route's answers can be streams.
func Streams(route string) bool {
	switch route {
	case "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages":
		return true
	}
	return false
}

// Events makes a stream of the route with n pieces of content, each filled up to size bytes.
func Events(r *rand.Rand, route, model, mark string, n, size int) Answer {
	b := &events{}
	text := func() string { return quote(mark + " " + fill(r, size)) }
	switch route {
	case "/v1/completions":
		for range n {
			b.content(fmt.Sprintf(`{"id":"cmpl-1","object":"text_completion","model":%q,"choices":[{"index":0,"text":%s,"finish_reason":null}]}`, model, text()))
		}
		b.data(fmt.Sprintf(`{"id":"cmpl-1","object":"text_completion","model":%q,"choices":[{"index":0,"text":"","finish_reason":"length"}]}`, model))
		b.data("[DONE]")
	case "/v1/responses":
		b.named("response.created", fmt.Sprintf(`{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","model":%q,"output":[]}}`, model))
		b.named("response.in_progress", `{"type":"response.in_progress","sequence_number":1,"response":{"id":"resp_1","object":"response","status":"in_progress","output":[]}}`)
		b.named("response.output_item.added", `{"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"id":"msg_1","type":"message","role":"assistant","status":"in_progress","content":[]}}`)
		for i := range n {
			b.mark()
			b.named("response.output_text.delta", fmt.Sprintf(`{"type":"response.output_text.delta","sequence_number":%d,"item_id":"msg_1","output_index":0,"content_index":0,"delta":%s}`, i+3, text()))
		}
		b.named("response.completed", fmt.Sprintf(`{"type":"response.completed","sequence_number":%d,"response":{"id":"resp_1","object":"response","status":"completed","model":%q,"output":[],"usage":{"input_tokens":9,"output_tokens":%d,"total_tokens":%d}}}`, n+3, model, n, n+9))
	case "/v1/messages":
		b.named("message_start", fmt.Sprintf(`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":%q,"content":[],"stop_reason":null,"usage":{"input_tokens":9,"output_tokens":1}}}`, model))
		b.named("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
		b.named("ping", `{"type":"ping"}`)
		for range n {
			b.mark()
			b.named("content_block_delta", fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%s}}`, text()))
		}
		b.named("content_block_stop", `{"type":"content_block_stop","index":0}`)
		b.named("message_delta", fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":%d}}`, n))
		b.named("message_stop", `{"type":"message_stop"}`)
	default:
		b.chat(r, model, text, n)
	}
	return Answer{Text: b.text.String(), Type: streamType, Preamble: b.preamble, Borders: b.borders, Error: streamError(route, mark)}
}

// events builds a stream.
type events struct {
	text     strings.Builder
	preamble int
	begun    bool
	borders  []int
}

func (b *events) raw(s string) {
	b.text.WriteString(s)
	b.borders = append(b.borders, b.text.Len())
}
func (b *events) data(s string)        { b.raw("data: " + s + "\n\n") }
func (b *events) named(name, s string) { b.raw("event: " + name + "\ndata: " + s + "\n\n") }
func (b *events) content(s string)     { b.mark(); b.data(s) }
func (b *events) mark() {
	if !b.begun {
		b.begun, b.preamble = true, b.text.Len()
	}
}

// chat has one of the kinds of content that chat completions know.
func (b *events) chat(r *rand.Rand, model string, text func() string, n int) {
	delta := func(index int, d, finish string) string {
		return fmt.Sprintf(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":%q,"choices":[{"index":%d,"delta":%s,"finish_reason":%s}]}`, model, index, d, finish)
	}
	choices := 1 + r.IntN(2)
	b.data(delta(0, `{"role":"assistant","content":""}`, "null"))
	for range r.IntN(3) {
		b.raw(": ping\n\n")
	}
	kind := r.IntN(4)
	for i := range n {
		switch {
		case kind == 1:
			b.content(delta(i%choices, `{"reasoning_content":`+text()+`}`, "null"))
		case kind == 2 && i == 0:
			b.content(delta(0, `{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"look_up","arguments":`+text()+`}}]}`, "null"))
		case kind == 2:
			b.content(delta(0, `{"tool_calls":[{"index":0,"function":{"arguments":`+text()+`}}]}`, "null"))
		default:
			b.content(delta(i%choices, `{"content":`+text()+`}`, "null"))
		}
	}
	for c := range choices {
		b.data(delta(c, "{}", `"stop"`))
	}
	if r.IntN(2) == 0 {
		b.data(fmt.Sprintf(`{"id":"chatcmpl-1","object":"chat.completion.chunk","model":%q,"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":%d,"total_tokens":%d}}`, model, n, n+9))
	}
	b.data("[DONE]")
}

// streamError returns the maker of a route's error events.
func streamError(route, mark string) func(int) string {
	return func(code int) string {
		message := quote("the engine failed " + mark)
		switch route {
		case "/v1/responses":
			return fmt.Sprintf("event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":%s,\"param\":null,\"sequence_number\":9}\n\n", message)
		case "/v1/messages":
			return fmt.Sprintf("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":%s}}\n\n", message)
		}
		return fmt.Sprintf("data: {\"error\":{\"message\":%s,\"type\":\"engine_error\",\"param\":null,\"code\":%d}}\n\n", message, code)
	}
}

// Object makes an answer that is no stream, with about n times size bytes of content.
func Object(r *rand.Rand, route, model, mark string, n, size int) Answer {
	text := quote(mark + " " + fill(r, n*size) + " " + mark)
	usage := fmt.Sprintf(`"usage":{"prompt_tokens":9,"completion_tokens":%d,"total_tokens":%d}`, n, n+9)
	var s string
	switch route {
	case "/v1/completions":
		s = fmt.Sprintf(`{"id":"cmpl-1","object":"text_completion","model":%q,"choices":[{"index":0,"text":%s,"finish_reason":"stop"}],%s}`, model, text, usage)
	case "/v1/responses":
		s = fmt.Sprintf(`{"id":"resp_1","object":"response","status":"completed","model":%q,"output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":%s}]}],"usage":{"input_tokens":9,"output_tokens":%d,"total_tokens":%d}}`, model, text, n, n+9)
	case "/v1/messages":
		s = fmt.Sprintf(`{"id":"msg_1","type":"message","role":"assistant","model":%q,"content":[{"type":"text","text":%s}],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":%d}}`, model, text, n)
	case "/v1/embeddings":
		s = fmt.Sprintf(`{"object":"list","id":%s,"data":[{"object":"embedding","index":0,"embedding":[0.25,-1.5e-3]}],"model":%q,"usage":{"prompt_tokens":9,"total_tokens":9}}`, text, model)
	case "/v1/rerank", "/v2/rerank", "/rerank":
		s = fmt.Sprintf(`{"id":%s,"model":%q,"results":[{"index":0,"relevance_score":0.5}],"usage":{"total_tokens":9}}`, text, model)
	case "/v1/score", "/score":
		s = fmt.Sprintf(`{"id":%s,"object":"list","model":%q,"data":[{"index":0,"object":"score","score":0.5}],"usage":{"prompt_tokens":9,"total_tokens":9}}`, text, model)
	case "/tokenize":
		s = fmt.Sprintf(`{"count":2,"max_model_len":4096,"tokens":[1,2],"token_strs":[%s]}`, text)
	case "/detokenize":
		s = fmt.Sprintf(`{"prompt":%s}`, text)
	default:
		s = fmt.Sprintf(`{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":%q,"choices":[{"index":0,"message":{"role":"assistant","content":%s},"finish_reason":"stop"}],%s}`, model, text, usage)
	}
	return Answer{Text: s, Type: jsonType, Error: func(code int) string {
		return fmt.Sprintf(`{"error":{"message":%s,"type":"engine_error","param":null,"code":%d}}`, quote("the engine failed "+mark), code)
	}}
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings always encode
	}
	// The mark's brackets are written as they are: the ledger looks for them.
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(b))
}

const words = "mead honey dwarf raven \"rune\" Yggdrasil æsir \n 世界 well spear wolf "

// fill makes about n bytes of text that needs escapes.
func fill(r *rand.Rand, n int) string {
	at := r.IntN(10)
	list := strings.SplitAfter(words, " ")
	var s strings.Builder
	for s.Len() < n {
		s.WriteString(list[at%len(list)])
		at++
	}
	return s.String()
}
