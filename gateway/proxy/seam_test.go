package proxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
	"kvasir/upstream"
)

// An author is an endpoint that says the same words whoever asks, and goes on where the last
// message, or the prompt, leaves off: words that are missing or there twice show.

const authorWords = 12

var authorPrompt = "Tell me:"

func word(i int) string { return fmt.Sprintf("word \"%d\" é\n", i) }

func words(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		b.WriteString(word(i))
	}
	return b.String()
}

// asked is what an author reads.
type asked struct {
	Model          string  `json:"model"`
	Prompt         *string `json:"prompt"`
	MaxTokens      int     `json:"max_tokens"`
	GoOn           bool    `json:"continue_final_message"`
	Generate       *bool   `json:"add_generation_prompt"`
	Seed           int     `json:"seed"`
	Options        any     `json:"stream_options"`
	Messages       []struct{ Role, Content string }
	said           string
	text           bool // completions
	prompt, before int  // tokens
}

func read(c *scripted.Call) asked {
	var q asked
	if err := json.Unmarshal(c.Record().Body, &q); err != nil {
		panic(err)
	}
	q.prompt = 9
	if q.Prompt != nil {
		q.text = true
		q.said = strings.TrimPrefix(*q.Prompt, authorPrompt)
	} else if last := q.Messages[len(q.Messages)-1]; last.Role == "assistant" && q.GoOn && q.Generate != nil && !*q.Generate {
		q.said = last.Content
	}
	for q.before < authorWords && q.said != words(0, q.before) {
		q.before++
	}
	return q
}

// chunkOf is an event of the author's; other endpoints have other ids.
func (q asked) chunkOf(who, delta, finish, usage string) string {
	choice := fmt.Sprintf(`{"index":0,"delta":%s,"finish_reason":%s}`, delta, finish)
	object := "chat.completion.chunk"
	if q.text {
		object = "text_completion"
		var d struct{ Content string }
		_ = json.Unmarshal([]byte(delta), &d)
		text, _ := json.Marshal(d.Content)
		choice = fmt.Sprintf(`{"index":0,"text":%s,"finish_reason":%s}`, text, finish)
	}
	if usage != "" {
		choice = ""
		usage = `,"usage":` + usage
	}
	return fmt.Sprintf(`data: {"id":"id-%s","object":"%s","created":%d,"model":"model-%s","choices":[%s]%s}`+"\n\n", who, object, len(who), who, choice, usage)
}

func (q asked) wordEvent(who string, i int) string {
	text, _ := json.Marshal(word(i))
	return q.chunkOf(who, `{"content":`+string(text)+`}`, "null", "")
}

// write writes the answer from where the request leaves off: all of it, or all before a word.
func (q asked) write(c *scripted.Call, who string, to int) {
	c.EventStream()
	if !q.text {
		_ = c.Chunk(q.chunkOf(who, `{"role":"assistant","content":""}`, "null", ""))
	}
	for i := q.before; i < to; i++ {
		_ = c.Chunk(q.wordEvent(who, i)) // a peer that left is noted
	}
}

