package discovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Entry is an endpoint of a Set.
type Entry struct {
	Endpoint
	Draining bool // an operator wants it to get no new calls
	Weighed  bool // its Weight is an operator's word
	Origin   Origin
}

// Status is how a source is doing.
type Status struct {
	Origin    Origin
	Endpoints int           // that it lists
	Heard     bool          // it had a clean look
	Age       time.Duration // since the last clean look; 0 for a static one, which doesn't age, and where Heard is false
	Failures  uint64        // looks that were not clean
	Err       error         // of the newest look, and what the Set could not use of its list; nil: all is well
}

// Set is the one list of what several sources and an operator say. The zero Set is empty
// and ready for use; it must not be copied. Its methods are safe for concurrent use, and
// none waits for a source or a listener.
//
// What an operator says goes before what sources say, a source goes before those behind
// it, and of two endpoints with one name or one Place only the first counts. It outlasts
// Run, so that a reload keeps it; it doesn't outlast the process.
type Set struct {
	mu      sync.Mutex
	changed chan struct{}      // holds one token when there may be something to tell; nil: Run isn't running
	lists   []*list            // of Run's sources in their order, then of an earlier Run's until all of this one's have spoken
	added   []Endpoint         // by an operator, in the order of their coming
	removed map[string]bool    // names of endpoints that a source lists
	drained map[string]bool    // names of endpoints that are there
	weighed map[string]float64 // an operator's weights, by name, likewise
}

// list is what one source says. A list's fields are guarded by the Set's mu.
type list struct {
	origin    Origin
	endpoints []Endpoint
	outdated  bool      // its source isn't one of this Run's
	spoken    bool      // in this Run
	clean     time.Time // of the newest look without an error; zero: none
	failures  uint64
	err       error  // of the newest look
	conflict  error  // why something of the list isn't used
	warned    string // what warn was last told is wrong; "": nothing
}

// problem joins what is wrong with a list.
func (l *list) problem() error { return errors.Join(l.err, l.conflict) }

// text returns an error's text, "" for none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Run watches the sources until ctx ends, and returns when they have. While it runs it
// calls, from its own goroutine, one at a time and under no lock:
//
//   - onChange with the whole list, first as soon as there is one (an empty one once every
//     source has spoken) and then when it differs from the last. Changes that come while
//     onChange is at work are one change. The list is the callee's to keep.
//   - warn, unless it is nil, when what is wrong with a source is not what it was; nil says
//     that nothing is any more.
//
// A later Run takes over from an earlier one: a source with the same Origin keeps what it
// last said, and the lists of those that aren't there any more stand until all of the new
// ones have spoken.
//
// It is an error, and nothing is watched, when two sources have one Origin or when Run is
// running.
func (s *Set) Run(ctx context.Context, sources []Source, onChange func([]Entry), warn func(Origin, error)) error {
	lists, changed, err := s.begin(sources)
	if err != nil {
		return err
	}
	defer s.end()
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, source := range sources {
		wg.Go(func() {
			source.Watch(ctx, func(endpoints []Endpoint, err error) { s.heard(lists[i], endpoints, err) })
		})
	}
	t := teller{set: s, onChange: onChange, warn: warn}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			if ctx.Err() == nil {
				t.tell()
			}
		}
	}
}

// begin makes a list for each source, in their order.
func (s *Set) begin(sources []Source) ([]*list, chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed != nil {
		return nil, nil, errors.New("discovery: the Set is being run already")
	}
	var lists []*list
	before := s.lists
	for _, source := range sources {
		origin := source.Origin()
		is := func(l *list) bool { return l.origin == origin }
		if slices.ContainsFunc(lists, is) {
			return nil, nil, fmt.Errorf("discovery: two sources are %v", origin)
		}
		l := &list{origin: origin}
		if i := slices.IndexFunc(before, is); i >= 0 {
			*l = *before[i]
			l.outdated, l.spoken, l.warned = false, false, ""
		}
		if fixed, ok := source.(static); ok { // what it will say is known, and what it said is not to be told again
			l.endpoints, l.spoken, l.err, l.clean = fixed, true, nil, time.Now()
		}
		lists = append(lists, l)
	}
	s.lists = slices.Clone(lists)
	for _, l := range before {
		if !slices.ContainsFunc(lists, func(have *list) bool { return have.origin == l.origin }) {
			l.outdated = true
			s.lists = append(s.lists, l)
		}
	}
	s.changed = make(chan struct{}, 1)
	s.settleLocked()
	s.wakeLocked()
	return lists, s.changed, nil
}

