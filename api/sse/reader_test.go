package sse

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// seen is an Event whose bytes are its own.
type seen struct {
	Type, Data, ID string
	End            int64
	Oversize       bool
	Cut            bool // by the stream's end
}

func own(e Event, cut bool) seen {
	return seen{string(e.Type), string(e.Data), string(e.ID), e.End, e.Oversize, cut}
}

// specification is the standard's algorithm, written down plainly over a whole stream.
// mid reports whether the stream stands inside an event or a line at its end.
func specification(stream string, limit int) (events []seen, mid bool) {
	var typ, data, id string
	var lines, size int
	hasData := false
	dispatch := func(end int, cut bool) {
		switch {
		case size > limit:
			events = append(events, seen{Type: typ, ID: id, End: int64(end), Oversize: true, Cut: cut})
		case hasData:
			events = append(events, seen{typ, strings.TrimSuffix(data, "\n"), id, int64(end), false, cut})
		}
		typ, data, lines, size, hasData = "", "", 0, 0, false
	}
	pos := 0
	if strings.HasPrefix(stream, "\ufeff") {
		pos = 3
	}
	for pos < len(stream) {
		n := strings.IndexAny(stream[pos:], "\r\n")
		whole := n >= 0
		if !whole {
			n = len(stream) - pos
		}
		line := stream[pos : pos+n]
		pos += n
		if whole {
			pos++
		}
		switch {
		case line == "":
			dispatch(pos, false)
		case line[0] == ':':
		default:
			lines++
			if size += len(line); size > limit {
				break
			}
			name, value, _ := strings.Cut(line, ":")
			value = strings.TrimPrefix(value, " ")
			switch name {
			case "event":
				typ = value
			case "data":
				data += value + "\n"
				hasData = true
			case "id":
				if !strings.Contains(value, "\x00") {
					id = value
				}
			}
		}
		mid = lines > 0 || !whole
		if whole && stream[pos-1] == '\r' && pos < len(stream) && stream[pos] == '\n' {
			pos++
		}
	}
	if strings.HasPrefix("\ufeff", stream) && stream != "" && stream != "\ufeff" {
		mid = true
	}
	dispatch(len(stream), true)
	return events, mid
}

// run feeds a stream in the given pieces.
func run(t *testing.T, r *Reader, pieces ...string) (events []seen, mid bool) {
	t.Helper()
	chunk := make([]byte, 0, 64)
	offset := int64(0)
	for _, piece := range pieces {
		chunk = append(chunk[:0], piece...)
		r.Feed(chunk)
		for {
			e, ok := r.Next()
			if !ok {
				break
			}
			if r.MidEvent() {
				t.Fatal("in the midst of an event that has just ended")
			}
			events = append(events, own(e, false))
		}
		offset += int64(len(piece))
		if r.Offset() != offset {
			t.Fatalf("offset %d, want %d", r.Offset(), offset)
		}
		clear(chunk) // what was kept must be the Reader's own
	}
	mid = r.MidEvent()
	if e, ok := r.Finish(); ok {
		events = append(events, own(e, true))
	}
	return events, mid
}

var corpus = []string{
	"data: a\n\n",
	"data: a\r\n\r\ndata: b\r\n\r\n",
	"data: a\r\rdata: b\r\r",
	"data: a\n\r\ndata: b\r\n\ndata: c\r\r\ndata: d\n\r",
	"data:{\"x\":1}\n\ndata:  two\n\n",
	"\ufeffdata: bom\n\n",
	"\ufeff\ufeffdata: two boms\n\n",
	"\xef\xbbdata: half a bom\n\n",
	"\ufeff: comment\r\ndata: x\r\n\r\n",
	"event: add\ndata: 1\nid: 7\nretry: 100\n\ndata: 2\n\nid\ndata: 3\n\n",
	"data: a\ndata: b\ndata\ndata:\n\n",
	"data\n\ndata:\n\n",
	": ping\n\n: ping\n\nevent: ping\n\ndata: after\n\n",
	"data: no blank line",
	"data: no blank line\n",
	"data: no blank line\r",
	"event: message_stop\ndata: [DONE]",
	"id: a\x00b\ndata: x\n\n",
	"data: 漢字 😀 \xff\xfe\n\ndata: \xe6\xbc",
	"\n\n\r\n\rdata: late\n\n\n\n\n",
	"foo: bar\nfoo\n\n:\n\ndata: 1\n:x\ndata: 2\n\n",
	"data: " + strings.Repeat("long ", 20) + "\n\ndata: s\n\n",
	"data: " + strings.Repeat("a", 30) + "\nevent: e\ndata: " + strings.Repeat("b", 30) + "\n\nid: i\ndata: s\n\n",
	"event: e\n" + strings.Repeat("x", 90) + "\n\n: " + strings.Repeat("comment", 30) + "\n\n",
	"", "\r", "\n", "d", "\ufeff", "\xef", ":",
}