func (q asked) finish(c *scripted.Call, who string) {
	said := authorWords - q.before
	_ = c.Chunk(q.chunkOf(who, `{}`, `"stop"`, ""))
	if q.Options != nil {
		_ = c.Chunk(q.chunkOf(who, "", "", fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}`,
			q.prompt+q.before, said, q.prompt+q.before+said, q.prompt+q.before-1)))
	}
	_ = c.Chunk(doneEvent)
	c.LastChunk()
}

func author(who string) scripted.Script {
	return func(c *scripted.Call) {
		q := read(c)
		q.write(c, who, authorWords)
		q.finish(c, who)
	}
}

// breaking is an author that does something else before a word.
func breaking(who string, before int, how func(c *scripted.Call, q asked)) scripted.Script {
	return func(c *scripted.Call) {
		q := read(c)
		q.write(c, who, max(before, q.before))
		c.Pause(30 * time.Millisecond) // what was written is with the client: else it would be had afresh
		how(c, q)
	}
}

func continued(times int, more func(*proxy.Config), scripts ...scripted.Script) setup {
	s := ordered(scripts...)
	s.config = func(c *proxy.Config) {
		c.Models[0].Continue = proxy.Continue{Times: times, Bytes: 1 << 20}
		for i := range c.Models[0].Pools {
			c.Models[0].Pools[i].Dialect = upstream.VLLM()
		}
		if more != nil {
			more(c)
		}
	}
	return s
}

const (
	chatAsks = `{"model":"m","stream":true,"messages":[{"role":"user","content":"Hello"}],"stream_options":{"include_usage":true},"seed":7}`
	textAsks = `{"model":"m","prompt":"Tell me:","stream":true,"max_tokens":100,"stream_options":{"include_usage":true},"seed":7}`
)

var asks = map[string]string{chatPath: chatAsks, completionPath: textAsks}

// oneAnswer checks that a client got the author's whole answer, once, as one.
func oneAnswer(t *testing.T, a answer, parts int) {
	t.Helper()
	var text strings.Builder
	roles, dones, usages, marks, finishes, empties := 0, 0, 0, 0, 0, 0
	for event := range strings.SplitSeq(a.body, "\n\n") {
		for strings.HasPrefix(event, ":") {
			line, rest, _ := strings.Cut(event, "\n")
			if line == ": continued" {
				marks++
			}
			event = rest
		}
		data, ok := strings.CutPrefix(event, "data: ")
		switch {
		case event == "":
			continue
		case data == "[DONE]":
			dones++
			continue
		case !ok:
			t.Fatalf("%q in %q", event, a.body)
		}
		var x struct {
			ID, Model string
			Created   int
			Choices   []struct {
				Text   string
				Finish *string `json:"finish_reason"`
				Delta  struct{ Role, Content string }
			}
			Usage *struct {
				Prompt  int `json:"prompt_tokens"`
				Output  int `json:"completion_tokens"`
				Total   int `json:"total_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
			Error any
		}
		if err := json.Unmarshal([]byte(data), &x); err != nil {
			t.Fatalf("%v in %q of %q", err, data, a.body)
		}
		if x.Error != nil || x.ID != "id-a" || x.Model != "model-a" || x.Created != 1 {
			t.Fatalf("%q is no event of the first part's: %q", data, a.body)
		}
		for _, c := range x.Choices {
			text.WriteString(c.Text + c.Delta.Content)
			if c.Text+c.Delta.Content == "" && c.Finish == nil {
				empties++
			}
			if c.Delta.Role != "" {
				roles++
			}
			if c.Finish != nil {
				finishes++
			}
		}
		if x.Usage != nil {
			usages++
			if x.Usage.Prompt != 9 || x.Usage.Output != authorWords || x.Usage.Total != 9+authorWords || x.Usage.Details.Cached > 9 {
				t.Errorf("usage %+v", *x.Usage)
			}
		}
	}
	if a.err != nil || a.status != 200 || text.String() != words(0, authorWords) || roles > 1 || empties > 1 || dones != 1 || usages != 1 || finishes != 1 || marks != parts-1 {
		t.Errorf("status %d, %v, %d roles, %d ends, %d usages, %d finishes, %d marks (want %d): %q", a.status, a.err, roles, dones, usages, finishes, marks, parts-1, a.body)
	}
}

// broken checks that a client got words and then a typed error, between two events.
func broken(t *testing.T, a answer, code string) {
	t.Helper()
	events := strings.Split(strings.TrimSuffix(a.body, "\n\n"), "\n\n")
	data, ok := strings.CutPrefix(events[len(events)-1], "data: ")
	if a.err != nil || !ok || strings.Contains(a.body, "[DONE]") || !strings.HasSuffix(a.body, "\n\n") {
		t.Fatalf("%v, %q", a.err, a.body)
	}
	if e := envelope(t, data); e.Code != code {
		t.Errorf("code %q, want %q: %q", e.Code, code, a.body)
	}
}

