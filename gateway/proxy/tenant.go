package proxy

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"kvasir/api"
	"kvasir/internal/kvblock"
)

// Tenancy says who pays for calls, and how urgent they are. In the zero Tenancy each client
// is a tenant of its own, and there are the classes interactive (priority 0) and background
// (-1).
type Tenancy struct {
	Tenants   map[string]Tenant // by name; a client that points to none is a tenant of its own by its name
	Clients   map[string]Client // by name, those of whom more is known than that
	Anonymous string            // the tenant of calls without a key; "": they have none
	Classes   map[string]Class  // by name; nil: the two above
}

// Tenant is who pays for calls.
type Tenant struct {
	Class string  // of its calls; "": interactive
	Share float64 // of the service, relative to others; 0: 1
}

// Client is what a client's key says of it.
type Client struct {
	Tenant string // "": it is one of its own
	Raise  bool   // it may ask for more than its tenant has
}

// Class is what calls are like.
type Class struct {
	Priority int           // higher first, -MostPriority to MostPriority; below 0: refused first
	Deadline time.Duration // of the first token; 0: the model's
}

// MostPriority bounds priorities to both sides.
const MostPriority = 8

// defaultClass is what calls are like of which nothing is said.
const defaultClass = "interactive"

func defaultClasses() map[string]Class {
	return map[string]Class{defaultClass: {}, "background": {Priority: -1}}
}

// standing is what is known of a call from its key and its headers, before its body.
type standing struct {
	tenant   string // "": nobody's
	hash     kvblock.Hash
	share    float64
	class    string
	priority int
	deadline time.Duration // 0: the model's
}

// The headers by which a client says how urgent its call is.
const (
	deadlineHeader = "X-Kvasir-Deadline"
	timeoutHeader  = "X-Request-Timeout"
	classHeader    = "X-Kvasir-Class"
	priorityHeader = "X-Kvasir-Priority"
)

// standing returns whose call it is, and how urgent. An error says which header can't be
// read, or asks for more than the client may.
func (t *Tenancy) standing(client string, h http.Header) (standing, *api.Error) {
	is, at := t.Clients[client], standing{tenant: client, share: 1}
	switch {
	case is.Tenant != "":
		at.tenant = is.Tenant
	case client == "":
		at.tenant = t.Anonymous
	}
	if at.tenant != "" {
		at.hash = kvblock.Seed("tenant", at.tenant)
	}
	own := t.Tenants[at.tenant]
	if own.Share > 0 {
		at.share = own.Share
	}
	if at.class = own.Class; at.class == "" {
		at.class = defaultClass
	}
	most := t.Classes[at.class].Priority
	if is.Raise {
		most = MostPriority
	}
	if name, given, err := oneHeader(h, classHeader); err != nil {
		return at, err
	} else if given {
		c, known := t.Classes[name]
		if !known {
			return at, badHeader(classHeader, name, strings.Join(slices.Sorted(maps.Keys(t.Classes)), ", "))
		}
		if c.Priority > most {
			return at, notAllowed(classHeader, name, t.within(most))
		}
		at.class = name
	}
	class := t.Classes[at.class]
	at.priority, at.deadline = class.Priority, class.Deadline
	if text, given, err := oneHeader(h, priorityHeader); err != nil {
		return at, err
	} else if given {
		n, err := strconv.Atoi(text)
		if err != nil || n < -MostPriority || n > MostPriority {
			return at, badHeader(priorityHeader, text, fmt.Sprintf("a whole number, %d to %d", -MostPriority, MostPriority))
		}
		if n > most {
			return at, notAllowed(priorityHeader, text, fmt.Sprintf("%d to %d", -MostPriority, most))
		}
		at.priority = n
	}
	d, err := deadlineOf(h)
	if d > 0 {
		at.deadline = d
	}
	return at, err
}

// within lists the classes whose priority is no higher.
func (t *Tenancy) within(most int) string {
	var names []string
	for name, c := range t.Classes {
		if c.Priority <= most {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// longestDeadline bounds what a client may say.
const longestDeadline = 24 * time.Hour

// deadlineOf returns the time within which the client wants the first token; 0: it names
// none. x-kvasir-deadline goes before x-request-timeout, by which other gateways' clients
// say how long they wait.
func deadlineOf(h http.Header) (time.Duration, *api.Error) {
	text, given, err := oneHeader(h, deadlineHeader)
	if err != nil {
		return 0, err
	}
	seconds, also, err := oneHeader(h, timeoutHeader)
	if err != nil {
		return 0, err
	}
	var waits time.Duration
	if also {
		x, err := strconv.ParseFloat(seconds, 64)
		if err != nil || !(x >= 0.001) || x > longestDeadline.Seconds() || strings.ContainsAny(seconds, "xXpP_") {
			return 0, badHeader(timeoutHeader, seconds, "seconds as a decimal number, 0.001 to 86400")
		}
		waits = time.Duration(math.Round(x * 1e9))
	}
	if !given {
		return waits, nil
	}
	d, bad := time.ParseDuration(text)
	if bad != nil || d < time.Millisecond || d > longestDeadline {
		return 0, badHeader(deadlineHeader, text, "a duration such as 800ms or 2s, 1ms to 24h")
	}
	return d, nil
}

// oneHeader returns a header's value, and whether there is one.
func oneHeader(h http.Header, name string) (string, bool, *api.Error) {
	values := h[name]
	switch len(values) {
	case 0:
		return "", false, nil
	case 1:
		return strings.TrimSpace(values[0]), true, nil
	}
	return "", false, badHeader(name, strings.Join(values, ", "), "one value")
}

func badHeader(name, value, allowed string) *api.Error {
	return &api.Error{Status: http.StatusBadRequest, Code: "bad_header", Param: strings.ToLower(name),
		Message: fmt.Sprintf("The header %s is %q, which is not accepted (allowed: %s).", strings.ToLower(name), shorten(value), allowed)}
}

func notAllowed(name, value, allowed string) *api.Error {
	return &api.Error{Status: http.StatusForbidden, Code: "priority_not_allowed", Param: strings.ToLower(name),
		Message: fmt.Sprintf("The header %s is %q, which is above what the key may ask for (allowed: %s).", strings.ToLower(name), shorten(value), allowed)}
}

// callsFor returns how many of the gateway's calls may be in flight for one more of the
// priority to be let in: below 0 they leave an eighth to the others, so that what may wait
// never fills the bound that all share.
func callsFor(priority, calls int) int {
	if priority < 0 {
		return calls - calls/8
	}
	return calls
}

// urgent makes the request what the standing says of it. waited is how long the call is here
// already.
func (c *call) urgent(waited time.Duration) {
	s, q := &c.standing, &c.request
	q.Tenant, q.Share, q.Priority = s.hash, s.share, int32(s.priority)
	// A deadline is firm wherever it comes from: what is merely wanted is the model's SLO. One that
	// has passed goes no further than to allowed.
	if d := c.deadline(); d > 0 {
		q.Firm, q.Deadline = true, max(d-waited, 1)
	}
}

// deadline returns the time from the call's coming within which its first token is wanted; 0:
// there is none.
func (c *call) deadline() time.Duration { return cmp.Or(c.standing.deadline, c.model.Deadline) }

// late reports whether its deadline has passed.
func (c *call) late() bool {
	d := c.deadline()
	return d > 0 && time.Since(c.arrived) >= d
}
