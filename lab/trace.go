package lab

import (
	"bytes"
	"fmt"
	"io"

	"kvasir/client/workload"
	"kvasir/client/workload/trace"
)

// MaxTrace bounds a trace's data. ReadTrace cuts a longer file.
const MaxTrace = 64 << 20

// Trace is a file of calls that somebody recorded.
type Trace struct {
	Name   string `json:"name"`          // as it is shown
	Format string `json:"format"`        // one of client/workload/trace's; empty: found out by the first record
	Data   []byte `json:"data"`          // the file, decompressed; base64 in JSON
	Cut    bool   `json:"cut,omitempty"` // the file goes on where Data ends, which is the end of a line
}

// ReadTrace reads a decompressed file. Of a longer one than MaxTrace it takes the lines that
// lie within, and marks it as cut.
func ReadTrace(name, format string, r io.Reader) (*Trace, error) {
	return readTrace(name, format, r, MaxTrace)
}

func readTrace(name, format string, r io.Reader, most int) (*Trace, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	t := &Trace{Name: name, Format: format, Data: data}
	if len(data) > most {
		end := bytes.LastIndexByte(data[:most], '\n') + 1
		if end == 0 {
			return nil, fmt.Errorf("%s: its first line has more than %d bytes; allowed: %d", name, most, most)
		}
		t.Data, t.Cut = data[:end], true
	}
	return t, nil
}

// noAnswer is the length that reading gives to answers of which the file says nothing: the
// longest that there is, and longer than any.
const noAnswer = 1<<31 - 1

// workload recognises the file and returns its sessions. The first bad record ends them with
// an error that names the line, and so does the first call without a known answer length, and
// the first session by which there are more than mostRead blocks.
// They may be gone through as often as one likes.
func (t *Trace) workload() (*trace.Trace, error) { return t.drawn(0) }

// drawn is workload where a seed decides what the file leaves open: where in its bin a call
// lies, when a session without a time comes.
func (t *Trace) drawn(seed uint64) (*trace.Trace, error) {
	if len(t.Data) > MaxTrace {
		return nil, fmt.Errorf("%s: it has %d bytes; allowed: %d", t.Name, len(t.Data), MaxTrace)
	}
	file := trace.File{Name: t.Name, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(t.Data)), nil }}
	tr, err := trace.Open(file, trace.Options{Format: trace.Format(t.Format), Strict: true, Seed: seed, AnswerTokens: noAnswer})
	if err != nil {
		return nil, err
	}
	all := tr.Sessions
	tr.Sessions = func(yield func(workload.Session, error) bool) {
		hashes := 0
		for s, err := range all {
			if err == nil {
				err = answered(t.Name, &s)
			}
			if hashes += chainsOf(s.Calls).hashes(); err == nil && hashes > mostRead {
				err = fmt.Errorf("%s: session %q and those before it have %d KV blocks; allowed: %d", t.Name, s.ID, hashes, mostRead)
			}
			if !yield(s, err) || err != nil {
				return
			}
		}
	}
	return tr, nil
}

// answered returns an error where an answer's length is not known.
func answered(name string, s *workload.Session) error {
	for i, c := range s.Calls {
		if c.OutputTokens == noAnswer {
			return fmt.Errorf("%s: call %d of session %q has no output length; a lab needs the length of every answer", name, i+1, s.ID)
		}
	}
	return nil
}

// eachCall goes through the calls of the trace, at most so many, session by session, and
// reports whether there were more.
func (t *Trace) eachCall(most int, hear func(workload.Call)) (more bool, err error) {
	tr, err := t.workload()
	if err != nil {
		return false, err
	}
	n := 0
	for s, err := range tr.Sessions {
		if err != nil {
			return false, err
		}
		for _, c := range s.Calls {
			if n == most {
				return true, nil
			}
			n++
			hear(c)
		}
	}
	if n == 0 {
		return false, fmt.Errorf("%s: it has no calls", t.Name)
	}
	return false, nil
}