// However an endpoint breaks off, at whatever border of an event or within one, the client gets
// one answer, whose text is neither repeated nor lost.
func TestContinue_OneAnswerOfTwo(t *testing.T) {
	ways := map[string]func(c *scripted.Call, q asked){
		"fin":         func(c *scripted.Call, _ asked) { c.FIN() },
		"rst":         func(c *scripted.Call, _ asked) { c.Pause(5 * time.Millisecond); c.RST() },
		"clean end":   func(c *scripted.Call, _ asked) { c.LastChunk() },
		"error event": func(c *scripted.Call, _ asked) { _ = c.Chunk(errorEvent + doneEvent); c.LastChunk() },
		"error event with content": func(c *scripted.Call, q asked) {
			_ = c.Chunk(errorEvent)
			c.Hold()
		},
		"within an event": func(c *scripted.Call, q asked) {
			e := q.wordEvent("a", 0)
			_ = c.Chunk(e[:len(e)/2])
			c.Pause(5 * time.Millisecond)
			c.FIN()
		},
		"within a blank line": func(c *scripted.Call, q asked) {
			e := ": ping\n" + q.wordEvent("a", 0)
			_ = c.Chunk(e[:12])
			c.RST()
		},
	}
	for path, body := range asks {
		for name, how := range ways {
			for _, before := range []int{1, 2, authorWords / 2, authorWords} {
				t.Run(fmt.Sprintf("%s %s before %d", path, name, before), func(t *testing.T) {
					t.Parallel()
					r := newRig(t, continued(1, nil, breaking("a", before, how), author("bb")))
					defer r.close()
					a := r.post(path, body)
					oneAnswer(t, a, 2)
					second := r.upstreams[1].Calls()
					if len(second) != 1 {
						t.Fatalf("%d calls of the second endpoint", len(second))
					}
					var q asked
					if err := json.Unmarshal(second[0].Body, &q); err != nil || q.Seed != 7 || q.Options == nil {
						t.Errorf("%v in %s", err, second[0].Body)
					}
					if path == completionPath && q.MaxTokens != 100-before {
						t.Errorf("max_tokens %d after %d of 100", q.MaxTokens, before)
					}
					c := r.record()
					if c.string("outcome") != "success" || c.int("continued") != 1 || c.int("attempts") != 2 ||
						c.int("prompt_tokens") != 9 || c.int("output_tokens") != authorWords {
						t.Errorf("record %v", c)
					}
					if n := r.metric("kvasir_continuations_total", "outcome=continued", "pool=p1"); n != 1 {
						t.Errorf("%v continuations counted", n)
					}
				})
			}
		}
	}
}

// A part after the first may break off, too, within the bound.
func TestContinue_AsOftenAsItMay(t *testing.T) {
	fin := func(c *scripted.Call, _ asked) { c.FIN() }
	three := []scripted.Script{breaking("a", 3, fin), breaking("bb", 7, fin), author("ccc")}
	t.Run("twice", func(t *testing.T) {
		r := newRig(t, continued(2, nil, three...))
		defer r.close()
		oneAnswer(t, r.post(chatPath, chatAsks), 3)
		if c := r.record(); c.int("continued") != 2 || c.int("attempts") != 3 || c.int("output_tokens") != authorWords {
			t.Errorf("record %v", c)
		}
	})
	t.Run("once", func(t *testing.T) {
		r := newRig(t, continued(1, nil, three...))
		defer r.close()
		a := r.post(chatPath, chatAsks)
		broken(t, a, "upstream_broke_off")
		if n := len(r.upstreams[2].Calls()); n != 0 {
			t.Errorf("%d calls of the third endpoint", n)
		}
		if c := r.record(); c.string("outcome") != "endpoint_failure" || c.int("continued") != 1 {
			t.Errorf("record %v", c)
		}
	})
}

