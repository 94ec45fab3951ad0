package api

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kvasir/internal/kvblock"
)

// read reads a body whole.
func read(t *testing.T, body string) (Request, Prompt) {
	t.Helper()
	var r Reader
	var w kvblock.Writer
	q, err := r.Read(Chat, []byte(body))
	if err != nil {
		t.Fatalf("Read(%s): %v", body, err)
	}
	p, err := r.Prompt(&w, "m", "", 64)
	if err != nil {
		t.Fatalf("Prompt(%s): %v", body, err)
	}
	return q, p
}

func TestRead_Fields(t *testing.T) {
	body := ` {"messages":[],"n":3,"max_tokens":7,"max_completion_tokens":9,"stream":true,
		"stream_options":{"a":[1],"include_usage":true},"cache_salt":"s\u0041","session_id":"i","prompt_cache_key":"k",
		"mod\u0065l" : "ll\u0061ma\/3","unknown":{"model":"no"}} `
	q, _ := read(t, body)
	if string(q.Model) != "llama/3" || string(q.ModelAt.Of([]byte(body))) != `"ll\u0061ma\/3"` {
		t.Errorf("model %q at %v", q.Model, q.ModelAt)
	}
	if !q.Stream || !q.IncludeUsage || q.N != 3 || q.MaxTokens != 9 {
		t.Errorf("%+v", q)
	}
	if string(q.CacheSalt) != "sA" || string(q.SessionID) != "i" || string(q.PromptCacheKey) != "k" {
		t.Errorf("%q %q %q", q.CacheSalt, q.SessionID, q.PromptCacheKey)
	}
	if got := string(q.StreamOptionsAt.Of([]byte(body))); got != `{"a":[1],"include_usage":true}` {
		t.Errorf("stream_options %s", got)
	}
	q, _ = read(t, `{"model":"m","stream":null,"max_tokens":-1,"n":null,"stream_options":null,"session_id":null,"messages":null}`)
	if q.Stream || q.MaxTokens != 0 || q.N != 1 || q.SessionID != nil || !q.StreamOptionsAt.none() {
		t.Errorf("nulls: %+v", q)
	}
}

