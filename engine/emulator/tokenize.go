package emulator

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"kvasir/engine/tokenizer"
)

// tokenize serves /tokenize. The engine is not asked.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	body, err := s.body(w, r)
	var t tokenizer.Tokens
	if err == nil {
		t, err = tokenizer.Tokenize(body, s.limits)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	b := fmt.Appendf(nil, `{"count":%d,"max_model_len":%d,"tokens":[`, len(t.IDs), s.cfg.Engine.MaxModelLen)
	for i, id := range t.IDs {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(id), 10)
	}
	b = append(b, `],"token_strs":`...)
	if !t.Strings {
		writeJSON(w, http.StatusOK, append(b, "null}"...))
		return
	}
	b = append(b, '[')
	for i, id := range t.IDs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, quote(strings.ToValidUTF8(tokenizer.Piece(id), string(utf8.RuneError)))...)
	}
	writeJSON(w, http.StatusOK, append(b, "]}"...))
}

// detokenize serves /detokenize.
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	body, err := s.body(w, r)
	text := ""
	if err == nil {
		text, err = tokenizer.Detokenize(body, s.limits)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, []byte(`{"prompt":`+quote(text)+`}`))
}
