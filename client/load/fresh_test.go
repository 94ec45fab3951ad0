package load

import (
	"strings"
	"testing"

	"kvasir/client/workload"
	"kvasir/internal/kvblock"
)

// Runs on fresh sources share no text with each other, and each shares within itself as much
// as the source does.
func TestFresh_SharesWithinAndNotAcross(t *testing.T) {
	two := func(id string, last kvblock.Hash) workload.Session {
		return workload.Session{ID: id, Calls: []workload.Call{{PromptTokens: 100, Blocks: []kvblock.Hash{1, 2, last}, AnswerBlocks: []kvblock.Hash{9}}}}
	}
	source := sessionsOf(two("a", 3), two("b", 4), workload.Session{ID: "c", Calls: []workload.Call{{PromptTokens: 100}}})
	text := workload.Text{BlockTokens: 16}
	said := func(salt uint64) (all []string) {
		for s, err := range Fresh(source, salt).Sessions {
			if err != nil {
				t.Fatal(err)
			}
			m := text.Messages(nil, &s, 0)
			all = append(all, m[len(m)-1].Content)
		}
		return all
	}
	first, second := said(0), said(7)
	for _, run := range [][]string{first, second} {
		if len(run) != 3 || run[0][:128] != run[1][:128] || run[0] == run[1] {
			t.Errorf("within a run %q", run)
		}
	}
	for i := range first {
		for j := range second {
			if strings.HasPrefix(second[j], first[i][:32]) {
				t.Errorf("prompt %d of one run begins as prompt %d of another", i, j)
			}
		}
	}
	if again := said(7); again[0] != second[0] || again[2] != second[2] {
		t.Error("the same salt gives another text")
	}
}