// One that fails before it says anything is followed by another, or by the error of the first.
func TestContinue_FailsBeforeItBegins(t *testing.T) {
	fin := func(c *scripted.Call, _ asked) { c.FIN() }
	failures := map[string]scripted.Script{
		"fin":         func(c *scripted.Call) { c.FIN() },
		"500":         func(c *scripted.Call) { c.Reply(500, "application/json", `{"error":{"message":"no"}}`) },
		"429":         func(c *scripted.Call) { c.Reply(429, "application/json", `{"error":{"message":"no"}}`) },
		"error event": func(c *scripted.Call) { c.Stream(roleEvent, errorEvent, doneEvent) },
		"empty":       func(c *scripted.Call) { c.Stream(doneEvent) },
		"a word and the end at once": func(c *scripted.Call) { // of which nothing is passed on
			q := read(c)
			c.EventStream()
			e := q.wordEvent("bb", q.before)
			_ = c.Write(fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(e), e))
		},
		"role alone": func(c *scripted.Call) { events(c, roleEvent); c.FIN() },
		"no stream":  func(c *scripted.Call) { c.Reply(200, "application/json", jsonAnswer) },
		"compressed": func(c *scripted.Call) {
			c.Head(200, "Content-Type: text/event-stream", "Content-Encoding: gzip", "Content-Length: 5")
			_ = c.Write("hello")
		},
	}
	for name, f := range failures {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, continued(1, nil, breaking("a", 4, fin), f, author("ccc")))
			defer r.close()
			oneAnswer(t, r.post(chatPath, chatAsks), 2)
			if c := r.record(); c.int("continued") != 1 || c.int("attempts") != 3 {
				t.Errorf("record %v", c)
			}
		})
		t.Run(name+", and nobody else", func(t *testing.T) {
			r := newRig(t, continued(1, nil, breaking("a", 4, fin), f))
			defer r.close()
			a := r.post(chatPath, chatAsks)
			broken(t, a, "upstream_broke_off")
			if !strings.Contains(a.body, "word") || strings.Contains(a.body, ": continued") {
				t.Errorf("got %q", a.body)
			}
			if c := r.record(); c.string("outcome") != "endpoint_failure" || c.has("continued") {
				t.Errorf("record %v", c)
			}
			if n := r.metric("kvasir_continuations_total", "outcome=failed", "pool=p1"); n != 1 {
				t.Errorf("%v failures counted", n)
			}
		})
	}
	// What the engine refuses no other one is asked: the error is the first break's.
	for name, refuses := range map[string]scripted.Script{
		"400":         func(c *scripted.Call) { c.Reply(400, "application/json", `{"error":{"message":"no prefill"}}`) },
		"in-band 400": func(c *scripted.Call) { c.Stream(roleEvent, quotaEvent, doneEvent) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, continued(1, nil, breaking("a", 4, fin), refuses, author("ccc")))
			defer r.close()
			broken(t, r.post(chatPath, chatAsks), "upstream_broke_off")
			if c := r.record(); c.string("outcome") != "endpoint_failure" || c.int("attempts") != 2 {
				t.Errorf("record %v", c)
			}
		})
	}
}

// An endpoint's own error is passed on where nobody goes on.
func TestContinue_TheEndpointsOwnWordsAreTheLast(t *testing.T) {
	for name, times := range map[string]int{"nobody else": 1, "not continued": 0} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, continued(times, nil, breaking("a", 4, func(c *scripted.Call, _ asked) {
				_ = c.Chunk(errorEvent)
				c.LastChunk()
			})))
			defer r.close()
			if a := r.post(chatPath, chatAsks); a.err != nil || strings.Count(a.body, errorEvent) != 1 || !strings.HasSuffix(a.body, errorEvent) {
				t.Errorf("%v, %q", a.err, a.body)
			}
		})
	}
}

