package config

import (
	"fmt"
	"net"
	"reflect"
	"strings"
	"time"
	"unicode"

	"kvasir/selection"
	"kvasir/selection/policy"
)

// finding is a problem whose place is not known yet.
type finding struct {
	at      path
	message string
}

// Validate reports everything that is wrong with a configuration, as Problems without
// positions, and changes nothing. A Config that Load or Parse returned has none.
func (c *Config) Validate() error {
	var ps Problems
	for _, f := range c.findings() {
		ps = append(ps, Problem{Path: f.at.String(), Message: f.message})
	}
	if len(ps) == 0 {
		return nil
	}
	ps.sort()
	return ps
}

// checker collects findings.
type checker struct{ found []finding }

func (k *checker) add(at path, format string, args ...any) {
	k.found = append(k.found, finding{at, fmt.Sprintf(format, args...)})
}

func (c *Config) findings() []finding {
	k := &checker{}
	k.allowed(reflect.ValueOf(c).Elem(), nil)
	top := path{}
	atLeast(k, top.key("limits").key("buffered"), c.Limits.Buffered, "body + preamble", c.Limits.Body+c.Limits.Preamble)
	atLeast(k, top.key("retry").key("max_backoff"), c.Retry.MaxBackoff, "backoff", c.Retry.Backoff)
	atLeast(k, top.key("health").key("max_ejection"), c.Health.MaxEjection, "ejection", c.Health.Ejection)
	if c.Prefix.Block%4 != 0 {
		k.add(top.key("prefix").key("block"), "%d is not a multiple of 4", c.Prefix.Block)
	}
	k.salt(c)
	if sameAddress(c.Listen, c.Admin) {
		k.add(top.key("admin"), "%s overlaps the clients' address (listen: %s)", quote(c.Admin), c.Listen)
	}
	if c.Router != "" {
		k.label(top.key("router"), c.Router)
	}
	k.access(c)
	k.tenants(c)
	k.models(c)
	return k.found
}

// minSalt is how long the secret of the salts is at the least. It is to be guessed by nobody.
const minSalt = 16

// salt checks whether a salt for the engines' caches can do what it is for. The secret is
// not shown.
func (k *checker) salt(c *Config) {
	at := path{}.key("prefix").key("salt")
	if !c.Prefix.Salt.IsSet() {
		return
	}
	if n := len(c.Prefix.Salt.Reveal()); n > 0 && n < minSalt {
		k.add(at, "the secret has %d characters; allowed: %d or more", n, minSalt)
	}
	if c.Prefix.Share == "all" {
		k.add(at, "is in vain where prefix.share is all; allowed with: client")
	}
	for _, m := range c.Models {
		for _, p := range m.Pools {
			if p.Engine == "vllm" || p.Engine == "sglang" {
				return
			}
		}
	}
	k.add(at, "no pool has an engine that takes a salt; they are: vllm, sglang")
}

// atLeast reports a value that is below another one.
func atLeast[T Size | time.Duration](k *checker, at path, v T, otherName string, other T) {
	if v < other {
		k.add(at, "%v is less than %s (%v)", v, otherName, other)
	}
}

// sameAddress tells whether two listeners can't both be had.
func sameAddress(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	every := func(host string) bool { return host == "" || host == "0.0.0.0" || host == "::" }
	return errA == nil && errB == nil && portA == portB && portA != "0" &&
		(hostA == hostB || every(hostA) || every(hostB))
}

// leadsTo reports whether an address that is called is one that is listened on here, as
// far as the two texts tell.
func leadsTo(called, listen string) bool {
	host, port, errC := net.SplitHostPort(called)
	at, listenPort, errL := net.SplitHostPort(listen)
	if errC != nil || errL != nil || port != listenPort {
		return false
	}
	every := at == "" || at == "0.0.0.0" || at == "::"
	return host == at || IsLoopback(called) && (every || IsLoopback(listen))
}

