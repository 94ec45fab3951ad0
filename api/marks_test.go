package api

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"kvasir/internal/kvblock"
)

// slowMarks looks at one byte after the other.
func slowMarks(b []byte) (stops, escapes []bool) {
	stops, escapes = make([]bool, len(b)+2*markBytes), make([]bool, len(b)+2*markBytes)
	escaped := false
	for i, c := range b {
		escapes[i] = c == '\\' && !escaped
		stops[i] = (c == '"' || c < 0x20) && !escaped
		escaped = escapes[i]
	}
	for i := range stops[len(b):] {
		stops[len(b)+i] = true
	}
	return stops, escapes
}

func checkMarks(t *testing.T, b []byte) {
	t.Helper()
	m := marksOf(b, marks{{^uint64(0), ^uint64(0)}, {1, 1}}[:0]) // memory that held others
	stops, escapes := slowMarks(b)
	if len(m) != len(b)/markBytes+2 {
		t.Fatalf("%d marks of %d bytes", len(m), len(b))
	}
	stop := len(b)
	for i := len(b); i >= 0; i-- {
		mark, bit := m[i/markBytes], uint64(1)<<(i%markBytes)
		if mark.stops&bit != 0 != stops[i] || mark.escapes&bit != 0 != escapes[i] {
			t.Fatalf("byte %d of %q: stop %v, escape %v, want %v, %v", i, b, mark.stops&bit != 0, mark.escapes&bit != 0, stops[i], escapes[i])
		}
		if stops[i] {
			stop = i
		}
		if got := m.stop(i); got != stop {
			t.Fatalf("the first stop from %d is %d, want %d\n%q", i, got, stop, b)
		}
		near := m.from(i)
		for k := 0; k < markBytes && i%5 == 0; k++ {
			if near.stops>>k&1 == 1 != stops[i+k] || near.escapes>>k&1 == 1 != escapes[i+k] {
				t.Fatalf("byte %d of the marks from %d\n%q", k, i, b)
			}
		}
	}
	for k := 0; k <= len(b)/markBytes; k += spanMarks {
		var l escapeList
		list := m[k:min(k+spanMarks, len(b)/markBytes+1)].list(&l)
		for i := range min(spanMarks*markBytes, len(b)-k*markBytes) {
			if !escapes[k*markBytes+i] {
				continue
			}
			if len(list) == 0 || int(list[0]) != i {
				t.Fatalf("the list from mark %d does not have %d next: %v\n%q", k, i, list, b)
			}
			list = list[1:]
		}
		if len(list) != 0 {
			t.Fatalf("listed, but no escape: %v\n%q", list, b)
		}
	}
}

// TestMarks_OneByteAfterTheOther: every byte in every place of a word, beside those that
// arithmetic on words might take for others.
func TestMarks_OneByteAfterTheOther(t *testing.T) {
	for c := range 256 {
		for _, beside := range []string{"", `\`, `"`, "\x00", "\xff", "~"} {
			for at := range 9 {
				b := strings.Repeat("a", at) + beside + string([]byte{byte(c)}) + beside + strings.Repeat("z", 60)
				checkMarks(t, []byte(b))
			}
		}
	}
}

func TestMarks_Random(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	alphabets := []string{`\`, `\"`, `\n`, "\\\"]#!", "a\\b\"c\x1f \x7f\x80\xdc\xa2\xff", strings.Repeat("abcdefgh", 20) + `\"`, "plain"}
	for range 1000 {
		var b []byte
		for range 1 + rng.IntN(4) {
			alphabet := alphabets[rng.IntN(len(alphabets))]
			for range rng.IntN(400) >> rng.IntN(9) {
				b = append(b, alphabet[rng.IntN(len(alphabet))])
			}
		}
		checkMarks(t, b)
	}
}

// TestMarks_Chunks: what one chunk ends with counts in the next one, whether that has
// anything to mark or not.
func TestMarks_Chunks(t *testing.T) {
	const chunk = chunkMarks * markBytes
	for _, piece := range []string{"", `\`, `\\`, `\\\`, `"`, "\n", "\x80"} {
		for _, at := range []int{0, 1, chunk - 3, chunk - 2, chunk - 1, chunk} {
			b := bytes.Repeat([]byte("plain"), chunk)[:2*chunk+77]
			copy(b[at:], piece)
			checkMarks(t, b)
			copy(b[2*chunk:], `"`)
			checkMarks(t, b)
			copy(b[chunk:], `""`)
			checkMarks(t, b)
		}
	}
}

func FuzzMarks(f *testing.F) {
	for _, c := range bodies {
		f.Add([]byte(c.body))
	}
	f.Add(bytes.Repeat([]byte(`\`), 4200))
	f.Fuzz(checkMarks)
}

// slowDecode is decode without lists and strides: the escapes one by one.
func (p *parser) slowDecode(from, end int) int {
	for {
		n := bytes.IndexByte(p.b[from:end], '\\')
		if n < 0 {
			p.bytes(p.b[from:end])
			return end
		}
		var ok bool
		if from, ok = p.unescapeOne(from, from+n); !ok {
			return from
		}
	}
}

// TestDecode_AsOneByOne holds the fast way against the slow one: any text between any
// neighbours, with any room left in the buffer.
func TestDecode_AsOneByOne(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	pieces := []string{`\n`, `\t`, `\"`, `\\`, `\/`, `\b`, `\f`, `\r`, "a", "bcdefgh", "é", `\n\t\t`,
		strings.Repeat("x", 63), strings.Repeat("y", 64), strings.Repeat("z", 65), strings.Repeat("long run ", 99), strings.Repeat("u", 2*sinkBytes),
		`\u0000`, `\u00e9`, `\ud83d\ude00`, `\ud800`, `\udc00\ud800`, `\ud800\u0041`, `\x`, `\u12`, `\u12g4`}
	var fast, slow parser
	var a, b kvblock.Writer
	for range 1000 {
		kinds := []int{8, 12, len(pieces) - 3, len(pieces)}[rng.IntN(4)]
		var text strings.Builder
		for range 1 + rng.IntN(600)>>rng.IntN(9) {
			text.WriteString(pieces[rng.IntN(kinds)])
		}
		before := strings.Repeat(`\q`, rng.IntN(70)) + strings.Repeat(" ", rng.IntN(70)) + `"`
		body := []byte(before + text.String() + `"` + strings.Repeat(`\u0041`, rng.IntN(30)))
		body = body[:len(body)-rng.IntN(2)*rng.IntN(len(body)-len(before))] // broken off anywhere
		fast.marks = marksOf(body, fast.marks)
		end := fast.marks.stop(len(before))
		filled := rng.IntN(sinkBytes)
		decode := func(p *parser, w *kvblock.Writer, way func(from, end int) int) int {
			w.Reset(1, 64)
			p.begin(body, w)
			p.bytes(bytes.Repeat([]byte("f"), filled))
			at := way(len(before), end)
			p.flush()
			return at
		}
		got, want := decode(&fast, &a, fast.decode), decode(&slow, &b, slow.slowDecode)
		if got != want || want == end && (a.Tail() != b.Tail() || fast.total != slow.total) {
			t.Fatalf("came to %d with %d bytes, want %d with %d\n%q from %d to %d", got, fast.total, want, slow.total, body, len(before), end)
		}
		if checked := fast.checkEscapes(len(before), end); checked != want {
			t.Fatalf("the first malformed escape is at %d, not %d\n%q", want, checked, body)
		}
	}
}