func TestRead_Errors(t *testing.T) {
	long := strings.Repeat("é", 60)
	for _, c := range []struct{ body, want string }{
		{``, `invalid JSON at byte 0: expected a JSON object`},
		{`[1]`, `invalid JSON at byte 0: expected a JSON object`},
		{`{"model":"m"`, `invalid JSON at byte 12: expected ',' or '}'`},
		{`{"model":"m"} x`, `invalid JSON at byte 14: expected nothing after the object`},
		{`{"model":"m",}`, `invalid JSON at byte 13: expected a field's name`},
		{`{"model" "m"}`, `invalid JSON at byte 9: expected ':'`},
		{`{"model":"m","a":01}`, `invalid JSON at byte 18: expected ',' or '}'`},
		{`{"model":"m","a":"\x"}`, `invalid JSON at byte 18: expected a valid escape`},
		{"{\"model\":\"m\n\"}", `invalid JSON at byte 11: expected no control character in a string`},
		{`{"model":"m","messages":[{"role":"u","content":"a\q"}]}`, `invalid JSON at byte 49: expected a valid escape`},
		{`{"model":"m","messages":[{"content":[}]}]}`, `invalid JSON at byte 37: expected a value`},
		{`{"stream":1,"messages":[}]}`, `invalid JSON at byte 24: expected a value`},
		{`{"model":"m","stream":1,"messages":[{"a":tru}]}`, `invalid JSON at byte 41: expected a value`},
		{`{"model":"m","messages":[{"role":"u","name":"\q","name":"b"}]}`, `invalid JSON at byte 45: expected a valid escape`},
		{`{"model":"m","messages":[{"role":"u","name":1x}]}`, `invalid JSON at byte 45: expected ',' or '}'`},
		{`{"model":"m","tools":12x}`, `invalid JSON at byte 23: expected ',' or '}'`},
		{`{"model":"m","prompt":nullx,"a":1}`, `invalid JSON at byte 26: expected ',' or '}'`},
		{"{\"model\":\"m\",\"prompt\":\"abcdefghij\tklmnopqrstuvwxyz\"}", `invalid JSON at byte 33: expected no control character in a string`},
		{"{\"model\":\"m\",\"prefix\":\"abcdefghij\tklmnopqrstuvwxyz\"}", `invalid JSON at byte 33: expected no control character in a string`},
		{`{"model":"m","tools":[1 2]}`, `invalid JSON at byte 24: expected ',' or ']'`},
		{`{"model":"m","input":` + strings.Repeat("[", 256) + strings.Repeat("]", 256) + `}`, `invalid JSON at byte 276: expected no deeper nesting than 256 levels`},
		{`{"model":"m","a":` + strings.Repeat("[", 100_000), `invalid JSON at byte 272: expected no deeper nesting than 256 levels`},
		{`{}`, `"model" is required`},
		{`{"model":null}`, `"model" is required`},
		{`{"model":""}`, `"model" must be a model's name, got "" (a string)`},
		{`{"model":5}`, `"model" must be a string, got 5`},
		{`{"model":"a","model":"b"}`, `"model" is given twice; it must be given once`},
		{`{"model":"a","m\u006fdel":"b"}`, `"model" is given twice; it must be given once`},
		{`{"model":"m","messages":[],"messages":[]}`, `"messages" is given twice; it must be given once`},
		{`{"model":"m","stream":"false"}`, `"stream" must be true or false, got "false" (a string)`},
		{`{"model":"m","stream":"` + long + `"}`, `"stream" must be true or false, got "` + long[:62] + `… (a string)`},
		{`{"model":"m","stream":{"secret":1}}`, `"stream" must be true or false, got an object`},
		{`{"model":"m","max_tokens":1.5}`, `"max_tokens" must be a whole number, got 1.5`},
		{`{"model":"m","max_tokens":9223372036854775808}`, `"max_tokens" must be a whole number, got 9223372036854775808`},
		{`{"model":"m","n":[1]}`, `"n" must be a whole number, got an array`},
		{`{"model":"m","stream_options":true}`, `"stream_options" must be an object, got true`},
		{`{"model":"m","stream_options":{"include_usage":1}}`, `"stream_options.include_usage" must be true or false, got 1`},
		{`{"model":"m","cache_salt":1}`, `"cache_salt" must be a string, got 1`},
		{`{"model":"m","prompt":[1,-2]}`, `"prompt" must be an array of token ids, whole numbers from 0 to 4294967295, got something else`},
		{`{"model":"m","prompt":[4294967296]}`, `"prompt" must be an array of token ids, whole numbers from 0 to 4294967295, got something else`},
		{`{"model":"m","input":[[1],["secret"]]}`, `"input" must be an array of token ids, whole numbers from 0 to 4294967295, got something else`},
		{`{"model":"m","prompt":[1,01]}`, `invalid JSON at byte 26: expected ',' or ']'`},
	} {
		var r Reader
		var w kvblock.Writer
		_, err := r.Read(Chat, []byte(c.body))
		if err == nil {
			_, err = r.Prompt(&w, "m", "", 0)
		}
		if err == nil || err.Error() != c.want {
			t.Errorf("%.80s\n got %v\nwant %s", c.body, err, c.want)
		}
		if field, ok := errors.AsType[*FieldError](err); ok && BadRequest(err, "").Param != field.Field {
			t.Errorf("param %q", BadRequest(err, "").Param)
		}
	}
}

// TestRead_KnowsText: a prompt is validated later, but a control character does not make
// text of fields, or fields of text.
func TestRead_KnowsText(t *testing.T) {
	var r Reader
	if _, err := r.Read(Chat, []byte("{\"model\":\"m\",\"messages\":[\"a\n\",\n\"b\"]}")); err == nil {
		t.Error("a string that a control character ends is read")
	}
}

