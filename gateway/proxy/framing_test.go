package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/memnet"
	"kvasir/internal/testkit/scripted"
)

// pieces streams text in writes that end at the borders, with a pause after each. Each
// write is a chunk of its own.
func pieces(text string, borders ...int) scripted.Script {
	return func(c *scripted.Call) {
		c.EventStream()
		at := 0
		for _, b := range append(borders, len(text)) {
			if b > at {
				_ = c.Chunk(text[at:b]) // a peer that left is noted
				at = b
				c.Pause(time.Millisecond)
			}
		}
		c.LastChunk()
	}
}

// inBubble runs a test on virtual time, over a network in memory.
func inBubble(t *testing.T, s setup, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.network = memnet.New()
		r := newRig(t, s)
		test(t, r)
		r.close()
	})
}

// Field case F01: a read border is not a message border.
func TestStreamIsTheSameForEverySplitOfAnEvent(t *testing.T) {
	head, event := roleEvent, textEvent(strings.Repeat("some text ", 15))
	tail := finishEvent + usageEvent + doneEvent
	whole := head + event + tail
	inBubble(t, ordered(pieces(whole)), func(t *testing.T, r *rig) {
		for split := range len(event) {
			r.upstreams[0].SetScript(pieces(whole, len(head)+split))
			if a := r.post(chatPath, streamed); a.body != whole || a.status != 200 {
				t.Fatalf("split at %d: status %d, %q", split, a.status, a.body)
			}
		}
		r.settle()
		for _, c := range r.records.all() {
			if c.int("output_tokens") != 3 || c.string("outcome") != "success" {
				t.Fatalf("record %v", c)
			}
		}
	})
}

// Field case F02: the whole grammar of event streams is read, and passed on as it came.
func TestEveryLegalFramingIsReadAndPassedOn(t *testing.T) {
	plain := joined(wholeStream("one", "two"))
	crlf := strings.ReplaceAll(plain, "\n", "\r\n")
	between := strings.Index(crlf, "two")
	between += strings.Index(crlf[between:], "\r\n\r\n") + 1
	variants := map[string]struct {
		text    string
		borders []int
	}{
		"lf":                       {text: plain},
		"crlf":                     {text: crlf},
		"cr":                       {text: strings.ReplaceAll(plain, "\n", "\r")},
		"crlf cut inside":          {text: crlf, borders: []int{between, between + 2}},
		"no space":                 {text: strings.ReplaceAll(plain, "data: ", "data:")},
		"two spaces":               {text: strings.ReplaceAll(plain, "data: {", "data:  {")},
		"byte order mark":          {text: "\ufeff" + plain, borders: []int{1, 2}},
		"event, id, retry":         {text: strings.ReplaceAll(plain, "data: ", "event: message\nid: 7\nretry: 10\ndata: ")},
		"comments":                 {text: ": ping\n\n" + strings.ReplaceAll(plain, "data: ", ": note\ndata: ")},
		"data in several lines":    {text: strings.ReplaceAll(plain, `"choices":`, "\ndata: \"choices\":")},
		"no blank line at the end": {text: strings.TrimSuffix(plain, "\n\n")},
		"one byte a write":         {text: plain, borders: everyByte(len(plain))},
	}
	for name, v := range variants {
		t.Run(name, func(t *testing.T) {
			inBubble(t, ordered(pieces(v.text, v.borders...)), func(t *testing.T, r *rig) {
				if a := r.post(chatPath, streamed); a.body != v.text || a.err != nil {
					t.Errorf("got %q, %v\nwant %q", a.body, a.err, v.text)
				}
				c := r.record()
				if c.string("outcome") != "success" || c.int("prompt_tokens") != 9 || c.int("cached_tokens") != 4 || c.int("output_tokens") != 3 {
					t.Errorf("record %v", c)
				}
				if c.has("done_missing") {
					t.Error("the end mark was not seen")
				}
			})
		})
	}
}

func everyByte(n int) []int {
	borders := make([]int, n)
	for i := range borders {
		borders[i] = i
	}
	return borders
}

