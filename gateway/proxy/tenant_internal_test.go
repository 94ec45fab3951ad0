package proxy

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"kvasir/internal/kvblock"
)

func tenancyOfTest() *Tenancy {
	return &Tenancy{
		Tenants: map[string]Tenant{"acme": {Class: "batch", Share: 3}, "cert:worker": {Class: "background"}, "guests": {Class: "background"}},
		Clients: map[string]Client{"one": {Tenant: "acme"}, "boss": {Tenant: "acme", Raise: true}},
		Classes: map[string]Class{
			"interactive": {}, "background": {Priority: -1}, "batch": {Priority: -2, Deadline: time.Minute}, "urgent": {Priority: 5, Deadline: 2 * time.Second},
		},
		Anonymous: "guests",
	}
}

func headers(lines ...string) http.Header {
	h := http.Header{}
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ": ")
		h.Add(name, value)
	}
	return h
}

// TestStanding_WhoPaysAndHowUrgentItIs.
func TestStanding_WhoPaysAndHowUrgentItIs(t *testing.T) {
	hash := func(name string) kvblock.Hash { return kvblock.Seed("tenant", name) }
	for name, x := range map[string]struct {
		client  string
		headers []string
		want    standing
	}{
		"a key of a tenant":       {"one", nil, standing{tenant: "acme", hash: hash("acme"), share: 3, class: "batch", priority: -2, deadline: time.Minute}},
		"a certificate by name":   {"cert:worker", nil, standing{tenant: "cert:worker", hash: hash("cert:worker"), share: 1, class: "background", priority: -1}},
		"a tenant of its own":     {"two", nil, standing{tenant: "two", hash: hash("two"), share: 1, class: "interactive"}},
		"without a key":           {"", nil, standing{tenant: "guests", hash: hash("guests"), share: 1, class: "background", priority: -1}},
		"lower by class":          {"two", []string{"X-Kvasir-Class: batch"}, standing{tenant: "two", hash: hash("two"), share: 1, class: "batch", priority: -2, deadline: time.Minute}},
		"lower by number":         {"one", []string{"X-Kvasir-Priority: -8"}, standing{tenant: "acme", hash: hash("acme"), share: 3, class: "batch", priority: -8, deadline: time.Minute}},
		"lower by both":           {"two", []string{"X-Kvasir-Class: background", "X-Kvasir-Priority:  -4 "}, standing{tenant: "two", hash: hash("two"), share: 1, class: "background", priority: -4}},
		"may raise":               {"boss", []string{"X-Kvasir-Class: urgent"}, standing{tenant: "acme", hash: hash("acme"), share: 3, class: "urgent", priority: 5, deadline: 2 * time.Second}},
		"may raise by number":     {"boss", []string{"X-Kvasir-Priority: 8"}, standing{tenant: "acme", hash: hash("acme"), share: 3, class: "batch", priority: 8, deadline: time.Minute}},
		"a deadline":              {"one", []string{"X-Kvasir-Deadline: 800ms"}, standing{tenant: "acme", hash: hash("acme"), share: 3, class: "batch", priority: -2, deadline: 800 * time.Millisecond}},
		"a timeout":               {"two", []string{"X-Request-Timeout: 1.5"}, standing{tenant: "two", hash: hash("two"), share: 1, class: "interactive", deadline: 1500 * time.Millisecond}},
		"the deadline goes first": {"two", []string{"X-Request-Timeout: 600", "X-Kvasir-Deadline: 2s"}, standing{tenant: "two", hash: hash("two"), share: 1, class: "interactive", deadline: 2 * time.Second}},
	} {
		if got, err := tenancyOfTest().standing(x.client, headers(x.headers...)); err != nil || got != x.want {
			t.Errorf("%s: %+v, %v\nwant %+v", name, got, err, x.want)
		}
	}
	none := Tenancy{Classes: defaultClasses()}
	if got, err := none.standing("", http.Header{}); err != nil || got != (standing{share: 1, class: "interactive"}) {
		t.Errorf("nobody is known: %+v, %v", got, err)
	}
}