// TestPrompt_SameText lists bodies that are one prompt in other clothes.
func TestPrompt_SameText(t *testing.T) {
	first := `{"model":"m","cache_salt":"s","tools":[{"a":1}],"messages":[{"role":"user","content":"a\nb é \ud83d\ude00 / ` + strings.Repeat("x", 100) + `"},{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},{"role":"tool","tool_call_id":"1","content":"ok"}]}`
	_, want := read(t, first)
	for name, body := range map[string]string{
		"other order":       `{"messages":[{"content":"a\nb é \ud83d\ude00 / ` + strings.Repeat("x", 100) + `","role":"user"},{"tool_calls":[{"id":"1"}],"role":"assistant"},{"content":"ok","tool_call_id":"1","role":"tool"}],"cache_salt":"s","model":"m","tools":[{"a":1}]}`,
		"other escapes":     `{"model":"m","cache_salt":"\u0073","tools":[{"\u0061":1}],"messages":[{"role":"us\u0065r","content":"a\u000ab \u00e9 😀 \/ ` + strings.Repeat(`\u0078`, 100) + `"},{"role":"assistant","content":"","tool_calls":[ {"id" : "1"} ]},{"role":"tool","tool_call_id":"1","content":"ok"}]}`,
		"parts of one text": `{"model":"m","cache_salt":"s","tools":[{"a":1}],"messages":[{"role":"user","content":[{"type":"text","text":"a\nb é 😀 / ` + strings.Repeat("x", 100) + `","cache_control":{"type":"ephemeral"}}]},{"role":"assistant","content":[],"tool_calls":[{"id":"1"}]},{"role":"tool","tool_call_id":"1","content":[{"text":"ok","type":"te\u0078t"}]}]}`,
		"unknown fields":    `{"model":"m","temperature":1,"cache_salt":"s","tools":[{"a":1}],"functions":null,"messages":[{"role":"user","x":[1],"content":"a\nb é 😀 / ` + strings.Repeat("x", 100) + `"},{"role":"assistant","name":null,"tool_calls":[{"id":"1"}]},{"role":"tool","tool_call_id":"1","content":"ok"}]}`,
	} {
		if _, got := read(t, body); got.Head != want.Head || !slices.Equal(got.Blocks, want.Blocks) || got.InputTokens != want.InputTokens {
			t.Errorf("%s: another prompt (%d tokens, want %d)", name, got.InputTokens, want.InputTokens)
		}
	}
}

// TestPrompt_OtherText lists changes that must each make another prompt.
func TestPrompt_OtherText(t *testing.T) {
	seen := map[kvblock.Hash]string{}
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":"ab"}]}`,
		`{"model":"m","cache_salt":"1","messages":[{"role":"user","content":"ab"}]}`,
		`{"model":"m","messages":[{"role":"system","content":"ab"}]}`,
		`{"model":"m","messages":[{"role":"user","content":"ac"}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}`,
		`{"model":"m","messages":[{"role":"user","content":"ab","name":"x"}]}`,
		`{"model":"m","messages":[{"role":"user","content":"ab","tool_call_id":"x"}]}`,
		`{"model":"m","messages":[{"role":"user","content":"ab","tool_calls":["x"]}]}`,
		`{"model":"m","messages":[{"role":"user","content":"ab","reasoning_content":"x"}]}`,
		`{"model":"m","tools":[],"messages":[{"role":"user","content":"ab"}]}`,
		`{"model":"m","functions":[],"messages":[{"role":"user","content":"ab"}]}`,
		`{"model":"m","reasoning_effort":"low","messages":[{"role":"user","content":"ab"}]}`,
		`{"model":"m","chat_template_kwargs":{"enable_thinking":false},"messages":[{"role":"user","content":"ab"}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"A"}}]}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"B"}}]}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"A","format":"wav"}}]}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"ab"},{"type":"image_url","image_url":{"url":"A"}}]}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"A"}},{"type":"text","text":"ab"}]}]}`,
		`{"model":"m","prompt":"ab"}`,
		`{"model":"m","prompt":[25185]}`, // the bytes of "ab"
		`{"model":"m","prompt":["ab","c"]}`,
		`{"model":"m","input":["ac","ab"]}`,
	} {
		_, p := read(t, body)
		if before, ok := seen[p.Head]; ok && !strings.Contains(body, `["ab","c"]`) {
			t.Errorf("one prompt:\n%s\n%s", before, body)
		}
		seen[p.Head] = body
	}
}

