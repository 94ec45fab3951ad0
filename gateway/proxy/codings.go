package proxy

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// Clients compress big requests: some SDKs and agents do by default. Routing must read
// them, so they are decoded here, within the bound on a body's size, and go to the
// endpoint as they are then (field case F65).

// mostCodings bounds how many times a body may be encoded.
const mostCodings = 2

// decoder is one content coding at work.
type decoder interface {
	io.Reader
	reset(io.Reader) error
	done()
}

// codings are the content codings that are understood, by name, each with the reader that
// it keeps for the next body.
var codings = map[string]*sync.Pool{
	"gzip":    {New: func() any { return &gzipDecoder{} }},
	"x-gzip":  {New: func() any { return &gzipDecoder{} }},
	"deflate": {New: func() any { return &deflateDecoder{} }},
	"br":      {New: func() any { return &brotliDecoder{brotli.NewReader(nil)} }},
	"zstd":    {New: newZstd},
}

const codingNames = "gzip, deflate, br, zstd"

// codingsOf returns the codings of a Content-Encoding in the order in which they were
// applied; an error where one is not understood.
func codingsOf(values []string) ([]string, error) {
	var names []string
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			name = strings.ToLower(strings.TrimSpace(name))
			if name == "" || name == "identity" {
				continue
			}
			if codings[name] == nil {
				return nil, fmt.Errorf("content coding %q is not understood", shorten(name))
			}
			names = append(names, name)
		}
	}
	if len(names) > mostCodings {
		return nil, fmt.Errorf("%d content codings on top of each other", len(names))
	}
	return names, nil
}

// decoded is a body with its codings taken off.
type decoded struct {
	io.Reader
	source *failing
	layers []*late // the outermost coding first
	used   []usedDecoder
}

type usedDecoder struct {
	decoder
	pool *sync.Pool
}

// failing remembers the error of what is decoded: a decoder may have words of its own for
// it, and who sent too much, or left, must be told apart from who sent nonsense.
type failing struct {
	io.Reader
	err error
}

func (f *failing) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err != nil && err != io.EOF {
		f.err = err
	}
	return n, err
}

// decode takes the codings off src, the last one applied first. What a coding becomes that
// has another one in it may have no more than limit bytes. Close it.
func decode(src io.Reader, names []string, limit int64) *decoded {
	d := &decoded{source: &failing{Reader: src}}
	d.Reader = d.source
	for i := len(names) - 1; i >= 0; i-- {
		pool := codings[names[i]]
		dec := pool.Get().(decoder)
		d.used = append(d.used, usedDecoder{dec, pool})
		layer := &late{decoder: dec, src: d.Reader, name: names[i]}
		d.layers = append(d.layers, layer)
		d.Reader = layer
		if i > 0 {
			d.Reader = &bounded{layer, limit}
		}
	}
	return d
}

// rest reports an error where bytes stand behind the end of a coding: what they are is not
// known, and as long as they come the request has not ended.
func (d *decoded) rest() error {
	for _, l := range d.layers {
		src := l.src
		if ahead, ok := l.decoder.(interface{ behind() io.Reader }); ok {
			src = ahead.behind()
		}
		var one [1]byte
		for {
			n, err := src.Read(one[:])
			switch {
			case n > 0:
				return &errCoding{l.name, errors.New("there are bytes behind its end")}
			case err == io.EOF:
			case err != nil:
				return err
			default:
				continue
			}
			break
		}
	}
	return nil
}

// bounded is a reader that gives no more than so many bytes.
type bounded struct {
	io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// close gives the decoders back.
func (d *decoded) close() {
	for _, u := range d.used {
		u.done()
		u.pool.Put(u.decoder)
	}
}

// errCoding is a body that is not what its Content-Encoding says.
type errCoding struct {
	name string
	err  error
}

func (e *errCoding) Error() string { return fmt.Sprintf("it is not %s: %v", e.name, e.err) }
func (e *errCoding) Unwrap() error { return e.err }

// late begins to decode with the first read: to reset a decoder reads from the client.
type late struct {
	decoder
	src   io.Reader
	name  string
	begun bool
	err   error
}

func (l *late) Read(p []byte) (int, error) {
	if !l.begun {
		l.begun = true
		if err := l.decoder.reset(l.src); err != nil {
			l.err = &errCoding{l.name, err}
		}
	}
	if l.err != nil {
		return 0, l.err
	}
	n, err := l.decoder.Read(p)
	if err != nil && err != io.EOF {
		l.err = &errCoding{l.name, err}
		err = l.err
	}
	return n, err
}

type gzipDecoder struct{ gzip.Reader }

func (d *gzipDecoder) reset(r io.Reader) error { return d.Reset(r) }
func (d *gzipDecoder) done()                   {}

type brotliDecoder struct{ *brotli.Reader }

func (d *brotliDecoder) reset(r io.Reader) error { return d.Reset(r) }
func (d *brotliDecoder) done()                   { _ = d.Reset(nothing{}) }

type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, io.EOF }

// zstdWindow bounds the memory of a decoder: RFC 9659 sets it for content codings.
const zstdWindow = 8 << 20

type zstdDecoder struct{ *zstd.Decoder }

func newZstd() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(err) // the options are constants
	}
	return &zstdDecoder{d}
}

func (d *zstdDecoder) reset(r io.Reader) error { return d.Reset(r) }
func (d *zstdDecoder) done()                   { _ = d.Reset(nil) }

// deflateDecoder takes zlib's format, which the name stands for, and the raw one, which
// some clients send under it.
type deflateDecoder struct {
	io.Reader
	buf       *bufio.Reader // what is left in it stands behind the coding's end
	zlib, raw io.ReadCloser
}

func (d *deflateDecoder) reset(r io.Reader) error {
	if d.buf == nil {
		d.buf = bufio.NewReader(r)
	} else {
		d.buf.Reset(r)
	}
	head, err := d.buf.Peek(2)
	if err != nil && err != io.EOF {
		return err
	}
	if len(head) == 2 && head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0 {
		err = nil
		if d.zlib == nil {
			d.zlib, err = zlib.NewReader(d.buf)
		} else {
			err = d.zlib.(zlib.Resetter).Reset(d.buf, nil)
		}
		d.Reader = d.zlib
		return err
	}
	if d.raw == nil {
		d.raw = flate.NewReader(d.buf)
	} else if err := d.raw.(flate.Resetter).Reset(d.buf, nil); err != nil {
		return err
	}
	d.Reader = d.raw
	return nil
}

func (d *deflateDecoder) behind() io.Reader { return d.buf }

func (d *deflateDecoder) done() {}