// Field case F03: code points cut anywhere, and bytes that are none.
func TestCodePointsCutAnywhereArriveWhole(t *testing.T) {
	raw := "data: " + `{"choices":[{"index":0,"delta":{"content":"é漢字🧝` + "\xff" + `"}}]}` + "\n\n"
	text := roleEvent + raw + finishEvent + doneEvent
	start := strings.Index(text, "é")
	inBubble(t, ordered(nil), func(t *testing.T, r *rig) {
		for cut := start; cut < start+14; cut++ {
			r.upstreams[0].SetScript(pieces(text, cut))
			if a := r.post(chatPath, streamed); a.body != text || a.err != nil {
				t.Errorf("cut at %d: %q, %v", cut, a.body, a.err)
			}
		}
	})
	t.Run("cut by the end of the stream", func(t *testing.T) {
		torn := text[:start+1]
		sent := roleEvent + textEvent("x") + torn[len(roleEvent):]
		inBubble(t, ordered(pieces(sent, len(roleEvent+textEvent("x")))), func(t *testing.T, r *rig) {
			if a := r.post(chatPath, streamed); a.body != sent || a.err == nil {
				t.Errorf("got %q, %v\nwant %q and an error", a.body, a.err, sent)
			}
		})
	})
}

// Field case F06: events of any size pass; those over limits.event are not looked into.
func TestBigEventsPassWhole(t *testing.T) {
	const limit = 2 << 20
	sizes := []struct {
		bytes    int
		oversize float64
	}{{70 << 10, 0}, {1100 << 10, 0}, {8 << 20, 1}}
	for _, size := range sizes {
		t.Run(fmt.Sprint(size.bytes), func(t *testing.T) {
			text := roleEvent + textEvent(strings.Repeat("b", size.bytes)) + textEvent("end") + finishEvent + usageEvent + doneEvent
			s := ordered(func(c *scripted.Call) { c.Stream(text[:len(text)/2], text[len(text)/2:]) })
			s.config = func(c *proxy.Config) { c.Limits.Event = limit }
			r := newRig(t, s)
			defer r.close()
			if a := r.post(chatPath, streamed); a.body != text || a.err != nil {
				t.Errorf("got %d bytes of %d, %v", len(a.body), len(text), a.err)
			}
			if got := r.metric("kvasir_stream_oddities_total", "kind=event_too_large"); got != size.oversize {
				t.Errorf("event_too_large counted %v times, want %v", got, size.oversize)
			}
			if c := r.record(); c.string("outcome") != "success" || c.int("output_tokens") != 3 {
				t.Errorf("record %v", c)
			}
		})
	}
}

// When limits.buffered has no room for a big event's inspection, its bytes still flow.
func TestAnEventThatCannotBeBufferedPassesUnread(t *testing.T) {
	text := roleEvent + textEvent(strings.Repeat("b", 600<<10)) + finishEvent + usageEvent + doneEvent
	s := ordered(func(c *scripted.Call) { c.Stream(text) })
	s.config = func(c *proxy.Config) { c.Limits.Buffered = 512 << 10 }
	r := newRig(t, s)
	defer r.close()
	if a := r.post(chatPath, streamed); a.body != text || a.err != nil {
		t.Errorf("got %d bytes of %d, %v", len(a.body), len(text), a.err)
	}
	if got := r.metric("kvasir_stream_oddities_total", "kind=event_too_large"); got != 1 {
		t.Errorf("event_too_large counted %v times", got)
	}
	if c := r.record(); c.string("outcome") != "success" || c.has("output_tokens") {
		t.Errorf("record %v: usage that was not read must stay unknown", c)
	}
}

// Field case F09: chunks without choices, or with odd ones.
func TestChunksWithoutChoicesPass(t *testing.T) {
	text := `data: {"id":"c1","object":"chat.completion.chunk","choices":[],"prompt_filter_results":[{}]}` + "\n\n" +
		roleEvent + `data: {"id":"c1","object":"chat.completion.chunk"}` + "\n\n" + textEvent("a") +
		`data: {"id":"c1","object":"chat.completion.chunk","choices":[]}` + "\n\n" +
		`data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":null,"finish_reason":null}]}` + "\n\n" +
		`data: {"id":"c1","object":"chat.completion.chunk","choices":null}` + "\n\n" +
		textEvent("b") + finishEvent + usageEvent + doneEvent
	inBubble(t, ordered(pieces(text, everyByte(len(text))...)), func(t *testing.T, r *rig) {
		if a := r.post(chatPath, streamed); a.body != text {
			t.Errorf("got %q", a.body)
		}
		if c := r.record(); c.string("outcome") != "success" || c.int("output_tokens") != 3 {
			t.Errorf("record %v", c)
		}
	})
}
