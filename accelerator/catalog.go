package accelerator

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

//go:embed catalog.json
var catalogJSON []byte

// catalog is the embedded catalogue; nothing changes it. The file is part of the
// program, so a mistake in it stops the program at its start.
var catalog = mustRead(catalogJSON)

// file is the form of catalog.json. Units are in its field names; where each number
// comes from is in an entry's sources, by field.
type file struct {
	About    []string          `json:"about"`
	Licence  string            `json:"licence"`
	Sources  map[string]source `json:"sources"`
	Profiles []entry           `json:"profiles"`
}

// source is one origin of numbers.
type source struct {
	Origin  string `json:"origin"`  // repository and commit, or the estimate's formula
	Licence string `json:"licence"` // SPDX identifier, or "none needed" for our own estimates
	Note    string `json:"note"`
}

// entry is one Profile with the origin of its numbers.
type entry struct {
	Profile
	Sources map[string]string `json:"sources"` // field of the entry → key of file.Sources
}

// Names returns the catalogue's profile names in alphabetical order.
func Names() []string {
	names := make([]string, len(catalog))
	for i, e := range catalog {
		names[i] = e.Name
	}
	return names
}

// Lookup returns the catalogue's profile of that name, the caller's own copy. A name is
// model/device: the model as in llama-3.1-8b, the device as in h100, or 4xh100 for four of
// them that work as one (tensor parallelism). llama-3- stands for llama-3.1-, whose layers
// are the same. The error for an unknown device lists those
// that the model has a profile for, and for an unknown model every name.
func Lookup(name string) (Profile, error) {
	if rest, ok := strings.CutPrefix(name, "llama-3-"); ok {
		name = "llama-3.1-" + rest
	}
	i, found := slices.BinarySearchFunc(catalog, name, func(e entry, name string) int {
		return strings.Compare(e.Name, name)
	})
	if !found {
		return Profile{}, unknown(name)
	}
	p := catalog[i].Profile
	p.DenseTokens = slices.Clone(p.DenseTokens)
	p.DenseMicros = slices.Clone(p.DenseMicros)
	return p, nil
}

func unknown(name string) error {
	model, device, _ := strings.Cut(name, "/")
	var devices []string
	for _, e := range catalog {
		if m, d, _ := strings.Cut(e.Name, "/"); m == model {
			devices = append(devices, d)
		}
	}
	if devices != nil {
		return fmt.Errorf("accelerator profile %q: device is %q; allowed for %s: %s",
			name, device, model, strings.Join(devices, ", "))
	}
	return fmt.Errorf("accelerator profile %q is unknown; allowed: %s", name, strings.Join(Names(), ", "))
}

func mustRead(data []byte) []entry {
	f, err := read(data)
	if err != nil {
		panic("accelerator: catalog.json: " + err.Error())
	}
	return f.Profiles
}

// read decodes a catalogue strictly and sorts it by name.
func read(data []byte) (file, error) {
	var f file
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return file{}, err
	}
	slices.SortFunc(f.Profiles, func(a, b entry) int { return strings.Compare(a.Name, b.Name) })
	for i, e := range f.Profiles {
		if err := e.Validate(); err != nil {
			return file{}, err
		}
		if i > 0 && f.Profiles[i-1].Name == e.Name {
			return file{}, fmt.Errorf("profile %q appears twice", e.Name)
		}
		for field, key := range e.Sources {
			if _, ok := f.Sources[key]; !ok {
				return file{}, fmt.Errorf("profile %q: source %q of %s is not declared", e.Name, key, field)
			}
		}
	}
	return f, nil
}