// TestStanding_WhatIsWrongIsNamed: header, value and what is allowed.
func TestStanding_WhatIsWrongIsNamed(t *testing.T) {
	for _, x := range []struct {
		client, header string
		status         int
		says           []string
	}{
		{"two", "X-Kvasir-Deadline: soon", 400, []string{"x-kvasir-deadline", `"soon"`, "1ms to 24h"}},
		{"two", "X-Kvasir-Deadline: 0s", 400, nil},
		{"two", "X-Kvasir-Deadline: -2s", 400, nil},
		{"two", "X-Kvasir-Deadline: 25h", 400, nil},
		{"two", "X-Kvasir-Deadline: 5", 400, nil},
		{"two", "X-Kvasir-Deadline: ", 400, nil},
		{"two", "X-Request-Timeout: 2s", 400, []string{"x-request-timeout", "0.001 to 86400"}},
		{"two", "X-Request-Timeout: 0", 400, nil},
		{"two", "X-Request-Timeout: NaN", 400, nil},
		{"two", "X-Request-Timeout: Inf", 400, nil},
		{"two", "X-Request-Timeout: 0x10", 400, nil},
		{"two", "X-Request-Timeout: 86401", 400, nil},
		{"two", "X-Kvasir-Class: fast", 400, []string{"x-kvasir-class", `"fast"`, "background, batch, interactive, urgent"}},
		{"two", "X-Kvasir-Class: urgent", 403, []string{"x-kvasir-class", "above", "background, batch, interactive"}},
		{"one", "X-Kvasir-Class: background", 403, []string{"allowed: batch"}},
		{"two", "X-Kvasir-Priority: high", 400, []string{"x-kvasir-priority", "-8 to 8"}},
		{"two", "X-Kvasir-Priority: -9", 400, nil},
		{"two", "X-Kvasir-Priority: 1", 403, []string{"-8 to 0"}},
		{"one", "X-Kvasir-Priority: -1", 403, []string{"-8 to -2"}},
	} {
		_, err := tenancyOfTest().standing(x.client, headers(x.header))
		if err == nil || err.Status != x.status {
			t.Errorf("%s of %s: %+v, want status %d", x.header, x.client, err, x.status)
			continue
		}
		for _, s := range x.says {
			if !strings.Contains(err.Message, s) {
				t.Errorf("%q does not say %q", err.Message, s)
			}
		}
	}
	if _, err := tenancyOfTest().standing("two", headers("X-Kvasir-Priority: -1", "X-Kvasir-Priority: -2")); err == nil {
		t.Error("two values of one header are accepted")
	}
}

// FuzzStanding: whatever the headers say, who may not raise never gets
// above its tenant's class.
func FuzzStanding(f *testing.F) {
	f.Add("1s", "2", "batch", "-3")
	f.Add("", "", "urgent", "8")
	f.Fuzz(func(t *testing.T, deadline, timeout, class, priority string) {
		h := http.Header{}
		for name, v := range map[string]string{deadlineHeader: deadline, timeoutHeader: timeout, classHeader: class, priorityHeader: priority} {
			if v != "" {
				h[name] = []string{v}
			}
		}
		for client, most := range map[string]int{"one": -2, "two": 0, "boss": MostPriority} {
			got, err := tenancyOfTest().standing(client, h)
			switch {
			case err != nil && (err.Status != 400 && err.Status != 403 || err.Message == "" || err.Param == ""):
				t.Fatalf("%+v", err)
			case err == nil && (got.priority > most || got.priority < -MostPriority || got.deadline < 0 || got.deadline > longestDeadline):
				t.Fatalf("%s: %+v", client, got)
			}
		}
	})
}

// TestUrgent_ADeadlineIsTheClientsOrTheClassesOrTheModels, less the time that has gone.
func TestUrgent_ADeadlineIsTheClientsOrTheClassesOrTheModels(t *testing.T) {
	for _, x := range []struct {
		own, model, waited, want time.Duration
	}{
		{0, 0, time.Second, 0}, {0, 5 * time.Second, time.Second, 4 * time.Second}, {2 * time.Second, 5 * time.Second, time.Second, time.Second},
		{2 * time.Second, 0, 3 * time.Second, 1},
	} {
		c := &call{standing: standing{deadline: x.own, hash: 7, share: 2, priority: -3}, model: &model{Model: Model{Deadline: x.model}}}
		c.urgent(x.waited)
		if q := c.request; q.Deadline != x.want || q.Firm != (x.want > 0) || q.Tenant != 7 || q.Share != 2 || q.Priority != -3 {
			t.Errorf("%+v: %+v", x, q)
		}
	}
}

// TestCallsFor_LeavesRoomAboveTheBackground whatever the bound is.
func TestCallsFor_LeavesRoomAboveTheBackground(t *testing.T) {
	for _, x := range []struct{ priority, calls, want int }{{0, 8192, 8192}, {5, 8, 8}, {-1, 8, 7}, {-1, 8192, 7168}, {-1, 1, 1}, {-8, 7, 7}} {
		if got := callsFor(x.priority, x.calls); got != x.want {
			t.Errorf("priority %d of %d calls: %d, want %d", x.priority, x.calls, got, x.want)
		}
	}
}

// BenchmarkStanding is what each call pays for it.
func BenchmarkStanding(b *testing.B) {
	t, h := tenancyOfTest(), headers("User-Agent: a", "Content-Type: application/json")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := t.standing("one", h); err != nil {
			b.Fatal(err)
		}
	}
}
