package lab

import (
	"math"
	"testing"
)

// TestLayers_AreCountedWhole: what the layers above send is what the article's arithmetic says
// where all fails, and every call of a user that is answered is so once.
func TestLayers_AreCountedWhole(t *testing.T) {
	x := amplificationLab().settings().(*amplification)
	x.steady, x.seconds = 1, 5 // nothing is answered in any phase
	for i, way := range x.layerings() {
		var users, calls, attempts, answered float64
		for _, a := range x.layer(way, 20, 1) {
			users, calls, attempts, answered = users+a.users, calls+a.calls, attempts+a.attempts, answered+a.answered
		}
		if users < 100 || answered != 0 {
			t.Fatalf("%s: %v calls of users, %v answered", way.name, users, answered)
		}
		if most := float64(x.sdk * x.tool); calls/users > most || !way.listens && calls != users*most {
			t.Errorf("%s: %v calls of one of a user, want %v", way.name, calls/users, most)
		}
		if i == withoutOne && attempts/calls < 2.95 {
			t.Errorf("%s: %v attempts a call, want the ceiling's 3 of nearly each", way.name, attempts/calls)
		}
		if way.budget && attempts > calls+10*(3*float64(x.seconds)+20) {
			t.Errorf("%s: %v attempts for %v calls are more than a floor of 10 a second allows", way.name, attempts, calls)
		}
	}
	x.steady = 0
	if a := x.layer(x.layerings()[asItIs], 20, 1)[steadyPhase]; a.answered != a.users || a.calls != a.users || a.attempts != a.calls {
		t.Errorf("without failures: %+v", a)
	}
}

// TestLayers_AQuietGatewayMultipliesOnlyWhatItDoesNotKnow: the article's two layers of three
// come to 3 + 1 + 1 attempts where the second and third are known to come again, else to 9.
func TestLayers_AQuietGatewayMultipliesOnlyWhatItDoesNotKnow(t *testing.T) {
	x := amplificationLab().settings().(*amplification)
	x.steady, x.seconds = 1, 60
	rows := x.quietLayerings()
	for row, want := range map[int]float64{deafClients: 5. / 3, withoutOne: 3} {
		var calls, attempts float64
		for _, a := range x.layer(rows[row], 0.05, 3) {
			calls, attempts = calls+a.calls, attempts+a.attempts
		}
		if got := attempts / calls; calls == 0 || math.Abs(got-want) > 0.1 {
			t.Errorf("%s: %v attempts a call over %v calls, want about %v", rows[row].name, got, calls, want)
		}
	}
}
