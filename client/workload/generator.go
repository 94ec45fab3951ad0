package workload

import (
	"fmt"
	"iter"
	"strconv"
	"time"
)

// Generator makes sessions of one kind. It is a value: a session depends on the root, on its
// number and on nothing else, so sessions may be made in any order, again, and by several
// goroutines.
type Generator interface {
	// Validate reports every mistake, by the field's key, the value and what is allowed.
	// It changes nothing.
	Validate() error

	// Session returns the session with the number n (≥ 0), without ID and At. The
	// generator must be valid.
	Session(root uint64, n int) Session

	// Loop says in a sentence what waits for answers within a session.
	Loop() string

	// Count returns how many sessions there are; 0: as many as arrive.
	Count() int
}

// Generate returns the workload in which the generator's sessions come at the arrivals, which
// ascend; it ends with them, or with the generator's last session. The error is that of
// Validate. The sessions keep nothing of those before.
func Generate(name string, g Generator, root uint64, arrivals iter.Seq[time.Duration]) (Source, error) {
	if err := g.Validate(); err != nil {
		return Source{}, fmt.Errorf("workload %s: %w", name, err)
	}
	sessions := func(yield func(Session, error) bool) {
		n, count := 0, g.Count()
		for at := range arrivals {
			s := g.Session(root, n)
			n++
			s.ID, s.At = name+"-"+strconv.Itoa(n), at
			if s.Class == "" {
				s.Class = name
			}
			if !yield(s, nil) || n == count {
				return
			}
		}
	}
	return Source{
		Name: name, BlockTokens: blockTokens, Sessions: sessions,
		Loop: "Sessions are open-loop: they come when they come, whatever becomes of others. " + g.Loop(),
	}, nil
}

// tokenTime is how long an output token takes by the clock that Call.Offset goes by, for runs
// that follow that clock: the pace of a busy engine, and a guess as any recorder's is for
// another machine. It stands for the whole call, time to first token included.
const tokenTime = 20 * time.Millisecond

// follow makes a call wait for the end of others, whose numbers are not kept.
func (s *Session) follow(gap time.Duration, after []int, prompt, output int) {
	c := Call{Gap: gap, Offset: gap, After: after, PromptTokens: prompt, OutputTokens: output}
	for _, i := range after {
		before := &s.Calls[i]
		c.Offset = max(c.Offset, before.Offset+time.Duration(before.OutputTokens)*tokenTime+gap)
	}
	s.Calls = append(s.Calls, c)
}
