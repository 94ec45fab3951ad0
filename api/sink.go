package api

import "kvasir/internal/kvblock"

// sink gathers what is written in a small buffer and hands it to a chain of blocks, so
// that short runs between escapes cost no call each.
type sink struct {
	out   *kvblock.Writer // nil: bytes are counted and dropped
	total int             // bytes handed over
	n     int
	buf   [sinkBytes]byte
}

const sinkBytes = 4096

// slack is how much room of the buffer is always free: any single write fits.
const slack = 16

func (s *sink) flush() {
	if s.out != nil {
		_, _ = s.out.Write(s.buf[:s.n])
	}
	s.total += s.n
	s.n = 0
}

// written returns how many bytes were written in all.
func (s *sink) written() int { return s.total + s.n }

func (s *sink) reserve() {
	if s.n > len(s.buf)-slack {
		s.flush()
	}
}

func (p *parser) put(c byte) {
	if p.mute {
		return
	}
	p.reserve()
	p.buf[p.n] = c
	p.n++
}

// mark writes a fence that no text can contain: 0xff never occurs in UTF-8.
func (p *parser) mark(c byte) {
	if p.mute {
		return
	}
	p.reserve()
	p.buf[p.n], p.buf[p.n+1] = 0xff, c
	p.n += 2
}

func (p *parser) bytes(b []byte) {
	if p.mute {
		return
	}
	if len(b) >= len(p.buf) { // hashed where it lies
		p.flush()
		if p.out != nil {
			_, _ = p.out.Write(b)
		}
		p.total += len(b)
		return
	}
	for len(b) > 0 {
		p.reserve()
		k := copy(p.buf[p.n:], b)
		p.n += k
		b = b[k:]
	}
}
