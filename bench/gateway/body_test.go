package main

import (
	"bytes"
	"encoding/json"
	"testing"
)

func wholeBody(c cell, v conversation, n uint64) []byte {
	b := append(head(c), v.before...)
	return append(callNumber(b, n), v.after...)
}

func TestBodiesAreChatsOfTheirSizeFullOfEscapes(t *testing.T) {
	for _, c := range allCells {
		for i, v := range makeConversations(c.Body, bodySeed) {
			b := wholeBody(c, v, 1)
			var call struct {
				Model    string
				Stream   bool
				Messages []struct{ Role, Content string }
			}
			if err := json.Unmarshal(b, &call); err != nil {
				t.Fatalf("%s, conversation %d: %v", c, i, err)
			}
			if len(b) < c.Body*90/100 || len(b) > c.Body*110/100 {
				t.Errorf("%s, conversation %d: %d bytes; expected %d, give or take a tenth", c, i, len(b), c.Body)
			}
			if n := bytes.Count(b, []byte(`\`)); n*40 < len(b) {
				t.Errorf("%s, conversation %d: %d escapes in %d bytes; expected one in 40 or more", c, i, n, len(b))
			}
			first, last := call.Messages[0], call.Messages[len(call.Messages)-1]
			if first.Role != "system" || last.Role != "user" || len(call.Messages) < 4 || call.Stream != (c.Events > 0) {
				t.Errorf("%s, conversation %d: %d messages from %s to %s, stream %t", c, i, len(call.Messages), first.Role, last.Role, call.Stream)
			}
			if fresh := len(v.after) * 100 / len(b); fresh < 15 || fresh > 35 {
				t.Errorf("%s, conversation %d: %d %% of it is new with each call; expected about 25", c, i, fresh)
			}
		}
	}
}

func TestConversationsShareSystemPromptsAndNothingElse(t *testing.T) {
	c := cell{Body: 4 * kib}
	vs := makeConversations(c.Body, bodySeed)
	again := makeConversations(c.Body, bodySeed)
	system := c.Body / 4
	for i := range vs {
		if !bytes.Equal(vs[i].before, again[i].before) || !bytes.Equal(vs[i].after, again[i].after) {
			t.Fatalf("conversation %d is another one when made again", i)
		}
		for j := range i {
			common := commonPrefix(vs[i].before, vs[j].before)
			same := i%systemPrompts == j%systemPrompts
			if same != (common > system*8/10) || common > system*13/10 {
				t.Errorf("conversations %d and %d have %d bytes in common; a system prompt has %d", i, j, common, system)
			}
		}
	}
}

func commonPrefix(a, b []byte) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func TestEscapedTextIsWhatItWas(t *testing.T) {
	for _, s := range []string{"", "plain", "a\tb\n\"c\" \\d\\", "naïve — façade", "\\\\\"\""} {
		var got string
		if err := json.Unmarshal(append(appendEscaped([]byte{'"'}, s), '"'), &got); err != nil || got != s {
			t.Errorf("%q came back as %q, %v", s, got, err)
		}
	}
}

func TestCallNumbersHaveOneLength(t *testing.T) {
	for _, n := range []uint64{0, 1, 255, 1 << 40, 1<<64 - 1} {
		if got := callNumber(nil, n); len(got) != 16 {
			t.Errorf("number %d is %q, %d bytes; expected 16", n, got, len(got))
		}
	}
}