func TestPrompt_Seed(t *testing.T) {
	body := []byte(`{"model":"m","prompt":"` + strings.Repeat("x", 600) + `"}`)
	seen := map[kvblock.Hash]bool{}
	var r Reader
	var w kvblock.Writer
	if _, err := r.Read(Chat, body); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{{"a", ""}, {"b", ""}, {"a", "t"}} {
		p, err := r.Prompt(&w, c[0], c[1], 0)
		if err != nil || len(p.Blocks) != 2 || p.InputTokens != 150 || p.BlockTokens != 64 || p.Exact || p.Inputs != 1 {
			t.Fatalf("%+v %v", p, err)
		}
		for _, h := range p.Blocks {
			if seen[h] {
				t.Errorf("model %q and tenant salt %q share blocks with another", c[0], c[1])
			}
			seen[h] = true
		}
	}
}

// TestPrompt_WhoMustNotShare_SharesNoBlock: F54. Models, adapters under a name of their own,
// salts and tenants have chains of their own, whatever the prompts; another image shares
// what stands before it alone.
func TestPrompt_WhoMustNotShare_SharesNoBlock(t *testing.T) {
	words := strings.Repeat("look ", 60)
	body := func(salt, image string) []byte {
		return []byte(`{"model":"m",` + salt + `"messages":[{"role":"user","content":[{"type":"text","text":"` + words + `"},` +
			`{"type":"image_url","image_url":{"url":"` + image + `"}},{"type":"text","text":"` + words + `"}]}]}`)
	}
	owner := map[kvblock.Hash]int{}
	var r Reader
	var w kvblock.Writer
	for i, c := range []struct {
		model, tenant, salt, image string
		shared                     int // blocks that an earlier one has, too
	}{
		{"m", "", ``, "a", 0},
		{"m", "", ``, "a", 50},
		{"m", "", ``, "b", 300 / 64},
		{"m-lora", "", ``, "a", 0},
		{"m", "t", ``, "a", 0},
		{"m", "", `"cache_salt":"t",`, "a", 0},
		{"m", "", `"cache_salt":"u",`, "a", 0},
		{"m", "", `"cache_salt":"u",`, "b", 300 / 64},
		{"m", "t", `"cache_salt":"t",`, "a", 0},
		{"mt", "", ``, "a", 0},
	} {
		if _, err := r.Read(Chat, body(c.salt, c.image)); err != nil {
			t.Fatal(err)
		}
		p, err := r.Prompt(&w, c.model, c.tenant, 64)
		if err != nil {
			t.Fatal(err)
		}
		shared := 0
		for _, h := range p.Blocks {
			if _, known := owner[h]; known {
				shared++
			}
			owner[h] = i
		}
		if shared != min(c.shared, len(p.Blocks)) || len(p.Blocks) < 12 {
			t.Errorf("%+v shares %d of %d blocks with others, want %d", c, shared, len(p.Blocks), c.shared)
		}
	}
}