func (s *Set) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = nil
}

// wakeLocked has Run look whether there is something to tell.
func (s *Set) wakeLocked() {
	select {
	case s.changed <- struct{}{}: // never, of a nil channel
	default:
	}
}

// heard takes what a source tells.
func (s *Set) heard(l *list, endpoints []Endpoint, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := !l.spoken || text(err) != text(l.err)
	l.spoken, l.err = true, err
	if err == nil {
		l.clean = time.Now()
	} else {
		l.failures++
	}
	if endpoints != nil && !slices.Equal(endpoints, l.endpoints) {
		l.endpoints, news = endpoints, true
	}
	if news {
		s.settleLocked()
		s.wakeLocked()
	}
}

// settleLocked drops the lists of an earlier Run once they are replaced, and an
// operator's words about endpoints that are gone: who comes back is new.
func (s *Set) settleLocked() {
	if s.spokenLocked() {
		s.lists = slices.DeleteFunc(s.lists, func(l *list) bool { return l.outdated })
	}
	for name := range s.removed {
		if !s.isListedLocked(name) {
			delete(s.removed, name)
		}
	}
	for name := range s.drained {
		if !s.isListedLocked(name) && s.addedLocked(name) < 0 {
			delete(s.drained, name)
		}
	}
	for name := range s.weighed {
		if !s.isListedLocked(name) && s.addedLocked(name) < 0 {
			delete(s.weighed, name)
		}
	}
}

// spokenLocked reports whether all sources of this Run have.
func (s *Set) spokenLocked() bool {
	return !slices.ContainsFunc(s.lists, func(l *list) bool { return !l.outdated && !l.spoken })
}

// Entries returns the list as it is now, which onChange may not have been told yet. It is
// the caller's.
func (s *Set) Entries() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mergeLocked()
}

// Status returns how the sources of the newest Run are doing, in their order.
func (s *Set) Status() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Status
	for _, l := range s.lists {
		if l.outdated {
			continue
		}
		one := Status{Origin: l.origin, Endpoints: len(l.endpoints), Heard: !l.clean.IsZero(), Failures: l.failures, Err: l.problem()}
		if one.Heard && l.origin.Kind != KindStatic {
			one.Age = time.Since(l.clean)
		}
		all = append(all, one)
	}
	return all
}

// teller is Run's memory of what it has told.
type teller struct {
	set      *Set
	onChange func([]Entry)
	warn     func(Origin, error)
	told     bool
	last     []Entry // what it told, its own
}

// tell tells what differs from what it told last.
func (t *teller) tell() {
	s := t.set
	s.mu.Lock()
	entries := s.mergeLocked()
	first := !t.told && (len(entries) > 0 || s.spokenLocked())
	type warning struct {
		origin Origin
		err    error
	}
	var warnings []warning
	for _, l := range s.lists {
		if err := l.problem(); l.spoken && text(err) != l.warned {
			l.warned = text(err)
			warnings = append(warnings, warning{l.origin, err})
		}
	}
	s.mu.Unlock()
	if t.warn != nil {
		for _, w := range warnings {
			t.warn(w.origin, w.err)
		}
	}
	if first || t.told && !slices.Equal(entries, t.last) {
		t.told, t.last = true, slices.Clone(entries)
		t.onChange(entries)
	}
}
