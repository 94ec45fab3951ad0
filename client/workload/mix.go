package workload

import (
	"fmt"
	"strings"

	"kvasir/internal/seed"
)

// Mix is classes of work that come together. Each session draws its class.
type Mix []Part

// Part is one class of a Mix.
type Part struct {
	Name       string  // of the class; no two are the same
	Weight     float64 // the class has its weight's share of all sessions; > 0
	Generator  Generator
	Objectives []Objective // that its calls are held to; may be empty
	Terms      Terms       // of its sessions, where the generator gives them none
}

const maxParts = 100

// Validate reports every mistake, each after its part's name.
func (m Mix) Validate() error {
	var c check
	c.whole("parts", len(m), 1, maxParts)
	seen := map[string]bool{}
	for i, p := range m {
		if seen[p.Name] || p.Name == "" {
			c.say("part %d has the name %q; allowed: one that is not empty and that no other has", i+1, p.Name)
		}
		seen[p.Name] = true
		if !(p.Weight > 0 && p.Weight <= maxWeight) {
			c.say("%s: weight is %v; allowed: above 0, to %v", p.Name, p.Weight, float64(maxWeight))
		}
		if err := p.Generator.Validate(); err != nil {
			c.say("%s: %s", p.Name, strings.ReplaceAll(err.Error(), "\n", "\n"+p.Name+": "))
		}
		if err := p.Terms.validate(); err != nil {
			c.say("%s: %v", p.Name, err)
		}
	}
	return c.join()
}

const maxWeight = 1e9

// Session returns the n-th session, of a class that is drawn.
func (m Mix) Session(root uint64, n int) Session {
	i := 0
	if len(m) > 1 {
		r := seed.New(root, seed.Workload, uint64(n), 2)
		left := 0.0
		for _, p := range m {
			left += p.Weight
		}
		for left *= r.Float64(); i < len(m)-1 && left >= m[i].Weight; i++ {
			left -= m[i].Weight
		}
	}
	s := m[i].Generator.Session(m.root(root, i), n)
	if s.Class == "" {
		s.Class = m[i].Name
	}
	if s.Terms == (Terms{}) {
		s.Terms = m[i].Terms
	}
	return s
}

// root returns the root of a class: classes share no text and no draws.
func (m Mix) root(root uint64, class int) uint64 {
	if len(m) == 1 {
		return root
	}
	return mix(root + uint64(class+1)*0x9e3779b97f4a7c15)
}

// Loop says it for every class.
func (m Mix) Loop() string {
	if len(m) == 1 {
		return m[0].Generator.Loop()
	}
	all := make([]string, 0, len(m))
	for _, p := range m {
		all = append(all, fmt.Sprintf("%s: %s", p.Name, p.Generator.Loop()))
	}
	return strings.Join(all, " ")
}

// Count returns the sum of the classes' sessions, or 0 where one of them has no end.
func (m Mix) Count() int {
	sum := 0
	for _, p := range m {
		n := p.Generator.Count()
		if n == 0 {
			return 0
		}
		sum += n
	}
	return sum
}

// Objectives returns what the calls of a class are held to.
func (m Mix) Objectives(class string) []Objective {
	for _, p := range m {
		if p.Name == class {
			return p.Objectives
		}
	}
	return nil
}
