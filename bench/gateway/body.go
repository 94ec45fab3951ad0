package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Bodies are chats about code, as an agent's: a system prompt that many share, turns that
// this conversation has had before, and a last quarter that no call has had yet. So an
// index of prefixes finds three quarters of each prompt and learns the rest.

const (
	conversations = 48 // of each size; each call continues one of them anew
	systemPrompts = 4  // shared by them
	freshFrom     = 75 // percent of the body from where it is new with each call
)

// conversation is the messages of a request's body, cut where the call's number goes.
type conversation struct {
	before, after []byte
}

// callNumber is how the number of a call stands in its body. All have the same length.
func callNumber(dst []byte, n uint64) []byte {
	const digits = 16
	s := strconv.FormatUint(n, 16)
	return append(append(dst, strings.Repeat("0", digits-len(s))...), s...)
}

// head is the beginning of a body. The upstream reads what is asked for from it: the
// number of events as max_tokens, their pace as the user.
func head(c cell) []byte {
	return fmt.Appendf(nil, `{"model":"bench","stream":%t,"max_tokens":%d,"user":"pace=%s","messages":[`, c.Events > 0, cmp.Or(c.Events, 200), c.Pace)
}

// makeConversations returns the conversations for bodies of that many bytes, the same for
// the same seed.
func makeConversations(size int, seed uint64) []conversation {
	var systems [systemPrompts]string
	for i := range systems {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		systems[i] = text(r, size/4)
	}
	out := make([]conversation, conversations)
	for i := range out {
		r := rand.New(rand.NewPCG(seed+1, uint64(i)))
		out[i] = makeConversation(r, size-len(head(cell{})), systems[i%systemPrompts])
	}
	return out
}

func makeConversation(r *rand.Rand, size int, system string) conversation {
	var c conversation
	c.before = appendMessage(nil, "system", system)
	turn, known := size/8, size*freshFrom/100
	for known-len(c.before) > turn/2 {
		for _, role := range []string{"user", "assistant"} {
			c.before = append(c.before, ',')
			c.before = appendMessage(c.before, role, text(r, min(turn/4+r.IntN(turn), (known-len(c.before))/2+turn/8)))
		}
	}
	c.before = append(c.before, `,{"role":"user","content":"Run `...)
	c.after = appendEscaped(nil, " said:\n"+text(r, size-len(c.before)))
	c.after = append(c.after, `"}]}`...)
	return c
}

func appendMessage(b []byte, role, content string) []byte {
	b = append(b, `{"role":"`...)
	b = append(b, role...)
	b = append(b, `","content":"`...)
	return append(appendEscaped(b, content), `"}`...)
}

// appendEscaped appends s as it stands in a JSON string.
func appendEscaped(b []byte, s string) []byte {
	for i := range len(s) {
		switch c := s[i]; c {
		case '\n':
			b = append(b, `\n`...)
		case '\t':
			b = append(b, `\t`...)
		case '"', '\\':
			b = append(b, '\\', c)
		default:
			b = append(b, c)
		}
	}
	return b
}

// text returns prose and code in turns that take about n bytes in JSON. Prose has an
// escape in about 60 bytes, code that is indented with blanks one in 30, with tabs one in
// 12; together it is one in 25.
func text(r *rand.Rand, n int) string {
	var s strings.Builder
	for s.Len()*100 < n*95 { // escapes make it a twentieth longer
		prose(r, &s)
		language := languages[min(r.IntN(3), 1)] // two in three are Python
		s.WriteString("```" + language.name + "\n")
		for range 2 + r.IntN(6) {
			s.WriteString(language.line(r))
		}
		s.WriteString("```\n")
	}
	return strings.ToValidUTF8(s.String()[:min(s.Len(), n*95/100)], "")
}

var words = strings.Fields(`the a this that which when where request response stream buffer handler value error
retries connection pool reads writes returns before after while because should must never always again
instead every other first last only both between under lock timeout header body token prefix cache block
index entry naïve façade — it is not clear why and then we see in case of no more than one of them`)

var names = strings.Fields(`ctx err buf conn req resp item key value count total next prev node entry header body
chunk offset length limit timeout deadline client server handler reader writer state index cache block`)

// prose writes a sentence or two, broken into lines.
func prose(r *rand.Rand, s *strings.Builder) {
	width := 0
	for range 20 + r.IntN(40) {
		w := words[r.IntN(len(words))]
		if r.IntN(14) == 0 {
			w = `"` + w + `"`
		}
		s.WriteString(w)
		if width += len(w) + 1; width > 76 {
			s.WriteByte('\n')
			width = 0
		} else {
			s.WriteByte(' ')
		}
	}
	s.WriteString("\n\n")
}

type language struct {
	name  string
	lines []string
}

var languages = []language{
	{"go", []string{
		"\tif %[1]s != nil {\n",
		"\t\treturn fmt.Errorf(\"read %[1]s of %%q: %%w\", %[2]s, err)\n",
		"\t}\n",
		"\tfor _, %[1]s := range %[2]s.%[3]ss {\n",
		"\t\t%[1]s.%[2]s = append(%[1]s.%[2]s, %[3]s)\n",
		"func (%[1]s *%[2]s) %[3]s(%[2]s []byte) (int, error) {\n",
		"\t%[1]s, err := %[2]s.Open(\"testdata/%[3]s.json\")\n",
		"\t\t\tlog.Printf(\"%[1]s\\t%%d\\n\", len(%[2]s))\n",
	}},
	{"python", []string{
		"def %[1]s_%[2]s(self, %[3]s: int = 0) -> None:\n",
		"    for %[1]s in self._%[2]s.values():\n",
		"        if not isinstance(%[1]s, %[2]s):\n",
		"            raise ValueError(f\"%[1]s of {%[2]s} is no %[3]s\")\n",
		"        %[1]s.%[2]s = self.%[3]s(%[1]s, timeout=30.0)\n",
		"        return [%[1]s['%[2]s'] for %[1]s in %[3]s]\n",
		"    # The %[1]s is read before the %[2]s, or the %[3]s would be lost.\n",
	}},
}

func (l language) line(r *rand.Rand) string {
	n := func() string { return names[r.IntN(len(names))] }
	return fmt.Sprintf(l.lines[r.IntN(len(l.lines))]+"%[4]s", n(), n(), n(), "")
}
