package kvblock

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// naive hashes text block by block.
func naive(seed Hash, text []byte, size int) (blocks []Hash, tail Hash) {
	return naiveTapered(seed, text, size, size)
}

// naiveTapered cuts the first 64 blocks to one size and the others to another.
func naiveTapered(seed Hash, text []byte, size, coarse int) (blocks []Hash, tail Hash) {
	tail = seed
	for {
		if len(blocks) == 64 {
			size = coarse
		}
		if len(text) < size {
			break
		}
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

// TestWriter_WhenTapered_AgreesWithBlockByBlock has texts that end before, at and behind
// the place where blocks become coarse, and a Writer that was uniform before and after.
func TestWriter_WhenTapered_AgreesWithBlockByBlock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := 4 * rapid.IntRange(1, 4).Draw(t, "size/4")
		around := 64 * size * rapid.IntRange(0, 2).Draw(t, "head")
		text := make([]byte, max(0, around+rapid.IntRange(-20*size, 20*size).Draw(t, "and")))
		for i := range text {
			text[i] = byte(i * i >> 3)
		}
		pieces := func(w *Writer) {
			for rest := text; len(rest) > 0; {
				n := rapid.IntRange(1, len(rest)).Draw(t, "write")
				_, _ = w.Write(rest[:n])
				rest = rest[n:]
			}
		}
		var w Writer
		for _, tapered := range []bool{false, true, false} {
			reset, coarse := w.Reset, size
			if tapered {
				reset, coarse = w.ResetTapered, 8*size
			}
			reset(7, size)
			pieces(&w)
			blocks, tail := naiveTapered(7, text, size, coarse)
			if !slices.Equal(w.Blocks(), blocks) || w.Tail() != tail || w.Len() != len(text) {
				t.Fatalf("tapered %v: %d blocks, tail %x; block by block %d, tail %x", tapered, len(w.Blocks()), w.Tail(), len(blocks), tail)
			}
		}
	})
}

// TestWriter_WhenTapered_KeepsEarlierBlocks: appending leaves all earlier blocks as they
// were, and two texts share the blocks that lie in what they share.
func TestWriter_WhenTapered_KeepsEarlierBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 4
		head := bytes.Repeat([]byte("abc"), rapid.IntRange(0, 400).Draw(t, "shared/3"))
		var w Writer
		chain := func(text []byte) []Hash {
			w.ResetTapered(1, size)
			_, _ = w.Write(text)
			return slices.Clone(w.Blocks())
		}
		shared := chain(head)
		x := chain(slices.Concat(head, []byte{1}, rapid.SliceOf(rapid.Byte()).Draw(t, "x")))
		y := chain(slices.Concat(head, []byte{2}, rapid.SliceOf(rapid.Byte()).Draw(t, "y")))
		if want := Within(len(head) / size); len(shared) != want {
			t.Fatalf("%d blocks of %d bytes, want %d", len(shared), len(head), want)
		}
		for i := range min(len(x), len(y)) {
			if (x[i] == y[i]) != (i < len(shared)) || i < len(shared) && x[i] != shared[i] {
				t.Fatalf("block %d of texts that share %d blocks: equal is %v", i, len(shared), x[i] == y[i])
			}
		}
	})
}

func TestSpan(t *testing.T) {
	for _, c := range []struct{ blocks, span int }{
		{0, 0}, {1, 1}, {63, 63}, {64, 64}, {65, 72}, {66, 80}, {264, 64 + 8*200},
	} {
		if got := Span(c.blocks); got != c.span {
			t.Errorf("%d blocks are as long as %d fine ones, want %d", c.blocks, got, c.span)
		}
	}
	for n := range 2000 {
		if w := Within(n); Span(w) > n || Span(w+1) <= n {
			t.Errorf("within %d fine blocks lie %d blocks, which span %d; the next ends at %d", n, w, Span(w), Span(w+1))
		}
	}
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
		w.ResetTapered(1, 256)
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

func TestWriter_WhenTapered_IsBounded(t *testing.T) {
	var w Writer
	w.ResetTapered(1, 64)
	piece := make([]byte, 1<<20)
	for range 10 {
		_, _ = w.Write(piece)
	}
	tail := w.Tail()
	if n := len(w.Blocks()); n != MostBlocks {
		t.Errorf("%d blocks, want %d", n, MostBlocks)
	}
	_, _ = w.Write([]byte("x"))
	if w.Tail() == tail {
		t.Error("what is written behind the last block is not in the tail")
	}
}