func (k *checker) models(c *Config) {
	models, at := c.Models, path{}.key("models")
	if len(models) == 0 {
		k.add(at, "missing; at least one model is needed")
	}
	names := map[string]string{} // of models, aliases and adapters: which it is
	for _, m := range models {
		if _, twice := names[m.Name]; twice {
			k.add(at.key(m.Name), "the model is here twice")
		}
		names[m.Name] = "a model's name"
	}
	claim := func(at path, name, as string) {
		k.model(at, name)
		if taken, is := names[name]; is && name != "" {
			k.add(at, "%s is %s already", quote(name), taken)
			return
		}
		names[name] = as
	}
	for _, m := range models {
		in := at.key(m.Name)
		k.model(in.key("name"), m.Name)
		for i, alias := range m.Aliases {
			claim(in.key("aliases").index(i), alias, "an alias of model "+quote(m.Name))
		}
		for i, adapter := range m.Adapters {
			at := in.key("adapters").index(i)
			claim(at, adapter, "an adapter of model "+quote(m.Name))
			if strings.Contains(adapter, ",") {
				k.add(at, "%s has a comma, which divides names where engines report them", quote(adapter))
			}
		}
		k.timeouts(m.Timeouts, c.Timeouts, in.key("timeouts"))
		if m.Hedge.Budget == 0 && m.Hedge != DefaultHedge() {
			k.add(in.key("hedge"), "has no effect without budget")
		}
		if m.Hedge.Budget > 0 && c.Retry.Attempts == 0 {
			k.add(in.key("hedge"), "has no effect where retry.attempts is 0: a hedge is one of the further attempts of its call")
		}
		if m.Continue.Times == 0 && m.Continue != DefaultContinue() {
			k.add(in.key("continue"), "has no effect without times")
		}
		if m.Continue.Times > c.Retry.Attempts {
			k.add(in.key("continue").key("times"), "%d is more than retry.attempts, %d: a continuation is one of the further attempts of its call", m.Continue.Times, c.Retry.Attempts)
		}
		k.pools(c.Listen, m.Name, m.Pools, in.key("pools"))
	}
}

// timeouts checks a model's timeouts where they differ from the router's, which are
// checked once.
func (k *checker) timeouts(own, router Timeouts, at path) {
	v, of := reflect.ValueOf(own), reflect.ValueOf(router)
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		if v.Field(i).Int() != of.Field(i).Int() && !inRange(v.Field(i), tag.Get("allowed")) {
			k.add(at.key(tag.Get("config")), "%s is out of range (allowed: %s)", show(v.Field(i)), tag.Get("allowed"))
		}
	}
}

func (k *checker) pools(listen, model string, pools []Pool, at path) {
	if len(pools) == 0 {
		k.add(at, "missing; at least one pool is needed, or endpoints in its place")
	}
	names, endpoints := map[string]bool{}, endpointSet{listen, map[string]string{}, map[string]string{}}
	header, headerOf := "", ""
	for i, p := range pools {
		in := at.index(i)
		switch {
		case p.Name == "" && len(pools) > 1:
			k.add(in.key("name"), "missing; of several pools each has a name")
		case names[p.Name]:
			k.add(in.key("name"), "%s is the name of an earlier pool of the model", quote(p.Name))
		default:
			k.label(in.key("name"), p.Name)
		}
		names[p.Name] = true
		if p.ServedAs != model {
			k.model(in.key("served_as"), p.ServedAs)
		}
		if s := p.Signals; s.Scrape > 0 && s.MaxAge > 0 {
			atLeast(k, in.key("signals").key("max_age"), s.MaxAge, "scrape", s.Scrape)
		}
		if len(p.Endpoints) == 0 && !p.Discover.IsSet() {
			k.add(in.key("endpoints"), "missing; at least one endpoint is needed, or discover")
		}
		endpoints.check(k, p.Endpoints, in.key("endpoints"))
		k.discover(p.Discover, in.key("discover"))
		if p.PassPriority && p.Engine != "vllm" {
			k.add(in.key("pass_priority"), "engine %s takes no priority; allowed with: vllm", p.Engine)
		}
		k.breaker(p.Breaker, in.key("breaker"))
		k.transport(p, in)
		if f := p.SingleFlight; f.MinTokens == 0 && f != DefaultPool().SingleFlight {
			k.add(in.key("single_flight"), "has no effect without min_tokens")
		}
		if q := p.Queue; q.Work == 0 && q.Tokens == 0 && q.Limit == LimitNone && q != DefaultQueue() {
			k.add(in.key("queue"), "has no effect without work, tokens or limit")
		}
		k.queue(p, in.key("queue"))
		if o := p.Overload; o.RefuseTo > 0 && o.RefuseFrom > o.RefuseTo {
			k.add(in.key("overload").key("refuse_to"), "is %v, but refuse_from is %v; it must be at least that", o.RefuseTo, o.RefuseFrom)
		}
		if f := p.SingleFlight; f.MinTokens > 0 && p.Policy.Params != nil && len(p.Policy.Params.Validate()) == 0 {
			if _, looks := p.Policy.Params.New().(selection.OverlapUser); !looks {
				k.add(in.key("single_flight"), "has no effect with policy %s, which does not look at prefixes", quote(p.Policy.Name))
			}
		}
		if h := k.policy(p.Policy, in.key("policy")); h != "" {
			if header != "" && !strings.EqualFold(h, header) {
				k.add(in.key("policy"), "reads the header %s, but pool %s reads %s; the pools of a model read the same one",
					quote(h), quote(headerOf), quote(header))
			} else {
				header, headerOf = h, p.Name
			}
		}
	}
}