func TestPrompt_Inputs(t *testing.T) {
	for _, c := range []struct {
		body           string
		tokens, inputs int
		exact          bool
		blocks         int // of 64 bytes
	}{
		{`{"model":"m","prompt":[1,2,3]}`, 3, 1, true, 0},
		{`{"model":"m","prompt":[` + strings.Repeat("7,", 31) + `4294967295]}`, 32, 1, true, 2},
		{`{"model":"m","input":[[1,2],[3],[]]}`, 3, 3, true, 0},
		{`{"model":"m","input":["abcd","abcde"]}`, 3, 2, false, 0},
		{`{"model":"m","input":[]}`, 0, 1, false, 0},
		{`{"model":"m"}`, 0, 1, false, 0},
		{`{"model":"m","prompt":"` + strings.Repeat("x", 130) + `"}`, 33, 1, false, 2},
		{`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"A"}}]}]}`, 3 + MediaTokens, 1, false, 36},
	} {
		_, p := read(t, c.body)
		if p.InputTokens != c.tokens || p.Inputs != c.inputs || p.Exact != c.exact || len(p.Blocks) != c.blocks {
			t.Errorf("%s: %d tokens, %d inputs, exact %v, %d blocks", c.body, p.InputTokens, p.Inputs, p.Exact, len(p.Blocks))
		}
	}
}

// TestPrompt_Image: F51. The key of a prompt does not grow with an image, and what
// stands before the image is shared.
func TestPrompt_Image(t *testing.T) {
	chat := func(data string) Prompt {
		_, p := read(t, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"`+strings.Repeat("look ", 60)+`"},{"type":"image_url","image_url":{"url":"data:image/png;base64,`+data+`"}}]}]}`)
		return p
	}
	small, big, again := chat("AAAA"), chat(strings.Repeat("ABCD", 1<<18)), chat("AAAA")
	if small.InputTokens != big.InputTokens || len(small.Blocks) != len(big.Blocks) {
		t.Errorf("tokens %d and %d, blocks %d and %d", small.InputTokens, big.InputTokens, len(small.Blocks), len(big.Blocks))
	}
	if small.Head != again.Head || small.Head == big.Head {
		t.Error("an image's key is not its own")
	}
	const before = 300 / 64
	if !slices.Equal(small.Blocks[:before], big.Blocks[:before]) || small.Blocks[before+1] == big.Blocks[before+1] {
		t.Error("the text before an image is not shared, or the image is")
	}
}

func TestReplaceModel(t *testing.T) {
	body := []byte(`{ "a" : 1.50 , "model":"alias", "messages":[{"content":"alias"}]}`)
	var r Reader
	q, err := r.Read(Chat, body)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{ "a" : 1.50 , "model":"org/real \"7b\"", "messages":[{"content":"alias"}]}`
	pieces := Splice(body, Edit{q.ModelAt, AppendModelName(nil, Chat, `org/real "7b"`)})
	if got := bytes.Join(pieces, nil); string(got) != want {
		t.Errorf("Splice: %s", got)
	}
}

