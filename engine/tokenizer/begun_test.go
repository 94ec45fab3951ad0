package tokenizer

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var goOn = map[string]any{"continue_final_message": true, "add_generation_prompt": false}

// Wherever an answer is broken off between two tokens, going on with it gives the rest of it, and
// the same blocks.
func TestRead_AnAnswerThatWasBegunGoesOnAsItWouldHave(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		turns := []turn{{"system", "Be brief."}, {"user", rapid.StringN(0, 200, -1).Draw(t, "question")}}
		extra, rest := map[string]any{}, maps.Clone(goOn)
		most := rapid.IntRange(2, 200).Draw(t, "max_tokens")
		extra["max_tokens"] = most
		whole := read(t, Chat, chatBody(turns, extra)).Items[0]
		said := rapid.IntRange(1, whole.Answer.Tokens-1).Draw(t, "said")
		rest["max_tokens"] = most - said
		begun := string(whole.Answer.AppendText(nil, 0, said))
		next := read(t, Chat, chatBody(append(slices.Clone(turns), turn{"assistant", begun}), rest)).Items[0]
		if got := begun + next.Answer.Text(); got != whole.Answer.Text() || next.Answer.Stop != whole.Answer.Stop {
			t.Fatalf("after %d tokens of %q it says %q", said, whole.Answer.Text(), next.Answer.Text())
		}
		if p, q := whole.Request, next.Request; q.PromptTokens != p.PromptTokens+said || q.OutputTokens != p.OutputTokens-said {
			t.Fatalf("%d + %d tokens after %d of %d + %d", q.PromptTokens, q.OutputTokens, said, p.PromptTokens, p.OutputTokens)
		}
		if !slices.Equal(slices.Concat(whole.Request.Blocks, whole.Request.AnswerBlocks), slices.Concat(next.Request.Blocks, next.Request.AnswerBlocks)) {
			t.Fatal("the blocks of the whole are others")
		}
	})
}

// Words that are not its own it goes on with as with any prompt.
func TestRead_SomebodyElsesWordsAreAPromptLikeAnother(t *testing.T) {
	for _, said := range []string{"These are not its words", "x", ""} {
		body := chatBody([]turn{{"user", "Hello"}, {"assistant", said}}, goOn)
		if a := read(t, Chat, body).Items[0].Answer; a.from != 0 && said != "" || a.Tokens < 1 {
			t.Errorf("%+v after %q", a, said)
		}
	}
	whole := read(t, Chat, chatBody([]turn{{"user", "Hello"}}, nil)).Items[0].Answer
	said := whole.Text()[:6] // not whole tokens
	if a := read(t, Chat, chatBody([]turn{{"user", "Hello"}, {"assistant", said}}, goOn)).Items[0].Answer; a.from != 0 {
		t.Errorf("%+v after a token and a half", a)
	}
}
