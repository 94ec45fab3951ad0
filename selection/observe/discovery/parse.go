package discovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// parse reads a file's list, which is not nil where there is no error. An error starts
// with the line that it is about.
func parse(data []byte, most int) ([]Endpoint, error) {
	p := parser{most: most, lines: map[string]int{}}
	var err error
	if isJSON(data) {
		err = p.json(data)
	} else {
		err = p.text(data)
	}
	if err != nil {
		return nil, err
	}
	return p.list, nil
}

// isJSON tells [{ and [] from a line of text that starts with [fd00::1].
func isJSON(data []byte) bool {
	rest, ok := bytes.CutPrefix(bytes.TrimSpace(data), []byte("["))
	rest = bytes.TrimSpace(rest)
	return ok && (len(rest) == 0 || rest[0] == '{' || rest[0] == ']')
}

type parser struct {
	most  int
	list  []Endpoint
	lines map[string]int // by "name " or "place " and it, the line that has it
}

// text reads one endpoint a line.
func (p *parser) text(data []byte) error {
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		fields := strings.Fields(line)
		if i := slices.IndexFunc(fields, func(f string) bool { return f[0] == '#' }); i >= 0 {
			fields = fields[:i]
		}
		if len(fields) == 0 {
			continue
		}
		labels := map[string]string{}
		for _, f := range fields[1:] {
			key, value, ok := strings.Cut(f, "=")
			switch _, twice := labels[key]; {
			case !ok || !slices.Contains([]string{"weight", "name", "host"}, key):
				return fmt.Errorf("line %d: %s is not allowed behind an endpoint; allowed: weight=, name=, host=, or # and a comment", n, quote(f))
			case twice:
				return fmt.Errorf("line %d: %s is there twice", n, key)
			}
			labels[key] = value
		}
		if err := p.add(n, fields[0], labels); err != nil {
			return err
		}
	}
	if p.list == nil {
		return errors.New("line 1: no endpoint; a list of none is written []")
	}
	return nil
}

// json reads groups of targets.
func (p *parser) json(data []byte) error {
	p.list = []Endpoint{}
	if err := json.Unmarshal(data, new([]json.RawMessage)); err != nil {
		at := int64(len(data))
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = e.Offset
		}
		return fmt.Errorf("line %d: %w", lineAt(data, at-1), err)
	}
	dec := json.NewDecoder(bytes.NewReader(data)) // which knows where it is
	if _, err := dec.Token(); err != nil {        // the bracket
		return fmt.Errorf("line 1: %w", err)
	}
	for dec.More() {
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return fmt.Errorf("line %d: %w", lineAt(data, dec.InputOffset()), err)
		}
		if err := p.group(lineAt(data, dec.InputOffset()-int64(len(raw))), raw); err != nil {
			return err
		}
	}
	return nil
}

// group reads one group, which starts at line.
func (p *parser) group(line int, raw json.RawMessage) error {
	var group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&group); err != nil {
		return fmt.Errorf("line %d: group: %w", line, err)
	}
	if group.Labels["name"] != "" && len(group.Targets) > 1 {
		return fmt.Errorf("line %d: group: the name %s is for one target, not for %d", line, quote(group.Labels["name"]), len(group.Targets))
	}
	for _, t := range group.Targets {
		if err := p.add(line, t, group.Labels); err != nil {
			return err
		}
	}
	return nil
}

// add appends an endpoint.
func (p *parser) add(line int, target string, labels map[string]string) error {
	e := Endpoint{Name: labels["name"], Host: labels["host"]}
	var err error
	if e.URL, err = targetURL(target, labels["__scheme__"]); err != nil {
		return fmt.Errorf("line %d: %w", line, err)
	}
	if w, ok := labels["weight"]; ok {
		if e.Weight, err = strconv.ParseFloat(w, 64); err != nil || e.Weight == 0 {
			return fmt.Errorf("line %d: weight: %s is not allowed; allowed: above 0 to %d", line, quote(w), weightMost)
		}
	}
	if e, err = e.Normal(); err != nil {
		return fmt.Errorf("line %d: %w", line, err)
	}
	if len(p.list) == p.most {
		return fmt.Errorf("line %d: more than %d endpoints", line, p.most)
	}
	for _, key := range []string{"place " + Place(e.URL), "name " + e.Name} {
		if first, twice := p.lines[key]; twice {
			return fmt.Errorf("line %d: the endpoint's %s is on line %d already", line, key, first)
		}
		p.lines[key] = line
	}
	p.list = append(p.list, e)
	return nil
}

// targetURL returns the URL of a target that may be a URL, or a host with or without a
// port.
func targetURL(target, scheme string) (string, error) {
	if strings.Contains(target, "://") {
		return target, nil
	}
	if _, err := netip.ParseAddr(target); err == nil && strings.Contains(target, ":") {
		return "", fmt.Errorf("%s: %w", quote(target), errBrackets)
	}
	if scheme == "" {
		scheme = "http"
	}
	return scheme + "://" + target, nil
}

// lineAt returns the line, from 1, of the byte at the offset.
func lineAt(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(max(0, offset), int64(len(data)))], []byte("\n"))
}
