package config

import (
	"reflect"
	"slices"
	"strings"

	"kvasir/selection/policy"

	"go.yaml.in/yaml/v3"
)

// What a file may write shorter than the structs say: a model as the list of its
// endpoints or with its only pool's keys among its own, an endpoint as its URL, a
// policy as its name.

func (m *Models) decode(d *decoder, n *yaml.Node, at where) {
	if n.Kind != yaml.MappingNode {
		d.mismatch(n, at, "a mapping from model names to models", "")
		return
	}
	// The router's timeouts, which a model starts with, may stand below the models.
	d.later = append(d.later, func() {
		d.entries(n, at, func(key, value *yaml.Node) {
			w := at.key(key.Value)
			d.mark(w, key)
			d.mark(where{w.canon.key("name"), w.shown}, key)
			model := Model{Name: key.Value, Timeouts: *d.timeouts, Caps: DefaultCaps(), Commit: CommitFirstContent, Hedge: DefaultHedge(), Continue: DefaultContinue()}
			d.value(reflect.ValueOf(&model).Elem(), "", value, w)
			*m = append(*m, model)
		})
	})
}

func (m *Model) decode(d *decoder, n *yaml.Node, at where) {
	// Where the file has no pools key, its pool is the model itself.
	pool, only := DefaultPool(), at.canon.key("pools").index(0)
	adopt := func() {
		m.Pools = []Pool{pool}
		d.places[only.id()] = d.placeOf(at.canon)
	}
	switch n.Kind {
	case yaml.SequenceNode:
		endpoints := where{only.key("endpoints"), at.shown}
		d.places[endpoints.canon.id()] = d.placeOf(at.canon)
		d.value(reflect.ValueOf(&pool.Endpoints).Elem(), "", n, endpoints)
		adopt()
	case yaml.MappingNode:
		short := slices.DeleteFunc(fieldsOf(&pool, only), func(f field) bool { return f.name == "name" })
		d.fields(n, at, append(fieldsOf(m, at.canon), short...))
		used := keysAmong(n, names(short))
		if len(keysAmong(n, []string{"pools"})) == 0 {
			if len(used) > 0 {
				adopt()
			}
			return
		}
		for _, key := range used {
			d.reportAt(key.Line, key.Column, at.shown,
				quote(key.Value)+` and "pools" exclude each other; move it into a pool`)
		}
	default:
		d.mismatch(n, at, "a list of endpoints or a mapping", "")
	}
}

// keysAmong returns a mapping's keys that are one of names.
func keysAmong(n *yaml.Node, names []string) []*yaml.Node {
	var found []*yaml.Node
	for i := 0; i < len(n.Content); i += 2 {
		if slices.Contains(names, n.Content[i].Value) {
			found = append(found, n.Content[i])
		}
	}
	return found
}

func (p *Pool) decode(d *decoder, n *yaml.Node, at where) {
	*p = DefaultPool()
	d.fields(n, at, fieldsOf(p, at.canon))
}

func (s *Discover) decode(d *decoder, n *yaml.Node, at where) {
	*s = DefaultDiscover()
	d.fields(n, at, fieldsOf(s, at.canon))
	// Who has endpoints found need not list any: a mistake in here is reported once.
	pool := at.canon[:len(at.canon)-1]
	d.meant[pool.key("endpoints").id()] = true
	reported := func(key string) bool { return d.isReported(at.canon.key(key)) }
	if !s.IsSet() && !slices.ContainsFunc([]string{"dns", "srv", "file"}, reported) {
		d.report(d.placeOf(at.canon), "missing: one of dns, srv and file")
	}
}

func (e *Endpoint) decode(d *decoder, n *yaml.Node, at where) {
	*e = DefaultEndpoint()
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == strTag:
		e.URL = n.Value
		d.mark(where{at.canon.key("url"), at.shown}, n)
	case n.Kind == yaml.MappingNode:
		d.fields(n, at, fieldsOf(e, at.canon))
	default:
		d.mismatch(n, at, "a URL or a mapping", strings.Join(names(fieldsOf(e, nil)), ", "))
		return
	}
	if normal, err := normalURL(e.URL); err == nil {
		e.URL = normal
		if e.Name == "" && !d.failed[at.canon.key("name").id()] {
			e.Name = endpointName(normal)
		}
	}
}

func (p *Policy) decode(d *decoder, n *yaml.Node, at where) {
	name := n
	if n.Kind == yaml.MappingNode {
		if name = valueOf(n, "name"); name == nil {
			d.fail(n, at.key("name"), "missing (allowed: %s)", strings.Join(policyNames(), ", "))
			d.failed[at.canon.id()] = true
			return
		}
	}
	if name.Kind != yaml.ScalarNode || name.Tag != strTag {
		d.mismatch(name, at, "a policy's name or a mapping with its name and parameters", strings.Join(policyNames(), ", "))
		return
	}
	rule, ok := policy.Lookup(name.Value)
	if !ok {
		d.fail(name, at, "unknown policy %s%s", quote(name.Value), didYouMean(name.Value, policyNames()))
		return
	}
	*p = Policy{Name: rule.Name, Params: rule.Params()}
	if n.Kind == yaml.MappingNode {
		var again string // entries checks the key; its value is known
		fields := []field{{"name", reflect.ValueOf(&again).Elem(), "", at.canon}}
		d.fields(n, at, append(fields, fieldsOf(p.Params, at.canon)...))
	}
}

func valueOf(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func policyNames() []string {
	var out []string
	for _, rule := range policy.Catalog() {
		out = append(out, rule.Name)
	}
	return out
}