// What can't be one answer ends as it does without the setting, and holds nothing back.
func TestContinue_OnlyWhatCanBeOneAnswer(t *testing.T) {
	tool := `data: {"id":"id-a","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t","function":{"name":"f","arguments":"{"}}]}}]}` + "\n\n"
	fin := func(c *scripted.Call, _ asked) { c.FIN() }
	for name, x := range map[string]struct {
		body string
		how  func(c *scripted.Call, q asked)
		more func(*proxy.Config)
	}{
		"a tool call":       {chatAsks, func(c *scripted.Call, _ asked) { _ = c.Chunk(tool); c.FIN() }, nil},
		"a grammar":         {strings.Replace(chatAsks, `"seed":7`, `"response_format":{"type":"json_object"}`, 1), fin, nil},
		"a stop sequence":   {strings.Replace(chatAsks, `"seed":7`, `"stop":["\nUser"]`, 1), fin, nil},
		"no token left":     {strings.Replace(chatAsks, `"seed":7`, `"max_tokens":4`, 1), fin, nil},
		"after the finish":  {chatAsks, func(c *scripted.Call, q asked) { _ = c.Chunk(q.chunkOf("a", `{}`, `"stop"`, "")); c.FIN() }, nil},
		"too much was said": {chatAsks, fin, func(c *proxy.Config) { c.Models[0].Continue.Bytes = 40 }},
		"no room":           {chatAsks, fin, func(c *proxy.Config) { c.Limits.Buffered = 8<<10 + 10 }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, continued(1, x.more, breaking("a", 4, x.how), author("bb")))
			defer r.close()
			a := r.post(chatPath, x.body)
			broken(t, a, "upstream_broke_off")
			if n := len(r.upstreams[1].Calls()); n != 0 {
				t.Errorf("%d calls of the second endpoint", n)
			}
		})
	}
	t.Run("to be done once", func(t *testing.T) {
		r := newRig(t, continued(1, nil, breaking("a", 4, fin), author("bb")))
		defer r.close()
		broken(t, r.post(chatPath, chatAsks, "X-Kvasir-Once: 1"), "upstream_broke_off")
	})
	t.Run("hedged", func(t *testing.T) { // whichever goes on
		for _, winner := range []int{0, 1} {
			s := hedged(3, func(c *scripted.Call, before int) {
				switch {
				case before > 1:
					author("ccc")(c)
				case before != winner:
					c.Hold()
				default:
					c.Pause(time.Duration(1-winner) * 3 * hedgeAfter) // so that it is hedged
					breaking("a", 4, fin)(c)
				}
			})
			hedge := s.config
			s.config = func(c *proxy.Config) {
				hedge(c)
				c.Models[0].Continue = proxy.Continue{Times: 1, Bytes: 1 << 20}
				c.Models[0].Pools[0].Dialect = upstream.VLLM()
			}
			r := newRig(t, s)
			broken(t, r.post(chatPath, chatAsks), "upstream_broke_off")
			r.settle()
			if c := r.record(); c.int("attempts") != 2 || !c.has("hedged") {
				t.Errorf("record %v", c)
			}
			r.close()
		}
	})
	t.Run("an engine without a way", func(t *testing.T) {
		r := newRig(t, continued(1, func(c *proxy.Config) { c.Models[0].Pools[1].Dialect = upstream.Dialect{} }, breaking("a", 4, fin), author("bb"), author("ccc")))
		defer r.close()
		oneAnswer(t, r.post(chatPath, chatAsks), 2)
		if n := len(r.upstreams[1].Calls()); n != 0 {
			t.Errorf("%d calls of an endpoint that can't go on", n)
		}
	})
}

// Its client leaves while nobody speaks.
func TestContinue_ItsClientLeavesInBetween(t *testing.T) {
	waits := make(chan struct{})
	r := newRig(t, continued(1, nil, breaking("a", 4, func(c *scripted.Call, _ asked) { c.FIN() }), func(c *scripted.Call) { close(waits); c.Hold() }))
	defer r.close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-waits
		cancel()
	}()
	if _, err := r.do(ctx, "POST", chatPath, strings.NewReader(chatAsks)); err == nil {
		t.Log("the answer ended before its client left") // it has its words
	}
	r.settle()
	if n := r.metric("kvasir_continuations_total", "outcome=client_gone", "pool=p1"); n != 1 {
		t.Errorf("%v who left are counted", n)
	}
	if c := r.record(); c.string("outcome") != "client_gone" {
		t.Errorf("record %v", c)
	}
}

// Heartbeats go on while nobody speaks, between two events, and a stall ends the first part.
func TestContinue_HeartbeatsBridgeTheGap(t *testing.T) {
	s := continued(1, func(c *proxy.Config) {
		c.Heartbeat = time.Second
		c.Timeouts.Progress = 5 * time.Second
	}, breaking("a", 4, func(c *scripted.Call, q asked) {
		e := q.wordEvent("a", 4)
		_ = c.Chunk(e + q.wordEvent("a", 5)[:20]) // held back: a comment may come
		c.Hold()
	}), func(c *scripted.Call) {
		q := read(c)
		c.Pause(3500 * time.Millisecond)
		q.write(c, "bb", authorWords)
		q.finish(c, "bb")
	})
	inBubble(t, s, func(t *testing.T, r *rig) {
		c := r.send(rawPost(chatPath, chatAsks, "Connection: close"))
		text, err := io.ReadAll(c)
		_ = c.Close()
		if n := strings.Count(string(text), ": waiting\n"); err != nil || n < 6 {
			t.Errorf("%v, %d heartbeats in 8 s: %q", err, n, text)
		}
		// The first token came at once, and 0 s are not written.
		if r.settle(); r.record().has("ttft_seconds") {
			t.Errorf("record %v", r.record())
		}
		if !strings.Contains(string(text), ": continued\n") || strings.Count(string(text), "[DONE]") != 1 {
			t.Errorf("got %q", text)
		}
	})
}

