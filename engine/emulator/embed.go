package emulator

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"kvasir/engine/tokenizer"
)

// embed serves /v1/embeddings.
func (s *Server) embed(w http.ResponseWriter, r *http.Request) {
	if a := s.accept(w, r, tokenizer.Embeddings, "embd-"); a != nil {
		defer s.abort(a.call)
		s.collect(w, r, a)
	}
}

// embeddings appends the body of the answer.
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
	return fmt.Appendf(b, `],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":0,"prompt_tokens_details":null}}`,
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
