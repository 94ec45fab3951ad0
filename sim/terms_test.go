package sim

import (
	"testing"
	"time"

	"kvasir/client/workload"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// TestSessions_HandOnTheirTerms: to the requests that gateways see, and to records.
func TestSessions_HandOnTheirTerms(t *testing.T) {
	terms := []workload.Terms{{}, {Tenant: "a", Share: 3, Priority: -2, Deadline: time.Second}}
	feed, err := NewSessions(SessionsConfig{Rate: 1, Routers: 1, Source: workload.Source{Sessions: func(yield func(workload.Session, error) bool) {
		for i := range terms {
			yield(workload.Session{ID: "s", Terms: terms[i], Calls: []workload.Call{{PromptTokens: 5, OutputTokens: 1}}}, nil)
		}
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	var none, all Call
	if !feed.Next(&none) || !feed.Next(&all) {
		t.Fatal("two sessions give no two calls")
	}
	if q := none.Request; q.Tenant != 0 || q.Share != 0 || q.Priority != 0 || q.Firm || q.Deadline != 0 {
		t.Errorf("a call of which nothing is said: %+v", q)
	}
	q := all.Request
	if want := (selection.Request{Tenant: tenant("a"), Share: 3, Priority: -2, Firm: true, Deadline: time.Second}); q.Tenant != want.Tenant ||
		q.Share != want.Share || q.Priority != want.Priority || q.Firm != want.Firm || q.Deadline != want.Deadline || q.Tenant == 0 {
		t.Errorf("%+v, want %+v", q, want)
	}
	if r := all.Tag.(*step).session.record; r.Terms != terms[1] {
		t.Errorf("the record has %+v", r.Terms)
	}
}

func TestScenario_MeasuresByTenant(t *testing.T) {
	s := testScenario(t, "least-outstanding", 2)
	s.Workload.Source = s.Workload.Source.On(func(x *workload.Session) workload.Terms {
		return workload.Terms{Tenant: x.ID[len(x.ID)-1:]}
	})
	want := map[string]Number{}
	s.Ended = func(x *SessionRecord, _ int, r *Record) {
		if r.At >= mono.Time(s.Warmup) {
			want[x.Tenant]++
		}
	}
	x := mustRun(t, s)
	if len(x.Tenants) < 2 || len(x.Tenants) != len(want) {
		t.Fatalf("%d tenants are measured, want %d", len(x.Tenants), len(want))
	}
	sum := Number(0)
	for name, n := range x.Tenants {
		sum += n.Calls
		if n.Calls > want[name] || n.Calls == 0 {
			t.Errorf("tenant %q: %v calls, want at most %v", name, n.Calls, want[name])
		}
	}
	if sum != x.Calls {
		t.Errorf("%v calls of all tenants, %v in all", sum, x.Calls)
	}
	if mean, _ := Mean([]Summary{*x, *x}); len(mean.Tenants) != len(x.Tenants) || mean.Tenants["1"].Calls != x.Tenants["1"].Calls {
		t.Error("the mean of two runs alike is another one")
	}
}
