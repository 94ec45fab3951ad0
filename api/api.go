// Package api is outside the layers, pure: the grammars that both ends of a call speak,
// OpenAI's and Anthropic's. It reads from a request's body what routing needs, recognises
// what an engine answers, and writes error envelopes and the list of models. What is known
// of each grammar stands in one table (grammar.go).
//
// Nothing here builds a tree of a body: a Reader marks where strings end and where escapes
// begin, makes one strict pass over a request and hashes its prompt on the way, ReadUpload
// steps over files, ReadChunk looks at the few fields that tell content from preamble, and
// a BodyScanner finds the usage of an answer of any size.
package api

// Unknown marks a count that nobody reported. It is not zero.
const Unknown = -1

// Span is a piece of a body: body[Start:End]. The zero Span is no piece at all.
type Span struct{ Start, End int }

// Of returns the piece of body.
func (s Span) Of(body []byte) []byte { return body[s.Start:s.End] }

func (s Span) none() bool { return s.End == 0 }
