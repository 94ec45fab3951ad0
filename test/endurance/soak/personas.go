package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"kvasir/test/endurance/internal/ledger"
)

// persona is who may call: a key, and whose it is.
type persona struct {
	name   string // the key's; "": calls without a key
	tenant string // whose calls these are
	raise  bool   // it may ask for more than its tenant has
	low    bool   // its calls have a negative priority where they say nothing
	caps   string // of the key itself, in the file's words
}

// personas are several keys of several tenants, one of them background. Those with a tenant of
// their own have it by the key's name. Calls without a key are a tenant's too.
var personas = []persona{
	{name: "acme-chat", tenant: "acme"},
	{name: "acme-bulk", tenant: "acme", caps: "{concurrency: 6}"},
	{name: "vip", tenant: "vip", raise: true},
	{name: "nightly", tenant: "research", low: true},
	{name: "loner", tenant: "loner"},
	{tenant: "guests"},
}

// tenant is a configured tenant.
type tenant struct {
	name, class      string
	share            float64
	concurrency, rpm int // 0: no cap
	tpm              int
}

// tenants have caps that bite now and then. loner is in no list: it has what nobody is denied.
var tenants = []tenant{
	{"acme", "", 3, 12, 0, 0},
	{"vip", "", 1, 0, 2400, 0},
	{"research", "background", 1, 6, 1500, 0},
	{"guests", "", 0.5, 0, 0, 300000},
}

// burstSeconds is what rpm and tpm save up: in the run's first seconds that much more may come.
const burstSeconds = 5

// classes that the file has beside interactive and background.
const urgentClass, urgentDeadline = "urgent", "2s"

// configureTenants writes keys, tenants, classes and the bound of conversations.
func configureTenants(keys map[string]string, hash func(string) string) string {
	var s strings.Builder
	s.WriteString("clients:\n  anonymous: true\n  keys:\n")
	for _, p := range personas {
		if p.name == "" {
			continue
		}
		fmt.Fprintf(&s, "    - {name: %s, sha256: %s", p.name, hash(keys[p.name]))
		if p.tenant != p.name {
			fmt.Fprintf(&s, ", tenant: %s", p.tenant)
		}
		if p.raise {
			s.WriteString(", raise: true")
		}
		if p.caps != "" {
			s.WriteString(", caps: " + p.caps)
		}
		s.WriteString("}\n")
	}
	s.WriteString("tenants:\n")
	for _, t := range tenants {
		fmt.Fprintf(&s, "  - name: %s\n    share: %v\n", t.name, t.share)
		if t.class != "" {
			fmt.Fprintf(&s, "    class: %s\n", t.class)
		}
		if t.name == "guests" {
			s.WriteString("    anonymous: true\n")
		}
		var caps []string
		if t.concurrency > 0 {
			caps = append(caps, fmt.Sprintf("concurrency: %d", t.concurrency))
		}
		if t.rpm > 0 {
			caps = append(caps, fmt.Sprintf("rpm: %d, burst: %ds", t.rpm, burstSeconds))
		}
		if t.tpm > 0 {
			caps = append(caps, fmt.Sprintf("tpm: %d, burst: %ds", t.tpm, burstSeconds))
		}
		fmt.Fprintf(&s, "    caps: {%s}\n", strings.Join(caps, ", "))
	}
	fmt.Fprintf(&s, "classes:\n  - {name: %s, priority: 2, deadline: %s}\n", urgentClass, urgentDeadline)
	s.WriteString("  - {name: interactive}\n  - {name: background, priority: -1}\n")
	s.WriteString("fan_out: {concurrency: 2, waiting: 2, max_wait: 200ms}\n")
	return s.String()
}

// identify draws who calls, and the headers by which clients say how urgent a call is, that it
// comes again, which conversation it is of, and that it must not be made twice.
func (s *caller) identify(r *rand.Rand, c *ledger.Call) {
	p := personas[r.IntN(len(personas))]
	if !s.tenants {
		c.Key = s.clientKey
		return
	}
	c.Key, c.Tenant, c.Low = s.keys[p.name], p.tenant, p.low
	add := func(one int, name string, values ...string) string {
		if r.IntN(one) > 0 {
			return ""
		}
		v := values[r.IntN(len(values))]
		c.Header = append(c.Header, name+": "+v)
		return v
	}
	add(8, "x-kvasir-deadline", "1ms", "20ms", "300ms", "2s", "1m", "24h")
	add(8, "x-request-timeout", "0.001", "0.5", "2", "600", "86400")
	class := add(8, "x-kvasir-class", "background", "background", map[bool]string{true: urgentClass, false: "background"}[p.raise])
	low := c.Low
	if class != "" {
		low = class == "background"
	}
	switch add(8, "x-kvasir-priority", "-8", "-3", "-1", map[bool]string{true: "8", false: "-2"}[p.raise]) {
	case "":
	case "8":
		low = false
	default:
		low = true
	}
	c.Low = low
	c.Once = add(6, "x-kvasir-once", "1") != ""
	if !c.Once {
		add(20, "x-kvasir-once", "0", "yes") // which say nothing
	}
	add(6, "x-stainless-retry-count", "0", "1", "2", "many")
	// A client's own, and secret: it must be seen nowhere.
	add(6, "idempotency-key", s.canary+"-a", s.canary+"-b", fmt.Sprintf("%s-%d", s.canary, r.Uint64()))
	add(5, "x-session-id", "one", "two", "three", fmt.Sprintf("of its own %d", r.Uint64()))
}

// badHeaders are values that a call is refused for, without a look at its body.
var badHeaders = []string{
	"x-kvasir-deadline: soon", "x-kvasir-deadline: -1s", "x-kvasir-deadline: 0", "x-kvasir-deadline: 25h", "x-kvasir-deadline: 2",
	"x-request-timeout: NaN", "x-request-timeout: 0x1p3", "x-request-timeout: 1e9", "x-request-timeout: -1",
	"x-kvasir-class: model-of-my-own", "x-kvasir-priority: 9", "x-kvasir-priority: 1.5", "x-kvasir-priority: high",
	"x-kvasir-deadline: 1s\r\nx-kvasir-deadline: 2s", "x-kvasir-priority: -1\r\nx-kvasir-priority: -2",
}
