// Package workload is layer 1 (clients), pure: what is asked.
package workload

import (
	"strings"

	"kvasir/internal/seed"
)

// Message is one message of a conversation, as the chat API has it.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Conversations describes chat users: each conversation begins with one of a few shared
// system prompts, and every turn sends all that was said before. So prompts share heads
// in the two ways that real chat traffic does: between conversations and within one
// (article sections 5.3 and 6). The text is made-up words; a seed and a conversation's
// number decide it entirely.
type Conversations struct {
	Seed          uint64
	SystemPrompts int // how many different ones there are, ≥ 1
	SystemWords   int // words in each
	UserWords     int // words in a user's message: between half and one and a half times as many
}

// Open returns what the conversation begins with: the system prompt, and the first
// message of the user.
func (c Conversations) Open(conversation int) []Message {
	r := seed.New(c.Seed, seed.Workload, uint64(conversation), 0)
	// The square makes low numbers popular, as system prompts in use are.
	f := r.Float64()
	prompt := int(f * f * float64(c.SystemPrompts))
	system := seed.New(c.Seed, seed.Workload, uint64(prompt), 1<<32)
	return []Message{
		{Role: "system", Content: "You are a helpful assistant. " + words(&system, c.SystemWords)},
		c.Turn(conversation, 1),
	}
}

// Turn returns the user's message of a turn; 1 is the first.
func (c Conversations) Turn(conversation, turn int) Message {
	r := seed.New(c.Seed, seed.Workload, uint64(conversation), uint64(turn))
	n := max(c.UserWords/2+r.Intn(c.UserWords+1), 1)
	return Message{Role: "user", Content: words(&r, n)}
}

var (
	onsets = strings.Fields("b br d dr f fr g gr h k kl l m n p r s sk st t th v")
	nuclei = strings.Fields("a e i o u y ei au ja")
	codas  = strings.Fields("ld lk m n nd ng r rn rr s t ttr")
)

// words returns n pseudo-words of one or two syllables, in sentences.
func words(r *seed.Rand, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(' ')
		}
		for range 1 + r.Intn(2) {
			b.WriteString(onsets[r.Intn(len(onsets))])
			b.WriteString(nuclei[r.Intn(len(nuclei))])
		}
		b.WriteString(codas[r.Intn(len(codas))])
		if i%12 == 11 {
			b.WriteByte('.')
		}
	}
	return b.String()
}
