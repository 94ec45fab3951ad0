package config

import (
	_ "embed"
	"fmt"
	"os"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Env is what a configuration may read beside its own file: secrets, and the files that
// it names. The zero Env reads the process's environment and its files.
type Env struct {
	Getenv   func(name string) string          // nil: os.Getenv
	ReadFile func(name string) ([]byte, error) // nil: a file of the machine, bounded

	// SkipSecrets leaves secrets unresolved: their form is checked, but no variable
	// and no file is read, Reveal returns "", and the keys of keys_file are missing.
	SkipSecrets bool
}

func (e Env) getenv(name string) string {
	if e.Getenv == nil {
		return os.Getenv(name)
	}
	return e.Getenv(name)
}

func (e Env) readFile(name string) ([]byte, error) {
	if e.ReadFile == nil {
		return readBounded(name, maxFile)
	}
	return e.ReadFile(name)
}

// Load reads the configuration file at path. A file that can be read and is wrong
// gives Problems.
func Load(path string, env Env) (*Config, error) {
	data, err := readBounded(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	return Parse(path, data, env)
}

// Parse reads a configuration from data. name is the file's name: problems show it,
// and the files that it names are relative to its folder. What data doesn't say is as
// in Default, DefaultPool, DefaultDiscover and DefaultEndpoint. The error is of type
// Problems.
func Parse(name string, data []byte, env Env) (*Config, error) {
	c := Default()
	d := &decoder{
		file: name, env: env, timeouts: &c.Timeouts,
		places: map[string]place{}, failed: map[string]bool{}, meant: map[string]bool{},
		contents: map[string][]byte{},
	}
	root, problems := parseYAML(data)
	for _, p := range problems {
		d.reportAt(p.Line, p.Column, nil, p.Message)
	}
	if root != nil {
		d.config(&c, root)
	}
	if len(d.problems) == 0 {
		slices.Sort(d.files)
		c.files = slices.Compact(d.files)
		return &c, nil
	}
	d.problems.sort()
	if d.dropped > 0 {
		last := d.problems[len(d.problems)-1]
		last.Path, last.Message = "", fmt.Sprintf("%d more problems are not shown", d.dropped)
		d.problems = append(d.problems, last)
	}
	return nil, d.problems
}

func (d *decoder) config(c *Config, root *yaml.Node) {
	d.mark(where{}, root)
	d.refuse(root)
	d.value(reflect.ValueOf(c).Elem(), "", root, where{})
	for _, do := range d.later {
		do()
	}
	d.keysFile(&c.Clients)
	c.complete()
	for _, f := range append(c.findings(), d.certificates(c)...) {
		if !d.isReported(f.at) {
			d.report(d.placeOf(f.at), f.message)
		}
	}
}

// complete fills in the names that follow from others.
func (c *Config) complete() {
	for i := range c.Models {
		m := &c.Models[i]
		for p := range m.Pools {
			if m.Pools[p].ServedAs == "" {
				m.Pools[p].ServedAs = m.Name
			}
		}
		if len(m.Pools) == 1 && m.Pools[0].Name == "" {
			m.Pools[0].Name = "default"
		}
	}
}

// isReported tells whether a problem with the value at p has been reported already:
// with the value itself, with one that holds it, or as an unknown key in its place.
func (d *decoder) isReported(p path) bool {
	for n := range len(p) + 1 {
		if d.failed[p[:n].id()] {
			return true
		}
	}
	_, present := d.places[p.id()]
	return d.meant[p.id()] && !present
}

// placeOf returns where the value at p stands; for a value that the file doesn't
// have, where the one that should hold it stands.
func (d *decoder) placeOf(p path) place {
	for n := len(p); n > 0; n-- {
		if found, ok := d.places[p[:n].id()]; ok {
			found.shown = append(found.shown[:len(found.shown):len(found.shown)], p[n:]...)
			return found
		}
	}
	root := d.places[path(nil).id()]
	root.shown = p
	return root
}

//go:embed example.yaml
var example string

// Example returns a full commented configuration file.
func Example() string { return example }
