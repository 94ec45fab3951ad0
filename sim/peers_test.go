package sim

import (
	"reflect"
	"testing"
	"time"

	"kvasir/gateway/flow"
)

// sharingScenario has four gateways that tell each other what they send.
func sharingScenario(t testing.TB, rule string) Scenario {
	s := testScenario(t, rule, 4)
	s.Workload.Rate = 8
	s.Gateways, s.Sharing = 4, flow.DefaultSharing(0)
	return s
}

// TestSharing_GatewaysChooseAsOne: with fresh news four gateways find as much in caches, and
// answer about as soon, as one does; without any they do not.
func TestSharing_GatewaysChooseAsOne(t *testing.T) {
	s := sharingScenario(t, "predicted-ttft")
	shared := mustRun(t, s)
	s.Sharing = flow.Sharing{}
	alone := mustRun(t, s)
	s.Gateways = 1
	one := mustRun(t, s)
	t.Logf("cached: one %.3f, shared %.3f, alone %.3f; mean TTFT: %.3f, %.3f, %.3f s",
		one.CachedRatio, shared.CachedRatio, alone.CachedRatio, one.TTFT.Mean, shared.TTFT.Mean, alone.TTFT.Mean)
	if shared.CachedRatio < 0.95*one.CachedRatio || shared.TTFT.Mean > 1.1*one.TTFT.Mean {
		t.Error("four gateways that share do not choose as one")
	}
	if alone.TTFT.Mean < 1.1*shared.TTFT.Mean {
		t.Error("four gateways that do not share are as good: the workload shows nothing")
	}
}

// TestSharing_IsDeterministic, with delay and loss.
func TestSharing_IsDeterministic(t *testing.T) {
	s := sharingScenario(t, "cache-aware")
	s.PeerDelay, s.PeerLoss = 30*time.Millisecond, 0.3
	a := mustRun(t, s)
	again := sharingScenario(t, "cache-aware")
	again.PeerDelay, again.PeerLoss = s.PeerDelay, s.PeerLoss
	if b := mustRun(t, again); !reflect.DeepEqual(a, b) {
		t.Error("the same scenario gives another result")
	}
	again.PeerLoss = 0
	again.Params = nil
	if b := mustRun(t, again); reflect.DeepEqual(a, b) {
		t.Error("losing three words of ten changes nothing")
	}
}

// TestSharing_OldNewsDoesNotHerd: what is two seconds old makes no rule worse than to hear
// nothing.
func TestSharing_OldNewsDoesNotHerd(t *testing.T) {
	for _, rule := range []string{"least-outstanding", "cache-aware", "predicted-ttft"} {
		s := sharingScenario(t, rule)
		s.PeerDelay = 2 * time.Second
		old := mustRun(t, s)
		s.Sharing = flow.Sharing{}
		alone := mustRun(t, s)
		t.Logf("%s: mean TTFT: %.3f s with old news, %.3f s alone", rule, old.TTFT.Mean, alone.TTFT.Mean)
		if old.TTFT.Mean > 1.1*alone.TTFT.Mean {
			t.Errorf("%s: old news makes gateways herd", rule)
		}
	}
}

// TestSharing_WhatIsOnItsWayIsNotKnown: what comes after the last call changes nothing.
func TestSharing_WhatIsOnItsWayIsNotKnown(t *testing.T) {
	s := sharingScenario(t, "predicted-ttft")
	s.PeerDelay = time.Hour
	late := mustRun(t, s)
	s.Sharing = flow.Sharing{}
	if alone := mustRun(t, s); late.TTFT != alone.TTFT || late.CachedRatio != alone.CachedRatio {
		t.Errorf("mean TTFT %v, %v cached with news that comes too late, %v and %v without", late.TTFT.Mean, late.CachedRatio, alone.TTFT.Mean, alone.CachedRatio)
	}
}
