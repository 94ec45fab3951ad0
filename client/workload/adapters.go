package workload

import (
	"slices"
	"strconv"

	"kvasir/internal/draw"
	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
	"kvasir/internal/spec"
)

// Adapters is which LoRA adapters sessions ask for. Each session draws one, or the base
// model, for all its calls.
type Adapters struct {
	N        int     `spec:"n" doc:"different adapters, adapter-1 and so on"`
	Exponent float64 `spec:"exponent" doc:"how uneven they are: the k-th has 1/k^exponent as many sessions as the first; 0: all alike"`
	Share    float64 `spec:"share" doc:"of the sessions that ask for one; the others ask for the base model"`
}

// maxAdapters bounds Adapters.N: their names are kept.
const maxAdapters = 1 << 20

// AdapterMixes returns the ways of drawing adapters that a command line can name.
func AdapterMixes() spec.Catalog[*Adapters] {
	return spec.Catalog[*Adapters]{Kind: "a mix of adapters", Entries: []spec.Entry[*Adapters]{{
		Name: "zipf", Doc: "a few popular adapters and many that are seldom asked for", Source: "article 6.3",
		Make: func() *Adapters { return &Adapters{N: 16, Exponent: 1, Share: 1} },
	}}}
}

// ParseAdapters returns what a text such as zipf:n=16,share=0.5 stands for. The error says of
// every mistake the key, the value and what is allowed.
func ParseAdapters(text string) (Adapters, error) {
	_, a, err := AdapterMixes().Parse(text)
	if err != nil {
		return Adapters{}, err
	}
	return *a, a.Validate()
}

// Validate reports every field outside its range.
func (a Adapters) Validate() error {
	var c check
	c.whole("n", a.N, 1, maxAdapters)
	c.number("exponent", a.Exponent, 0, maxZipf)
	c.number("share", a.Share, 0, 1)
	return c.join()
}

// Apply returns the source whose sessions ask for adapters, in place of those that they
// asked for. What a session draws depends on the root and on its place in the source alone.
// a must be valid.
func (a Adapters) Apply(s Source, root uint64) Source {
	names := make([]string, a.N)
	for i := range names {
		names[i] = "adapter-" + strconv.Itoa(i+1)
	}
	all := s.Sessions
	s.Sessions = func(yield func(Session, error) bool) {
		n := uint64(0)
		for session, err := range all {
			r := seed.New(root, seed.Adapter, n, 0)
			n++
			name := ""
			if r.Float64() < a.Share {
				name = names[draw.Zipf(&r, a.N, a.Exponent)]
			}
			session.Calls = slices.Clone(session.Calls) // they may be the source's own
			for i := range session.Calls {
				session.Calls[i].Adapter = name
			}
			if !yield(session, err) {
				return
			}
		}
	}
	return s
}

// Salt returns what tells the call's chains from those of other adapters: keys and values
// that one adapter computes are no other's. See Salted.
func (c *Call) Salt() uint64 {
	if c.Adapter == "" {
		return 0
	}
	return uint64(kvblock.Seed("adapter", c.Adapter))
}

// Salted returns the hash as the salt's adapter has it: what it was for the base model, whose
// salt is 0, and another one for each adapter.
func Salted(h kvblock.Hash, salt uint64) kvblock.Hash {
	if salt == 0 {
		return h
	}
	return kvblock.Hash(mix(uint64(h) + salt))
}