// policy checks a policy and its parameters and returns the header that it reads.
func (k *checker) policy(p Policy, at path) (header string) {
	if _, ok := policy.Lookup(p.Name); !ok || p.Params == nil {
		k.add(at, "unknown policy %s%s", quote(p.Name), didYouMean(p.Name, policyNames()))
		return ""
	}
	wrong := p.Params.Validate()
	for _, e := range wrong {
		k.add(at.key(e.Param), "%s is not allowed (allowed: %s)", show(reflect.ValueOf(e.Value)), e.Allowed)
	}
	if len(wrong) > 0 {
		return ""
	}
	if user, ok := selection.As[selection.KeyUser](p.Params.New()); ok {
		return user.KeyHeader()
	}
	return ""
}

// endpointSet knows the endpoints of a model so far: by name and by URL, which pool
// has it. listen is where the gateway's own clients call.
type endpointSet struct {
	listen      string
	names, urls map[string]string
}

func (s endpointSet) check(k *checker, endpoints []Endpoint, at path) {
	for i, e := range endpoints {
		in := at.index(i)
		normal, err := normalURL(e.URL)
		if err != nil {
			k.add(in.key("url"), "%v", err)
			continue
		}
		if normal != e.URL {
			k.add(in.key("url"), "%s is written as %s", quote(e.URL), quote(normal))
		}
		address, base := addressOf(normal)
		if leadsTo(address, s.listen) {
			k.add(in.key("url"), "%s is this gateway's own address (listen: %s); calls would go round in circles", quote(e.URL), s.listen)
		}
		if _, twice := s.urls[address+base]; twice {
			k.add(in.key("url"), "%s is an endpoint of the model already", quote(e.URL))
			continue // its name, which may come from the URL, would be the same mistake
		}
		s.urls[address+base] = e.Name
		k.label(in.key("name"), e.Name)
		if _, twice := s.names[e.Name]; twice {
			k.add(in.key("name"), "%s is the name of another endpoint of the model", quote(e.Name))
		}
		s.names[e.Name] = e.URL
	}
}

// label accepts the names of pools, endpoints and routers: visible ASCII, since they
// stand in metrics and headers.
func (k *checker) label(at path, s string) {
	const most = 128
	switch {
	case s == "":
		k.add(at, "missing")
	case len(s) > most:
		k.add(at, "%s is longer than %d bytes", quote(s), most)
	case strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }):
		k.add(at, "%s has spaces or characters that are not visible ASCII", quote(s))
	}
}

// model accepts the names of models: what a client can write into its model field and
// a person can read.
func (k *checker) model(at path, s string) {
	const most = 256
	switch {
	case s == "":
		k.add(at, "missing")
	case len(s) > most:
		k.add(at, "%s is longer than %d bytes", quote(s), most)
	case strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }), strings.TrimSpace(s) != s:
		k.add(at, "%s has characters that don't print, or spaces at an end", quote(s))
	}
}
