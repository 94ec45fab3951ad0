package load

import (
	"strings"
	"testing"

	"kvasir/client/workload"
	"kvasir/internal/kvblock"
)

func TestPrompts_ShareTextAsFarAsTheyShareBlocks(t *testing.T) {
	p := Prompts{Seed: 1, BlockTokens: 16, TokenBytes: 4}
	text := func(session, call, tokens int, blocks ...kvblock.Hash) string {
		m := p.Messages(session, call, &workload.Call{PromptTokens: tokens, Blocks: blocks})
		if len(m) != 1 || m[0].Role != "user" {
			t.Fatalf("messages %v", m)
		}
		return m[0].Content
	}
	shared := func(a, b string) int {
		n := 0
		for n < min(len(a), len(b)) && a[n] == b[n] {
			n++
		}
		return n
	}
	for _, x := range []struct {
		a, b string
		want int // bytes
	}{
		{text(0, 0, 50, 1, 2, 3), text(1, 0, 50, 1, 2, 3), 192},
		{text(0, 0, 50, 1, 2, 3), text(1, 0, 50, 1, 2, 4), 128},
		{text(0, 0, 50, 1, 2), text(0, 1, 100, 1, 2, 3, 5), 128},
		{text(0, 0, 50), text(1, 0, 50), 0},
		{text(0, 0, 50), text(0, 1, 50), 0},
	} {
		if got := shared(x.a, x.b); got < x.want || got > x.want+2*pieceBytes {
			t.Errorf("share %d bytes, want %d", got, x.want)
		}
	}
	if a := text(3, 1, 50, 7); a != text(3, 1, 50, 7) || len(a) != 200 {
		t.Errorf("another text the second time, or %d bytes", len(a))
	}
	p.TokenBytes = 2.5
	if a := text(3, 1, 50, 7); len(a) != 125 {
		t.Errorf("%d bytes at 2.5 a token", len(a))
	}
	q := p
	q.Seed++
	if a := q.Messages(3, 1, &workload.Call{PromptTokens: 50, Blocks: []kvblock.Hash{7}}); strings.HasPrefix(a[0].Content, text(3, 1, 50, 7)[:12]) {
		t.Error("another seed has the same text")
	}
}
