package trace

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"kvasir/internal/kvblock"
)

// row is one call as a file has it, in formats that have sessions, if at all, as calls with
// a common name.
type row struct {
	class string
	timed bool          // it has a timestamp
	at    time.Duration // by the file's clock; from spread on since its first call

	prompt, output int
	blocks         []kvblock.Hash // the row's own

	// session names what the row belongs to; empty: it is a session of its own. It follows
	// the session's row before it, or the one that is called after.
	session   string
	id, after string
	last      bool // no other row of the session comes
	delta     bool // the prompt comes on top of the prompt and the answer before it

	lasted, delay       time.Duration // how long the answer took; what passed from the end of the call before it
	hasLasted, hasDelay bool
}

// parseRows reads one record and emits its calls, none for a header. It returns at once
// when emit reports false.
type parseRows func(record []byte, emit func(*row) bool) error

// rows returns the calls of the file in the order of their times.
func (p *pass) rows(parse parseRows) iter.Seq[*row] {
	return func(yield func(*row) bool) {
		var last time.Duration
		first, timed := true, false
		p.each(func(record []byte) (more bool, err error) {
			counted := false
			more = true
			failed := parse(record, func(r *row) bool {
				if first {
					first, timed = false, r.timed
				}
				switch {
				case r.timed && !timed:
					err = errors.New("timestamp is there, and the file's first call has none; allowed: for all calls or none")
				case !r.timed && timed && r.session == "":
					err = errors.New("timestamp is missing, and the file's first call has one; allowed: for all calls or none")
				case r.timed && r.at < last:
					err = fmt.Errorf("timestamp is %v before that of an earlier line; allowed: lines in the order of their times", last-r.at)
				}
				if err != nil {
					return false
				}
				if !r.timed {
					r.at = last
				}
				last = r.at
				if !counted {
					counted = true
					p.tally.Records++
				}
				more = yield(r)
				return more
			})
			switch {
			case err == nil:
				err = failed
			}
			if err != nil && counted {
				p.tally.Records-- // it is counted as bad
			}
			return more, err
		})
	}
}

// probe is what the first rows of a file say about all of it.
type probe struct {
	timed bool
	bin   time.Duration
}

// probe parses the head of a file.
func (f *format) probe(s settings, h head) (probe, error) {
	var rows []*row
	var wrong error
	parse := f.rows(&s)
	for i, record := range append([][]byte{h.first}, h.rest...) {
		s.record = i
		err := parse(record, func(r *row) bool {
			rows = append(rows, r)
			return true
		})
		if err != nil && wrong == nil {
			wrong = err
		}
	}
	if len(rows) == 0 {
		if wrong != nil {
			return probe{}, fmt.Errorf("none of the first %d records is a call of format %s: %w", 1+len(h.rest), f.name, wrong)
		}
		return probe{timed: true, bin: s.bin}, nil
	}
	p := probe{timed: rows[0].timed, bin: s.bin}
	if p.timed && p.bin == 0 && !s.Raw {
		p.bin = binOf(rows)
	}
	return p, nil
}

// binOf returns the resolution of timestamps that were rounded down: where half of the
// calls or more share theirs with the call before them, it is the least difference between
// two others, a day at most. Otherwise it is 0. Mooncake's conversation trace has bins of about 3 s with ten
// calls each; BurstGPT's stamps are whole seconds.
func binOf(rows []*row) time.Duration {
	same, least := 0, time.Duration(0)
	for i, r := range rows[1:] {
		switch gap := r.at - rows[i].at; {
		case gap == 0:
			same++
		case gap > 0 && (least == 0 || gap < least):
			least = gap
		}
	}
	if 2*same < len(rows)-1 {
		return 0
	}
	return min(least, longestBin)
}
