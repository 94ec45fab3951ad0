package lab

import "testing"

// TestHerding_ByHand: one corrected router, or one that scrapes every tick, deals single
// arrivals to two replicas in turn, and nothing ends: the skew is 1, 0, 1, 0, ...
func TestHerding_ByHand(t *testing.T) {
	want := herding{peak: 1, mean: 0.5, oscillation: 1, pileUp: 100}
	for _, f := range []struct {
		scrape, rule int
	}{{1000, ownDispatches}, {1, staleView}, {1, ownDispatches}} {
		x := freshness{replicas: 2, routers: 1, scrape: f.scrape, arrivals: 1, service: 1000, ticks: 8}
		got := x.play(x.herdOf(f.rule), 1, false, nil)
		if got != want {
			t.Errorf("scrape every %d ticks, %s: %+v, want %+v", f.scrape, x.names()[f.rule], got, want)
		}
	}
}

// TestHerding_RequestsEnd: what arrives in a tick is gone a service time later, so a service
// of one tick leaves only this tick's arrivals.
func TestHerding_RequestsEnd(t *testing.T) {
	x := freshness{replicas: 3, routers: 2, scrape: 7, arrivals: 2, service: 1, ticks: 200}
	if got := x.play(x.herdOf(staleView), 1, false, nil); got.peak > 2 {
		t.Errorf("%+v, want a skew of at most the 2 arrivals", got)
	}
	x.service = 5
	if got := x.play(x.herdOf(staleView), 1, false, nil); got.peak > 10 {
		t.Errorf("%+v, want a skew of at most the 10 requests in flight", got)
	}
}

// TestHerding_TheOscillationPersists: twenty times as long a run is no calmer.
func TestHerding_TheOscillationPersists(t *testing.T) {
	short := freshness{replicas: 5, routers: 4, scrape: 10, arrivals: 2, service: 17, ticks: 90}
	long := short
	long.ticks = 1800
	a, b := average(short.repeat(staleView, DefaultSeeds, false).mean), average(long.repeat(staleView, DefaultSeeds, false).mean)
	if b < 0.9*a {
		t.Errorf("mean skew is %v over 90 ticks and %v over 1,800", a, b)
	}
}

// TestHerding_TheArticlesRowsAreItsOwn, whatever the setting is.
func TestHerding_TheArticlesRowsAreItsOwn(t *testing.T) {
	for _, choices := range []string{"1", "2", "3"} {
		r, err := freshnessLab().Run(Options{Settings: []Setting{{"choices", choices}}, Seeds: 1})
		if err != nil {
			t.Fatal(err)
		}
		if got := tableOf(t, r, "article").Rows[twoRandom][0].String(); got != "two random replicas" {
			t.Errorf("choices %s: the article's row is %q", choices, got)
		}
	}
}