// TestReader_EverySplit holds the Reader against the standard for every way of cutting
// each stream into three, byte by byte, and whole; with room and without.
func TestReader_EverySplit(t *testing.T) {
	for _, stream := range corpus {
		for _, limit := range []int{DefaultLimit, 40} {
			want, wantMid := specification(stream, limit)
			var r Reader
			check := func(pieces ...string) {
				t.Helper()
				r.Reset(limit)
				if got, mid := run(t, &r, pieces...); !slices.Equal(got, want) || mid != wantMid {
					t.Fatalf("limit %d, pieces %q:\n got %+v mid %v\nwant %+v mid %v", limit, pieces, got, mid, want, wantMid)
				}
			}
			check(strings.Split(stream, "")...)
			for i := range len(stream) + 1 {
				for j := i; j <= len(stream); j++ {
					check(stream[:i], stream[i:j], stream[j:])
				}
			}
		}
	}
}

func FuzzSSE(f *testing.F) {
	for _, stream := range corpus {
		f.Add([]byte(stream), uint16(3), uint16(8), uint16(20))
	}
	f.Fuzz(func(t *testing.T, stream []byte, a, b, limit uint16) {
		s := string(stream)
		i := int(a) % (len(s) + 1)
		j := i + int(b)%(len(s)-i+1)
		most := int(limit)%64 + 1
		want, wantMid := specification(s, most)
		var r Reader
		r.Reset(most)
		if got, mid := run(t, &r, s[:i], s[i:j], s[j:]); !slices.Equal(got, want) || mid != wantMid {
			t.Fatalf("%q %q %q:\n got %+v mid %v\nwant %+v mid %v", s[:i], s[i:j], s[j:], got, mid, want, wantMid)
		}
	})
}

// TestReader_CRDispatchesAtOnce: an event that CR ended is there before the LF that may
// follow, and that LF is not another blank line.
func TestReader_CRDispatchesAtOnce(t *testing.T) {
	var r Reader
	r.Feed([]byte("data: a\r\n\r"))
	if e, ok := r.Next(); !ok || string(e.Data) != "a" || e.End != 10 {
		t.Fatalf("%v %v", e, ok)
	}
	if _, ok := r.Next(); ok || r.MidEvent() {
		t.Fatal("more than one event, or not between two")
	}
	r.Feed([]byte("\ndata: b\n\n"))
	if e, ok := r.Next(); !ok || string(e.Data) != "b" || e.End != 20 {
		t.Fatalf("%v %v", e, ok)
	}
}

// TestReader_BigEvents: F06. An event of 40 MiB within the limit is whole, one above it
// is flagged, and the next one is read either way.
func TestReader_BigEvents(t *testing.T) {
	for _, c := range []struct {
		size, limit int
		oversize    bool
	}{
		{70 << 10, 0, false}, {1<<20 - 6, 0, false}, {1<<20 - 5, 0, true}, {8 << 20, 16 << 20, false}, {40 << 20, MaxLimit, false}, {65 << 20, 1 << 30, true},
	} {
		stream := []byte("data: " + strings.Repeat("x", c.size) + "\n\ndata: next\n\n")
		var r Reader
		r.Reset(c.limit)
		var events []Event
		for chunk := range slices.Chunk(stream, 32<<10) {
			r.Feed(chunk)
			for {
				e, ok := r.Next()
				if !ok {
					break
				}
				if len(events) == 0 && (e.Oversize != c.oversize || !e.Oversize && len(e.Data) != c.size) {
					t.Errorf("%d bytes, limit %d: oversize %v, %d bytes kept", c.size, c.limit, e.Oversize, len(e.Data))
				}
				events = append(events, e)
			}
		}
		if len(events) != 2 || string(events[1].Data) != "next" {
			t.Errorf("%d bytes: %d events", c.size, len(events))
		}
		if held := cap(r.line) + cap(r.buf); held > 2*keptBytes {
			t.Errorf("%d bytes: %d are held after the event", c.size, held)
		}
	}
}

