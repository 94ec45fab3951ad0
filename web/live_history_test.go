package web

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/gateway/proxy"
)

// TestHistory_IsWhatWasLookedAt looks at pools whose endpoints come and go, now and then late,
// and compares with a list of all looks.
func TestHistory_IsWhatWasLookedAt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		began := time.Unix(1e9, 0)
		h := newHistory(began)
		type look struct {
			tick     int
			inFlight map[string]int
			rate     float64
		}
		var looks []look
		tick := 0
		for range rapid.IntRange(1, 25).Draw(t, "looks") {
			l := look{tick: tick, inFlight: map[string]int{}, rate: float64(rapid.IntRange(0, 100).Draw(t, "rate"))}
			var endpoints []proxy.EndpointView
			for _, name := range []string{"a", "b", "c"} {
				if !rapid.Bool().Draw(t, name) {
					continue
				}
				n := rapid.IntRange(0, 9).Draw(t, "in flight")
				l.inFlight[name] = n
				endpoints = append(endpoints, proxy.EndpointView{Endpoint: name, InFlight: n})
				if rapid.IntRange(0, 5).Draw(t, "another one of the name leaves") == 0 {
					endpoints = append(endpoints, proxy.EndpointView{Endpoint: name, InFlight: 1, Leaving: true})
					l.inFlight[name]++
				}
			}
			looks = append(looks, l)
			h.add(began.Add(time.Duration(tick)*time.Second+time.Duration(rapid.IntRange(-200, 200).Draw(t, "ms"))*time.Millisecond),
				[]proxy.ModelView{{Model: "m", Pools: []proxy.PoolView{{Pool: "p", Endpoints: endpoints}}}},
				func(string) LivePoint { return LivePoint{PerSecond: l.rate} })
			tick += rapid.SampledFrom([]int{1, 1, 1, 2, 5, LivePoints / 2, 2 * LivePoints}).Draw(t, "seconds")
		}
		last := looks[len(looks)-1]
		v := h.view(began)
		if want := min(last.tick+1, LivePoints); v.Points != want {
			t.Fatalf("%d points, want %d", v.Points, want)
		}
		// By definition: an endpoint's series begins anew where a look has missed it.
		expect := func(value func(look) (float64, bool)) Numbers {
			out := make(Numbers, v.Points)
			for i := range out {
				out[i] = math.NaN()
			}
			for i := len(looks) - 1; i >= 0; i-- {
				x, there := value(looks[i])
				if !there {
					break
				}
				if at := looks[i].tick - last.tick + v.Points - 1; at >= 0 {
					out[at] = x
				}
			}
			return out
		}
		m := v.Models[0]
		same(t, "rate", m.PerSecond, expect(func(l look) (float64, bool) { return l.rate, true }))
		if len(m.Pools[0].Endpoints) != len(last.inFlight) {
			t.Fatalf("%d endpoints, want %d", len(m.Pools[0].Endpoints), len(last.inFlight))
		}
		for _, e := range m.Pools[0].Endpoints {
			same(t, e.Endpoint, e.InFlight, expect(func(l look) (float64, bool) { n, there := l.inFlight[e.Endpoint]; return float64(n), there }))
		}
	})
}

func same(t *rapid.T, what string, got, want Numbers) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Fatalf("%s: %s\nwant %s", what, g, w)
	}
}
