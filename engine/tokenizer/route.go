package tokenizer

import "fmt"

// Route is an API call that an engine computes.
type Route uint8

// The routes.
const (
	Chat        Route = iota // POST /v1/chat/completions
	Completions              // POST /v1/completions
	Embeddings               // POST /v1/embeddings
	Responses                // POST /v1/responses
	Messages                 // POST /v1/messages
	CountTokens              // POST /v1/messages/count_tokens
	Score                    // POST /v1/score, /score
	Rerank                   // POST /v1/rerank, /v2/rerank, /rerank
	routes                   // how many there are
)

var paths = [routes]string{
	"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses",
	"/v1/messages", "/v1/messages/count_tokens", "/v1/score", "/v1/rerank",
}

// Path returns the route's path under /v1.
func (r Route) Path() string {
	if r < routes {
		return paths[r]
	}
	return fmt.Sprintf("Route(%d)", uint8(r))
}

// Generates reports whether the route answers with text.
func (r Route) Generates() bool {
	return r == Chat || r == Completions || r == Responses || r == Messages
}

// bound returns the name of the field that bounds the answer.
func (r Route) bound() string {
	if r == Responses {
		return "max_output_tokens"
	}
	return "max_tokens"
}