// TestReader_Bounded: F07. Neither a line without end nor events without end make the
// Reader grow.
func TestReader_Bounded(t *testing.T) {
	for name, piece := range map[string]string{
		"no line end":    strings.Repeat("a", 32<<10),
		"no blank line":  strings.Repeat("data: "+strings.Repeat("a", 1000)+"\n", 32),
		"comment":        ":" + strings.Repeat("a", 32<<10),
		"unknown fields": strings.Repeat("x: y\n", 6<<10),
		"many events":    strings.Repeat("data: "+strings.Repeat("a", 1000)+"\n\n", 32),
	} {
		const limit = 256 << 10
		var r Reader
		r.Reset(limit)
		most := 0
		for range 64 {
			r.Feed([]byte(piece))
			for {
				if _, ok := r.Next(); !ok {
					break
				}
			}
			most = max(most, cap(r.line)+cap(r.buf)+cap(r.typ)+cap(r.id))
		}
		if most > 2*limit {
			t.Errorf("%s: %d bytes held, limit %d", name, most, limit)
		}
		if held := cap(r.line) + cap(r.buf); held > 2*keptBytes {
			t.Errorf("%s: %d bytes held after the limit was passed", name, held)
		}
	}
}

func TestReader_DataPointsIntoChunk(t *testing.T) {
	chunk := []byte("event: e\ndata: abc\n\n")
	var r Reader
	r.Feed(chunk)
	e, ok := r.Next()
	if !ok || &e.Data[0] != &chunk[bytes.Index(chunk, []byte("abc"))] {
		t.Error("the data was copied")
	}
}

func TestReader_DoesNotAllocate(t *testing.T) {
	var r Reader
	stream := []byte("id: 1\nevent: e\ndata: abc\ndata: def\n\ndata: g\n\ndata: cut")
	rest := []byte(" here\r\n\r\n")
	if n := testing.AllocsPerRun(100, func() {
		for _, chunk := range [][]byte{stream, rest} {
			r.Feed(chunk)
			for {
				if _, ok := r.Next(); !ok {
					break
				}
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestReader_FeedTooEarly(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	var r Reader
	r.Feed([]byte("data: a\n\ndata: b\n\n"))
	r.Next()
	r.Feed(nil)
}

const chunkJSON = `{"id":"chatcmpl-abc","object":"chat.completion.chunk","created":1796000000,"model":"tiny","choices":[{"index":0,"delta":{"content":"Hi"},"logprobs":null,"finish_reason":null,"token_ids":null}]}`

// BenchmarkSSE gives the cost of one event of a chat stream: one event a chunk as
// engines send them, many a chunk, and an event cut in two.
func BenchmarkSSE(b *testing.B) {
	event := "data: " + chunkJSON + "\n\n"
	for _, c := range []struct {
		name   string
		pieces []string
		events int
	}{
		{"one-a-chunk", []string{event}, 1},
		{"crlf", []string{"data: " + chunkJSON + "\r\n\r\n"}, 1},
		{"64-a-chunk", []string{strings.Repeat(event, 64)}, 64},
		{"cut-in-two", []string{event[:100], event[100:]}, 1},
	} {
		b.Run(c.name, func(b *testing.B) {
			var chunks [][]byte
			size := 0
			for _, p := range c.pieces {
				chunks = append(chunks, []byte(p))
				size += len(p)
			}
			var r Reader
			b.SetBytes(int64(size / c.events))
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if n++; n%c.events != 0 && c.events > 1 {
					continue // one round of the loop stands for one event
				}
				for _, chunk := range chunks {
					r.Feed(chunk)
					for {
						if _, ok := r.Next(); !ok {
							break
						}
					}
				}
			}
		})
	}
}

func ExampleReader() {
	var r Reader
	for _, chunk := range []string{"data: {\"a\":", "1}\n\ndata: [DONE]\n", "\n"} {
		r.Feed([]byte(chunk))
		for {
			e, ok := r.Next()
			if !ok {
				break
			}
			fmt.Printf("%s ends at %d\n", e.Data, e.End)
		}
	}
	// Output:
	// {"a":1} ends at 15
	// [DONE] ends at 29
}
