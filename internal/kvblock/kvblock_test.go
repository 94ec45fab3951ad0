package kvblock

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// naive hashes text block by block.
func naive(seed Hash, text []byte, size int) (blocks []Hash, tail Hash) {
	tail = seed
	for len(text) >= size {
		tail = Chain(tail, text[:size])
		blocks = append(blocks, tail)
		text = text[size:]
	}
	if len(text) > 0 {
		tail = Chain(tail, text)
	}
	return blocks, tail
}

func TestWriter_AgreesWithBlockByBlockForAnyBorders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.Byte()).Draw(t, "text")
		size := 4 * rapid.IntRange(1, 8).Draw(t, "size/4")
		var w Writer
		w.Reset(7, size)
		for rest := text; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "write")
			_, _ = w.Write(rest[:n])
			rest = rest[n:]
		}
		blocks, tail := naive(7, text, size)
		if !slices.Equal(w.Blocks(), blocks) || w.Tail() != tail || w.Len() != len(text) {
			t.Fatalf("writer has %v, tail %x; block by block %v, tail %x", w.Blocks(), w.Tail(), blocks, tail)
		}
	})
}

func TestChain_SharesExactlyTheCommonHead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		head := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "head")
		a := slices.Concat(head, []byte{1}, rapid.SliceOf(rapid.Byte()).Draw(t, "a"))
		b := slices.Concat(head, []byte{2}, rapid.SliceOf(rapid.Byte()).Draw(t, "b"))
		x, _ := naive(1, a, 16)
		y, _ := naive(1, b, 16)
		for i := range min(len(x), len(y)) {
			if want := (i+1)*16 <= len(head); (x[i] == y[i]) != want {
				t.Fatalf("block %d of heads sharing %d bytes: equal is %v", i, len(head), x[i] == y[i])
			}
		}
	})
}

func TestChain_CoversWhatCameBefore(t *testing.T) {
	tail := bytes.Repeat([]byte("the same tail   "), 4)
	x, xTail := naive(1, append([]byte("sixteen bytes a:"), tail...), 16)
	y, yTail := naive(1, append([]byte("sixteen bytes b:"), tail...), 16)
	for i := range x {
		if x[i] == y[i] {
			t.Errorf("block %d is the same after another head", i)
		}
	}
	if z, _ := naive(2, tail, 16); z[0] == Chain(1, tail[:16]) || xTail == yTail {
		t.Error("another seed, or another head, makes no difference")
	}
}

func TestSeed_KeepsPartsApart(t *testing.T) {
	seen := map[Hash][]string{}
	for _, parts := range [][]string{{}, {""}, {"", ""}, {"ab", "c"}, {"a", "bc"}, {"abc"}, {"abc", ""}, {"", "abc"}} {
		if other, ok := seen[Seed(parts...)]; ok {
			t.Errorf("%q and %q have one seed", parts, other)
		}
		seen[Seed(parts...)] = parts
	}
}

func TestWriter_ReusesItsMemory(t *testing.T) {
	var w Writer
	text := bytes.Repeat([]byte("the mead of poetry "), 1000)
	write := func() {
		w.Reset(1, 256)
		_, _ = w.Write(text[:10])
		_, _ = w.Write(text[10:])
		w.WriteToken(7)
		_ = w.Tail()
	}
	write()
	if n := testing.AllocsPerRun(100, write); n > 0 {
		t.Errorf("%v allocations a prompt", n)
	}
}
