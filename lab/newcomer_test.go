package lab

import (
	"fmt"
	"testing"

	"kvasir/internal/kvblock"
	"kvasir/selection"
	"kvasir/selection/policy"
)

// TestNewcomer_GetsNothingBeforeItJoins, every call of the window is counted, and slow start of a tick
// is none.
func TestNewcomer_GetsNothingBeforeItJoins(t *testing.T) {
	x := newcomerLab().settings().(*newcomer)
	for root := range uint64(5) {
		for _, ru := range x.rules() {
			if j := x.play(ru, root); len(j.full) != x.window || j.full[0] > 3 || j.share < 0 || j.share > 100 || j.row > float64(x.window) {
				t.Errorf("%s, seed %d: %+v", ru.name, root, j)
			}
		}
		at := *x
		at.ramp = 1
		rush, slow := at.play(at.rules()[rushRule], root), at.play(at.rules()[slowRule], root)
		if slow.share < rush.share-25 {
			t.Errorf("seed %d: with a slow start of one tick it gets %v %%, without %v %%", root, slow.share, rush.share)
		}
		// It never ends within the window, so that the newcomer hardly gets a call.
		at.ramp = 10_000
		if slow := at.play(at.rules()[slowRule], root); slow.share > 15 {
			t.Errorf("seed %d: at the beginning of a long slow start it gets %v %%", root, slow.share)
		}
	}
}

// TestRouter_AsksCandidatesAlone: who is not among them is not picked.
func TestRouter_AsksCandidatesAlone(t *testing.T) {
	x := newcomerLab().settings().(*newcomer)
	rules := x.rules()
	for _, ru := range append(rules[:], newcomerRule{"consistent hash", &policy.ConsistentHash{Key: "prompt", Blocks: 1, LoadFactor: 2}, false}) {
		r := newRouter(ru.params, 3, 1, 0)
		picked := map[int]bool{}
		for _, n := range []int{2, 3, 1} {
			clear(picked)
			r.among(n)
			for k := range 50 {
				blocks := []kvblock.Hash{kvblock.Seed(fmt.Sprint(len(picked), n, k))}
				picked[r.pick(&selection.Request{InputTokens: routingBlock, BlockTokens: routingBlock, Blocks: blocks})] = true
			}
			for i := range picked {
				if i >= n {
					t.Errorf("%s: of %d candidates number %d is picked", ru.name, n, i)
				}
			}
		}
	}
}
