package api

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"slices"
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

func referencePrompt(g Grammar, body node, model, salt string, blockBytes int) reference {
	r := reference{inputs: 1}
	known := grammars[g]
	var source ingredient
	for _, in := range slices.Backward(known.prompt) {
		if in.writing >= asMessages && in.writing <= asInputs && body.get(names[in.field]).kind != 'n' {
			source = in
		}
	}
	total, queries, documents, queryBytes := 0, 0, 0, 0
	for _, in := range known.prompt {
		v := body.get(names[in.field])
		beside := in.writing < asMessages && source.writing != asMessages && source.writing != asItems
		if v.kind == 'n' || beside || in.source() && in.field != source.field {
			continue
		}
		switch in.writing {
		case asValue:
			r.text = v.canonical(append(r.text, 0xff, byte(in.field)))
		case asContent:
			r.text, _ = referenceContent(append(r.text, 0xff, byte(in.field)), v, known.typed, false)
		case asBlocks:
			r.text = referenceTools(append(r.text, 0xff, byte(in.field)), v)
		case asEffort:
			for i, key := range v.keys {
				if key == "effort" && v.items[i].kind != 'n' {
					r.text = v.items[i].canonical(append(r.text, 0xff, byte(in.field)))
				}
			}
		case asMessages:
			r.text = referenceMessages(r.text, v, known.typed)
		case asItems:
			r.text = referenceItems(r.text, v)
		case asInputs:
			total = r.referenceInputs(v)
		case asQuery:
			side, n := referenceSide(nil, v)
			r.text, queries, queryBytes = append(r.text, side...), queries+n, queryBytes+len(side)
		case asDocuments:
			side, n := referenceSide(nil, v)
			total, documents = total+len(side), documents+n
		}
	}
	if queries+documents > 0 {
		queries, documents = max(queries, 1), max(documents, 1)
		r.inputs = max(queries, documents)
		total = queryBytes*max(1, documents/queries) + total*max(1, queries/documents)
	}
	r.input = (max(total, len(r.text)) + BytesPerToken - 1) / BytesPerToken
	kind := "text"
	if r.exact {
		kind = "tokens"
	}
	cacheSalt := body.get("cache_salt")
	if cacheSalt.kind == 'n' || !slices.Contains(known.routing, fieldCacheSalt) {
		cacheSalt.text = ""
	}
	r.head = kvblock.Seed(model, salt, cacheSalt.text, kind)
	rest, size := r.text, blockBytes
	for len(rest) >= size {
		r.head = kvblock.Chain(r.head, rest[:size])
		r.blocks, rest = append(r.blocks, r.head), rest[size:]
		if len(r.blocks) == kvblock.FineBlocks {
			size *= kvblock.CoarseFactor
		}
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

func referenceMessages(b []byte, messages node, typed bool) []byte {
	if messages.kind != '[' {
		return messages.canonical(b)
	}
	for _, m := range messages.items {
		b = referenceMessage(append(b, 0xff, 'm'), m, typed)
	}
	return b
}

func referenceMessage(b []byte, m node, typed bool) []byte {
	if m.kind != '{' {
		return m.canonical(b)
	}
	for f, name := range parts {
		v := m.get(name)
		if part(f) == content {
			b = append(b, 0xff, 'c')
			if v.kind != 'n' {
				b, _ = referenceContent(b, v, typed, false)
			}
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
	return b
}

func referenceItems(b []byte, items node) []byte {
	if items.kind != '[' {
		return items.textOrValue(append(b, "\xffmuser\xffc"...))
	}
	for _, item := range items.items {
		b = append(b, 0xff, 'm')
		kind, named := item.member("type")
		switch {
		case item.kind == '{' && (!named || kind == "message"):
			b = referenceMessage(b, item, true)
		case isMedia(item, true):
			b = referenceMedia(b, item, true)
		default:
			b = referenceBlock(append(b, 0xff, 'b'), item, false)
		}
	}
	return b
}

func referenceContent(b []byte, v node, typed, inBlock bool) ([]byte, int) {
	if v.kind != '[' {
		return v.textOrValue(b), 1
	}
	for i, item := range v.items {
		kind, _ := item.member("type")
		switch isText := kind == "text" || kind == "input_text" || kind == "output_text"; {
		case item.kind == '"' || isText:
			if i > 0 {
				b = append(b, 0xff, 'p')
			}
			if text := item.get("text"); text.kind == '"' {
				b = append(b, text.text...)
			} else if item.kind == '"' {
				b = append(b, item.text...)
			}
		case isMedia(item, typed):
			b = referenceMedia(b, item, typed)
		default:
			b = referenceBlock(append(b, 0xff, 'b'), item, inBlock)
		}
	}
	return b, len(v.items)
}

// member returns an object's first member of that name: a string's text, or JSON that is
// no name.
func (n node) member(key string) (string, bool) {
	if n.kind != '{' || !slices.Contains(n.keys, key) {
		return "", false
	}
	v := n.get(key)
	if v.kind != '"' {
		return "no name", true
	}
	return v.text, true
}

func isMedia(item node, typed bool) bool {
	if !typed {
		return true
	}
	kind, _ := item.member("type")
	if source, _ := item.get("source").member("type"); kind == "document" {
		return source != "text"
	}
	return slices.Contains([]string{"image", "input_image", "image_url", "audio", "input_audio", "audio_url", "input_video", "video_url",
		"input_file", "file", "image_generation_call", "computer_call_output"}, kind)
}

func referenceBlock(b []byte, v node, inBlock bool) []byte {
	if v.kind != '{' {
		return v.canonical(b)
	}
	b = append(b, '{')
	for i, item := range v.items {
		switch key := v.keys[i]; {
		case key == "cache_control":
		case !inBlock && item.kind == '[' && (key == "content" || key == "output"):
			b, _ = referenceContent(fence(b, key), item, true, true)
		default:
			b = item.canonical(fence(b, key))
		}
	}
	return append(b, '}')
}

func referenceTools(b []byte, v node) []byte {
	if v.kind != '[' {
		return v.canonical(b)
	}
	b = append(b, '[')
	for _, item := range v.items {
		b = append(referenceBlock(b, item, true), ',')
	}
	return append(b, ']')
}

func referenceSide(b []byte, v node) ([]byte, int) {
	if v.kind == '{' {
		return referenceBlock(b, v, false), 1
	}
	return referenceContent(b, v, true, false)
}

func referenceMedia(b []byte, item node, typed bool) []byte {
	rest, head := item.canonical(nil), kvblock.Hash(0)
	if typed {
		rest = referenceBlock(nil, item, true)
	}
	for ; len(rest) >= mediaBlock; rest = rest[mediaBlock:] {
		head = kvblock.Chain(head, rest[:mediaBlock])
	}
	if len(rest) > 0 {
		head = kvblock.Chain(head, rest)
	}
	hash := binary.LittleEndian.AppendUint64(nil, uint64(head))
	return append(append(b, 0xff, 'i'), bytes.Repeat(hash, MediaTokens*BytesPerToken/8)...)
}

// wantField decodes a field with encoding/json and reports whether that went well.
func wantField[T any](n node, raw map[string]json.RawMessage, key string) (v T, ok bool) {
	if n.get(key).kind == 'n' {
		return v, true
	}
	err := json.NewDecoder(strings.NewReader(string(raw[key]))).Decode(&v)
	return v, err == nil
}
