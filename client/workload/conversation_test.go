package workload

import (
	"strings"
	"testing"
)

var talk = Conversations{Seed: 7, SystemPrompts: 5, SystemWords: 50, UserWords: 20}

func TestConversations_AreDecidedBySeedAndNumber(t *testing.T) {
	other := talk
	other.Seed++
	for n := range 50 {
		a, third := talk.Open(n), talk.Turn(n, 3)
		if b := talk.Open(n); a[0] != b[0] || a[1] != b[1] || third != talk.Turn(n, 3) {
			t.Fatalf("conversation %d is another one the second time", n)
		}
		if a[1] != talk.Turn(n, 1) {
			t.Fatalf("conversation %d does not open with its first turn", n)
		}
		if a[1] == talk.Turn(n, 2) || a[1] == talk.Open(n + 1)[1] || a[1] == other.Open(n)[1] {
			t.Fatalf("conversation %d repeats itself, another one, or another seed's", n)
		}
	}
}

func TestConversations_ShareFewSystemPromptsUnevenly(t *testing.T) {
	seen := map[string]int{}
	most := 0
	for n := range 1000 {
		m := talk.Open(n)
		if m[0].Role != "system" || m[1].Role != "user" {
			t.Fatalf("roles are %s, %s", m[0].Role, m[1].Role)
		}
		seen[m[0].Content]++
		most = max(most, seen[m[0].Content])
	}
	if len(seen) != talk.SystemPrompts || most < 300 || most > 600 {
		t.Errorf("%d system prompts, the most popular one in %d of 1000 conversations", len(seen), most)
	}
}

func TestTurn_HasTheLengthThatWasAskedFor(t *testing.T) {
	for n := range 500 {
		words := len(strings.Fields(talk.Turn(n, 1).Content))
		if words < talk.UserWords/2 || words > talk.UserWords*3/2 {
			t.Fatalf("turn of %d words, want %d to %d", words, talk.UserWords/2, talk.UserWords*3/2)
		}
	}
}
