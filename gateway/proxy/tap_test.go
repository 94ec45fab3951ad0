package proxy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
	"kvasir/selection"
	"kvasir/selection/policy"
	"kvasir/telemetry"
)

// tapped notes what a tap gets.
type tapped struct {
	mu      sync.Mutex
	want    bool
	decided []proxy.Decided
	ended   map[uint64]telemetry.Call
	changed int
}

func (s *tapped) tap() *proxy.Tap {
	s.ended = map[uint64]telemetry.Call{}
	return &proxy.Tap{
		Wants:   func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.want },
		Decided: func(d proxy.Decided) { s.mu.Lock(); defer s.mu.Unlock(); s.decided = append(s.decided, d) },
		Ended:   func(call uint64, c telemetry.Call) { s.mu.Lock(); defer s.mu.Unlock(); s.ended[call] = c },
		Changed: func() { s.mu.Lock(); defer s.mu.Unlock(); s.changed++ },
	}
}

func TestTap_GetsDecisionsAndEnds(t *testing.T) {
	r := newRig(t, ordered(refuse, good))
	defer r.close()
	s := &tapped{}
	r.gateway.Tap(s.tap())
	if a := r.post(chatPath, unstreamed); a.status != 200 || a.header.Get("X-Kvasir-Explain") != "" {
		t.Fatalf("%d %v", a.status, a.header)
	}
	r.settle()
	if len(s.decided)+len(s.ended) != 0 {
		t.Fatalf("unwanted: %+v", s.decided)
	}
	s.want = true
	a := r.post(chatPath, unstreamed)
	r.settle()
	if a.status != 200 || a.header.Get("X-Kvasir-Explain") != "" {
		t.Errorf("the client, who has not asked, sees %d %q", a.status, a.header.Get("X-Kvasir-Explain"))
	}
	if len(s.decided) != 2 || s.decided[0].Decision.Attempt != 0 || s.decided[1].Decision.Attempt != 1 {
		t.Fatalf("decisions %+v", s.decided)
	}
	d := s.decided[1].View()
	end := s.ended[d.Call]
	if end.ID != d.ID || end.Attempts != 2 || end.Endpoint != "e2" || end.Outcome != telemetry.Success || len(s.ended) != 1 {
		t.Errorf("ended %+v", s.ended)
	}
	if text, err := json.Marshal(d); err != nil || strings.Contains(string(text), "Hello") {
		t.Errorf("%v: %s", err, text)
	}
	r.gateway.Tap(nil)
	r.post(chatPath, unstreamed)
	r.settle()
	if len(s.decided) != 2 {
		t.Error("decisions are taken though nobody watches")
	}
}

func TestTap_HearsOfEndpointsThatLeaveRotation(t *testing.T) {
	r := newRig(t, ordered(refuse, good))
	defer r.close()
	s := &tapped{}
	r.gateway.Tap(s.tap())
	for range 3 { // health.failures
		r.post(chatPath, unstreamed)
	}
	eventually(t, 5*time.Second, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.changed == 1 }, func() string { return "it was not told" })
}

// What was traded is told by the decision's own numbers.
func TestDecisionView_SaysWhatWasTraded(t *testing.T) {
	d := proxy.Decided{Model: "m", Decision: &selection.Decision{
		Policy: "x", Chosen: 1, Candidates: []selection.Candidate{
			{Endpoint: "a", Overlap: 4, OverlapTokens: 64, Outstanding: 9, Trust: "exact"},
			{Endpoint: "b", Overlap: 2, OverlapTokens: 32, Outstanding: 3, Trust: "exact"},
			{Endpoint: "c", Outstanding: 1, Trust: "exact"},
		},
		Shadow: &selection.Shadow{Policy: "y", Reason: "why", Chosen: 2, Scores: []float64{1, 2, 3}, OverlapTokens: []int{64, 32, 0}},
	}}
	v := d.View()
	if x := v.Traded; *x.Overlap != 32 || *x.BestOverlap != 64 || x.BestOverlapAt != "a" || x.Outstanding != 3 || x.LeastOutstanding != 1 || x.LeastAt != "c" {
		t.Errorf("traded %+v", x)
	}
	if s := v.Shadow; s.Chosen != "c" || s.Agrees || s.Traded.Overlap != -32 || s.Traded.Outstanding != -2 || len(s.Endpoints) != 3 || *s.Endpoints[2].Score != 3 {
		t.Errorf("shadow %+v", s)
	}
	d.Decision.Shadow.Chosen, d.Decision.Shadow.Agrees = 1, true
	if s := d.View().Shadow; !s.Agrees || s.Traded != nil {
		t.Errorf("shadow %+v", s)
	}
}

func shadows(name string) (selection.Policy, error) {
	rule, ok := policy.Lookup(name)
	if !ok {
		return nil, fmt.Errorf("%q is none", name)
	}
	return rule.Params().New(), nil
}

func TestShadow_IsSwitchedOnAndOff(t *testing.T) {
	r := newRig(t, setup{pools: [][]scripted.Script{{good, good}}})
	defer r.close()
	tally := func() *proxy.ShadowTally { return r.gateway.Pools()[0].Pools[0].Shadow }
	for _, x := range []struct {
		body, bearer string
		status       int
		want         string
	}{
		{`{"model":"m","policy":"random"}`, "", 401, "Bearer TOKEN"},
		{`{"model":"m","policy":"nobody"}`, adminToken, 400, `policy: \"nobody\" is none`},
		{`{"model":"x","policy":"random"}`, adminToken, 404, `model: there is no`},
		{`{"model":"m","pool":"x","policy":"random"}`, adminToken, 404, `pool: model \"m\" has no \"x\"`},
	} {
		if status, text := r.operate(x.bearer, "/v1/shadow", x.body); status != x.status || !strings.Contains(text, x.want) {
			t.Errorf("%s: %d %s", x.body, status, text)
		}
	}
	if tally() != nil {
		t.Fatalf("a shadow that nobody switched on: %+v", tally())
	}
	if status, text := r.operate(adminToken, "/v1/shadow", `{"model":"m","policy":"least-outstanding"}`); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	s := &tapped{want: true}
	r.gateway.Tap(s.tap())
	for range 10 {
		r.post(chatPath, unstreamed)
	}
	r.settle()
	if x := tally(); x == nil || x.Policy != "least-outstanding" || x.Picks != 10 || len(x.Reasons) != 1 || x.Reasons[0].Reason != "fewest" || x.Reasons[0].Picks != 10 {
		t.Errorf("tally %+v", x)
	}
	agreed := int64(0)
	for _, d := range s.decided {
		v := d.View()
		if v.Shadow == nil || v.Shadow.Policy != "least-outstanding" || v.Policy != "round-robin" {
			t.Fatalf("decision %+v", v)
		}
		if v.Shadow.Agrees {
			agreed++
		}
	}
	if agreed != tally().Agreed {
		t.Errorf("%d decisions agree, the tally says %d", agreed, tally().Agreed)
	}
	if status, _ := r.operate(adminToken, "/v1/shadow", `{"model":"m","policy":""}`); status != 200 || tally() != nil {
		t.Errorf("off: %d, %+v", status, tally())
	}
}
