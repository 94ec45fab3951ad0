package trace

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"kvasir/client/workload"
)

// settings are Options with a format's defaults in place, and what a pass shares with its
// parser.
type settings struct {
	Options
	source      string // what Source.Name will be
	blockTokens int
	unit        time.Duration
	bin         time.Duration
	spread      time.Duration // the bin of calls that were spread before the file was written
	rate        float64
	untimed     bool    // sessions come at the rate
	estimated   bool    // token counts come from text
	drawn       float64 // the rate of arrivals that were drawn before the file was written
	record      int     // number of the record in the file, from 0
}

func settle(o Options, f *format) settings {
	s := settings{Options: o, blockTokens: f.blockTokens, unit: f.unit, rate: f.rate, bin: o.Bin, estimated: f.text}
	if o.BlockTokens > 0 && f.blockTokens > 0 {
		s.blockTokens = o.BlockTokens
	}
	if o.TimeUnit > 0 {
		s.unit = o.TimeUnit
	}
	if o.SessionRate > 0 {
		s.rate = o.SessionRate
	}
	if s.rate == 0 {
		s.rate = 1
	}
	if s.TokenTime == 0 {
		s.TokenTime = 25 * time.Millisecond
	}
	if s.AnswerTokens == 0 {
		s.AnswerTokens = 256
	}
	if s.Idle == 0 {
		s.Idle = 30 * time.Minute
	}
	return s
}

// pass is one reading of a file.
type pass struct {
	settings
	name    string
	records *records
	tally   Tally
	err     error // what ended it early
}

// play reads a file once.
func (f *format) play(file File, s settings, yield func(workload.Session, error) bool) {
	r, err := file.Open()
	if err != nil {
		yield(workload.Session{}, err)
		return
	}
	defer r.Close()
	p := &pass{settings: s, name: file.Name, records: newRecords(r)}
	wanted := true
	f.read(p, func(s workload.Session) bool {
		s.ID, s.Class = strings.ToValidUTF8(s.ID, "\uFFFD"), strings.ToValidUTF8(s.Class, "\uFFFD")
		s.Tenant = strings.ToValidUTF8(s.Tenant, "\uFFFD")
		p.tally.Sessions++
		p.tally.Calls += len(s.Calls)
		wanted = yield(s, nil)
		return wanted
	})
	p.tally.Whole = p.tally.Whole && wanted
	if s.Done != nil {
		s.Done(p.tally)
	}
	if t := &p.tally; p.err == nil && t.Whole && t.Sessions == 0 && t.Bad > 0 {
		p.err = fmt.Errorf("%s: none of its %d records is one of format %s: the first of %d bad ones: %w", p.name, t.Records, f.name, t.Bad, t.First[0])
	}
	if p.err != nil && wanted {
		yield(workload.Session{}, p.err)
	}
}

// read hands out the sessions of a file.
func (f *format) read(p *pass, yield func(workload.Session) bool) {
	switch {
	case f.sessions != nil:
		p.sessions(f.sessions(&p.settings), yield)
	case f.grouped:
		p.groups(p.spread(p.rows(f.rows(&p.settings))), yield)
	default:
		p.singles(p.spread(p.rows(f.rows(&p.settings))), yield)
	}
}

// parseSession reads one record. It reports false for one that is no session, a header.
type parseSession func(record []byte, s *workload.Session) (ok bool, err error)

// sessions reads a file in which each record is a session.
func (p *pass) sessions(parse parseSession, yield func(workload.Session) bool) {
	times := arrivals{seed: p.Seed, rate: p.rate}
	last := time.Duration(0)
	p.each(func(record []byte) (bool, error) {
		var s workload.Session
		ok, err := parse(record, &s)
		if err != nil || !ok {
			return true, err
		}
		if p.untimed {
			s.At = times.next()
		} else if s.At < last {
			return true, fmt.Errorf("at_ns is %d; allowed: from %d on, that of the session before it", s.At, last)
		}
		last = s.At
		if err := s.Validate(p.blockTokens); err != nil {
			return true, err
		}
		p.tally.Records++
		return yield(s), nil
	})
}

// bad counts a record that is wrong and reports whether the pass goes on.
func (p *pass) bad(err error) bool {
	e := &RecordError{File: p.name, Line: p.records.start, Err: err}
	p.tally.Records++
	p.tally.Bad++
	if len(p.tally.First) < firstErrors {
		p.tally.First = append(p.tally.First, e)
	}
	if p.Strict {
		p.err = e
	}
	return !p.Strict
}

// each calls f for the records one after the other, until it reports false. An error of f is
// what is wrong with the record.
func (p *pass) each(f func(record []byte) (more bool, err error)) {
	for ; ; p.record++ {
		b, err := p.records.next()
		more := true
		switch {
		case errors.Is(err, io.EOF):
			p.tally.Whole = true
			return
		case errors.Is(err, errTooLong):
		case err != nil:
			p.err = &RecordError{File: p.name, Line: p.records.line, Err: err}
			return
		default:
			more, err = f(b)
		}
		if err != nil {
			more = p.bad(err) && more
		}
		if !more {
			return
		}
	}
}
