package main

import (
	"bytes"
	"compress/gzip"
	"strings"
	"time"

	"kvasir/test/endurance/internal/upstream"
)

// answer makes what the call is due.
func (x *drawing) answer() upstream.Answer {
	n, size := 1+x.r.IntN(8), 1+x.r.IntN(120)
	if x.r.IntN(20) == 0 {
		size = 2000
	}
	if x.stream {
		return upstream.Events(x.r, x.call.Route, x.served, x.mark, n, size)
	}
	return upstream.Object(x.r, x.call.Route, x.served, x.mark, n, size)
}

// good is a whole answer.
func (x *drawing) good(name string) (*upstream.Plan, upstream.Answer) {
	a := x.answer()
	p := &upstream.Plan{Fault: name, Status: 200, Type: a.Type, Text: []byte(a.Text), Cut: len(a.Text),
		Whole: true, Final: true, Classes: succeeded, MaxPiece: 1 + x.r.IntN(4000), Pause: 3 * time.Millisecond}
	if x.stream {
		p.Preamble = a.Preamble
		if x.r.IntN(2) == 0 {
			p.Type += "; charset=utf-8"
		}
	} else if x.r.IntN(2) == 0 {
		p.Framing = upstream.Length
	}
	return p, a
}

func (x *drawing) whole() *upstream.Plan {
	p, _ := x.good("whole")
	return p
}

// split writes small pieces, with other line ends.
func (x *drawing) split() *upstream.Plan {
	p, _ := x.good("odd splits, line ends")
	p.MaxPiece = 1 + x.r.IntN(16)
	if len(p.Text) > 4000 {
		p.MaxPiece = 200
	}
	p.Pause = time.Millisecond
	if x.stream {
		end := []string{"\n", "\r\n", "\r"}[x.r.IntN(3)]
		p.Text = []byte(strings.ReplaceAll(string(p.Text), "\n", end))
		if x.r.IntN(3) == 0 {
			p.Text = bytes.ReplaceAll(p.Text, []byte("data: "), []byte("data:"))
		}
		p.Cut, p.Preamble = len(p.Text), 0 // other line ends have other lengths
	}
	return p
}

func (x *drawing) drip() *upstream.Plan {
	p, _ := x.good("slow drip")
	p.MaxPiece = max(len(p.Text)/12, 1)
	p.Each = time.Duration(20+x.r.IntN(80)) * time.Millisecond
	return p
}

func (x *drawing) untilClose() *upstream.Plan {
	p, _ := x.good("until close")
	p.Framing = upstream.UntilClose
	return p
}

func (x *drawing) zipped() *upstream.Plan {
	p, _ := x.good("gzip")
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(p.Text) // a bytes.Buffer takes all
	_ = w.Close()
	p.Text, p.Cut, p.Preamble = b.Bytes(), b.Len(), 0
	p.Header = append(p.Header, "Content-Encoding: gzip")
	return p
}

func (x *drawing) hugeEvent() *upstream.Plan {
	if !x.stream {
		return nil
	}
	p, _ := x.good("huge event")
	a := upstream.Events(x.r, x.call.Route, x.served, x.mark, 2, eventLimit+x.r.IntN(eventLimit))
	p.Text, p.Cut, p.Preamble, p.MaxPiece = []byte(a.Text), len(a.Text), a.Preamble, 16<<10
	return p
}

func (x *drawing) longPreamble() *upstream.Plan {
	if !x.stream {
		return nil
	}
	p, _ := x.good("preamble over its bound")
	p.Text = append([]byte(strings.Repeat(": waiting for a free slot\n\n", preamble/26+x.r.IntN(200))), p.Text...)
	p.Cut, p.Preamble, p.MaxPiece, p.Pause = len(p.Text), 0, 8<<10, 0 // what is too long to hold back counts as content
	return p
}

// noDone leaves the end mark out.
func (x *drawing) noDone() *upstream.Plan {
	if !x.stream || !strings.Contains(x.call.Route, "completions") {
		return nil
	}
	p, _ := x.good("no [DONE]")
	p.Text = bytes.TrimSuffix(p.Text, []byte("data: [DONE]\n\n"))
	p.Cut = len(p.Text)
	return p
}

func (x *drawing) earlyHints() *upstream.Plan {
	p, _ := x.good("103 first")
	p.Early = "HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n"
	return p
}

// noLastChunk ends a stream that has its end mark without the last chunk.
func (x *drawing) noLastChunk() *upstream.Plan {
	if !x.stream {
		return nil
	}
	p, _ := x.good("no last chunk")
	p.Ending, p.Whole = upstream.FIN, false
	p.Classes = []string{"success", "endpoint_failure"}
	return p
}