func TestRead_DoesNotAllocate(t *testing.T) {
	var r Reader
	var w kvblock.Writer
	body := codeAndChat(64<<10, 1)
	body = append([]byte(`{"cache_salt":"a\u0041","tools":[{"type":"function"}],`), body[1:]...)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := r.Read(Chat, body); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Prompt(&w, "m", "tenant", 0); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestCacheSaltEdit gives bodies a salt: it is what an engine then reads, and all else is as
// it came.
func TestCacheSaltEdit(t *testing.T) {
	const salted = `"cache_salt":"S-_9"`
	for _, c := range []struct {
		grammar    Grammar
		body, want string
	}{
		{Chat, ` {"model":"m" , "messages":[] }`, ` {` + salted + `,"model":"m" , "messages":[] }`},
		{Responses, `{"model":"m","cache_salt":"a\"b","input":"x"}`, `{"model":"m",` + salted + `,"input":"x"}`},
		{Messages, "{\n\"cache_salt\" : null,\"model\":\"m\"}", "{\n\"cache_salt\" : \"S-_9\",\"model\":\"m\"}"},
		{Completions, `{"model":"m","prompt":"{\"cache_salt\":1}","cache\u005fsalt":""}`, `{"model":"m","prompt":"{\"cache_salt\":1}","cache\u005fsalt":"S-_9"}`},
		{Embeddings, `{"model":"m","metadata":{"cache_salt":"x"}}`, `{` + salted + `,"model":"m","metadata":{"cache_salt":"x"}}`},
	} {
		var r Reader
		q, err := r.Read(c.grammar, []byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		got := bytes.Join(Splice([]byte(c.body), CacheSaltEdit([]byte(c.body), &q, "S-_9")), nil)
		if string(got) != c.want {
			t.Errorf("%s\nbecomes %s\nwant    %s", c.body, got, c.want)
		}
		if q, err := r.Read(c.grammar, got); err != nil || string(q.CacheSalt) != "S-_9" || string(q.Model) != "m" {
			t.Errorf("%s: %v, salt %q, model %q", got, err, q.CacheSalt, q.Model)
		}
	}
	for g := range grammarCount {
		want := !slices.Contains([]Grammar{Tokenize, Speech, Images, Upload}, g)
		if g.TakesCacheSalt() != want {
			t.Errorf("%s takes a salt: %v", grammars[g].name, !want)
		}
	}
}

// TestPrompt_OpeningIsTheSameInEveryTurn has conversations in all grammars that have them.
func TestPrompt_OpeningIsTheSameInEveryTurn(t *testing.T) {
	opening := func(g Grammar, body string) kvblock.Hash {
		t.Helper()
		var r Reader
		var w kvblock.Writer
		if _, err := r.Read(g, []byte(body)); err != nil {
			t.Fatal(err)
		}
		p, err := r.Prompt(&w, "m", "", 0)
		if err != nil {
			t.Fatal(err)
		}
		return p.Opening
	}
	long := strings.Repeat("all the words there are ", 500) // more than a block, and than the parser's buffer
	for _, g := range []struct {
		grammar          Grammar
		before, messages string
		turn, user       string
	}{
		{Chat, `{"model":"m","messages":[{"role":"system","content":"S"},`, `]}`, `,{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},{"role":"tool","tool_call_id":"1","content":"x"},{"role":"user","content":"on"}`, `{"role":"user","content":"Q"}`},
		{Responses, `{"model":"m","instructions":"S","input":[`, `]}`, `,{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"role":"user","content":"on"}`, `{"role":"user","content":"Q"}`},
		{Messages, `{"model":"m","max_tokens":5,"system":"S","messages":[`, `]}`, `,{"role":"assistant","content":[{"type":"text","text":"a"}]},{"role":"user","content":"on"}`, `{"role":"user","content":"Q"}`},
	} {
		for _, say := range []string{"short", long} {
			with := func(system, question, turns string) string {
				return strings.NewReplacer(`"S"`, strconv.Quote(system), `"Q"`, strconv.Quote(question)).Replace(g.before + g.user + turns + g.messages)
			}
			first := opening(g.grammar, with(say, say, ""))
			if first == 0 {
				t.Fatalf("%s: no opening", grammars[g.grammar].name)
			}
			for n := range 4 {
				if got := opening(g.grammar, with(say, say, strings.Repeat(g.turn, n))); got != first {
					t.Errorf("%s: another opening after %d turns", grammars[g.grammar].name, n)
				}
			}
			if opening(g.grammar, with(say, say+"?", "")) == first || opening(g.grammar, with(say+"?", say, "")) == first {
				t.Errorf("%s: other words, and the same opening", grammars[g.grammar].name)
			}
			escaped := strings.Replace(with(say, say, ""), `"role":"user","content":`, "\"role\" : \"\\u0075ser\" ,\n\"content\": ", 1)
			if opening(g.grammar, escaped) != first {
				t.Errorf("%s: another serialiser, another opening", grammars[g.grammar].name)
			}
			late := strings.Replace(with(say, say, ""), `"role":"user","content":`+strconv.Quote(say), `"content":`+strconv.Quote(say)+`,"role":"user"`, 1)
			if opening(g.grammar, late) != first {
				t.Errorf("%s: a role behind its content makes another opening", grammars[g.grammar].name)
			}
		}
	}
	var r Reader // it keeps nothing from one body to the next
	var w kvblock.Writer
	for _, body := range []string{`{"model":"m","messages":[{"role":"user","content":"Q"}]}`, `{"model":"m","messages":[{"rule":"user","content":"Q"}]}`} {
		if _, err := r.Read(Chat, []byte(body)); err != nil {
			t.Fatal(err)
		}
		if p, err := r.Prompt(&w, "m", "", 0); err != nil || (p.Opening != 0) != strings.Contains(body, "role") {
			t.Errorf("%s: %v, opening %x", body, err, p.Opening)
		}
	}
	if a, b := opening(Responses, `{"model":"m","input":"Q"}`), opening(Responses, `{"model":"m","input":[{"role":"user","content":"Q"},{"role":"user","content":"R"}]}`); a != b || a == 0 {
		t.Errorf("the text %x and the message %x", a, b)
	}
	one := opening(Responses, `{"model":"m","conversation":"c1","input":"Q"}`)
	if one == 0 || one != opening(Responses, `{"model":"m","conversation":"c1","input":"R"}`) || one == opening(Responses, `{"model":"m","conversation":"c2","input":"Q"}`) {
		t.Error("a stored conversation is not what it is known by")
	}
	for name, body := range map[string]string{
		"goes on from an answer": `{"model":"m","previous_response_id":"r1","input":"Q"}`,
		"no user":                `{"model":"m","messages":[{"role":"system","content":"S"}]}`,
		"no messages":            `{"model":"m","messages":[]}`,
		"a role of another kind": `{"model":"m","messages":[{"role":["user"],"content":"S"},{"content":"user"},"user",5]}`,
		"text":                   `{"model":"m","prompt":"Q"}`,
		"token ids":              `{"model":"m","prompt":[1,2,3]}`,
		"a batch":                `{"model":"m","input":["Q","R"]}`,
	} {
		g := Chat
		if strings.Contains(body, "previous") {
			g = Responses
		}
		if got := opening(g, body); got != 0 {
			t.Errorf("%s: opening %x", name, got)
		}
	}
}

func TestRead_Opaque(t *testing.T) {
	for field, want := range map[string]bool{
		``:                                    false,
		`"prompt_logprobs":0,`:                true,
		`"prompt_logprobs":null,`:             false,
		`"truncate_prompt_tokens":1,`:         true,
		`"prompt_embeds":["x"],`:              true,
		`"echo":true,`:                        false,
		`"logprobs":3,`:                       false,
		`"echo":true,"logprobs":0,`:           true,
		`"echo":true,"logprobs":true,`:        true,
		`"echo":false,"logprobs":3,`:          false,
		`"echo":true,"logprobs":false,`:       false,
		`"extra":{"prompt_logprobs":1},`:      false,
		`"messages":[{"prompt_logprobs":1}],`: false,
		`"prompt\u005flogprobs":1,`:           true,
		`"x":"\"prompt_logprobs\":1",`:        false,
	} {
		var r Reader
		q, err := r.Read(Completions, []byte(`{`+field+`"model":"m","prompt":"p"}`))
		if err != nil || q.Opaque != want {
			t.Errorf("%s: opaque %v, %v", field, q.Opaque, err)
		}
	}
	for g, want := range map[Grammar]bool{Chat: true, Completions: true, Embeddings: true, Rerank: true, Score: true, Opaque: true, Responses: false, Messages: false} {
		var r Reader
		if q, err := r.Read(g, []byte(`{"model":"m","truncate_prompt_tokens":4}`)); err != nil || q.Opaque != want {
			t.Errorf("%v: opaque %v, %v", g, q.Opaque, err)
		}
	}
}
