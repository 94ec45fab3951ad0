package workload

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTerms_AreThoseThatTheClassHas(t *testing.T) {
	paid := Terms{Tenant: "paid", Share: 2, Priority: 1, Deadline: time.Second}
	m := Mix{
		{Name: "a", Weight: 1, Generator: mustGenerator(t, "chat-turn"), Terms: paid},
		{Name: "b", Weight: 1, Generator: mustGenerator(t, "chat-turn")},
	}
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	seen := map[string]Terms{}
	for n := range 50 {
		s := m.Session(1, n)
		seen[s.Class] = s.Terms
	}
	if seen["a"] != paid || seen["b"] != (Terms{}) || len(seen) != 2 {
		t.Errorf("%+v", seen)
	}
	m[1].Terms.Share = -1
	if err := m.Validate(); err == nil || !strings.Contains(err.Error(), "b: share is -1") {
		t.Errorf("a share of -1: %v", err)
	}
}

func mustGenerator(t *testing.T, name string) Generator {
	t.Helper()
	m, err := Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return m[0].Generator
}

func TestSource_OnGivesEachSessionItsTerms(t *testing.T) {
	s := Source{Name: "x", BlockTokens: 16, Loop: "y", Sessions: func(yield func(Session, error) bool) {
		for _, id := range []string{"a", "b"} {
			if !yield(Session{ID: id, Calls: []Call{{PromptTokens: 1}}}, nil) {
				return
			}
		}
	}}
	laid := s.On(func(s *Session) Terms { return Terms{Tenant: s.ID} })
	var got []string
	for x, err := range laid.Sessions {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, x.Tenant)
	}
	if !slices.Equal(got, []string{"a", "b"}) || laid.BlockTokens != 16 || laid.Name != "x" || laid.Loop != "y" {
		t.Errorf("%v of %+v", got, laid)
	}
}

func TestTerms_OutsideTheirBounds(t *testing.T) {
	for field, terms := range map[string]Terms{
		"share is NaN": {Share: math.NaN()}, "share is -1": {Share: -1}, "share is 1e+07": {Share: 1e7},
		"priority is 1001": {Priority: 1001}, "priority is -1001": {Priority: -1001}, "deadline is -1ns": {Deadline: -1},
	} {
		s := Session{Terms: terms, Calls: []Call{{PromptTokens: 1}}}
		if err := s.Validate(0); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