// Without usage the tokens of all parts are counted, each once.
func TestContinue_CountsTheTokensOfAllParts(t *testing.T) {
	r := newRig(t, continued(2, nil, breaking("a", 3, func(c *scripted.Call, _ asked) { c.FIN() }),
		breaking("bb", 7, func(c *scripted.Call, _ asked) { c.FIN() }), author("ccc")))
	defer r.close()
	a := r.post(chatPath, strings.Replace(chatAsks, `"stream_options":{"include_usage":true},`, "", 1))
	if a.err != nil || !strings.HasSuffix(a.body, doneEvent) {
		t.Errorf("%v, %q", a.err, a.body)
	}
	if c := r.record(); c.int("output_tokens_estimated") != authorWords || c.int("continued") != 2 {
		t.Errorf("record %v", c)
	}
}

// What follows a later part's end mark is not passed on.
func TestContinue_EndsOnce(t *testing.T) {
	r := newRig(t, continued(1, nil, breaking("a", 4, func(c *scripted.Call, _ asked) { c.FIN() }), func(c *scripted.Call) {
		q := read(c)
		q.write(c, "bb", authorWords)
		_ = c.Chunk(q.chunkOf("bb", `{}`, `"stop"`, ""))
		_ = c.Chunk(q.chunkOf("bb", "", "", fmt.Sprintf(`{"prompt_tokens":13,"completion_tokens":%d,"total_tokens":%d}`, authorWords-4, 9+authorWords)))
		_ = c.Chunk(doneEvent)
		c.Pause(20 * time.Millisecond)
		_ = c.Chunk(doneEvent)
		c.LastChunk()
	}))
	defer r.close()
	oneAnswer(t, r.post(chatPath, chatAsks), 2)
}

// What an attempt has said of which the client has nothing is not said.
func TestContinue_OnlyWhatTheClientHasWasSaid(t *testing.T) {
	fin := func(c *scripted.Call, _ asked) { c.FIN() }
	r := newRig(t, continued(2, func(c *proxy.Config) { c.Models[0].Machine.Retry.Attempts = 3 }, breaking("a", 4, fin), func(c *scripted.Call) {
		q := read(c)
		c.EventStream()
		e := q.wordEvent("bb", q.before)
		_ = c.Write(fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(e), e)) // the end comes with it: it is not passed on
	}, breaking("ccc", 8, fin), author("dddd")))
	r.attempts = 4
	defer r.close()
	oneAnswer(t, r.post(chatPath, chatAsks), 3)
}

// A last event that lacks its blank line alone was said.
func TestContinue_AnEventWithoutItsBlankLineWasSaid(t *testing.T) {
	for lacks := 1; lacks <= 2; lacks++ {
		for _, alone := range []bool{false, true} {
			cut := func(c *scripted.Call, q asked) {
				e := q.wordEvent("a", 4)
				_ = c.Chunk(e[:len(e)-lacks])
				c.LastChunk()
			}
			scripts := []scripted.Script{breaking("a", 4, cut), author("bb")}
			if alone {
				scripts = scripts[:1]
			}
			r := newRig(t, continued(1, nil, scripts...))
			a := r.post(chatPath, chatAsks)
			if !alone {
				oneAnswer(t, a, 2)
			} else {
				broken(t, a, "upstream_broke_off")
			}
			if text, _, _ := saysOf(t, a.body); alone && text != words(0, 5) {
				t.Errorf("got %q", text)
			}
			r.close()
		}
	}
}

// A gateway that stops tells a client whose answer waits for its next part.
func TestContinue_CutInBetween(t *testing.T) {
	r := newRig(t, continued(1, nil, breaking("a", 4, func(c *scripted.Call, _ asked) { c.FIN() }), func(c *scripted.Call) { events(c, roleEvent); c.Hold() }))
	defer r.close()
	got := make(chan answer)
	go func() { got <- r.post(chatPath, chatAsks) }()
	waitForCall(t, r.upstreams[1])
	time.Sleep(50 * time.Millisecond) // what the script sends arrives
	r.gateway.Drain()
	r.gateway.Cut()
	broken(t, <-got, "draining")
	r.settle()
	if c := r.record(); c.string("refusal") != "draining" {
		t.Errorf("record %v", c)
	}
	if n := r.metric("kvasir_continuations_total", "outcome=failed", "pool=p1"); n != 1 {
		t.Errorf("%v failures counted", n)
	}
}
