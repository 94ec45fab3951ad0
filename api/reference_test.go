package api

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"strconv"
	"strings"

	"kvasir/internal/kvblock"
)

// This file is a second, plain way to the same hashes: a tree by encoding/json, the
// canonical prompt as one slice, cut into blocks at the end.

// node is a JSON value that keeps the order of fields.
type node struct {
	kind  byte // '{' '[' '"' '0' 't' 'n'
	text  string
	keys  []string
	items []node
	twice bool // an object somewhere inside has a field twice
	depth int
}

func parseNode(body []byte) (node, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	return readNode(d)
}

func readNode(d *json.Decoder) (node, error) {
	t, err := d.Token()
	if err != nil {
		return node{}, err
	}
	switch t := t.(type) {
	case string:
		return node{kind: '"', text: t}, nil
	case json.Number:
		return node{kind: '0', text: t.String()}, nil
	case bool:
		return node{kind: 't', text: strconv.FormatBool(t)}, nil
	case nil:
		return node{kind: 'n', text: "null"}, nil
	}
	n := node{kind: byte(t.(json.Delim)), depth: 1}
	seen := map[string]bool{}
	for d.More() {
		if n.kind == '{' {
			key, err := d.Token()
			if err != nil {
				return n, err
			}
			n.twice = n.twice || seen[key.(string)]
			seen[key.(string)] = true
			n.keys = append(n.keys, key.(string))
		}
		item, err := readNode(d)
		if err != nil {
			return n, err
		}
		n.items = append(n.items, item)
		n.twice = n.twice || item.twice
		n.depth = max(n.depth, item.depth+1)
	}
	if _, err := d.Token(); err != nil && err != io.EOF {
		return n, err
	}
	return n, nil
}

// get returns an object's field, null where it has none.
func (n node) get(key string) node {
	for i, k := range n.keys {
		if k == key {
			return n.items[i]
		}
	}
	return node{kind: 'n', text: "null"}
}

// canonical is parser.value.
func (n node) canonical(b []byte) []byte {
	switch n.kind {
	case '"':
		return fence(b, n.text)
	case '[':
		b = append(b, '[')
		for _, item := range n.items {
			b = append(item.canonical(b), ',')
		}
		return append(b, ']')
	case '{':
		b = append(b, '{')
		for i, item := range n.items {
			b = item.canonical(fence(b, n.keys[i]))
		}
		return append(b, '}')
	}
	return append(b, n.text...)
}

func fence(b []byte, s string) []byte {
	b = append(b, 0xff, 's')
	b = append(b, s...)
	return append(b, 0xff, 'e')
}

func (n node) textOrValue(b []byte) []byte {
	if n.kind == '"' {
		return append(b, n.text...)
	}
	return n.canonical(b)
}

// reference is what Prompt should return.
type reference struct {
	blocks []kvblock.Hash
	head   kvblock.Hash
	input  int
	exact  bool
	inputs int
	text   []byte // the canonical prompt that is hashed
	bad    bool   // token ids that are none
}

func referencePrompt(body node, model, salt string, blockBytes int) reference {
	r := reference{inputs: 1}
	total := 0
	switch messages, prompt, input := body.get("messages"), body.get("prompt"), body.get("input"); {
	case messages.kind != 'n':
		for f, name := range names {
			if v := body.get(name); field(f) >= firstPromptField && field(f) < fieldMessages && v.kind != 'n' {
				r.text = v.canonical(append(r.text, 0xff, byte(f)))
			}
		}
		r.text = referenceMessages(r.text, messages)
	case prompt.kind != 'n':
		total = r.referenceInputs(prompt)
	case input.kind != 'n':
		total = r.referenceInputs(input)
	}
	r.input = (max(total, len(r.text)) + BytesPerToken - 1) / BytesPerToken
	kind := "text"
	if r.exact {
		kind = "tokens"
	}
	cacheSalt := body.get("cache_salt")
	if cacheSalt.kind == 'n' {
		cacheSalt.text = ""
	}
	r.head = kvblock.Seed(model, salt, cacheSalt.text, kind)
	rest := r.text
	for ; len(rest) >= blockBytes; rest = rest[blockBytes:] {
		r.head = kvblock.Chain(r.head, rest[:blockBytes])
		r.blocks = append(r.blocks, r.head)
	}
	if len(rest) > 0 {
		r.head = kvblock.Chain(r.head, rest)
	}
	return r
}

func (r *reference) referenceInputs(v node) (total int) {
	if v.kind != '[' {
		r.text = v.textOrValue(nil)
		return len(r.text)
	}
	r.exact = len(v.items) > 0 && (v.items[0].kind == '0' || v.items[0].kind == '[')
	if r.exact && v.items[0].kind == '0' {
		r.text = r.ids(v)
		return len(r.text)
	}
	for i, item := range v.items {
		text := item.textOrValue(nil)
		if r.exact {
			text = r.ids(item)
		}
		if i == 0 {
			r.text = text
		}
		total += len(text)
	}
	r.inputs = max(len(v.items), 1)
	return total
}

func (r *reference) ids(v node) (b []byte) {
	r.bad = r.bad || v.kind != '['
	for _, item := range v.items {
		id, err := strconv.ParseUint(item.text, 10, 32)
		r.bad = r.bad || item.kind != '0' || err != nil
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	return b
}

func referenceMessages(b []byte, messages node) []byte {
	if messages.kind != '[' {
		return messages.canonical(b)
	}
	for _, m := range messages.items {
		b = append(b, 0xff, 'm')
		if m.kind != '{' {
			b = m.canonical(b)
			continue
		}
		for f, name := range parts {
			v := m.get(name)
			if part(f) == content {
				b = referenceContent(append(b, 0xff, 'c'), v)
				continue
			}
			if v.kind == 'n' {
				continue
			}
			if part(f) != role {
				b = append(b, 0xff, byte(f))
			}
			b = v.textOrValue(b)
		}
	}
	return b
}

func referenceContent(b []byte, v node) []byte {
	if v.kind == 'n' {
		return b
	}
	if v.kind != '[' {
		return v.textOrValue(b)
	}
	for i, item := range v.items {
		kind := item.get("type")
		isText := kind.kind == '"' && (kind.text == "text" || kind.text == "input_text" || kind.text == "output_text")
		switch {
		case item.kind == '"' || item.kind == '{' && isText:
			if i > 0 {
				b = append(b, 0xff, 'p')
			}
			if text := item.get("text"); text.kind == '"' {
				b = append(b, text.text...)
			} else if item.kind == '"' {
				b = append(b, item.text...)
			}
		default:
			b = append(b, 0xff, 'i')
			b = append(b, bytes.Repeat(mediaReference(item), MediaTokens*BytesPerToken/8)...)
		}
	}
	return b
}

func mediaReference(item node) []byte {
	rest, head := item.canonical(nil), kvblock.Hash(0)
	for ; len(rest) >= mediaBlock; rest = rest[mediaBlock:] {
		head = kvblock.Chain(head, rest[:mediaBlock])
	}
	if len(rest) > 0 {
		head = kvblock.Chain(head, rest)
	}
	return binary.LittleEndian.AppendUint64(nil, uint64(head))
}

// wantField decodes a field with encoding/json and reports whether that went well.
func wantField[T any](n node, raw map[string]json.RawMessage, key string) (v T, ok bool) {
	if n.get(key).kind == 'n' {
		return v, true
	}
	err := json.NewDecoder(strings.NewReader(string(raw[key]))).Decode(&v)
	return v, err == nil
}
