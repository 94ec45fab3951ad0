package tokenizer

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"unicode/utf8"

	"kvasir/internal/kvblock"
)

// Tokens is what /tokenize answers.
type Tokens struct {
	IDs     []uint32
	Strings bool // the texts of the tokens are asked for, too
}

// Tokenize reads a call of /tokenize: a prompt, or messages as of a chat. The error is
// always an *Error.
func Tokenize(data []byte, l Limits) (Tokens, error) {
	var faults []fault
	o := body(data, &faults)
	if len(faults) > 0 {
		return Tokens{}, malformed(faults)
	}
	r := reader{object: o, limits: l, call: &Call{Route: Chat, Model: l.Models[0]}}
	t := Tokens{Strings: r.flag("return_token_strs", false)}
	model := r.str("model")
	begin := r.flag("add_special_tokens", true)
	var write prompt
	if raw, ok := r.raw("prompt"); ok {
		s, ok := text(raw)
		if !ok {
			r.fail("string_type", "Input should be a valid string", "prompt")
		}
		write = func(e *encoder) {
			if begin {
				e.id(beginOfText)
			}
			e.text(s)
		}
	} else if _, ok := r.raw("messages"); ok {
		prompts, err := r.readChat()
		if err != nil {
			return Tokens{}, err
		}
		if len(prompts) > 0 {
			write = prompts[0]
		}
	} else {
		r.fail("missing", "Field required", "prompt")
	}
	if len(faults) > 0 {
		return Tokens{}, malformed(faults)
	}
	if err := l.checkModel(model); err != nil {
		return Tokens{}, err
	}
	e := encoder{keep: true}
	e.reset(kvblock.Seed("tokenize"), l.BlockTokens)
	write(&e)
	t.IDs = e.ids
	return t, nil
}

// Detokenize reads a call of /detokenize and returns the text of its tokens. The error is
// always an *Error.
func Detokenize(data []byte, l Limits) (string, error) {
	var faults []fault
	o := body(data, &faults)
	if len(faults) > 0 {
		return "", malformed(faults)
	}
	model := o.str("model")
	raw, ok := o.raw("tokens")
	var ids []int64
	if !ok {
		o.fail("missing", "Field required", "tokens")
	} else if json.Unmarshal(raw, &ids) != nil {
		o.fail("int_type", "Input should be a valid integer", "tokens")
	}
	var b strings.Builder
	for i, id := range ids {
		if id < 0 || id > math.MaxUint32 {
			o.fail("less_than_equal", "Input should be from 0 to 4294967295", "tokens", i)
			break
		}
		b.WriteString(Piece(uint32(id)))
	}
	if len(faults) > 0 {
		return "", malformed(faults)
	}
	if err := l.checkModel(model); err != nil {
		return "", err
	}
	return strings.ToValidUTF8(b.String(), string(utf8.RuneError)), nil
}

// controls are the names of the control tokens, in their order.
var controls = []string{"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}

// Piece returns a token's text. It may be a part of a rune.
func Piece(id uint32) string {
	if id >= beginOfText && id <= endOfTurn {
		return controls[id-beginOfText]
	}
	var b [pieceBytes]byte
	binary.LittleEndian.PutUint32(b[:], id)
	n := pieceBytes
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return string(b[:n])
}
