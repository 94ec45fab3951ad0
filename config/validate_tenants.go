package config

import (
	"slices"
	"strings"
)

// tenants checks who pays, and what may be used.
func (k *checker) tenants(c *Config) {
	top := path{}
	classes := k.classes(c, top.key("classes"))
	names := map[string]bool{}
	models := map[string]bool{}
	var modelNames []string
	for _, m := range c.Models {
		if !models[m.Name] {
			modelNames = append(modelNames, m.Name)
		}
		models[m.Name] = true
		k.caps(m.Caps, top.key("models").key(m.Name).key("caps"))
	}
	anonymous := ""
	for i, t := range c.Tenants {
		in := top.key("tenants").index(i)
		k.label(in.key("name"), t.Name)
		if names[t.Name] && t.Name != "" {
			k.add(in.key("name"), "%s is the name of another tenant", quote(t.Name))
		}
		names[t.Name] = true
		if !slices.Contains(classes, t.Class) {
			k.add(in.key("class"), "unknown class %s%s", quote(t.Class), didYouMean(t.Class, classes))
		}
		switch {
		case t.Anonymous && anonymous != "":
			k.add(in.key("anonymous"), "calls without a key are those of %s already", quote(anonymous))
		case t.Anonymous:
			anonymous = t.Name
		}
		k.caps(t.Caps, in.key("caps"))
		seen := map[string]bool{}
		for j, m := range t.Models {
			at := in.key("models").index(j)
			switch {
			case m.Model == "":
				k.add(at.key("model"), "missing (allowed: %s)", strings.Join(modelNames, ", "))
			case !models[m.Model]:
				k.add(at.key("model"), "unknown model %s%s", quote(m.Model), didYouMean(m.Model, modelNames))
			case seen[m.Model]:
				k.add(at.key("model"), "%s is here twice", quote(m.Model))
			}
			seen[m.Model] = true
			k.caps(m.Caps, at.key("caps"))
		}
	}
	k.tenantsOfKeys(c, names)
	if f := c.FanOut; f.Concurrency == 0 && f != DefaultFanOut() {
		k.add(top.key("fan_out"), "has no effect without concurrency")
	}
}

func (k *checker) classes(c *Config, at path) []string {
	seen := map[string]bool{}
	for i, x := range c.Classes {
		in := at.index(i).key("name")
		k.label(in, x.Name)
		if seen[x.Name] && x.Name != "" {
			k.add(in, "%s is the name of another class", quote(x.Name))
		}
		seen[x.Name] = true
	}
	var names []string
	for _, x := range c.AllClasses() {
		if x.Name != "" && !slices.Contains(names, x.Name) {
			names = append(names, x.Name)
		}
	}
	return names
}

// tenantsOfKeys checks where keys point to. Somebody may have written a key there, so what
// stands there is not shown.
func (k *checker) tenantsOfKeys(c *Config, tenants map[string]bool) {
	var allowed []string
	for _, t := range c.Tenants {
		if t.Name != "" && !slices.Contains(allowed, t.Name) {
			allowed = append(allowed, t.Name)
		}
	}
	for i, key := range c.Clients.Keys {
		in := path{}.key("clients").key("keys").index(i)
		switch {
		case key.Tenant == "" || tenants[key.Tenant]:
		case len(allowed) == 0:
			k.add(in.key("tenant"), "no tenant has the name; tenants lists none")
		default:
			k.add(in.key("tenant"), "no tenant has the name (allowed: %s)", strings.Join(allowed, ", "))
		}
		k.caps(key.Caps, in.key("caps"))
	}
}

// caps reports what has no effect.
func (k *checker) caps(c Caps, at path) {
	usual := DefaultCaps()
	if c.RPM == 0 && c.TPM == 0 && c.Burst != usual.Burst {
		k.add(at.key("burst"), "has no effect without rpm or tpm")
	}
	if c.TPM == 0 && c.Weights != usual.Weights {
		k.add(at.key("weights"), "has no effect without tpm")
	}
	if w := c.Weights; c.TPM > 0 && w.Input == 0 && w.Output == 0 {
		k.add(at.key("weights"), "input and output are both 0, so that tpm bounds nothing")
	}
}
