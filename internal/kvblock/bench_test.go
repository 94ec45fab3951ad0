package kvblock

import (
	"bytes"
	"testing"
)

// BenchmarkWriter hashes a prompt of 400 KiB that comes in the pieces of a small buffer.
func BenchmarkWriter(b *testing.B) {
	const piece = 4080
	text := bytes.Repeat([]byte("the mead of poetry, "), 400<<10/20)
	for _, c := range []struct {
		name  string
		reset func(w *Writer)
	}{
		{"uniform", func(w *Writer) { w.Reset(1, 256) }},
		{"tapered", func(w *Writer) { w.ResetTapered(1, 256) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			var w Writer
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				c.reset(&w)
				for rest := text; len(rest) > 0; {
					n := min(piece, len(rest))
					_, _ = w.Write(rest[:n])
					rest = rest[n:]
				}
				_ = w.Tail()
			}
		})
	}
}

// BenchmarkWriteToken is what the emulated engine does: blocks of 16 tokens.
func BenchmarkWriteToken(b *testing.B) {
	var w Writer
	b.ReportAllocs()
	for b.Loop() {
		w.Reset(1, 16*TokenBytes)
		for id := range uint32(1600) {
			w.WriteToken(id)
		}
	}
}
