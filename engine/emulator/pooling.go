package emulator

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// embeddings appends the body of an embeddings call.
func (r *reply) embeddings(b []byte) []byte {
	b = append(r.head(b, "list"), `,"data":[`...)
	for i, item := range r.Items {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"index":%d,"object":"embedding","embedding":`, i)
		v := item.Embedding(r.Dimensions)
		if r.Base64 {
			b = appendBase64(b, v)
		} else {
			b = appendFloats(b, v)
		}
		b = append(b, '}')
	}
	return r.poolingUsage(append(b, ']'))
}

// poolingUsage ends the body of a call that generates nothing.
func (r *reply) poolingUsage(b []byte) []byte {
	return fmt.Appendf(b, `,"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":0,"prompt_tokens_details":null,"completion_tokens_details":null}}`,
		r.PromptTokens, r.PromptTokens)
}

func appendFloats(b []byte, v []float32) []byte {
	b = append(b, '[')
	for d, x := range v {
		if d > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(x), 'g', -1, 32)
	}
	return append(b, ']')
}

// appendBase64 appends the little-endian 32-bit floats, in base64.
func appendBase64(b []byte, v []float32) []byte {
	raw := make([]byte, 0, 4*len(v))
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, raw)
	return append(b, '"')
}

// scores appends the body of a score call.
func (r *reply) scores(b []byte) []byte {
	b = append(r.head(b, "list"), `,"data":[`...)
	for i, p := range r.Pairs {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"index":%d,"object":"score","score":%s}`, i, repr(p.Score()))
	}
	return r.poolingUsage(append(b, ']'))
}

// ranking appends the body of a rerank call: the best document first, of equals the one
// that came first.
func (r *reply) ranking(b []byte) []byte {
	type result struct {
		index int
		score float64
	}
	results := make([]result, len(r.Pairs))
	for i, p := range r.Pairs {
		results[i] = result{i, p.Score()}
	}
	slices.SortStableFunc(results, func(a, b result) int { return cmp.Compare(b.score, a.score) })
	if r.TopN > 0 {
		results = results[:min(r.TopN, len(results))]
	}
	b = fmt.Appendf(b, `{"id":%s,"model":%s,"usage":{"prompt_tokens":%d,"total_tokens":%d},"results":[`,
		r.id, r.model, r.PromptTokens, r.PromptTokens)
	for i, x := range results {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"index":%d,"document":{"text":%s,"multi_modal":null},"relevance_score":%s}`,
			x.index, quote(r.Pairs[x.index].Document), repr(x.score))
	}
	return append(b, "]}"...)
}
