package discovery

import (
	"fmt"
	"slices"
)

// Add takes an endpoint in, or changes the one of that name that an operator added. It
// stays until Remove. Add of an endpoint that a source lists (by its name and URL, and by
// its weight and host where they are given) only takes a Remove back: the endpoint stays
// the source's, and goes when the source says so. Other fields make it the operator's
// own. Whether it is drained does not change, and a weight takes back one that Weigh has set.
//
// Add fails where a field is wrong (Endpoint.Normal), where the name or the place belongs
// to another endpoint, and where an operator has added Most already.
func (s *Set) Add(given Endpoint) error {
	e, err := given.Normal()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.addedLocked(e.Name)
	if err := s.conflictLocked(e); err != nil {
		return err
	}
	switch {
	case s.isListedAsLocked(e, given):
		if at >= 0 {
			s.added = slices.Delete(s.added, at, at+1)
		}
	case at >= 0:
		s.added[at] = e
	case len(s.added) == Most:
		return fmt.Errorf("%s: %d endpoints have been added, which is the most", e.Name, Most)
	default:
		s.added = append(s.added, e)
	}
	delete(s.removed, e.Name)
	if given.Weight != 0 {
		delete(s.weighed, e.Name)
	}
	s.wakeLocked()
	return nil
}

// conflictLocked says which other endpoint e would clash with.
func (s *Set) conflictLocked(e Endpoint) error {
	place := Place(e.URL)
	for _, a := range s.added {
		if a.Name != e.Name && Place(a.URL) == place {
			return fmt.Errorf("url: %s is the endpoint %s already (admin)", e.URL, a.Name)
		}
	}
	for _, l := range s.lists {
		for _, x := range l.endpoints {
			switch samePlace := Place(x.URL) == place; {
			case s.removed[x.Name]:
			case x.Name != e.Name && samePlace:
				return fmt.Errorf("url: %s is the endpoint %s already (%v)", e.URL, x.Name, l.origin)
			case x.Name == e.Name && !samePlace && s.addedLocked(e.Name) < 0:
				return fmt.Errorf("name: %s is the endpoint at %s already (%v)", e.Name, x.URL, l.origin)
			}
		}
	}
	return nil
}

// isListedAsLocked reports whether a source lists e; only the fields that were given
// count.
func (s *Set) isListedAsLocked(e, given Endpoint) bool {
	return slices.ContainsFunc(s.lists, func(l *list) bool {
		return slices.ContainsFunc(l.endpoints, func(x Endpoint) bool {
			return x.Name == e.Name && x.URL == e.URL &&
				(given.Weight == 0 || x.Weight == e.Weight) &&
				(given.Host == "" || x.Host == e.Host)
		})
	})
}

// Remove takes out the endpoint of that name, and reports whether there was one. One that
// a source lists stays out until Add, or until no source lists it any more: if it is
// listed again after that, it is back.
func (s *Set) Remove(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isThereLocked(name) {
		return false
	}
	if at := s.addedLocked(name); at >= 0 {
		s.added = slices.Delete(s.added, at, at+1)
	}
	if s.isListedLocked(name) {
		mark(&s.removed, name)
	}
	delete(s.drained, name)
	delete(s.weighed, name)
	s.wakeLocked()
	return true
}

// Drain says whether the endpoint of that name gets new calls, and reports whether there
// is such an endpoint. It holds until the endpoint is gone.
func (s *Set) Drain(name string, on bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isThereLocked(name) {
		return false
	}
	if on {
		mark(&s.drained, name)
	} else {
		delete(s.drained, name)
	}
	s.wakeLocked()
	return true
}

// Weigh gives the endpoint of that name another weight than the one that it was listed or
// added with, and reports whether there is such an endpoint. It holds until the endpoint is
// gone, or is added with a weight. The error says that the weight is not allowed.
func (s *Set) Weigh(name string, weight float64) (bool, error) {
	if err := checkWeight(weight); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isThereLocked(name) {
		return false, nil
	}
	if s.weighed == nil {
		s.weighed = map[string]float64{}
	}
	s.weighed[name] = weight
	s.wakeLocked()
	return true, nil
}

func mark(names *map[string]bool, name string) {
	if *names == nil {
		*names = map[string]bool{}
	}
	(*names)[name] = true
}

// addedLocked returns the index in s.added of the endpoint of that name, or -1.
func (s *Set) addedLocked(name string) int {
	return slices.IndexFunc(s.added, func(e Endpoint) bool { return e.Name == name })
}

// isListedLocked reports whether a source lists the name.
func (s *Set) isListedLocked(name string) bool {
	return slices.ContainsFunc(s.lists, func(l *list) bool {
		return slices.ContainsFunc(l.endpoints, func(e Endpoint) bool { return e.Name == name })
	})
}

func (s *Set) isThereLocked(name string) bool {
	return s.addedLocked(name) >= 0 || s.isListedLocked(name) && !s.removed[name]
}

// mergeLocked returns the one list: what sources list in their order, then what was
// added. It notes with each source what of its list clashes with another's.
func (s *Set) mergeLocked() []Entry {
	m := merger{names: map[string]owner{}, places: map[string]owner{}}
	for _, e := range s.added {
		m.claim(e, Origin{Kind: KindAdmin})
	}
	var entries []Entry
	for _, l := range s.lists {
		var conflicts []error
		for _, e := range l.endpoints {
			if s.removed[e.Name] {
				continue
			}
			added, err := m.claim(e, l.origin)
			if err != nil {
				conflicts = append(conflicts, err)
			}
			if added {
				entries = append(entries, s.entryLocked(e, l.origin))
			}
		}
		l.conflict = nil
		if n := len(conflicts); n > 0 {
			l.conflict = fmt.Errorf("%d of %d endpoints can't be used: %w", n, len(l.endpoints), conflicts[0])
		}
	}
	for _, e := range s.added {
		entries = append(entries, s.entryLocked(e, Origin{Kind: KindAdmin}))
	}
	return entries
}

// entryLocked puts an operator's words to an endpoint.
func (s *Set) entryLocked(e Endpoint, o Origin) Entry {
	entry := Entry{Endpoint: e, Draining: s.drained[e.Name], Origin: o}
	if weight, ok := s.weighed[e.Name]; ok {
		entry.Weight, entry.Weighed = weight, true
	}
	return entry
}

// merger knows who has which name and place.
type merger struct{ names, places map[string]owner }

type owner struct {
	name, url string
	origin    Origin
}

// claim reports whether nobody has the endpoint's name or place yet, and takes them. The
// error says who has one of them without being the same endpoint.
func (m *merger) claim(e Endpoint, origin Origin) (bool, error) {
	place := Place(e.URL)
	there, placeTaken := m.places[place]
	named, nameTaken := m.names[e.Name]
	switch {
	case placeTaken && there.name == e.Name:
		return false, nil
	case placeTaken:
		return false, fmt.Errorf("url: %s is the endpoint %s already (%v)", e.URL, there.name, there.origin)
	case nameTaken:
		return false, fmt.Errorf("name: %s is the endpoint at %s already (%v)", e.Name, named.url, named.origin)
	}
	m.places[place] = owner{e.Name, e.URL, origin}
	m.names[e.Name] = m.places[place]
	return true, nil
}
